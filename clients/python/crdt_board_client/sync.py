"""`crdt_board_client.connect` for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, overload

import crdt_board_client
from crdt_board.blocking import BlockingBoard, blocking
from crdt_board.rejections import Rejection
from crdt_board.schema import BoardModel
from crdt_board.views import PlainModel

__all__ = ["BlockingBoard", "connect"]

M = TypeVar("M", bound=BoardModel)


@overload
def connect(
    url: str,
    board_id: str,
    model: type[M],
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[M]]: ...
@overload
def connect(
    url: str,
    board_id: str,
    model: None = None,
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[PlainModel]]: ...
def connect(
    url: str,
    board_id: str,
    model: type[Any] | None = None,
    *,
    agent: str,
    timeout: float = 5.0,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[Any]]:
    """As `crdt_board_client.connect`, but with a plain ``with``: the board lives in a thread of its own until the end.

    ``on_rejected`` is called in that thread.
    """
    opened = partial(
        crdt_board_client.connect, url, board_id, model, agent=agent, timeout=timeout, on_rejected=on_rejected
    )
    return blocking(opened, board_id)
