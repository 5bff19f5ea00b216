"""Two agents on one board, each with a replica of its own: in this process, or at a server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar

from crdt_board import Board, BoardHost, BoardModel, open_board
from crdt_board.store.memory import MemoryStore
from crdt_board_client import connect

M = TypeVar("M", bound=BoardModel)


@contextlib.asynccontextmanager
async def pair(url: str | None, board_id: str, model: type[M]) -> AsyncIterator[tuple[Board[M], Board[M]]]:
    """The agents ``ann`` and ``bob``; in this process when there is no ``url``, see the fixture ``either_url``."""
    async with contextlib.AsyncExitStack() as stack:
        if url is None:
            where = await stack.enter_async_context(BoardHost(MemoryStore()))
            opened = [open_board(where, board_id, model, agent=agent) for agent in ("ann", "bob")]
        else:
            opened = [connect(url, board_id, model, agent=agent) for agent in ("ann", "bob")]
        ann, bob = [await stack.enter_async_context(each) for each in opened]
        yield ann, bob
