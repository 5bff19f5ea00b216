"""`crdt_board.open_board` for programs without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

from crdt_board import local
from crdt_board.blocking import BlockingBoard, blocking
from crdt_board.rejections import Rejection
from crdt_board.schema import BoardModel
from crdt_board.views import PlainModel

__all__ = ["BlockingBoard", "open_board"]

M = TypeVar("M", bound=BoardModel)


@overload
def open_board(
    where: str | Path,
    board_id: str,
    model: type[M],
    *,
    agent: str,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[M]]: ...
@overload
def open_board(
    where: str | Path,
    board_id: str,
    model: None = None,
    *,
    agent: str,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[PlainModel]]: ...
def open_board(
    where: str | Path,
    board_id: str,
    model: type[Any] | None = None,
    *,
    agent: str,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractContextManager[BlockingBoard[Any]]:
    """As `crdt_board.open_board`, but with a plain ``with``: the board lives in a thread of its own until the end.

    ``on_rejected`` is called in that thread.
    """
    opened = partial(local.open_board, where, board_id, model, agent=agent, on_rejected=on_rejected)
    return blocking(opened, board_id)
