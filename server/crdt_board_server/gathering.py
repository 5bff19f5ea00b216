"""Handling together what many peers send within a moment: what interrupt moderation is to a network card.

A turn of the event loop, a synced write and the way to the store's thread and back take longer than a small update.
One busy board gathers by itself: what arrives while it is written is its next batch. Two hundred boards of a few
updates a second each do not, and each update would pay for all of that alone.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Callable
from typing import Any

GATHER_SECONDS = 0.003
"""How long what arrives may wait for more, in a crowd."""

CROWD = 24
"""So many sockets must have had something within `_LOOK_BACK_SECONDS`: some 1,000 messages a second of as many peers.
A few agents that wait for their answers are never made to wait for each other."""

_LOOK_BACK_SECONDS = 0.02

_Ready = list[tuple[selectors.SelectorKey, int]]


class GatheringSelector(selectors.DefaultSelector):
    """Tells of sockets at once, or every `GATHER_SECONDS` while there is a crowd.

    What was registered first is told of at once when the loop has nothing else to do: an event loop begins with its own
    pipe, by which the store's thread and signals wake it. While the loop is busy, in a crowd, it may be told of
    `GATHER_SECONDS` later, as all are.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._urgent = selectors.DefaultSelector()
        self._told_at = -math.inf
        self._lately: dict[int, float] = {}  # when each socket last had something, oldest first

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if len(self.get_map()) == 1:
            self._urgent.register(fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        if key.fd in self._urgent.get_map():
            self._urgent.unregister(key.fd)
        return key

    def close(self) -> None:
        self._urgent.close()
        super().close()

    def select(self, timeout: float | None = None) -> _Ready:
        rest = self._told_at + GATHER_SECONDS - self._now() if len(self._lately) >= CROWD else 0.0
        if rest > 0:
            if timeout is not None and timeout <= 0:  # there is work to do: no look at sockets between its parts
                return []
            urgent = self._urgent.select(rest if timeout is None else min(rest, timeout))
            if urgent or (timeout is not None and timeout <= rest):
                return urgent
            timeout = None if timeout is None else timeout - rest
        found = super().select(timeout)
        self._note(found)
        return found

    def _note(self, found: _Ready) -> None:
        now = self._told_at = self._now()
        lately = self._lately
        for key, _ in found:
            lately.pop(key.fd, None)
            lately[key.fd] = now
        for fd in list(lately):
            if lately[fd] > now - _LOOK_BACK_SECONDS:
                break
            del lately[fd]


def gathering_loop() -> asyncio.AbstractEventLoop:
    """A new event loop that gathers."""
    return asyncio.SelectorEventLoop(GatheringSelector())
