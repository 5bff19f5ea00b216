"""Timed claims that are kept while something runs, and given back without fuss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from crdt_board.board_link import end_task
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BoardError, Conflict
from crdt_board.team.desk import Desk

_RENEWALS_PER_TTL = 3

_TELL_SECONDS_MAX = 5.0

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def renewed(desk: Desk, renewal: Operation, ttl_ms: int) -> AsyncIterator[None]:
    """Ask for ``renewal`` again and again while the block runs. That it is refused is logged, and ends nothing."""
    renewing: list[asyncio.Task[None]] = []
    seconds = ttl_ms / 1000 / _RENEWALS_PER_TTL
    # Most blocks are over before: a timer costs them a tenth of what a task would.
    timer = asyncio.get_running_loop().call_later(
        seconds, lambda: renewing.append(desk.spawn(_renew(desk, renewal, seconds), renewal.op))
    )
    try:
        yield
    finally:
        timer.cancel()
        for task in renewing:
            await end_task(task)


async def _renew(desk: Desk, renewal: Operation, seconds: float) -> None:
    while True:
        try:
            await desk.ask_one(renewal)
        except Conflict as lost:
            logger.warning("board %s: %s", desk.session.link.board_id, lost)
            return
        except BoardError as error:
            logger.warning("board %s: a claim was not renewed: %s", desk.session.link.board_id, error)
            if not error.retryable:
                return
        await asyncio.sleep(seconds)


async def give_up(desk: Desk, operation: Operation, error: BaseException) -> None:
    """Tell the writer that what a claim was for has ended with ``error``, if that gets through soon.

    If not, the claim runs out by itself. A cancelled caller is not kept waiting.
    """
    if desk.session.error is not None:
        return
    telling = _tell(desk, operation)
    if isinstance(error, Exception):
        await telling
    elif isinstance(error, asyncio.CancelledError):
        desk.spawn(telling, operation.op)
    else:
        telling.close()  # the process or its loop ends


async def _tell(desk: Desk, operation: Operation) -> None:
    with contextlib.suppress(BoardError, TimeoutError):
        async with asyncio.timeout(_TELL_SECONDS_MAX):
            await desk.ask_one(operation)
