"""A peer that sends more before what it sent is decided is read again when it is, and in any case soon."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pycrdt
from websockets.asyncio.client import ClientConnection

from crdt_board import wire
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.faults import FaultyStore
from support.serving import Served, serving
from support.stock import stock_socket
from support.waiting import DEADLINE_SECONDS, eventually

BOARD = "streamed"


@contextlib.asynccontextmanager
async def streaming() -> AsyncIterator[tuple[Served, FaultyStore, ClientConnection]]:
    store = FaultyStore(MemoryStore())
    async with serving(store) as served, stock_socket(served.url, BOARD) as socket:
        await eventually(served.host.open_boards, "the board is open")
        yield served, store, socket


def updates(count: int) -> list[bytes]:
    doc: pycrdt.Doc[None] = pycrdt.Doc()
    made: list[bytes] = []
    doc.observe(lambda event: made.append(event.update))
    text = doc.get("draft", type=pycrdt.Text)
    for _ in range(count):
        text += "x"
    return made


async def test_a_stream_is_taken_in_whole() -> None:
    """Whatever arrives while the writer is at work is read when it is done: nothing is lost, in order."""
    async with streaming() as (served, _, socket):
        for update in updates(3_000):
            await socket.send(wire.encode_update(update))
            await asyncio.sleep(0)
        engine = served.host.open_boards()[BOARD]
        await eventually(lambda: engine.state_vector() != b"\x00", "something is written")
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await engine.read(lambda document: len(str(document.doc.get("draft", type=pycrdt.Text)))) < 3_000:
                await asyncio.sleep(0.01)


async def test_while_the_writer_waits_for_the_disk_little_is_read() -> None:
    """What a stream brings meanwhile stays with the system, and comes in one piece afterwards."""
    async with streaming() as (served, store, socket):
        gate = store.hold("append")
        made = updates(40)
        for update in made[:20]:
            await socket.send(wire.encode_update(update))
            await asyncio.sleep(0.002)
        await gate.reached.wait()
        engine = served.host.open_boards()[BOARD]
        waiting = len(engine._inbox)
        gate.release()
        assert waiting < 10
        for update in made[20:]:
            await socket.send(wire.encode_update(update))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await engine.read(lambda document: len(str(document.doc.get("draft", type=pycrdt.Text)))) < 40:
                await asyncio.sleep(0.01)


async def test_a_store_that_hangs_leaves_a_stream_its_connection() -> None:
    """D3: pings are answered, and who leaves is noticed, although nothing of what was sent is decided."""
    async with streaming() as (served, store, socket):
        gate = store.hold("append")
        for update in updates(20):
            await socket.send(wire.encode_update(update))
            await asyncio.sleep(0.01)
        assert gate.reached.is_set()
        for _ in range(3):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await (await socket.ping())
        await socket.close()
        await eventually(lambda: not served.peers.rooms.open_rooms(), "the server has noticed")
        gate.release()
