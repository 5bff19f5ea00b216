"""Embedded: what past sessions cost the next one, where client ids are used again and where they are not."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Annotated, Any
from unittest.mock import patch

import pycrdt

from benchmarks.harness import Figure, Run, require, run_program
from crdt_board import Board, BoardHost, BoardModel, Candidates, Counter, Max, open_board
from crdt_board.client_ids import ClientIds, new_client_id
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import decode_state_vector

_SESSIONS, _WHOLE = 20_000, 1_000
_QUICK_SESSIONS, _QUICK_WHOLE = 200, 20
_EDITS = 500
_AT_ONCE = 100


class Spending(BoardModel):
    """A board on which every agent counts what it spent."""

    status: str = ""
    tokens: Counter


class Job(Spending):
    """One that agents also propose on: a field of each kind that has a cell for each replica."""

    best: Annotated[int, Max()] = 0
    verdict: Annotated[str, Candidates()] = ""


@dataclass
class Cost:
    """Samples of what one way of dealing with ids costs."""

    session_ms: list[float] = field(default_factory=list)
    edit_us: list[float] = field(default_factory=list)
    handshake_bytes: list[float] = field(default_factory=list)
    state_bytes: list[float] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)


async def count_in_the_past(engine: Engine, sessions: int, *, reuse: bool) -> None:
    """Let that many past sessions count once each, under one id or each under its own.

    Their updates are made without loading the board each time: one that only counts builds on nothing of others.
    """
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=new_client_id())
    told: asyncio.Future[Receipt] | None = None
    for number in range(1, sessions + 1):
        if not reuse:
            doc = pycrdt.Doc(client_id=new_client_id())
        before = doc.get_state()
        doc.get("tokens", type=pycrdt.Map)[str(doc.client_id)] = number if reuse else 1
        told = asyncio.get_running_loop().create_future()
        engine.submit(Submission(updates=[doc.get_update(before)], author="a", source=doc, written=told.set_result))
        if number % _AT_ONCE == 0 or number == sessions:
            await told


async def measure(sessions: int, cost: Cost, *, reuse: bool) -> None:
    """A board with ``sessions`` past sessions that counted, and what it costs to work on it then."""
    async with BoardHost(MemoryStore(), idle_seconds=60) as host, host.board("job") as engine:
        await engine.join(Spending.board_layout())
        await count_in_the_past(engine, sessions, reuse=reuse)
        cost.session_ms.append(1e3 * await _seconds_of(lambda: _count(host)))
        async with open_board(host, "job", Spending, agent="agent") as board:
            cost.edit_us.append(1e6 * _seconds_of_an_edit(board))
            require(board.state.tokens == sessions + 1, "the counter is not exact")
        cost.handshake_bytes.append(len(await engine.read(Document.state_vector)))
        cost.state_bytes.append(len(await engine.read(lambda document: document.encode())))


async def _count(host: BoardHost) -> None:
    async with open_board(host, "job", Spending, agent="agent") as board:
        board.state.tokens += 1


async def _seconds_of(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


def _seconds_of_an_edit(board: Board[Any]) -> float:
    began = time.perf_counter()
    for number in range(_EDITS):
        board.state.status = f"step {number}"
    return (time.perf_counter() - began) / _EDITS


async def measure_whole(sessions: int, cost: Cost, *, reuse: bool) -> None:
    """Whole sessions, one after the other: open, write a field of each kind, close; the last tenth is timed."""
    timed: list[float] = []
    async with BoardHost(MemoryStore(), idle_seconds=60) as host, host.board("job") as engine:
        for number in range(sessions):
            began = time.perf_counter()
            async with open_board(host, "job", Job, agent="agent") as board:
                board.state.tokens += 1
                board.state.best = number
                board.state.verdict = f"verdict {number}"
                board.state.status = f"step {number}"
            timed.append(time.perf_counter() - began)
        last = timed[-max(1, sessions // 10) :]
        cost.whole_ms.append(1e3 * sum(last) / len(last))
        cost.clients.append(len(decode_state_vector(await engine.read(Document.state_vector))))
        state = await engine.read(lambda document: document.wire_state())
        require(state["tokens"] == sessions, "the counter is not exact")
        require(reuse == (cost.clients[-1] <= 2), f"{cost.clients[-1]} clients")


def _never_take_back(ids: ClientIds, client_id: int) -> None:
    del ids._holders[client_id]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=_SESSIONS, metavar="N", help=f"past sessions; {_SESSIONS}")
    parser.add_argument("--whole", type=int, default=_WHOLE, metavar="N", help=f"whole sessions; {_WHOLE}")
    run = Run.begin("Embedded: what past sessions cost the next one", parser, repeat=5)
    options = run.options
    if options.quick:
        options.sessions, options.whole = _QUICK_SESSIONS, _QUICK_WHOLE
    costs = {"new ids": Cost(), "used ids": Cost()}
    for number in range(options.repeat):
        for name, cost in costs.items():
            run.progress(f"round {number + 1}, {name}")
            reuse = name == "used ids"
            with nullcontext() if reuse else patch.object(ClientIds, "take_back", _never_take_back):
                asyncio.run(measure(options.sessions, cost, reuse=reuse))
                asyncio.run(measure_whole(options.whole, cost, reuse=reuse))
    past, whole = f"{options.sessions:,} past sessions", f"{options.whole:,} whole sessions"
    run.finish(
        [
            figure
            for name, cost in costs.items()
            for figure in (
                Figure(f"{name}, {past}: open, count, close", "ms", cost.session_ms),
                Figure(f"{name}, {past}: a local edit", "µs", cost.edit_us),
                Figure(f"{name}, {past}: state vector, in every handshake", "bytes", cost.handshake_bytes),
                Figure(f"{name}, {past}: state for a new replica", "bytes", cost.state_bytes),
                Figure(f"{name}, {whole}: the last tenth, each", "ms", cost.whole_ms),
                Figure(f"{name}, {whole}: clients in the state vector", "", cost.clients),
            )
        ],
        ["the counter was exact each time", "in memory, without a disk: nothing here waits for one"],
    )


if __name__ == "__main__":
    run_program(main)
