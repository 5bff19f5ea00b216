"""Waking the writer of a board when the time of a lease or the like is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crdt_board.clock import Clock
from crdt_board.document import Document

_SLACK_SECONDS = 0.01
"""So that the deadline has passed on the store's clock too, which is the one that counts."""

_SECONDS_MAX = 3600.0
"""The event loop's clock need not go with the other for longer."""


class Deadlines:
    """One timer for the earliest deadline of a board's records."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._deadline_ms: int | None = None

    def watch(self, document: Document) -> None:
        """Set the timer for what the document holds now."""
        deadline_ms = document.ledger.next_deadline_ms()
        if deadline_ms == self._deadline_ms and self._timer is not None:
            return
        self.stop()
        if deadline_ms is None:
            return
        self._deadline_ms = deadline_ms
        seconds = max(0.0, (deadline_ms - self._clock.now_ms()) / 1000) + _SLACK_SECONDS
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, _SECONDS_MAX), self._wake)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._deadline_ms = None

    def _wake(self) -> None:
        self.stop()
        self._ring()
