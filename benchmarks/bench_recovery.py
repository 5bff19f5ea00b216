"""Recovery: from the start of a process to its first answer, by the length of the journal that was left behind."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pycrdt

from benchmarks import long_journals
from benchmarks.harness import Figure, Run, in_fresh_process, require, run_program
from benchmarks.long_journals import BOARD, Past
from benchmarks.reporting import Plot, Table
from benchmarks.servers import board_server
from benchmarks.stock import stock_client
from crdt_board import open_board
from crdt_board.limits import DEFAULT_LIMITS

_LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
_TAIL = 1_000
_OPEN_SECONDS = 120.0

Kinds = dict[str, list[tuple[int, Path]]]
"""For each way in which a process can have ended: lengths, and a file with a journal of that length."""


def open_once(file: str, length: str) -> dict[str, float]:
    """Seconds from `open_board` to a state that was read; for a process of its own."""
    return asyncio.run(_open_once(Path(file), int(length)))


async def _open_once(file: Path, length: int) -> dict[str, float]:
    began = time.perf_counter()
    async with open_board(file, BOARD, Past, agent="first") as board:
        scores = board.snapshot().scores
        seconds = time.perf_counter() - began
    _check_newest(scores, length)
    return {"open": seconds}


def _check_newest(scores: Mapping[str, float], length: int) -> None:
    key, value = long_journals.newest_edit(length)
    require(scores.get(key) == value, f"the last of {length:,} entries is not in the board that was read")


async def serve_once(file: Path, length: int) -> tuple[float, float]:
    """Seconds from the start of a server's process until it listens, and until a client has the board from it."""
    began = time.perf_counter()
    async with board_server(file, pin=False, kill=True) as port:
        listening = time.perf_counter() - began
        async with stock_client(port, BOARD, open_seconds=_OPEN_SECONDS) as client:
            answered = time.perf_counter() - began
            _check_newest(client.doc.get("scores", type=pycrdt.Map).to_py() or {}, length)
    return listening, answered


async def make_files(folder: Path, lengths: Sequence[int], run: Run) -> Kinds:
    """Journals that a killed process left: without a snapshot, and with one 1,000 entries before the end."""
    bare: list[tuple[int, Path]] = []
    saved: list[tuple[int, Path]] = []
    growing, edits, length = folder / "growing.db", long_journals.edits(), 0
    await long_journals.make(growing)
    for wanted in lengths:
        run.progress(f"making a journal of {wanted:,} entries")
        await long_journals.append_updates(growing, edits, wanted - _TAIL - length)
        before = _copy(growing, folder / f"saved-{wanted}.db")
        await long_journals.append_updates(growing, edits, _TAIL)
        length = wanted
        bare.append((wanted, _copy(growing, folder / f"bare-{wanted}.db")))
        require(not await long_journals.snapshot_seqs(growing), "a journal without a snapshot has one")
        if wanted == _TAIL:
            continue  # nothing is before the snapshot
        run.progress(f"saving a snapshot of {wanted:,} entries")
        await long_journals.snapshot(before)
        await _append_the_same(before, growing)
        require(await long_journals.snapshot_seqs(before) == [wanted - _TAIL], "the snapshot is somewhere else")
        saved.append((wanted, before))
    return {"no snapshot": bare, "snapshot, 1,000 entries after it": saved}


async def _append_the_same(target: Path, source: Path) -> None:
    """What the journal of ``source`` has at its end, at the end of ``target``."""
    await long_journals.append_updates(target, await long_journals.last_updates(source, _TAIL), _TAIL)


@contextlib.asynccontextmanager
async def scratch(file: Path) -> AsyncIterator[Path]:
    """A copy, because whoever opens a board leaves a snapshot behind."""
    with tempfile.TemporaryDirectory() as folder:
        yield _copy(file, Path(folder) / "board.db")


def _copy(file: Path, target: Path) -> Path:
    shutil.copyfile(file, target)
    return target


async def measure(kinds: Kinds, samples: dict[str, dict[tuple[str, int], list[float]]], run: Run) -> None:
    for kind, files in kinds.items():
        for length, file in files:
            run.progress(f"{length:,} entries, {kind}")
            async with scratch(file) as copy:
                took = await asyncio.to_thread(in_fresh_process, "bench_recovery", "open_once", copy, length)
            async with scratch(file) as copy:
                listening, answered = await serve_once(copy, length)
            values = {"embedded": took["open"], "server listens": listening, "server answers": answered}
            for name, seconds in values.items():
                samples.setdefault(name, {}).setdefault((kind, length), []).append(seconds)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--longest", type=int, default=_LENGTHS[-1], metavar="N", help=f"entries at most; {_LENGTHS[-1]:,} unless told"
    )
    run = Run.begin("Recovery: from the start of a process to its first answer", parser, repeat=3)
    longest = min(run.options.longest, _LENGTHS[1]) if run.options.quick else run.options.longest
    lengths = [length for length in _LENGTHS if length <= longest]
    if not lengths:
        parser.error(f"the shortest journal has {_LENGTHS[0]} entries")
    samples: dict[str, dict[tuple[str, int], list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kinds = asyncio.run(make_files(Path(folder), lengths, run))
        for _ in range(run.options.repeat):
            asyncio.run(measure(kinds, samples, run))
    figures = [
        Figure(f"{name}: {length:,} entries, {kind}", "s", seconds)
        for name, by_length in samples.items()
        for (kind, length), seconds in by_length.items()
    ]
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, by_length in samples.items():
        for (kind, length), seconds in by_length.items():
            lines.setdefault(f"{name}, {kind}", []).append((length, Figure("", "s", seconds).median))
    facts = [
        "embedded: from open_board to the state being read, in a new process, imports left out",
        "server: from the start of the process, Python and imports included, to a Yjs client having the board",
        "files are in the system's cache; a board in use saves a snapshot every "
        f"{DEFAULT_LIMITS.snapshot_every_entries:,} entries",
    ]
    rows = {
        f"{length:,} entries, {kind}": [by_length[kind, length] for by_length in samples.values()]
        for kind, files in kinds.items()
        for length, _ in files
    }
    table = Table("Seconds by entries of the journal", list(samples), rows)
    run.finish(figures, facts, [Plot("time", "From start to first answer", "entries", "s", lines)], [table])


if __name__ == "__main__":
    run_program(main)
