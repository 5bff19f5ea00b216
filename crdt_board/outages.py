"""Riding out a store that fails: again and again after a growing pause, until it answers or there is no more time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable

from crdt_board.errors import StoreUnavailable
from crdt_board.signals import Signal

_RETRY_SECONDS_MIN = 0.05
_RETRY_SECONDS_MAX = 5.0
_SHARE_OF_OUTAGE = 8
"""A pause is at most this share of the outage so far: claims that last that much longer than an outage are renewed in
time. Pauses that double are up to as long as the outage itself."""

logger = logging.getLogger(__name__)


class Outages:
    """The failures of the store under one board. One attempt at a time."""

    def __init__(self, board_id: str) -> None:
        self.failure: StoreUnavailable | None = None
        """Why the board cannot be written just now; None while the store answers."""
        self._board_id = board_id
        self._give_up_at = math.inf
        self._hurry = Signal()

    async def ride_out(
        self, attempt: Callable[[], Awaitable[None]], *, recover: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run ``attempt``; while the store fails, again after a growing pause, each time after ``recover``.

        Raises:
            StoreUnavailable: it failed at a moment beyond that of `give_up_after`.
        """
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            try:
                if self.failure is not None and recover is not None:
                    await recover()
                await attempt()
            except StoreUnavailable as error:
                if self.failure is None:
                    logger.warning("board %s: the store failed, trying again: %s", self._board_id, error)
                self.failure = error
                if loop.time() >= self._give_up_at:
                    raise
                await self._pause(_pause_after(loop.time() - began_at) * random.uniform(0.5, 1.0))
            else:
                self.failure = None
                return

    def give_up_after(self, seconds: float) -> None:
        """From so many seconds on, raise what the store raises instead of trying again."""
        self._give_up_at = min(self._give_up_at, asyncio.get_running_loop().time() + seconds)
        self._hurry.set()

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the moment to give up, which may be set meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := min(until, self._give_up_at) - loop.time()) > 0:
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hurry.wait()


def _pause_after(seconds: float) -> float:
    """How long to wait at most when the store has failed for so many seconds."""
    return min(max(seconds / _SHARE_OF_OUTAGE, _RETRY_SECONDS_MIN), _RETRY_SECONDS_MAX)
