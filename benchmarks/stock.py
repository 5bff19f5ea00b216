"""A Yjs client that costs as little as Python allows, so that what is measured is the server.

Speaks just enough of WebSocket for that: a client whose frames are whole and whose masks are zero, straight on the
transport, without tasks or queues.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pycrdt

from crdt_board import wire
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.updates import EMPTY_UPDATE

_OPEN_SECONDS = 10.0
_FINAL_BINARY, _FINAL_PING, _FINAL_PONG = 0x82, 0x89, 0x8A
_MASKED = 0x80
_ZERO_MASK = bytes(4)
_HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class StockClient(asyncio.Protocol):
    """One connection to a board. ``on_update`` is called with each update of the board, own ones included."""

    def __init__(self, path: str, doc: pycrdt.Doc[Any], *, sync: bool) -> None:
        self.doc = doc
        self.on_update: Callable[[bytes], None] = doc.apply_update
        self.opened = asyncio.Event()
        """The server took the connection."""
        self.synced = asyncio.Event()
        """The document holds what the board held."""
        self._path = path
        self._sync = sync
        self._transport: asyncio.Transport
        self._buffer = bytearray()

    def send_update(self, update: bytes) -> None:
        """Write an update to the socket, as a y-websocket client does."""
        self._write(_FINAL_BINARY, wire.encode_update(update))

    def close(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_HANDSHAKE.format(path=self._path).encode())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.opened.is_set():
            head, end, rest = bytes(self._buffer).partition(b"\r\n\r\n")
            if not end:
                return
            if b" 101 " not in head.partition(b"\r\n")[0]:
                raise SystemExit(f"the server refused a connection: {head.decode(errors='replace')}")
            self._buffer = bytearray(rest)
            self.opened.set()
            if self._sync:
                self._write(_FINAL_BINARY, wire.encode_step1(self.doc.get_state()))
        while (frame := self._next_frame()) is not None:
            self._take(*frame)

    def _next_frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        start, length = 2, buffer[1]
        if length >= 126:
            start = 4 if length == 126 else 10
            length = int.from_bytes(buffer[2:start], "big")
        if len(buffer) < start + length:
            return None
        opcode, content = buffer[0], bytes(buffer[start : start + length])
        del buffer[: start + length]
        return opcode, content

    def _take(self, opcode: int, content: bytes) -> None:
        if opcode == _FINAL_PING:
            self._write(_FINAL_PONG, content)
            return
        if opcode != _FINAL_BINARY:
            raise SystemExit(f"the server closed a connection, or sent what was not expected: {opcode:#x} {content!r}")
        match wire.decode_frame(content, DEFAULT_LIMITS):
            case wire.SyncUpdate(update):
                self.on_update(update)
            case wire.SyncStep1():
                self._write(_FINAL_BINARY, wire.encode_step2(EMPTY_UPDATE))
            case wire.SyncStep2(update):
                self.doc.apply_update(update)
                self.synced.set()

    def _write(self, opcode: int, content: bytes) -> None:
        length = len(content)
        if length < 126:
            head = bytes((opcode, _MASKED | length))
        elif length < 1 << 16:
            head = bytes((opcode, _MASKED | 126)) + length.to_bytes(2, "big")
        else:
            head = bytes((opcode, _MASKED | 127)) + length.to_bytes(8, "big")
        self._transport.write(head + _ZERO_MASK + content)


@contextlib.asynccontextmanager
async def stock_client(
    port: int,
    board: str,
    *,
    client_id: int | None = None,
    sync: bool = True,
    open_seconds: float = _OPEN_SECONDS,
) -> AsyncIterator[StockClient]:
    """A client that holds what the board holds; without ``sync``, one that is only connected.

    The board has ``open_seconds`` to be loaded.
    """
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=client_id)
    client = StockClient(f"/ws/{board}", doc, sync=sync)
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", port)
    try:
        async with asyncio.timeout(open_seconds):
            await (client.synced if sync else client.opened).wait()
        yield client
    finally:
        client.close()
