"""Python client of CRDT Board: the same `Board` as in process, with its writer behind a websocket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import urlsplit

from crdt_board.board import Board, check_model, closing
from crdt_board.board_link import BoardSession
from crdt_board.errors import BadRequest
from crdt_board.limits import DEFAULT_LIMITS, check_board_id, check_name
from crdt_board.replica import Replica
from crdt_board.schema import BoardModel
from crdt_board_client.link import RemoteLink

__all__ = ["connect"]

M = TypeVar("M", bound=BoardModel)


@contextlib.asynccontextmanager
async def connect(
    url: str, board_id: str, model: type[M], *, agent: str, timeout: float = 5.0
) -> AsyncIterator[Board[M]]:
    """Connect to a board on a server, or make it there if there is none.

    ``url`` is that of the server, like ``ws://127.0.0.1:8765``. The block is entered when this replica holds what the
    board holds. When the connection goes it is made again in the background, with growing pauses; edits go on
    meanwhile and are sent then. On leaving the block everything is durable, or the reason why not is raised.

    Raises:
        BadRequest: ``url``, ``board_id`` or ``agent`` is not one.
        ConnectionFailed: no CRDT Board server answered at ``url`` within ``timeout`` seconds.
        SchemaMismatch: the board has another model.
    """
    check_model(model)
    check_board_id(board_id)
    check_name(agent, "agent", DEFAULT_LIMITS.agent_chars_max)
    link = RemoteLink(_checked_url(url), board_id, agent, Replica(model.board_layout()))
    session = BoardSession(link.replica, link)
    await link.start(session, timeout)
    async with closing(Board(session, model, agent)) as board:
        yield board


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        extra = parts.query or parts.fragment
        is_address = parts.scheme in ("ws", "wss") and parts.hostname and parts.port != 0 and not extra
    except (ValueError, AttributeError):  # a port that is no number, or something else than a str
        is_address = False
    if not is_address:
        raise BadRequest(f"{url!r} is not the address of a server: use ws://host:port or wss://host:port")
    if "ws" in urlsplit(url).path.split("/"):
        raise BadRequest(f"{url!r}: give the server's address without /ws and the board; the board is an argument")
    return url.rstrip("/")
