"""The least that a durable server of the Yjs protocol does: bare websockets, pycrdt and SQLite, nothing beside them.

``python -m benchmarks.peers.floor PORT FOLDER`` serves until SIGTERM; the path of an address is the name of its room.
What has arrived makes a tick: one transaction for each room, one synced commit for all rooms, and then one write to
each connection. Nobody is sent what is not on the disk. It trusts everybody, and ends when anything fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pycrdt
from pycrdt import YMessageType, YSyncMessageType
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

_T = TypeVar("_T")
_EMPTY_UPDATE = b"\x00\x00"
Row = tuple[str, int, bytes]
"""A room, a number, and updates with the length of each before it."""


class Room:
    """A document, who is connected, and what has arrived since the last tick."""

    def __init__(self, name: str, stored: list[Row]) -> None:
        self.name = name
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self.connections: set[ServerConnection] = set()
        self.updates: list[bytes] = []
        self.questions: list[tuple[ServerConnection, bytes]] = []
        """Sync steps 1. They are answered after the commit, so that an answer holds nothing that is not durable."""
        self._next = 1 + stored[-1][1] if stored else 0
        with self.doc.transaction():
            for _, _, updates in stored:
                for update in pycrdt.Decoder(updates).read_messages():
                    self.doc.apply_update(update)

    def apply(self, updates: list[bytes]) -> Row:
        """Take in a tick; what is to be stored of it."""
        with self.doc.transaction():
            for update in updates:
                self.doc.apply_update(update)
        self._next += 1
        return self.name, self._next - 1, b"".join(map(pycrdt.write_message, updates))

    def publish(self, updates: list[bytes], questions: list[tuple[ServerConnection, bytes]]) -> None:
        """Send a tick to all, the senders included, and answer."""
        if updates:
            written = b"".join(_frame(pycrdt.create_update_message(update)) for update in updates)
            for connection in self.connections:
                connection.transport.write(written)
        for connection, question in questions:
            answer = pycrdt.handle_sync_message(question, self.doc)
            assert answer is not None
            connection.transport.write(_frame(answer))


class Store:
    """Rows in one SQLite file, used by one thread."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS ticks (room TEXT, number INTEGER, updates BLOB, PRIMARY KEY (room, number)) "
            "WITHOUT ROWID"
        )

    def load(self, room: str) -> list[Row]:
        return self._database.execute("SELECT * FROM ticks WHERE room = ? ORDER BY number", [room]).fetchall()

    def append(self, rows: list[Row]) -> None:
        """Durable on return."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("INSERT INTO ticks VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def fold(self, rows: list[Row]) -> None:
        """Put one row in the place of all that its room had, and close."""
        self._database.execute("BEGIN IMMEDIATE")
        self._database.executemany("DELETE FROM ticks WHERE room = ?", [row[:1] for row in rows])
        self._database.executemany("INSERT INTO ticks VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._database.close()


class Floor:
    """All rooms. They are loaded when somebody comes, and stay."""

    def __init__(self, file: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._store = self._thread.submit(Store, file).result()
        self._rooms: dict[str, asyncio.Task[Room]] = {}
        self._waiting: set[Room] = set()
        self._arrived = asyncio.Event()

    async def handle(self, connection: ServerConnection) -> None:
        """One connection, until it ends."""
        assert connection.request is not None
        name = connection.request.path
        if name not in self._rooms:
            self._rooms[name] = asyncio.create_task(self._open(name))
        room = await self._rooms[name]
        room.connections.add(connection)
        connection.transport.write(_frame(pycrdt.create_sync_message(room.doc)))
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                if isinstance(message, bytes) and message[0] == YMessageType.SYNC:
                    self._take(room, connection, message)
        room.connections.discard(connection)

    def _take(self, room: Room, connection: ServerConnection, message: bytes) -> None:
        if message[1] == YSyncMessageType.SYNC_STEP1:
            room.questions.append((connection, message[1:]))
        elif (update := pycrdt.read_message(message[2:])) != _EMPTY_UPDATE:
            room.updates.append(update)
        self._waiting.add(room)
        self._arrived.set()

    async def tick_for_ever(self) -> None:
        """Apply, store and send what has arrived, again and again."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            waiting, self._waiting = self._waiting, set()
            ticks = [(room, room.updates, room.questions) for room in waiting]
            for room in waiting:
                room.updates, room.questions = [], []
            if rows := [room.apply(updates) for room, updates, _ in ticks if updates]:
                await self._in_thread(self._store.append, rows)
            for room, updates, questions in ticks:
                room.publish(updates, questions)

    async def close(self) -> None:
        """Keep of each room one row, as a server that saves snapshots does."""
        rooms = [await opened for opened in self._rooms.values()]
        await self._in_thread(
            self._store.fold, [(each.name, 0, pycrdt.write_message(each.doc.get_update())) for each in rooms]
        )
        self._thread.shutdown()

    async def _open(self, name: str) -> Room:
        return Room(name, await self._in_thread(self._store.load, name))

    async def _in_thread(self, work: Callable[[Any], _T], argument: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, argument)


def _frame(message: bytes) -> bytes:
    return Frame(Opcode.BINARY, message).serialize(mask=False)


async def main(port: int, folder: Path) -> None:
    """Serve the rooms of a folder."""
    floor = Floor(folder / "floor.db")
    ticking = asyncio.create_task(floor.tick_for_ever())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ticking.cancel)
    options: dict[str, Any] = {"compression": None, "max_size": None, "max_queue": None, "ping_interval": None}
    async with serve(floor.handle, "127.0.0.1", port, **options) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
    await floor.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
