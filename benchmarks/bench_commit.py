"""Embedded: what a commit costs on a board that holds much already, when little of it changed; and beside its floor."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import pycrdt

from benchmarks.harness import Figure, Run, require, run_program
from crdt_board import BoardModel, Text, open_board

_RECORDS = 1_000
_NOTE_CHARS = 100
_PAGE_CHARS = 500_000
_COMMITS = 20
_FIELD_COMMITS = 200


class Finding(BoardModel):
    """A record of the size that agents fill in."""

    title: str = ""
    severity: int = 0
    notes: Text
    tags: set[str]


class Review(BoardModel):
    """A board of many records."""

    status: str = "new"
    findings: dict[str, Finding]


class Job(BoardModel):
    """A board as a small job has it."""

    status: str = "new"


class Report(BoardModel):
    """A board of a few large values."""

    status: str = "new"
    page: str = ""
    appendix: str = ""


async def change_a_record(file: Path) -> list[float]:
    """Milliseconds of each commit that follows a change of one field of one record."""
    async with open_board(file, "review", Review, agent="reviewer") as board:
        for number in range(_RECORDS):
            board.state.findings[f"f{number}"] = Finding(
                title=f"finding {number}", notes=Text("n" * _NOTE_CHARS), tags={"new"}
            )
        await board.commit("collect")
        milliseconds: list[float] = []
        for number in range(_COMMITS):
            board.state.findings[f"f{number}"].severity = 5
            await board.flush()
            milliseconds.append(await _milliseconds(board.commit("step")))
        require(board.snapshot().findings["f7"].severity == 5, "a change is missing")
    return milliseconds


async def change_a_scalar(file: Path) -> list[float]:
    """Milliseconds of each commit that follows a change of one small scalar beside 1 MB of others."""
    async with open_board(file, "report", Report, agent="writer") as board:
        board.state.page = board.state.appendix = "p" * _PAGE_CHARS
        await board.commit("write")
        milliseconds: list[float] = []
        for number in range(_COMMITS):
            board.state.status = f"draft {number}"
            await board.flush()
            milliseconds.append(await _milliseconds(board.commit("step")))
        require(board.snapshot().status == f"draft {_COMMITS - 1}", "a change is missing")
    return milliseconds


class BareJob:
    """The floor of a durable edit: a pycrdt map, and its updates in SQLite on another thread. No history, no checks."""

    def __init__(self, database: aiosqlite.Connection) -> None:
        self._database = database
        self._doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self._state = self._doc.get("state", type=pycrdt.Map)
        self._made: list[bytes] = []
        self._doc.observe(lambda event: self._made.append(event.update))

    async def assign(self, key: str, value: str) -> None:
        """Set a key. Durable on return: one insert is one synced transaction."""
        self._state[key] = value
        await self._database.execute("INSERT INTO updates (bytes) VALUES (?)", [self._made.pop()])

    async def is_stored(self) -> bool:
        """Whether what is in the file makes the same state."""
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        state = doc.get("state", type=pycrdt.Map)
        for (update,) in await self._database.execute_fetchall("SELECT bytes FROM updates ORDER BY id"):
            doc.apply_update(update)
        return str(state) == str(self._state)


@contextlib.asynccontextmanager
async def bare_job(file: Path) -> AsyncIterator[BareJob]:
    """A new file, with the guarantee that boards have."""
    async with aiosqlite.connect(file, isolation_level=None) as database:
        await database.execute("PRAGMA journal_mode = WAL")
        await database.execute("PRAGMA synchronous = FULL")
        await database.execute("CREATE TABLE updates (id INTEGER PRIMARY KEY, bytes BLOB)")
        yield BareJob(database)


async def change_a_field(file: Path, bare_file: Path, commits: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each commit that sets one field, and of each bare edit, in turn; every other time bare first."""
    ours: list[float] = []
    bares: list[float] = []
    async with open_board(file, "job", Job, agent="worker") as board, bare_job(bare_file) as bare:
        for number in range(commits):
            status = f"step {number}"
            pair: list[tuple[list[float], Callable[[], Awaitable[object]]]] = [
                (ours, partial(board.commit, "step", patch={"status": status})),
                (bares, partial(bare.assign, "status", status)),
            ]
            for samples, work in pair if number % 2 == 0 else pair[::-1]:
                samples.append(await _milliseconds(work()))
        require(board.version == commits, "a commit is missing")
        require(await bare.is_stored(), "a bare edit is missing")
    return ours, bares


async def _milliseconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Embedded: a commit after a small change of a large board", argparse.ArgumentParser(), repeat=5)
    records: list[float] = []
    scalars: list[float] = []
    fields: list[float] = []
    bares: list[float] = []
    ratios: list[float] = []
    commits = _COMMITS if run.options.quick else _FIELD_COMMITS
    with tempfile.TemporaryDirectory() as folder:
        for number in range(run.options.repeat):
            run.progress(f"round {number + 1} of {run.options.repeat}")
            records += asyncio.run(change_a_record(Path(folder) / f"records-{number}.db"))
            scalars += asyncio.run(change_a_scalar(Path(folder) / f"scalars-{number}.db"))
            ours, bare = asyncio.run(
                change_a_field(Path(folder) / f"fields-{number}.db", Path(folder) / f"bare-{number}.db", commits)
            )
            fields += ours
            bares += bare
            ratios.append(statistics.median(ours) / statistics.median(bare))
    run.finish(
        [
            Figure(f"one field of one record among {_RECORDS:,}", "ms", records),
            Figure("one scalar beside 1 MB of others", "ms", scalars),
            Figure("the only field, set by the commit", "ms", fields),
            Figure("bare: a pycrdt map set and a SQLite transaction", "ms", bares),
            Figure("that commit, times the bare", "x", ratios),
        ],
        [
            "the change of a large board is durable before; every board is in a new file of its own, synchronous=FULL",
            "the commit that sets the field and the bare edit are made in turn; the ratio is that of a round's medians",
        ],
    )


if __name__ == "__main__":
    run_program(main)
