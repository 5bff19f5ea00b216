"""Hostile clients against an engine: a program, because what it finds may end the process.

``python -m support.attack --count 200``, in ``tests``, makes that many attacks, each from its seed, and says which one
it is at. With ``--together`` several forge at once, beside honest clients, and what the journal adds up to afterwards
is compared: ``differs`` is said of an attack after which replicas may read different texts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import resource

import pycrdt

from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardError
from crdt_board.fold import Fold
from crdt_board.host import BoardHost
from crdt_board.loading import LoadedBoard, apply_entries
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import decode_state_vector
from support.forging import Forger, slices
from support.histories import LAYOUT

_ATTACK_SECONDS = 20.0
_STEPS = 12
_HONEST = 2**40
_HONEST_CLIENTS = 4
_FORGERS_MAX = 4
_ALL = 1_000_000
_READING_SECONDS = 60


class _KeptStore(MemoryStore):
    """Keeps its boards when a host closes it."""

    async def close(self) -> None:
        pass


def forged_updates(forger: Forger, known: dict[int, int]) -> list[bytes]:
    """A few updates of one peer: forged, perhaps as one, or one client's text in overlapping pieces."""
    if forger.source.random() < 0.2:
        return slices(forger.source, 7)
    forged = [forger.update(known) for _ in range(3)]
    if forger.source.random() < 0.3:
        with contextlib.suppress(ValueError):
            return [pycrdt.merge_updates(*forged)]
    return forged


async def attack(seed: int, *, deletions: float) -> None:
    """Forged updates between those of an honest client, of which none may be lost.

    Raises:
        AssertionError: the engine stopped, or what the honest client wrote is not there.
    """
    forger, honest = Forger(random.Random(seed), deletions=deletions), Document(LAYOUT, client_id=_HONEST)
    async with BoardHost(MemoryStore()) as host, host.board("job") as engine:
        await engine.join(LAYOUT)
        for step in range(_STEPS):
            known = decode_state_vector(await engine.read(Document.state_vector))
            known.pop(_HONEST, None)  # what it writes may be overwritten, like anything else
            for update in forged_updates(forger, known):
                await _send(engine, update, "forger", is_difference=forger.source.random() < 0.2)
            written = honest.capture(lambda: honest.map("scores").update({f"honest-{step}": step}))  # noqa: B023
            receipt = await _send(engine, written, "honest")
            assert receipt is not None, "the honest client is refused"
            assert (receipt.error, receipt.first_unready) == (None, None), receipt
        whole = await engine.read(Document.encode)
    newcomer = Document(LAYOUT, strays=True)
    newcomer.apply_or_raise([whole])
    scores = newcomer.wire_state()["scores"]
    assert isinstance(scores, dict)
    lost = [step for step in range(_STEPS) if scores.get(f"honest-{step}") != step]
    assert not lost, f"what was acknowledged is lost: {lost}"


async def attack_together(seed: int, *, deletions: float) -> bool:
    """One to four forging clients and four honest ones, who all write within one turn of the loop, again and again.

    Returns whether all ways to load the board lead to the state that it had.

    Raises:
        AssertionError: the engine stopped, an honest client is refused, or what it wrote is not there any more after
            the board was opened again, from its snapshot or from its journal alone.
        BoardCorrupt: the board cannot be opened again.
    """
    source = random.Random(seed)
    forgers = [
        Forger(random.Random(f"{seed}-{n}"), deletions=deletions) for n in range(source.randint(1, _FORGERS_MAX))
    ]
    honest = [Document(LAYOUT, client_id=_HONEST + n) for n in range(_HONEST_CLIENTS)]
    store, written = _KeptStore(), set[str]()
    async with BoardHost(store) as host, host.board("job") as engine:
        await engine.join(LAYOUT)
        for step in range(_STEPS):
            known = decode_state_vector(await engine.read(Document.state_vector))
            for writer in honest:
                known.pop(writer.client_id, None)
            turn = [
                (f"forger {number}", update, forger.source.random() < 0.2)
                for number, forger in enumerate(forgers)
                for update in forged_updates(forger, known)
            ]
            for number, writer in enumerate(honest):
                key = f"honest-{number}-{step}"
                update = writer.capture(lambda: writer.map("scores").update({key: 1}))  # noqa: B023
                turn.append((key, update, False))
                written.add(key)
            source.shuffle(turn)
            sent = [_send(engine, update, who, is_difference=whole) for who, update, whole in turn]
            for (who, *_), receipt in zip(turn, await asyncio.gather(*sent), strict=True):
                assert who not in written or (receipt and receipt.error is receipt.first_unready is None), (
                    who,
                    receipt,
                )
        live = await engine.read(Document.checksum)
        states = [await engine.read(Document.wire_state)]
        whole = await engine.read(Document.encode)
    async with BoardHost(store) as host, host.board("job") as engine:
        found = [await engine.read(Document.checksum)]
        states.append(await engine.read(Document.wire_state))
    head = await store.head("job")
    assert head is not None
    for update in (whole, None):
        loaded = LoadedBoard(document=Document(LAYOUT, strays=True), fold=Fold(epoch=head.epoch))
        if update is not None:
            loaded.document.apply_or_raise([update])
        else:
            apply_entries(loaded, await store.entries("job", after=0, limit=_ALL), is_apart=True)
        found.append(loaded.document.checksum())
        states.append(loaded.document.wire_state())
    # A forger may put something else in place of the whole field, as anybody may.
    kept = [written & set(state.get("scores") or {}) for state in states]  # type: ignore[call-overload]
    assert kept[1:] == kept[:-1], "what was acknowledged is lost"
    return set(found) == {live}


async def _send(engine: Engine, update: bytes, source: str, *, is_difference: bool = False) -> Receipt | None:
    """The receipt; None when it is refused at once."""
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    try:
        engine.submit(
            Submission(
                updates=[update],
                author=source,
                source=source,
                origin=source,
                written=told.set_result,
                is_difference=is_difference,
            )
        )
    except BoardError:
        return None
    return await told


def main() -> None:
    """Attack an engine in this process."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    parser.add_argument("--deletions", type=float, default=0.4, help="how many of the forged updates delete something")
    parser.add_argument("--together", action="store_true", help="several forge at once, beside honest ones")
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.count):
        print(f"attack {seed}", flush=True)
        if not options.together:
            asyncio.run(asyncio.wait_for(attack(seed, deletions=options.deletions), _ATTACK_SECONDS))
            continue
        _end_after_seconds_of_work(_READING_SECONDS)
        if not asyncio.run(attack_together(seed, deletions=options.deletions)):
            print(f"attack {seed} differs", flush=True)


def _end_after_seconds_of_work(seconds: int) -> None:
    """End the process when it works longer from now on: reading what hostile clients made may never end."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


if __name__ == "__main__":
    main()
