"""A proxy between a client and its server that loses, damages or holds messages, or cuts the connection, on order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Literal

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from crdt_board.wire import SUBPROTOCOL

Message = str | bytes
Way = Literal["up", "down"]
Judge = Callable[[Way, Message], Message | None]
"""What becomes of a message on its way to the server (up) or to the client (down); None loses it."""


class Cut(Exception):
    """Raised by a judge: the connection breaks in place of this message."""


def pass_all(_way: Way, message: Message) -> Message:
    return message


class Relay:
    """Passes whole messages. ``judge`` may be changed at any time."""

    def __init__(self, server: str) -> None:
        self.url = ""
        self.judge: Judge = pass_all
        self.connections = 0
        self.server = server

    async def handle(self, client: ServerConnection) -> None:
        assert client.request is not None
        self.connections += 1
        own = Subprotocol(SUBPROTOCOL)
        try:
            async with connect_socket(
                self.server + client.request.path, subprotocols=[own], compression=None, max_size=None, proxy=None
            ) as server:
                ways = [
                    asyncio.create_task(self._pass("up", client, server)),
                    asyncio.create_task(self._pass("down", server, client)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                if server.close_code is not None and server.close_code >= 4000:
                    await client.close(server.close_code, server.close_reason or "")
                server.transport.abort()
        except OSError:
            pass
        client.transport.abort()

    async def _pass(
        self, way: Way, source: ClientConnection | ServerConnection, target: ClientConnection | ServerConnection
    ) -> None:
        with contextlib.suppress(ConnectionClosed, Cut):
            async for message in source:
                passed = self.judge(way, message)
                if passed is not None:
                    await target.send(passed)


@contextlib.asynccontextmanager
async def relay_to(server: str) -> AsyncIterator[Relay]:
    """A relay before a server, which passes everything at first."""
    relay = Relay(server)
    async with serve(
        relay.handle, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, max_size=None
    ) as listening:
        relay.url = f"ws://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield relay


def is_message(message: Message, kind: str) -> bool:
    """Whether it is a control message of this type."""
    return isinstance(message, str) and f'"type":"{kind}"' in message


def is_push(message: Message) -> bool:
    return isinstance(message, bytes) and message[0] == 0x64


def is_entry(message: Message) -> bool:
    """A journal entry with content; not one that only says up to where everything was sent."""
    return isinstance(message, bytes) and message[0] == 0x65 and len(message) > 16


def is_difference(message: Message) -> bool:
    """A step 2 of y-protocols."""
    return isinstance(message, bytes) and message[:2] == b"\x00\x01"


def damaged(message: bytes, at: int) -> bytes:
    """The same with one bit of one byte turned over."""
    return message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
