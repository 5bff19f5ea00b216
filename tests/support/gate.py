"""A network whose delays a test decides: a proxy before a server that holds back what the test has not let through."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from crdt_board import wire
from crdt_board.limits import DEFAULT_LIMITS
from support.waiting import DEADLINE_SECONDS

_BINARY = 2
_EVERYTHING = 2**62


class Gate:
    """Lets everything pass from the client to the server at once, and from the server to the client in order.

    Others' updates in journal entries are counted as they arrive here. They pass up to the number that was allowed;
    what comes behind one that has to wait, waits with it. After a reconnect, the difference that a client is sent holds
    an unknown number of updates; then `count_from` says how many have passed.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.connections = 0
        self._server_port = server_port
        self._allowed = 0
        self._arrived = 0
        self._passed = 0
        self._moved = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def allow(self, updates: int) -> None:
        """Let others' updates pass up to this many."""
        async with self._moved:
            self._allowed = updates
            self._moved.notify_all()

    async def open(self) -> None:
        """Let everything pass."""
        await self.allow(_EVERYTHING)

    def count_from(self, updates: int) -> None:
        """This many updates of others have arrived and passed up to now; the next ones wait to be allowed."""
        self._allowed = self._arrived = self._passed = updates

    async def has_arrived(self, updates: int) -> None:
        """Wait until this many updates of others have come from the server, passed or not."""
        async with asyncio.timeout(DEADLINE_SECONDS), self._moved:
            await self._moved.wait_for(lambda: self._arrived >= updates)

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the client."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError):  # the server is down: the client is cut off and will come again
                await self._join(reader, writer, *await asyncio.open_connection("127.0.0.1", self._server_port))
        finally:
            await _cut(writer)
            self._tasks.discard(task)

    async def close(self) -> None:
        """Cut every connection."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self.connections += 1
        ways = [
            asyncio.create_task(_copy(reader, server_writer)),
            asyncio.create_task(self._filter(server_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _cut(server_writer)

    async def _filter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: deque[tuple[bytes, int]] = deque()
        passing = asyncio.create_task(self._pass(waiting, writer))
        try:
            writer.write(await reader.readuntil(b"\r\n\r\n"))
            while True:
                frame, updates = await _read_frame(reader)
                async with self._moved:
                    waiting.append((frame, updates))
                    self._arrived += updates
                    self._moved.notify_all()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)

    async def _pass(self, waiting: deque[tuple[bytes, int]], writer: asyncio.StreamWriter) -> None:
        while True:
            async with self._moved:
                await self._moved.wait_for(lambda: waiting and self._passed + waiting[0][1] <= self._allowed)
                frame, updates = waiting.popleft()
                self._passed += updates
            writer.write(frame)


@contextlib.asynccontextmanager
async def gate_to(server_port: int) -> AsyncIterator[Gate]:
    """A closed gate before a server."""
    gate = Gate(server_port)
    listening = await asyncio.start_server(gate.connect, "127.0.0.1", 0)
    gate.port = listening.sockets[0].getsockname()[1]
    try:
        yield gate
    finally:
        listening.close()
        await gate.close()


async def _cut(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


async def _read_frame(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """One unmasked websocket frame as it came, and how many updates of others are in it."""
    head = await reader.readexactly(2)
    length = head[1]
    if length >= 126:
        more = await reader.readexactly(2 if length == 126 else 8)
        head, length = head + more, int.from_bytes(more, "big")
    content = await reader.readexactly(length)
    updates = 0
    if head[0] & 0x0F == _BINARY:
        frame = wire.decode_frame(content, DEFAULT_LIMITS)
        updates = len(frame.updates) if isinstance(frame, wire.EntryFrame) else 0
    return head + content, updates
