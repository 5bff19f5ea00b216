"""A board as optimistic concurrency has it: one JSON object with a version, checked at every write.

``python -m benchmarks.contention.classic <file>`` serves boards over a websocket until SIGTERM, with the library, the
kind of socket and the kind of store that CRDT Board's server has. It keeps the newest state only, checks nothing but
the version, and answers from one thread: the least that such a store has to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed

_BYTES_MAX = 1 << 24
State = dict[str, Any]


class Refused(Exception):
    """Somebody else's write came in between."""


class Client(Protocol):
    """What an agent does with a board."""

    async def load(self) -> tuple[int, State]:
        """The version and the state of the head."""
        ...

    async def commit(self, patch: State, expected: int | None) -> int:
        """Put ``patch`` over the head, key by key; the new version. Durable on return.

        Raises:
            Refused: the head is not at ``expected``. With None the last writer wins.
        """
        ...


class ClassicStore:
    """Boards in one SQLite file, synced at every commit."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE IF NOT EXISTS boards (id TEXT PRIMARY KEY, version INTEGER, state TEXT)")

    def load(self, board: str) -> tuple[int, State]:
        """The head; that of a new board is empty, at version 0."""
        row = self._database.execute("SELECT version, state FROM boards WHERE id = ?", [board]).fetchone()
        return (0, {}) if row is None else (row[0], json.loads(row[1]))

    def commit(self, board: str, patch: State, expected: int | None) -> int:
        """As `Client.commit`."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            version, state = self.load(board)
            if expected is not None and version != expected:
                raise Refused
            self._database.execute(
                "INSERT INTO boards VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET version = excluded.version, state = excluded.state",
                [board, version + 1, json.dumps(state | patch)],
            )
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        return version + 1

    def close(self) -> None:
        """Idempotent."""
        self._database.close()


class LocalClient:
    """A client in the process of the store."""

    def __init__(self, store: ClassicStore, board: str) -> None:
        self._store = store
        self._board = board

    async def load(self) -> tuple[int, State]:
        return self._store.load(self._board)

    async def commit(self, patch: State, expected: int | None) -> int:
        return self._store.commit(self._board, patch, expected)


class SocketClient:
    """A client of the server. ``pushed`` is called with the patch of every commit of the board, also its own."""

    def __init__(self, connection: ClientConnection) -> None:
        self.pushed: Callable[[State], None] = lambda _patch: None
        self._connection = connection
        self._answer: asyncio.Future[State] | None = None

    async def load(self) -> tuple[int, State]:
        answer = await self._ask({"op": "load"})
        return answer["version"], answer["state"]

    async def commit(self, patch: State, expected: int | None) -> int:
        answer = await self._ask({"op": "commit", "patch": patch, "expected": expected})
        if "refused" in answer:
            raise Refused
        version: int = answer["version"]
        return version

    async def _ask(self, question: State) -> State:
        self._answer = asyncio.get_running_loop().create_future()
        await self._connection.send(json.dumps(question))
        return await self._answer

    async def listen(self) -> None:
        """Until the connection ends."""
        async for message in self._connection:
            said = json.loads(message)
            if "pushed" in said:
                self.pushed(said["pushed"])
            elif self._answer is not None:
                self._answer.set_result(said)


@contextlib.asynccontextmanager
async def classic_client(port: int, board: str) -> AsyncIterator[SocketClient]:
    """A connection to one board."""
    address = f"ws://127.0.0.1:{port}/{board}"
    async with connect(address, compression=None, max_size=_BYTES_MAX) as connection:
        client = SocketClient(connection)
        listening = asyncio.create_task(client.listen())
        try:
            yield client
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def main(file: str) -> None:
    """Serve the boards of a file."""
    store = ClassicStore(Path(file))
    connected: defaultdict[str, set[ServerConnection]] = defaultdict(set)

    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        board = connection.request.path.strip("/")
        connected[board].add(connection)
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                asked = json.loads(message)
                answer = _answer(store, board, asked)
                await connection.send(json.dumps(answer))
                if asked["op"] == "commit" and "version" in answer:
                    broadcast(connected[board], json.dumps({"pushed": asked["patch"]}))
        connected[board].discard(connection)

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serve(handle, "127.0.0.1", 0, compression=None, max_size=_BYTES_MAX) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
        await stop.wait()
    store.close()


def _answer(store: ClassicStore, board: str, asked: State) -> State:
    if asked["op"] == "load":
        version, state = store.load(board)
        return {"version": version, "state": state}
    try:
        return {"version": store.commit(board, asked["patch"], asked["expected"])}
    except Refused:
        return {"refused": True}


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
