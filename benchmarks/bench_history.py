"""Embedded: old versions of a large board, and squashing a long journal under a live writer."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench_automerge_paper import Trace
from benchmarks.harness import Figure, Run, percentile, require, run_program
from crdt_board import Board, BoardHost, BoardModel, Counter, Text, open_board
from crdt_board.history import BoardHistory, Retention
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.journals import JournalWriter, make_board

_CHECKPOINTS_AT_ONCE = 1_000
_EDITS_TOGETHER = 2
_PAUSE_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is written and read. ``edits`` None is the whole recording, ``reads`` how often each thing is read."""

    versions: int
    board_bytes: int
    read_at_random: int
    reads: int
    checkpoints: int
    edits: int | None
    calm_seconds: float
    """For how long somebody writes before, and half of it after, a journal is squashed."""


FULL = Scale(10_000, 1_000_000, 100, 20, 200_000, None, 1.0)
QUICK = Scale(50, 50_000, 3, 2, 2_000, 400, 0.1)


class Report(BoardModel):
    """A large board of which commits change one field."""

    status: str = ""
    draft: Text
    notes: dict[str, str] = {}


class Paper(BoardModel):
    """The recorded text, and what the live writer counts meanwhile."""

    text: Text
    ticks: Counter


@dataclass(slots=True)
class Samples:
    """What was measured, in the units of the figures below."""

    commits: list[float] = field(default_factory=list)
    commit_bytes: list[float] = field(default_factory=list)
    forks: list[float] = field(default_factory=list)
    old_forks: list[float] = field(default_factory=list)
    latest: list[float] = field(default_factory=list)
    latest_stored: list[float] = field(default_factory=list)
    versions: list[float] = field(default_factory=list)
    slowest: list[float] = field(default_factory=list)
    pages: list[float] = field(default_factory=list)
    stalls: dict[str, list[float]] = field(default_factory=dict)
    squashing: dict[str, list[float]] = field(default_factory=dict)
    bytes_an_edit: list[float] = field(default_factory=list)


