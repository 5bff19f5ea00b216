"""Keeping what is held for a time: renewed in the background, known to be lost as soon as it may be, and given back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from crdt_board.board_link import Owed, end_task
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.records import TTL_MS_MAX, TTL_MS_MIN
from crdt_board.errors import BoardError, Conflict
from crdt_board.team.desk import Desk
from crdt_board.wire_values import invalid_value

_RENEWALS_PER_TTL = 3
_TRIES_PER_TTL = 30
"""How often at most, when it has not much time left."""
_PAUSE_SECONDS = 1.0
"""How long it pauses at most then: a claim that was handed over lasts for a turn at first, however long its ttl is."""
_GIVE_BACK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Renewing:
    """A claim that lasts for ``ttl_ms`` is renewed, and from each renewal on lasts for so long again.

    That the writer refuses it is logged, and ends nothing but the renewing.
    """

    def __init__(self, desk: Desk, renewal: Operation, *, ttl_ms: int, until: float | None = None) -> None:
        """``until`` is how long the claim lasts at least, on the event loop's clock; None for ``ttl_ms`` from now."""
        self._desk = desk
        self._renewal = renewal
        self._seconds = ttl_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + self._seconds if until is None else until
        self._lost: Conflict | None = None
        self._task: asyncio.Task[None] | None = None
        desk.session.claims[self] = min(self._seconds, self._until - self._loop.time())
        # Most claims end before: a timer costs them a tenth of what a task would.
        self._timer = self._loop.call_later(self._pause, self._begin)

    async def end(self) -> None:
        """Renew no more."""
        self._timer.cancel()
        self._desk.session.claims.pop(self, None)
        if self._task is not None:
            await end_task(self._task)

    @property
    def _pause(self) -> float:
        """Until the next renewal: the less time is left, because one failed, the sooner."""
        shortest = min(self._seconds / _TRIES_PER_TTL, _PAUSE_SECONDS)
        return max((self._until - self._loop.time()) / _RENEWALS_PER_TTL, shortest)

    def _begin(self) -> None:
        self._task = self._desk.spawn(self._renew(), f"keep-{self._renewal.op}")

    async def _renew(self) -> None:
        board_id = self._desk.session.link.board_id
        while True:
            asked_at = self._loop.time()
            try:
                if await self._desk.ask_one(self._renewal) is False:
                    return
                self._until = asked_at + self._seconds
                self._desk.session.claims[self] = self._seconds
            except Conflict as lost:
                logger.warning("board %s: %s", board_id, lost)
                self._lost = lost
                return
            except BoardError as error:
                logger.warning("board %s: a claim was not renewed: %s", board_id, error)
                if not error.retryable:
                    return
            await asyncio.sleep(self._pause)


class Keeping(Renewing):
    """A claim that is renewed, and known to be lost as soon as it may be.

    ``late`` is the error that says that it was not renewed in time.
    """

    def __init__(self, desk: Desk, renewal: Operation, *, ttl_ms: int, until: float, late: Conflict) -> None:
        super().__init__(desk, renewal, ttl_ms=ttl_ms, until=until)
        self._late = late
        self._ended = False

    @property
    def is_held(self) -> bool:
        """False as soon as this process cannot be sure any more that it has the claim."""
        return self.loss is None

    @property
    def loss(self) -> Conflict | None:
        """Why not, unless `is_held`."""
        in_time = not self._ended and self._loop.time() < self._until
        return self._lost or (None if in_time else self._late)

    def check(self) -> None:
        """Raise why not, unless `is_held`."""
        if (loss := self.loss) is not None:
            raise loss

    async def end(self) -> None:
        self._ended = True
        await super().end()


@contextlib.asynccontextmanager
async def renewed(desk: Desk, renewal: Operation, *, ttl_ms: int) -> AsyncIterator[None]:
    """Renew a claim while the block runs."""
    renewing = Renewing(desk, renewal, ttl_ms=ttl_ms)
    try:
        yield
    finally:
        await renewing.end()


async def give_up(desk: Desk, operation: Operation, error: BaseException, *, ttl_ms: int) -> None:
    """As `give_back`, when what the claim was for has ended with ``error``; a cancelled caller is not kept waiting."""
    if isinstance(error, Exception):
        await give_back(desk, operation, ttl_ms=ttl_ms)
    elif isinstance(error, asyncio.CancelledError):  # else the process or its loop ends
        give_back_later(desk, operation, ttl_ms=ttl_ms)


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
    owed = Owed(desk.agent, operation)
    desk.session.owed.add(owed)
    return desk.spawn(_ask_until(desk, owed, ttl_ms / 1000), f"give-back-{operation.op}")


async def _ask_until(desk: Desk, owed: Owed, seconds: float) -> None:
    """When this is cancelled, because the board is closed, it is owed still."""
    try:
        async with asyncio.timeout(seconds):
            await desk.ask_one(owed.operation)
    except (BoardError, TimeoutError) as error:
        logger.debug("board %s: %s was not answered: %s", desk.session.link.board_id, owed.operation.op, error)
    desk.session.owed.discard(owed)


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
