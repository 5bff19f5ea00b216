"""A hostile client against an engine: a program, because what it finds may end the process.

``python -m support.attack --count 200``, in ``tests``, makes that many attacks, each from its seed, and says which one
it is at.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random

import pycrdt

from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardError
from crdt_board.host import BoardHost
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import decode_state_vector
from support.forging import Forger, slices
from support.histories import LAYOUT

_ATTACK_SECONDS = 20.0
_STEPS = 12
_HONEST = 2**40


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
    options = parser.parse_args()
    for seed in range(options.first, options.first + options.count):
        print(f"attack {seed}", flush=True)
        asyncio.run(asyncio.wait_for(attack(seed, deletions=options.deletions), _ATTACK_SECONDS))


if __name__ == "__main__":
    main()
