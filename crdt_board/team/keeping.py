"""Keeping what is held for a time: renewed in the background, and known to be lost as soon as it may be."""

from __future__ import annotations

import asyncio
import logging
import math

from crdt_board.coordination.operations import Operation
from crdt_board.coordination.records import TTL_MS_MAX, TTL_MS_MIN
from crdt_board.errors import BoardError, Conflict
from crdt_board.team.desk import Desk
from crdt_board.wire_values import invalid_value

_RENEWALS_PER_TTL = 3
_TRIES_PER_TTL = 10
_GIVE_BACK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Keeping:
    """A claim of this process that lasts for ``ttl_ms``, and from each renewal for so long again.

    ``late`` is the error that says that it was not renewed in time.
    """

    def __init__(self, desk: Desk, renewal: Operation, *, ttl_ms: int, until: float, late: Conflict) -> None:
        """``until`` is how long it lasts at least unless it is renewed, on the event loop's clock."""
        self._desk = desk
        self._renewal = renewal
        self._seconds = ttl_ms / 1000
        self._late = late
        self._lost: BoardError | None = None
        self._until = until
        self._renewing = desk.spawn(self._renew(), f"keep-{renewal.op}")

    @property
    def is_held(self) -> bool:
        """False as soon as this process cannot be sure any more that it has the claim."""
        return self._loss() is None

    def check(self) -> None:
        """Raise why not, unless `is_held`."""
        loss = self._loss()
        if loss is not None:
            raise loss

    async def end(self) -> BoardError | None:
        """Renew no more; return why the claim was not held any more by now, if so."""
        loss = self._loss()
        self._until = -math.inf
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        return loss

    def _loss(self) -> BoardError | None:
        return self._lost or (None if asyncio.get_running_loop().time() < self._until else self._late)

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left = max(self._until - loop.time(), self._seconds / _TRIES_PER_TTL)
            await asyncio.sleep(left / _RENEWALS_PER_TTL)
            asked_at = loop.time()
            try:
                await self._desk.ask_one(self._renewal)
            except Conflict as lost:
                logger.warning("board %s: %s", self._desk.session.link.board_id, lost)
                self._lost = lost
                return
            except BoardError as error:
                logger.warning("board %s: a claim was not renewed: %s", self._desk.session.link.board_id, error)
                if not error.retryable:
                    return
                continue
            self._until = asked_at + self._seconds


async def give_back(desk: Desk, operation: Operation, *, ttl_ms: int) -> None:
    """Have the writer decide on an operation that ends a claim; goes on in the background after a while, or when this
    is cancelled. What does not get through within ``ttl_ms`` is not needed any more."""
    asking = give_back_later(desk, operation, ttl_ms=ttl_ms)
    if asking is not None:
        await asyncio.wait([asking], timeout=_GIVE_BACK_SECONDS)


def give_back_later(desk: Desk, operation: Operation, *, ttl_ms: int) -> asyncio.Task[None] | None:
    """The same, in the background; None when the board is closed, so that the claim can only run out."""
    if desk.session.error is not None or desk.session.closed:
        return None
    return desk.spawn(_ask_until(desk, operation, ttl_ms / 1000), f"give-back-{operation.op}")


async def _ask_until(desk: Desk, operation: Operation, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await desk.ask_one(operation)
    except (BoardError, TimeoutError) as error:
        logger.debug("board %s: %s was not answered: %s", desk.session.link.board_id, operation.op, error)


def answer_seconds(give_up_at: float | None) -> float | None:
    """How long the writer may take for an answer when whoever asks waits until ``give_up_at``: not less than it takes
    when it is busy."""
    return None if give_up_at is None else max(give_up_at - asyncio.get_running_loop().time(), _ANSWER_SECONDS)


def checked_ms(seconds: float, name: str, *, at_least: int = TTL_MS_MIN, at_most: int = TTL_MS_MAX) -> int:
    """Seconds in whole milliseconds. Raises InvalidValue."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid_value(name, f"is a number of seconds, not {type(seconds).__name__}")
    if not at_least / 1000 <= seconds <= at_most / 1000:
        raise invalid_value(name, f"must be from {at_least / 1000:g} to {at_most // 1000} seconds, got {seconds!r}")
    return round(seconds * 1000)
