"""Embedded: what a commit costs on a board that holds much already, when little of it changed."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, Run, require
from crdt_board import Board, BoardModel, Text, open_board

_RECORDS = 1_000
_NOTE_CHARS = 100
_PAGE_CHARS = 500_000
_COMMITS = 20


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
            milliseconds.append(await _commit(board))
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
            milliseconds.append(await _commit(board))
        require(board.snapshot().status == f"draft {_COMMITS - 1}", "a change is missing")
    return milliseconds


async def _commit(board: Board[Any]) -> float:
    began = time.perf_counter()
    await board.commit("step")
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Embedded: a commit after a small change of a large board", argparse.ArgumentParser(), repeat=5)
    records: list[float] = []
    scalars: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(run.options.repeat):
            run.progress(f"round {number + 1} of {run.options.repeat}")
            records += asyncio.run(change_a_record(Path(folder) / f"records-{number}.db"))
            scalars += asyncio.run(change_a_scalar(Path(folder) / f"scalars-{number}.db"))
    run.finish(
        [
            Figure(f"one field of one record among {_RECORDS:,}", "ms", records),
            Figure("one scalar beside 1 MB of others", "ms", scalars),
        ],
        ["the change is durable before; every board is in a new file of its own, synchronous=FULL"],
    )


if __name__ == "__main__":
    main()