def words(seeded: random.Random, size: int) -> str:
    """Text of about so many bytes that compresses like prose."""
    vocabulary = ["".join(seeded.choices(string.ascii_lowercase, k=seeded.randint(2, 9))) for _ in range(5_000)]
    return " ".join(seeded.choices(vocabulary, k=size // 6))[:size]


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds that ``work`` takes."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1e3


async def measure_versions(file: Path, scale: Scale, samples: Samples, run: Run) -> None:
    """Many commits of one field on a large board, then reading them back."""
    seeded = random.Random(1)
    store = await SqliteStore.open(file)
    async with BoardHost(store) as host, open_board(host, "report", Report, agent="writer") as board:
        board.state.draft.append(words(seeded, scale.board_bytes // 2))
        for number in range(500):
            board.state.notes[f"note {number}"] = words(seeded, scale.board_bytes // 1000)
        await board.commit("write")
    before = _size(file)
    store = await SqliteStore.open(file)
    async with BoardHost(store) as host, open_board(host, "report", Report, agent="writer") as board:
        commits: list[float] = []
        for number in range(2, scale.versions + 1):
            commits.append(await timed(partial(board.commit, "step", patch={"status": f"step {number}"})))
            if number % 500 == 0:
                run.progress(f"{number:,} versions")
        samples.commits += commits
        samples.latest += [await timed(lambda: _now(board)) for _ in range(scale.reads)]
        history = await BoardHistory.open(store, "report")
        samples.latest_stored += [await timed(lambda: history.state(None)) for _ in range(scale.reads)]
        wanted = [seeded.randint(1, scale.versions) for _ in range(scale.read_at_random)]
        # One entry is one version here; right before a snapshot it is farthest to the one before.
        wanted += [max(1, seq - 2) for seq in await store.snapshot_seqs("report")]
        reads = [await timed(partial(history.state_at, version)) for version in wanted]
        samples.versions += reads
        samples.slowest.append(max(reads))
    samples.commit_bytes.append((_size(file) - before) / scale.versions)
    store = await SqliteStore.open(file)
    async with BoardHost(store) as host, open_board(host, "report", Report, agent="writer") as board:
        for number in range(scale.reads):
            samples.forks.append(await timed(partial(board.fork, f"newest-{number}")))
            old = seeded.randint(1, scale.versions)
            samples.old_forks.append(await timed(partial(board.fork, f"old-{number}", at=old)))


async def _now(board: Board[Report]) -> None:
    require(bool(board.snapshot().status), "the board is empty")


async def measure_page(file: Path, scale: Scale, samples: Samples, run: Run) -> None:
    """The first page of very many checkpoints."""
    store = await SqliteStore.open(file, synchronous="OFF")
    writer = JournalWriter(await make_board(store))
    for start in range(0, scale.checkpoints, _CHECKPOINTS_AT_ONCE):
        made = [writer.commit("step", b"x") for _ in range(_CHECKPOINTS_AT_ONCE)]
        whole = replace(
            made[0],
            entries=[entry for each in made for entry in each.entries],
            checkpoints=[checkpoint for each in made for checkpoint in each.checkpoints],
        )
        await store.append([whole])
        run.progress(f"{start:,} checkpoints")
    await store.close()
    store = await SqliteStore.open(file)
    for _ in range(scale.reads):
        samples.pages.append(await timed(lambda: store.checkpoints("job", limit=100)))
    await store.close()


async def type_paper(file: Path, trace: Trace, run: Run) -> None:
    """The recorded paper, an entry for every two edits, without a sync for each."""
    each = _EDITS_TOGETHER
    store = await SqliteStore.open(file, synchronous="OFF")
    async with BoardHost(store) as host, open_board(host, "paper", Paper, agent="author") as board:
        for start in range(0, len(trace.edits), each):
            with board.transaction():
                for position, deleted, inserted in trace.edits[start : start + each]:
                    if deleted:
                        board.state.text.delete(position, position + deleted)
                    if inserted:
                        board.state.text.insert(position, inserted)
            await board.flush()
            if start % 10_000 < each:
                run.progress(f"{start:,} edits")
        require(str(board.state.text) == trace.end_content, "the board differs from the recorded text")
        await board.commit("end")


@contextlib.asynccontextmanager
async def live_writer(board: Board[Paper]) -> AsyncIterator[list[float]]:
    """Somebody who writes all the time: how many milliseconds each edit takes to be durable."""
    waits: list[float] = []
    stop = asyncio.Event()

    async def tick() -> None:
        board.state.ticks += 1
        await board.flush()

    async def write() -> None:
        while not stop.is_set():
            waits.append(await timed(tick))
            await asyncio.sleep(_PAUSE_SECONDS)

    task = asyncio.create_task(write())
    try:
        yield waits
    finally:
        stop.set()
        await task


async def measure_squash(file: Path, scale: Scale, samples: Samples, trace: Trace, *, same_process: bool) -> None:
    """Squash the paper's journal while somebody writes the board."""
    name = "in the writer's process" if same_process else "by the command"
    store = await SqliteStore.open(file)
    async with BoardHost(store) as host, open_board(host, "paper", Paper, agent="writer") as board:
        async with live_writer(board) as waits:
            await asyncio.sleep(scale.calm_seconds)
            calm, began = len(waits), time.perf_counter()
            if same_process:
                await (await BoardHistory.open(store, "paper")).compact(Retention(keep_versions=1))
            else:
                await asyncio.to_thread(_compact, file)
            samples.squashing.setdefault(name, []).append(time.perf_counter() - began)
            await asyncio.sleep(scale.calm_seconds / 2)
        samples.stalls.setdefault("before, 99 of 100", []).append(percentile(sorted(waits[:calm]), 0.99))
        samples.stalls.setdefault(f"{name}, 99 of 100", []).append(percentile(sorted(waits[calm:]), 0.99))
        samples.stalls.setdefault(f"{name}, longest", []).append(max(waits[calm:]))
        require(str(board.state.text) == trace.end_content, "the squashed board differs from the recorded text")
        await board.commit("end")
        await (await BoardHistory.open(store, "paper")).compact(Retention(keep_versions=1))
        found = await board.verify()
        require(found.ok, str(found))
    samples.bytes_an_edit.append(_size(file) / len(trace.edits))


def _compact(file: Path) -> None:
    command = [sys.executable, "-m", "crdt_board_server", "compact", "paper", "--keep-versions", "1", "--db", str(file)]
    subprocess.run(command, check=True, capture_output=True)


def _size(file: Path) -> int:
    return sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*") if not path.name.endswith("-shm"))


async def measure(scale: Scale, samples: Samples, trace: Trace, run: Run) -> None:
    """One round of everything, each part on files of its own."""
    with tempfile.TemporaryDirectory() as folder:
        await measure_versions(Path(folder) / "versions.db", scale, samples, run)
        await measure_page(Path(folder) / "page.db", scale, samples, run)
        typed = Path(folder) / "paper.db"
        await type_paper(typed, trace, run)
        for same_process in (False, True):
            copy = Path(folder) / f"paper-{same_process}.db"
            copy.write_bytes(typed.read_bytes())
            await measure_squash(copy, scale, samples, trace, same_process=same_process)


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Embedded: old versions, and squashing a journal", argparse.ArgumentParser(), repeat=1)
    scale = QUICK if run.options.quick else FULL
    trace, samples = Trace.load(), Samples()
    if scale.edits is not None:
        trace = trace.first(scale.edits)
    for _ in range(run.options.repeat):
        asyncio.run(measure(scale, samples, trace, run))
    run.finish(
        [
            Figure(
                f"commit that changes one field of a board of {scale.board_bytes / 1e6:g} MB",
                "ms",
                samples.commits,
                at_most=5,
            ),
            Figure("the same: disk for each, after closing", "bytes", samples.commit_bytes, at_most=2_000),
            Figure("latest state of the open board", "ms", samples.latest, at_most=10),
            Figure("latest state from the store", "ms", samples.latest_stored),
            Figure(f"any of {scale.versions:,} versions", "ms", samples.versions, at_most=50),
            Figure("the same, the slowest of those read", "ms", samples.slowest, at_most=50),
            Figure("fork at the newest version", "ms", samples.forks, at_most=20),
            Figure("fork at any version", "ms", samples.old_forks),
            Figure(f"first page of {scale.checkpoints:,} checkpoints", "ms", samples.pages, at_most=100),
            *(
                Figure(f"squash of {len(trace.edits) // _EDITS_TOGETHER:,} entries {name}", "s", seconds)
                for name, seconds in samples.squashing.items()
            ),
            *(
                Figure(f"wait of a live writer: {name}", "ms", waits, at_most=100)
                for name, waits in samples.stalls.items()
            ),
            Figure("automerge-paper squashed: disk for an edit", "bytes", samples.bytes_an_edit, at_most=2),
        ],
        ["every squashed board verifies and holds the recorded text"],
    )


if __name__ == "__main__":
    run_program(main)
