"""Peers that know nothing of CRDT Board: y-websocket frames over a plain websocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pycrdt
from websockets.asyncio.client import ClientConnection, connect

from crdt_board import wire
from crdt_board.limits import DEFAULT_LIMITS
from support.waiting import DEADLINE_SECONDS, eventually


async def next_frame(socket: ClientConnection) -> wire.Frame:
    """The next message of the server, decoded; a stock client is sent binary ones only."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        message = await socket.recv()
    assert isinstance(message, bytes), message
    return wire.decode_frame(message, DEFAULT_LIMITS)


async def close_code(socket: ClientConnection) -> int | None:
    """Wait until the server closes the connection, and return the code that it gives."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        await socket.wait_closed()
    return socket.close_code


class StockPeer:
    """A Yjs document that is kept the same as a board's, by the rules of y-websocket."""

    def __init__(self, socket: ClientConnection, doc: pycrdt.Doc[Any]) -> None:
        self.doc = doc
        self.socket = socket
        self.bytes_received = 0
        self.frames: list[wire.Frame] = []
        self._applying = False
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue()
        doc.observe(self._changed)

    def text(self, field: str) -> str:
        return str(self.doc.get(field, type=pycrdt.Text))

    async def synced(self) -> None:
        await eventually(lambda: any(isinstance(frame, wire.SyncStep2) for frame in self.frames), "a step 2")

    async def read(self) -> None:
        await self.socket.send(wire.encode_step1(self.doc.get_state()))
        async for message in self.socket:
            assert isinstance(message, bytes), message
            self.bytes_received += len(message)
            frame = wire.decode_frame(message, DEFAULT_LIMITS)
            self.frames.append(frame)
            match frame:
                case wire.SyncStep1(state_vector):
                    await self.socket.send(wire.encode_step2(self.doc.get_update(state_vector)))
                case wire.SyncStep2(update) | wire.SyncUpdate(update):
                    self._apply(update)

    async def write(self) -> None:
        while True:
            await self.socket.send(wire.encode_update(await self._outgoing.get()))

    def _apply(self, update: bytes) -> None:
        self._applying = True
        try:
            self.doc.apply_update(update)
        finally:
            self._applying = False

    def _changed(self, event: pycrdt.TransactionEvent) -> None:
        if not self._applying:
            self._outgoing.put_nowait(event.update)


@contextlib.asynccontextmanager
async def stock_socket(url: str, board: str, **options: Any) -> AsyncIterator[ClientConnection]:
    socket = await connect(f"{url}/ws/{board}", compression=None, proxy=None, **options)
    try:
        yield socket
    finally:
        if not socket.transport.is_closing():
            await socket.close()


@contextlib.asynccontextmanager
async def stock_peer(url: str, board: str, *, client_id: int | None = None, **options: Any) -> AsyncIterator[StockPeer]:
    """A peer that is in step with the board on entry."""
    async with stock_socket(url, board, **options) as socket:
        peer = StockPeer(socket, pycrdt.Doc(client_id=client_id) if client_id is not None else pycrdt.Doc())
        tasks = [asyncio.create_task(peer.read()), asyncio.create_task(peer.write())]
        try:
            await peer.synced()
            yield peer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
