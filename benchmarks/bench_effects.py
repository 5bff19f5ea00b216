"""Embedded: what effects and steps cost on top of what they do, beside a bare commit."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from benchmarks.harness import Figure, Run, require, run_program
from crdt_board import Board, BoardModel, open_board
from crdt_board.sync import open_board as open_blocking

_TIMES = 200
_READS = 2_000


class Job(BoardModel):
    """A board as a small job has it."""

    status: str = ""


async def nothing() -> int:
    """What is done outside, which takes no time here."""
    return 7


async def measure(file: Path, times: int) -> dict[str, list[float]]:
    """Milliseconds of each commit, effect and step, taken in turn, and of what is answered from the record."""
    found: dict[str, list[float]] = {}

    async def take(name: str, work: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await work()
        found.setdefault(name, []).append((time.perf_counter() - began) * 1e3)

    async with open_board(file, "job", Job, agent="worker") as board:
        for number in range(times):
            effect = partial(board.effect, "ticket", f"k{number}", nothing)
            step = partial(board.step("work", key=f"k{number}").run, nothing)
            await take("commit", partial(board.commit, "bare"))
            await take("effect", effect)
            await take("step", step)
            await take("effect again", effect)
            await take("step again", step)
        _check(board, times)
    return found


def _check(board: Board[Job], times: int) -> None:
    require({effect.state for effect in board.effects} == {"done"}, "an effect is not done")
    require(len(board.effects) == len(board.steps) == times, "an effect or a step is missing")
    require(board.version == 2 * times, "a commit is missing")


def read_from_a_thread(file: Path, times: int) -> list[float]:
    """Microseconds of each read of a field through a board without an event loop."""
    samples: list[float] = []
    with open_blocking(file, "job", Job, agent="reader") as board:
        state = board.state
        for _ in range(times):
            began = time.perf_counter()
            status = state.status
            samples.append((time.perf_counter() - began) * 1e6)
            require(status == "", "a wrong value was read")
    return samples


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Embedded: the bookkeeping of effects and steps", argparse.ArgumentParser(), repeat=_TIMES)
    with tempfile.TemporaryDirectory() as folder:
        run.progress("commits, effects and steps in turn")
        taken = asyncio.run(measure(Path(folder) / "boards.db", run.options.repeat))
        run.progress("reads from a thread")
        reads = read_from_a_thread(Path(folder) / "reads.db", _READS)
    ratios = [effect / commit for effect, commit in zip(taken["effect"], taken["commit"], strict=True)]
    run.finish(
        [
            Figure("a bare commit", "ms", taken["commit"]),
            Figure("an effect that does nothing", "ms", taken["effect"], at_most=1),
            Figure("that effect beside the commit before it", "times", ratios),
            Figure("a step that does nothing, with its commit", "ms", taken["step"]),
            Figure("an effect that took place before", "ms", taken["effect again"]),
            Figure("a step that was done before", "ms", taken["step again"]),
            Figure("reading a field through a board without a loop", "µs", reads),
        ],
        ["an effect is two appends: that it begins, and its result; both synced, synchronous=FULL"],
    )


if __name__ == "__main__":
    run_program(main)
