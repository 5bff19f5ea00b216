"""Served: one agent of ten writes fifty small updates a second; how soon can the other nine read them?

The clients share one process, and so one clock. They share its core too: what the ninth receiver sees includes what
the eight before it took, which the broadcast without a board, measured in the same way, shows. What durability takes
is in the floor: the same clients on bare websockets, pycrdt and SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pycrdt

from benchmarks.harness import Figure, Run, percentile, require, run_program
from benchmarks.servers import CLIENT_CORE, board_server, can_pin, echo_server, floor_server, pinned_to
from benchmarks.stock import StockClient, stock_client
from crdt_board import Board, BoardModel, Text
from crdt_board_client import connect

_RECEIVERS = 9
_UPDATES_A_SECOND = 50
_WORD = "written "
_WARM_UP = 25
"""Updates that are sent first and not counted."""
_ARRIVAL_SECONDS = 30.0
_SETTLING_SECONDS = 0.5
"""For presence and everything else that a new connection brings about."""

_BROADCAST, _FLOOR = "broadcast without a board", "floor: durable, bare clients"
_BARE_CLIENTS, _PYTHON_CLIENTS = "board, bare clients", "board, Python clients"


class Draft(BoardModel):
    """One text."""

    text: Text


class Arrivals:
    """When each update was sent, and when each receiver could read it."""

    def __init__(self, updates: int) -> None:
        self.complete = asyncio.Event()
        self._sent: list[float] = []
        self._read: list[list[float]] = [[] for _ in range(_RECEIVERS)]
        self._missing = updates * _RECEIVERS

    def sending(self) -> None:
        """The next update is made and sent right now."""
        self._sent.append(time.perf_counter())

    def readable(self, receiver: int, updates: int) -> None:
        """This receiver can now read so many updates."""
        now, read = time.perf_counter(), self._read[receiver]
        self._missing -= updates - len(read)
        read.extend([now] * (updates - len(read)))
        if self._missing == 0:
            self.complete.set()

    def milliseconds(self) -> list[float]:
        """From send to being readable, over all receivers, in order of size; without the warm-up."""
        sent = self._sent[_WARM_UP:]
        pairs = [pair for read in self._read for pair in zip(sent, read[_WARM_UP:], strict=True)]
        return sorted((arrival - departure) * 1e3 for departure, arrival in pairs)


@dataclass(slots=True)
class Latencies:
    """Percentiles of the rounds, in milliseconds."""

    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def add(self, milliseconds: list[float]) -> None:
        """Take in one round."""
        self.p50.append(percentile(milliseconds, 0.50))
        self.p99.append(percentile(milliseconds, 0.99))
        self.most.append(milliseconds[-1])

    def figures(self, name: str, *, p50_at_most: float | None = None, p99_at_most: float | None = None) -> list[Figure]:
        """The rows of the table."""
        return [
            Figure(f"{name}: p50", "ms", self.p50, at_most=p50_at_most),
            Figure(f"{name}: p99", "ms", self.p99, at_most=p99_at_most),
            Figure(f"{name}: longest", "ms", self.most),
        ]


async def stock_round(port: int, board: str, updates: int, *, sync: bool = True) -> list[float]:
    """Ten bare websocket clients, each with a document; milliseconds from writing a frame to holding its text."""
    arrivals = Arrivals(updates)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(stock_client(port, board, sync=sync)) for _ in range(1 + _RECEIVERS)]
        for number, client in enumerate(clients[1:]):
            _note_arrivals(client, arrivals, number)
        ready = _ready_updates(updates)
        await _send_paced(arrivals, updates, lambda: clients[0].send_update(next(ready)))
    return arrivals.milliseconds()


async def python_round(port: int, board_id: str, updates: int) -> list[float]:
    """Ten Python clients; milliseconds from before an edit of ``board.state`` to its being announced and read there."""
    arrivals = Arrivals(updates)

    async def read(board: Board[Draft], number: int) -> None:
        async for _ in board.changes("text"):
            arrivals.readable(number, len(board.state.text) // len(_WORD))

    async with contextlib.AsyncExitStack() as stack:
        boards = [
            await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}", board_id, Draft, agent=f"agent-{number}"))
            for number in range(1 + _RECEIVERS)
        ]
        readers = [asyncio.create_task(read(board, number)) for number, board in enumerate(boards[1:])]
        try:
            await _send_paced(arrivals, updates, lambda: boards[0].state.text.append(_WORD))
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return arrivals.milliseconds()


def _note_arrivals(client: StockClient, arrivals: Arrivals, number: int) -> None:
    text = client.doc.get("text", type=pycrdt.Text)

    def apply(update: bytes) -> None:
        client.doc.apply_update(update)
        arrivals.readable(number, len(text) // len(_WORD))

    client.on_update = apply


def _ready_updates(count: int) -> Iterator[bytes]:
    """Updates of one writer, made beforehand; each adds a word to the text."""
    made: list[bytes] = []
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    text = doc.get("text", type=pycrdt.Text)
    doc.observe(lambda event: made.append(event.update))
    for _ in range(count):
        text.insert(len(text), _WORD)
    require(len(made) == count, "an edit is not one update")
    return iter(made)


async def _send_paced(arrivals: Arrivals, updates: int, send: Callable[[], None]) -> None:
    """Send on a fixed schedule, whatever comes back; then wait until everything has arrived."""
    await asyncio.sleep(_SETTLING_SECONDS)
    gc.collect()
    began = time.perf_counter()
    for number in range(updates):
        await asyncio.sleep(began + number / _UPDATES_A_SECOND - time.perf_counter())
        arrivals.sending()
        send()
    async with asyncio.timeout(_ARRIVAL_SECONDS):
        await arrivals.complete.wait()


async def measure(run: Run) -> dict[str, Latencies]:
    """All rounds: in each, the broadcast, the floor and both kinds of clients, one after the other."""
    updates = _WARM_UP + run.options.seconds * _UPDATES_A_SECOND
    broadcast, floor, stock, python = Latencies(), Latencies(), Latencies(), Latencies()
    pin: bool = run.options.pin
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        echo_port = await stack.enter_async_context(echo_server(pin=pin))
        floor_port = await stack.enter_async_context(floor_server(folder, pin=pin))
        port = await stack.enter_async_context(board_server(folder / "boards.db", pin=pin))
        for number in range(1, run.options.repeat + 1):
            run.progress(f"round {number}: broadcast without a board")
            broadcast.add(await stock_round(echo_port, "echo", updates, sync=False))
            run.progress(f"round {number}: floor")
            floor.add(await stock_round(floor_port, f"stock-{number}", updates))
            run.progress(f"round {number}: board, bare clients")
            stock.add(await stock_round(port, f"stock-{number}", updates))
            run.progress(f"round {number}: board, Python clients")
            python.add(await python_round(port, f"python-{number}", updates))
    return {_BROADCAST: broadcast, _FLOOR: floor, _BARE_CLIENTS: stock, _PYTHON_CLIENTS: python}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="how long a round sends; default 10")
    parser.add_argument(
        "--pin",
        action=argparse.BooleanOptionalAction,
        default=can_pin(),
        help="give the server and the clients a core each",
    )
    run = Run.begin(f"Served, durable: one writes {_UPDATES_A_SECOND} updates/s, {_RECEIVERS} read", parser, repeat=3)
    with pinned_to(CLIENT_CORE, run.options.pin):
        measured = asyncio.run(measure(run))
    targets = {"p50_at_most": 1.5, "p99_at_most": 5.0}
    figures = [
        figure
        for name, latencies in measured.items()
        for figure in latencies.figures(name, **(targets if name.startswith("board") else {}))
    ]
    for name, baseline, called in (
        (_BARE_CLIENTS, _BROADCAST, "the broadcast"),
        (_BARE_CLIENTS, _FLOOR, "the floor"),
        (_PYTHON_CLIENTS, _BROADCAST, "the broadcast"),
    ):
        ratios = [mine / bare for mine, bare in zip(measured[name].p50, measured[baseline].p50, strict=True)]
        figures.append(Figure(f"{name}: p50, times {called}", "x", ratios))
    run.finish(
        figures,
        [
            f"{run.options.seconds * _UPDATES_A_SECOND} updates to {_RECEIVERS} receivers in each round; all arrived",
            "server on one core, clients on another" if run.options.pin else "server and clients on any core",
        ],
    )


if __name__ == "__main__":
    run_program(main)
