"""Python client of CRDT Board: the same `Board` as in process, with its writer behind a websocket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, overload

from crdt_board.addresses import websocket_address
from crdt_board.board import Board, check_model, closing
from crdt_board.board_link import BoardSession
from crdt_board.errors import ConnectionFailed, LimitExceeded
from crdt_board.joining import join_or_migrate, migrate_board
from crdt_board.limits import DEFAULT_LIMITS, check_board_id, check_name
from crdt_board.rejections import Rejection
from crdt_board.schema import BoardModel
from crdt_board.views import PlainModel
from crdt_board_client.link import RemoteLink

__all__ = ["connect"]

M = TypeVar("M", bound=BoardModel)

_MIGRATION_SECONDS = 60.0


@overload
def connect(
    url: str,
    board_id: str,
    model: type[M],
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[M]]: ...
@overload
def connect(
    url: str,
    board_id: str,
    model: None = None,
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[PlainModel]]: ...
def connect(
    url: str,
    board_id: str,
    model: type[Any] | None = None,
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[Any]]:
    """Connect to a board on a server, or make it there if there is none.

    Without a ``model`` the board is a plain JSON object: see `crdt_board.live.plain.PlainState`.

    ``url`` is that of the server, ``ws://127.0.0.1:8765`` or ``http://127.0.0.1:8765``, with TLS ``wss://`` or
    ``https://``. The block is entered when this replica holds what the
    board holds. When the connection goes it is made again in the background, with growing pauses; edits go on
    meanwhile and are sent then. On leaving the block everything is durable, or the reason why not is raised.

    ``on_rejected`` is called with each value that the board's writer takes back because the board's schema does not
    allow it; it must not wait. Without it, the next ``flush``, ``commit`` or the end of the block raises WriteRejected.

    Raises:
        BadRequest: ``url``, ``board_id`` or ``agent`` is not one.
        ConnectionFailed: no CRDT Board server answered at ``url`` within ``timeout`` seconds; at once when what
            answers there refuses the connection for a reason that waiting does not change.
        SchemaMismatch: the board has another model, or a migration of the model failed.
        VersionConflict: the model migrates the board, and others wrote all the while.
    """
    return _connect(url, board_id, model, agent, timeout=timeout, on_rejected=on_rejected)


@contextlib.asynccontextmanager
async def _connect(
    url: str,
    board_id: str,
    model: type[BoardModel] | None,
    agent: str,
    *,
    timeout: float,
    on_rejected: Callable[[Rejection], None] | None,
) -> AsyncIterator[Board[Any]]:
    check_model(model)
    check_board_id(board_id)
    check_name(agent, "agent", DEFAULT_LIMITS.agent_chars_max)
    address = websocket_address(url)

    async def start(model: type[BoardModel] | None = model) -> BoardSession:
        layout, migrates = (model.board_layout(), model.board_migrations()) if model else (None, ())
        link = RemoteLink(address, board_id, agent, model=layout, migrates=migrates, on_rejected=on_rejected)
        return await link.start(timeout)

    if model is None:
        session = await start()
    else:
        session = await join_or_migrate(start, partial(_migrate, partial(start, None), model, agent), model)
    board: Board[Any] = Board(session, model, agent)
    async with closing(board):
        yield board


async def _migrate(watch: Callable[[], Awaitable[BoardSession]], model: type[BoardModel], agent: str) -> None:
    """Migrate the board over a connection that has no model yet."""
    session = await watch()
    assert isinstance(session.link, RemoteLink)
    try:
        async with asyncio.timeout(_MIGRATION_SECONDS):
            await migrate_board(session.link, model, agent)
    except LimitExceeded as error:
        raise LimitExceeded(
            f"{error.message}; migrate this board with open_board, where its database is", **error.data
        ) from None
    except TimeoutError:
        raise ConnectionFailed(f"the board was not migrated within {_MIGRATION_SECONDS:g} s") from None
    finally:
        await session.link.close()
