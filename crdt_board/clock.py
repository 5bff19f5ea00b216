"""Time as an argument: what the engine and the replicas ask for the hour."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time. Order never depends on it; entries are ordered by ``seq``."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is moved, for tests."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        self._now_ms += milliseconds
