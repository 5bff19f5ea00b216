"""Micro: what each stage of one update costs by itself, so that a regression has an address."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pycrdt
from pydantic import Field

from benchmarks.harness import Figure, Run, require, run_program
from crdt_board import BoardModel, Text, open_board, wire
from crdt_board.audit import Audit
from crdt_board.checkpoints import GENESIS_HASH, encode_checkpoint, make_checkpoint
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.journal import make_entry, pack_updates
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.nesting import Nesting
from crdt_board.publishing import PublishedEntry
from crdt_board.store.contract import Append, Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.journals import JournalWriter, make_board
from crdt_board.updates import check_update
from crdt_board.verdicts import judged
from crdt_board_server.rooms import Room

_BATCH = 50
_UPDATES = 2_000
_MEMBERS = 10
_BOARDS = 64
_APPENDS = 200
_FIELD_BYTES = 1_000


class Checked(BoardModel):
    """Two kinds of small writes, each with a rule, and some more state."""

    draft: Text
    scores: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = {}
    status: str = ""
    notes: dict[str, str] = {}


@dataclass(slots=True)
class Stages:
    """Microseconds of each stage, one sample for each round."""

    samples: dict[str, list[float]] = field(default_factory=dict)

    def note(self, stage: str, seconds: float, count: int) -> None:
        self.samples.setdefault(stage, []).append(seconds / count * 1e6)

    def time(self, stage: str, work: Callable[[], Any], count: int) -> None:
        """``work`` does the stage ``count`` times. Of this thread alone: what neighbours take is left out."""
        began = time.thread_time()
        work()
        self.note(stage, time.thread_time() - began, count)


def insert(doc: pycrdt.Doc[Any], number: int) -> None:
    text = doc.get("draft", type=pycrdt.Text)
    text.insert(number % (len(text) + 1), "word ")


def put(doc: pycrdt.Doc[Any], number: int) -> None:
    doc.get("scores", type=pycrdt.Map)[f"key-{number % 100}"] = number


def updates_of(change: Callable[[pycrdt.Doc[Any], int], None], count: int) -> list[bytes]:
    """Updates of one peer, one for each change."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=1 << 40)
    updates: list[bytes] = []
    subscription = doc.observe(lambda event: updates.append(event.update))
    for number in range(count):
        change(doc, number)
    doc.unobserve(subscription)
    return updates


