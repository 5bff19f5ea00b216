"""What checking every write against the schema costs, and what a peer costs whose writes are refused."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pycrdt
from pydantic import Field

from benchmarks.harness import Figure, Run, percentile, require, run_program
from benchmarks.servers import CLIENT_CORE, board_server, can_pin, pinned_to
from benchmarks.stock import StockClient, stock_client
from benchmarks.unaudited import unaudited
from crdt_board import BoardModel, Text
from crdt_board.engine import Engine
from crdt_board.host import BoardHost
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board_client import connect

_BOARD = "audit"
_PEERS = 4
_UPDATES = 1_500
_BATCH = 50
_SECONDS = 4.0
_PACE = 0.02
_REFUSED_PACE = 0.001
_ARRIVAL_SECONDS = 30.0
_MEGABYTE = 1_000_000
_CHANGES = 200


class Checked(BoardModel):
    """Two kinds of small writes, each with a rule."""

    draft: Text
    scores: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]] = {}
    notes: dict[str, Annotated[str, Field(max_length=200)]] = {}


def edits(client: int, change: Callable[[pycrdt.Doc[Any], int], None], count: int) -> list[bytes]:
    """Updates of one peer, one for each change."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=(1 << 40) + client)
    updates: list[bytes] = []
    subscription = doc.observe(lambda event: updates.append(event.update))
    for number in range(count):
        change(doc, number)
    doc.unobserve(subscription)
    return updates


def insert(doc: pycrdt.Doc[Any], number: int) -> None:
    text = doc.get("draft", type=pycrdt.Text)
    text.insert(number % (len(text) + 1), "word ")


def put(doc: pycrdt.Doc[Any], number: int) -> None:
    doc.get("scores", type=pycrdt.Map)[f"key-{number % 100}"] = number


def put_wrong(doc: pycrdt.Doc[Any], number: int) -> None:
    doc.get("scores", type=pycrdt.Map)["wrong"] = f"no number {number}"


KINDS = {"small text inserts": insert, "map sets": put}


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    async with BoardHost(MemoryStore()) as host, host.board(_BOARD) as engine:
        await engine.join(Checked.board_layout())
        yield engine


def submitted(engine: Engine, source: object, updates: list[bytes]) -> asyncio.Future[Receipt]:
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(Submission(updates=updates, author="peer", source=source, written=told.set_result))
    return told


async def at_the_engine(sent: list[list[bytes]]) -> float:
    """Updates a second through a writer whose store is memory, ``_BATCH`` of each peer at a time."""
    async with opened() as engine:
        sources = [object() for _ in sent]
        began = time.perf_counter()
        for start in range(0, _UPDATES, _BATCH):
            waiting = [
                submitted(engine, source, [update])
                for source, updates in zip(sources, sent, strict=True)
                for update in updates[start : start + _BATCH]
            ]
            receipts = await asyncio.gather(*waiting)
            require(not any(receipt.error or receipt.rejected for receipt in receipts), "a valid write was refused")
        return len(sent) * _UPDATES / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def served(folder: str, *, audited: bool, pin: bool) -> AsyncIterator[int]:
    """A server whose board has the schema; gives its port."""
    module = "crdt_board_server" if audited else "benchmarks.unaudited"
    async with board_server(Path(folder) / "boards.db", pin=pin, module=module) as port:
        async with connect(f"ws://127.0.0.1:{port}", _BOARD, Checked, agent="owner"):
            pass
        yield port


async def in_a_room(sent: list[list[bytes]], *, audited: bool, pin: bool) -> float:
    """Durable updates a second through a served room, from the first frame to everybody having everything."""
    with tempfile.TemporaryDirectory() as folder:
        async with served(folder, audited=audited, pin=pin) as port, contextlib.AsyncExitStack() as stack:
            clients = [await joined(stack, port) for _ in sent]
            everything, left = asyncio.Event(), len(sent) * sum(map(len, sent))

            def count(_update: bytes) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    everything.set()

            for client in clients:
                client.on_update = count
            began = time.perf_counter()
            for start in range(0, _UPDATES, _BATCH):
                for client, updates in zip(clients, sent, strict=True):
                    for update in updates[start : start + _BATCH]:
                        client.send_update(update)
                await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await everything.wait()
            return len(sent) * _UPDATES / (time.perf_counter() - began)


async def joined(stack: contextlib.AsyncExitStack, port: int) -> StockClient:
    return await stack.enter_async_context(stock_client(port, _BOARD))


