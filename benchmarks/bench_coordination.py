"""Served: sixteen agents drain a queue of a thousand tasks; how long a lease takes, beside a message through a bare
server; and how fast one goes through the hands of those who wait. Embedded: what a claim costs among many open tasks.

The agents share one process and its core, each with a connection and a replica of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect as connect_socket

from benchmarks.harness import Figure, Run, percentile, require, run_program
from benchmarks.servers import CLIENT_CORE, board_server, can_pin, echo_server, pinned_to
from crdt_board import BoardModel, ClaimedTask, open_board
from crdt_board_client import connect

_AGENTS = 16
_TASKS = 1_000
_LEASES = 300
_WAITING, _ROUNDS = 20, 10
_FEW, _MANY = 100, 10_000
_CLAIMS = 300


class Job(BoardModel):
    """Nothing but tasks."""

    status: str = ""


@dataclass(slots=True)
class Samples:
    """One of each a round."""

    claims: list[float] = field(default_factory=list)
    drained: list[float] = field(default_factory=list)
    lease: list[float] = field(default_factory=list)
    both: list[float] = field(default_factory=list)
    handed_over: list[float] = field(default_factory=list)
    echo: list[float] = field(default_factory=list)
    few: list[float] = field(default_factory=list)
    many: list[float] = field(default_factory=list)


async def drain(database: Path, samples: Samples, *, pin: bool) -> None:
    """Put a thousand tasks, have sixteen agents do them, and check that each was done once; then take leases."""
    done: list[Any] = []

    async def note(task: ClaimedTask) -> None:
        done.append(task.payload)

    async with board_server(database, pin=pin) as port, contextlib.AsyncExitStack() as stack:
        boards = [
            await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}", "job", Job, agent=f"agent-{number}"))
            for number in range(_AGENTS)
        ]
        await asyncio.gather(*(boards[0].tasks.put(number, key=str(number)) for number in range(_TASKS)))
        began = time.perf_counter()
        await asyncio.gather(*(board.tasks.work(note, idle=0) for board in boards))
        seconds = time.perf_counter() - began
        require(sorted(done) == list(range(_TASKS)), "a task was done twice, or not at all")
        require(all(task.attempt == 1 for task in boards[0].tasks.all("done")), "a task was claimed twice")
        samples.claims.append(_TASKS / seconds)
        samples.drained.append(seconds / _TASKS * 1e3)
    async with (
        board_server(database, pin=pin) as port,
        connect(f"ws://127.0.0.1:{port}", "lease", Job, agent="a") as one,
    ):
        taken: list[float] = []
        both: list[float] = []
        for _ in range(_LEASES):
            began = time.perf_counter()
            async with one.lease("payments"):
                taken.append((time.perf_counter() - began) * 1e3)
            both.append((time.perf_counter() - began) * 1e3)
        samples.lease.append(percentile(sorted(taken), 0.5))
        samples.both.append(percentile(sorted(both), 0.5))


async def hand_over(database: Path, samples: Samples, *, pin: bool) -> None:
    """Have one lease go through the hands of all who wait for it, and check that one had it at a time, in order."""
    taken: list[int] = []

    async def take(board: Any, number: int) -> None:
        async with board.lease("payments"):
            taken.append(number)

    async with board_server(database, pin=pin) as port, contextlib.AsyncExitStack() as stack:
        url = f"ws://127.0.0.1:{port}"
        holder, *others = [
            await stack.enter_async_context(connect(url, "around", Job, agent=f"agent-{number}"))
            for number in range(1 + _WAITING)
        ]
        seconds = 0.0
        for _ in range(_ROUNDS):
            async with holder.lease("payments"):
                waiting: list[asyncio.Task[None]] = []
                for number, board in enumerate(others):
                    waiting.append(asyncio.create_task(take(board, number)))
                    await holder.wait_for(lambda _state: len(holder.leases[0].waiting) == len(waiting))  # noqa: B023
                began = time.perf_counter()
            await asyncio.gather(*waiting)
            seconds += time.perf_counter() - began
    require(taken == _ROUNDS * list(range(_WAITING)), "the lease was not handed out in the order of asking")
    samples.handed_over.append(len(taken) / seconds)


async def echo(samples: Samples, *, pin: bool) -> None:
    """A message through a bare server to another connection, and one back."""
    async with echo_server(pin=pin) as port:
        url = f"ws://127.0.0.1:{port}"
        async with connect_socket(url, compression=None) as one, connect_socket(url, compression=None) as other:
            milliseconds: list[float] = []
            for _ in range(_LEASES):
                began = time.perf_counter()
                await one.send(b"there")
                await other.send(await other.recv())
                await one.recv()
                milliseconds.append((time.perf_counter() - began) * 1e3)
        samples.echo.append(percentile(sorted(milliseconds), 0.5))


async def claim_among(tasks: int) -> float:
    """Milliseconds of a claim and its release, on a board in memory with so many open tasks."""
    async with open_board(":memory:", "job", Job, agent="a") as board:
        await asyncio.gather(*(board.tasks.put(number) for number in range(tasks)))
        milliseconds: list[float] = []
        for _ in range(_CLAIMS):
            began = time.perf_counter()
            async with board.tasks.claim() as task:
                await task.release()
            milliseconds.append((time.perf_counter() - began) * 1e3)
        require(len(board.tasks.all("open")) == tasks, "a task is missing")
    return percentile(sorted(milliseconds), 0.5)


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Tasks and leases", argparse.ArgumentParser(), repeat=5)
    pin, samples = can_pin(), Samples()
    with tempfile.TemporaryDirectory() as folder, pinned_to(CLIENT_CORE, pin):
        for number in range(run.options.repeat):
            run.progress(f"round {number + 1} of {run.options.repeat}")
            asyncio.run(echo(samples, pin=pin))
            asyncio.run(drain(Path(folder) / f"boards-{number}.db", samples, pin=pin))
            asyncio.run(hand_over(Path(folder) / f"around-{number}.db", samples, pin=pin))
            samples.few.append(asyncio.run(claim_among(_FEW)))
            samples.many.append(asyncio.run(claim_among(_MANY)))
    run.finish(
        [
            Figure(f"{_AGENTS} agents drain {_TASKS:,} tasks: time for each task", "ms", samples.drained, 2.0),
            Figure("the same, claims a second", "", samples.claims),
            Figure("taking a lease, p50", "ms", samples.lease, 2.0),
            Figure("taking and giving it back, p50", "ms", samples.both),
            Figure(f"hand-overs of a lease for which {_WAITING} agents wait, a second", "", samples.handed_over),
            Figure("a message through a bare server and one back, p50", "ms", samples.echo),
            Figure(f"embedded, in memory: a claim and its release among {_FEW} open tasks, p50", "ms", samples.few),
            Figure(f"the same among {_MANY:,}, p50", "ms", samples.many),
        ],
        ["every task was claimed and done exactly once", "served from a new file, synchronous=FULL"],
    )


if __name__ == "__main__":
    run_program(main)