def batches(updates: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (updates[start : start + _BATCH] for start in range(0, len(updates), _BATCH))


def measure_updates(kind: str, updates: Sequence[bytes], stages: Stages) -> None:
    """From a frame to an audited document, and out again."""
    count = len(updates)
    pushes = [wire.encode_push(number, "writer", [update]) for number, update in enumerate(updates, 1)]
    stages.time(f"decode a frame, {kind}", lambda: [wire.decode_frame(push, DEFAULT_LIMITS) for push in pushes], count)
    stages.time(f"guard, {kind}", lambda: [check_update(update, DEFAULT_LIMITS) for update in updates], count)
    bare = _applied(updates, audited=False)
    checked = _applied(updates, audited=True)
    stages.note(f"apply, {_BATCH} in a transaction, {kind}", bare, count)
    stages.note(f"apply and audit, {_BATCH} in a transaction, {kind}", checked, count)
    stages.note(f"audit alone: the difference, {kind}", checked - bare, count)
    stages.time(
        f"encode for ours and for Yjs, {kind}",
        lambda: [(wire.encode_entry(1, "writer", [update]), wire.encode_update(update)) for update in updates],
        count,
    )
    members = [_Member("own" if number % 2 else "stock") for number in range(_MEMBERS)]
    shown = [PublishedEntry(_entry(update), [update], None, None) for update in updates]
    stages.time(f"publish to {_MEMBERS} members, {kind}", lambda: _publish(shown, members), count)


def _applied(updates: Sequence[bytes], *, audited: bool) -> float:
    """Seconds."""
    document, nesting = Document(Checked.board_layout()), Nesting()
    audit = Audit(document, DEFAULT_LIMITS)
    began = time.thread_time()
    for batch in batches(updates):
        if audited:
            audit.begin()
        problems = document.apply(batch)
        if audited:
            audit.end()
            nesting.check(document, batch, DEFAULT_LIMITS.nesting_depth_max)
            verdict = judged(document, audit, batch, lambda _field: False, lambda _cost: None)
            require(verdict is None, "a valid update was refused")
        require(not any(problems), "an update could not be applied")
    return time.thread_time() - began


class _Member:
    """Somebody in a room who reads at once."""

    is_full = False

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.received = 0

    def write(self, data: bytes) -> None:
        self.received += len(data)


def _publish(shown: Sequence[PublishedEntry], members: Sequence[Any]) -> None:
    # Nobody falls behind here, so limits are all that the room asks its engine for.
    room = Room(cast(Engine, SimpleNamespace(limits=DEFAULT_LIMITS)), None)
    for member in members:
        room.add(member)
    for entry in shown:
        room.published([entry])
    require(all(member.received for member in members), "nothing was published")


def measure_journal(updates: Sequence[bytes], stages: Stages) -> None:
    """What makes an entry and a checkpoint of an update."""
    count = len(updates)
    stages.time("chain an entry", lambda: [_entry(update) for update in updates], count)
    checkpoint = _checkpoint(1)
    versions = range(_APPENDS)
    stages.time("make a checkpoint", lambda: [_checkpoint(number + 1) for number in versions], _APPENDS)
    stages.time("encode a checkpoint", lambda: [encode_checkpoint(checkpoint) for _ in versions], _APPENDS)
    document = Document(Checked.board_layout())
    document.state_map["status"] = "new"
    for number in range(_FIELD_BYTES // 100):
        document.map("notes")[f"note-{number}"] = "n" * 90
    document.checksum()

    def change_and_sum() -> None:
        for number in versions:
            document.state_map["status"] = f"step {number}"
            document.take_touched()
            document.checksum()

    stages.time("checksum after a scalar was set, setting it included", change_and_sum, _APPENDS)


def _entry(update: bytes) -> Any:
    return make_entry(
        GENESIS_HASH,
        board_id="micro",
        epoch="epoch",
        seq=1,
        kind="update",
        author="writer",
        time_ms=1,
        paths=("draft",),
        checkpoint="",
        payload=pack_updates([update]),
    )


def _checkpoint(version: int) -> Any:
    return make_checkpoint(
        board_id="micro",
        epoch="epoch",
        version=version,
        seq=version,
        parent_hash=GENESIS_HASH,
        checksum=GENESIS_HASH,
        agent="writer",
        step="step",
        schema_version=1,
        time_ms=1,
        fields=("status",),
    )


async def measure_commits(stages: Stages) -> None:
    """A whole commit of one field, but for the disk, beside little and beside much that does not change."""
    for name, notes in {"10 kB": 100, "1 MB": 10_000}.items():
        async with open_board(":memory:", "micro", Checked, agent="writer") as board:
            await board.commit("start", patch={"notes": {f"note-{number}": "n" * 90 for number in range(notes)}})
            began = time.thread_time()
            for number in range(_APPENDS):
                await board.commit("step", patch={"status": f"step {number}"})
            stages.note(f"commit one field beside {name}, in memory", time.thread_time() - began, _APPENDS)


async def measure_appends(folder: Path, stages: Stages) -> None:
    """One entry, and one for each of many boards in one transaction: in memory, on disk unsynced, and synced."""
    stores: dict[str, Store] = {
        "in memory": MemoryStore(),
        "SQLite, not synced": await SqliteStore.open(folder / "unsynced.db", synchronous="OFF"),
        "SQLite, synced": await SqliteStore.open(folder / "synced.db"),
    }
    try:
        for name, store in stores.items():
            writer = JournalWriter(await make_board(store, "one"))
            single = [[writer.updates(b"x" * 30)] for _ in range(_APPENDS)]
            stages.note(f"append, one board, {name}", await _append_all(store, single), _APPENDS)
            writers = [JournalWriter(await make_board(store, f"many-{number}")) for number in range(_BOARDS)]
            rounds = _APPENDS // 10
            grouped = [[each.updates(b"x" * 30) for each in writers] for _ in range(rounds)]
            took = await _append_all(store, grouped)
            stages.note(f"append, each of {_BOARDS} boards together, {name}", took, rounds * _BOARDS)
    finally:
        for store in stores.values():
            await store.close()


async def _append_all(store: Store, requests: Sequence[Sequence[Append]]) -> float:
    """Seconds."""
    began = time.perf_counter()
    for request in requests:
        await store.append(request)
    return time.perf_counter() - began


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    run = Run.begin("Micro: the stages of one update", parser, repeat=9)
    stages = Stages()
    count = _BATCH * 2 if run.options.quick else _UPDATES
    kinds = {"text insert": updates_of(insert, count), "map set": updates_of(put, count)}
    for turn in range(run.options.repeat):
        run.progress(f"round {turn + 1} of {run.options.repeat}")
        for kind, updates in kinds.items():
            measure_updates(kind, updates, stages)
        measure_journal(kinds["text insert"], stages)
        asyncio.run(measure_commits(stages))
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure_appends(Path(folder), stages))
    facts = ["appends are in time that passed, everything else in time of the processor"]
    run.finish([Figure(stage, "µs", samples) for stage, samples in stages.samples.items()], facts)


if __name__ == "__main__":
    run_program(main)
