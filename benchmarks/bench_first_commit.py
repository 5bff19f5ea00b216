"""Embedded: from nothing to the first durable commit."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import argparse  # noqa: E402 - what importing takes is measured too
import asyncio  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

from benchmarks.harness import Figure, Run, in_fresh_process, require, run_program  # noqa: E402
from crdt_board import BoardModel, Text, open_board  # noqa: E402

_IMPORT_SECONDS = time.perf_counter() - _STARTED


class Job(BoardModel):
    """A board as a small job has it."""

    status: str = "new"
    plan: list[str] = []
    draft: Text


async def commit_first(file: Path) -> float:
    """Seconds from `open_board` on a file that is not there to the first commit being durable."""
    began = time.perf_counter()
    async with open_board(file, "job", Job, agent="planner") as board:
        checkpoint = await board.commit("plan", patch={"status": "planned", "plan": ["read", "write"]})
        seconds = time.perf_counter() - began
    require(checkpoint.version == 1, "the first commit is not version 1")
    return seconds


def first_of_process(file: str) -> dict[str, float]:
    """The first commit that a process makes, and what its imports took before."""
    return {"imports": _IMPORT_SECONDS, "commit": asyncio.run(commit_first(Path(file)))}


def main() -> None:
    """Run from the command line."""
    run = Run.begin(
        "Embedded: open_board on a new file to the first durable commit", argparse.ArgumentParser(), repeat=20
    )
    rounds = range(run.options.repeat)
    with tempfile.TemporaryDirectory() as folder:
        run.progress("in fresh processes")
        first = [in_fresh_process("bench_first_commit", "first_of_process", Path(folder) / f"{n}.db") for n in rounds]
        run.progress("again and again in one process")
        later = [asyncio.run(commit_first(Path(folder) / f"again-{n}.db")) for n in rounds]

    def milliseconds(name: str) -> list[float]:
        return [seconds[name] * 1e3 for seconds in first]

    run.finish(
        [
            Figure("the first board of a process, after imports", "ms", milliseconds("commit"), at_most=50),
            Figure("later boards of a process", "ms", [seconds * 1e3 for seconds in later]),
            Figure("imports alone", "ms", milliseconds("imports")),
            Figure("whole process: start, imports, commit, close, end", "ms", milliseconds("process")),
        ],
        ["every board is in a new file of its own, synchronous=FULL"],
    )


if __name__ == "__main__":
    run_program(main)