async def beside(disturb: Callable[[pycrdt.Doc[Any], int], None] | None, *, pin: bool) -> list[float]:
    """Milliseconds from a paced writer to a reader, while another peer writes a thousand updates a second."""
    with tempfile.TemporaryDirectory() as folder:
        async with served(folder, audited=True, pin=pin) as port, contextlib.AsyncExitStack() as stack:
            writer, reader, other = [await joined(stack, port) for _ in range(3)]
            sent: dict[bytes, float] = {}
            samples: list[float] = []
            updates, everything = edits(0, insert, int(_SECONDS / _PACE)), asyncio.Event()

            def arrived(update: bytes) -> None:
                began = sent.pop(update, None)
                if began is not None:
                    samples.append((time.perf_counter() - began) * 1e3)
                    if len(samples) == len(updates):
                        everything.set()

            reader.on_update, writer.on_update = arrived, _ignore
            disturbing = asyncio.create_task(_disturb(other, disturb))
            for update in updates:
                sent[update] = time.perf_counter()
                writer.send_update(update)
                await asyncio.sleep(_PACE)
            async with asyncio.timeout(_ARRIVAL_SECONDS):  # the slowest ones count too
                await everything.wait()
            disturbing.cancel()
            await asyncio.wait([disturbing])
            return sorted(samples)


def _ignore(_update: bytes) -> None:
    pass


async def _disturb(client: StockClient, change: Callable[[pycrdt.Doc[Any], int], None] | None) -> None:
    """Send an update every millisecond, on what the board sent back."""
    if change is None:
        return
    number, began = 0, time.perf_counter()
    while True:
        before = client.doc.get_state()
        change(client.doc, number)
        client.send_update(client.doc.get_update(before))
        number += 1
        await asyncio.sleep(max(0.0, began + number * _REFUSED_PACE - time.perf_counter()))


async def on_a_large_board() -> tuple[list[float], int]:
    """Milliseconds at the writer for one changed key of a board of 1 MB, and the bytes of the change."""
    async with opened() as engine:
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        source = object()
        notes = doc.get("notes", type=pycrdt.Map)
        for number in range(_MEGABYTE // 100):
            notes[f"note-{number}"] = "x" * 100
        await submitted(engine, source, [doc.get_update()])
        samples, size = [], 0
        for number in range(_CHANGES):
            before = doc.get_state()
            notes[f"note-{number}"] = f"changed {number}"
            update = doc.get_update(before)
            size = max(size, len(update))
            began = time.perf_counter()
            await submitted(engine, source, [update])
            samples.append((time.perf_counter() - began) * 1e3)
        return samples, size


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-pin", action="store_true", help="leave the cores to the system")
    run = Run.begin("Audit: every write checked against the schema", parser, repeat=5)
    pin = can_pin() and not run.options.no_pin
    figures: list[Figure] = []
    for kind, change in KINDS.items():
        sent = [edits(client, change, _UPDATES) for client in range(_PEERS)]
        places: dict[str, Callable[[bool], float]] = {
            "at the engine": partial(_at_the_engine, sent),
            f"a room of {_PEERS}": partial(_in_a_room, sent, pin),
        }
        for place, measure in places.items():
            rates: dict[bool, list[float]] = {True: [], False: []}
            for number in range(run.options.repeat):
                for audited in (True, False) if number % 2 else (False, True):
                    run.progress(f"{kind}, {place}, round {number + 1}")
                    rates[audited].append(measure(audited))
            shares = [100 * (1 - on / off) for on, off in zip(rates[True], rates[False], strict=True)]
            figures.append(Figure(f"{kind}, {place}: updates/s with the audit", "", rates[True]))
            figures.append(Figure(f"{kind}, {place}: updates/s without", "", rates[False]))
            figures.append(Figure(f"{kind}, {place}: throughput that it costs", "%", shares, at_most=25))
    figures += _disturbed(run, pin)
    with pinned_to(CLIENT_CORE, pin):
        samples, size = asyncio.run(on_a_large_board())
    figures.append(Figure("one changed key of a board of 1 MB, at the writer", "ms", samples, at_most=1))
    figures.append(Figure("the same, on the wire", "bytes", [size], at_most=1_000))
    run.finish(figures, ["no valid write was refused"])


def _at_the_engine(sent: list[list[bytes]], audited: bool) -> float:
    with unaudited(not audited):
        return asyncio.run(at_the_engine(sent))


def _in_a_room(sent: list[list[bytes]], pin: bool, audited: bool) -> float:
    with pinned_to(CLIENT_CORE, pin):
        return asyncio.run(in_a_room(sent, audited=audited, pin=pin))


def _disturbed(run: Run, pin: bool) -> list[Figure]:
    """What others notice of a peer that writes a thousand times a second."""
    cases: dict[str, Callable[[pycrdt.Doc[Any], int], None] | None] = {
        "nothing": None,
        "1,000 valid updates/s": put,
        "1,000 refused updates/s": put_wrong,
    }
    measured: dict[str, list[list[float]]] = {name: [] for name in cases}
    for number in range(run.options.repeat):
        for name, change in cases.items():
            run.progress(f"beside {name}, round {number + 1}")
            with pinned_to(CLIENT_CORE, pin):
                measured[name].append(asyncio.run(beside(change, pin=pin)))
    return [
        Figure(f"paced writer to reader beside {name}: {title}", "ms", [percentile(each, share) for each in samples])
        for name, samples in measured.items()
        for title, share in (("p50", 0.5), ("p99", 0.99))
    ]


if __name__ == "__main__":
    run_program(main)
