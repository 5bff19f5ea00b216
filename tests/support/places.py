"""Where a board can be: in this process or at a server. One test runs at both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

from crdt_board import Board, BoardHost, open_board
from crdt_board.journal import Entry
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from crdt_board_client import connect
from support.serving import serving
from support.waiting import DEADLINE_SECONDS

PlaceKind = Literal["embedded", "served"]
BOARD = "job-884"


class Place:
    """Boards in one SQLite file; every `open` is a replica of its own."""

    def __init__(self, kind: PlaceKind, file: Path) -> None:
        self.kind = kind
        self.store: FaultyStore
        self.host: BoardHost
        self._port = 0
        self._file = file
        self._stack = contextlib.AsyncExitStack()
        self._address: BoardHost | str = ""

    async def start(self) -> None:
        self.store = FaultyStore(await SqliteStore.open(self._file))
        if self.kind == "served":
            served = await self._stack.enter_async_context(serving(self.store, port=self._port))
            self._address, self.host, self._port = served.url, served.host, served.port
        else:
            self._address = self.host = await self._stack.enter_async_context(BoardHost(self.store))

    @property
    def url(self) -> str:
        """The server's address."""
        assert isinstance(self._address, str)
        return self._address

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Go on with nothing but what is on disk."""
        await self.stop()
        await self.start()

    def open(
        self, model: type[Any] | None, agent: str = "writer", board_id: str = BOARD, **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        if isinstance(self._address, BoardHost):
            return open_board(self._address, board_id, model, agent=agent, **options)
        return connect(self._address, board_id, model, agent=agent, **options)

    @contextlib.asynccontextmanager
    async def open_all(self, model: type[Any] | None, *agents: str) -> AsyncIterator[list[Any]]:
        """One replica for each agent."""
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.open(model, agent)) for agent in agents]

    async def entries(self, *, after: int = 0) -> list[Entry]:
        return await self.store.entries(BOARD, after=after, limit=10_000)


@contextlib.asynccontextmanager
async def place_of(kind: PlaceKind, file: Path, make: type[Place] = Place) -> AsyncIterator[Place]:
    """A place that is in use during the block and has left nothing behind after it."""
    before = asyncio.all_tasks()
    place = make(kind, file)
    await place.start()
    try:
        yield place
    finally:
        await place.stop()
    left = {task.get_name() for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
    assert not left, f"these tasks were left behind: {left}"


def open_plain(place: Place, agent: str) -> Any:
    """A board without a model."""
    if place.kind == "served":
        return connect(place.url, BOARD, agent=agent)
    return open_board(place.host, BOARD, agent=agent)


async def level(*boards: Board[Any]) -> None:
    """Bring all replicas to the same state: after everybody's flush, a commit that everybody waits for."""
    for board in boards:
        await board.flush(DEADLINE_SECONDS)
    made = await boards[0].commit("level")
    for board in boards:
        await has_version(board, made.version)


async def has_version(board: Board[Any], version: int) -> None:
    """Wait until the board's replica holds a checkpoint."""
    await board.wait_for(lambda _state: board.version >= version, DEADLINE_SECONDS)
