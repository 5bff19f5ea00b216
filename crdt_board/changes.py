"""The iterator behind `Board.changes`: what was changed, in order, for a loop that may be slower than the writers."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from crdt_board.board_link import BoardSession
from crdt_board.errors import LimitExceeded
from crdt_board.layout import TEAM_ROOT
from crdt_board.replica import Change

QUEUED_MAX = 100_000


class Changes(AsyncIterator[Change]):
    """Changes at a path, below it and of what holds it, from the moment when this was made; ends never.

    It listens until it is closed or no longer referenced. Holds at most 100,000 changes that were not taken yet.
    """

    def __init__(self, session: BoardSession, path: str) -> None:
        self._session = session
        self._path = path
        self._below = f"{path}/"
        self._changes: deque[Change] = deque()
        self._overflowed = False
        self._filled = asyncio.Event()
        watchers = session.replica.watchers
        watcher = _weakly(self)
        watchers.append(watcher)
        self._stop = weakref.finalize(self, _remove, watchers, watcher)

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        """The next change.

        Raises:
            LimitExceeded: the loop fell more than 100,000 changes behind.
            BoardError: nothing will change any more, since the board was closed or failed.
        """
        while not self._changes:
            if not self._stop.alive:
                raise StopAsyncIteration
            self._filled.clear()
            await self._session.waiters.until(self._filled.is_set, None)
        if self._overflowed:
            raise LimitExceeded(
                f"this loop over changes fell more than {QUEUED_MAX} changes behind",
                limit="changes_queued_max",
                value=len(self._changes) + 1,
                maximum=QUEUED_MAX,
            )
        return self._changes.popleft()

    async def aclose(self) -> None:
        """Stop listening. Idempotent."""
        self._stop()

    def take_in(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not self._concerns(change.path):
                continue
            if len(self._changes) >= QUEUED_MAX:
                self._overflowed = True
                break
            self._changes.append(change)
        if self._changes:
            self._filled.set()

    def _concerns(self, path: str) -> bool:
        """Also what holds the path: a record that was replaced or deleted has changed in all of its parts."""
        if not self._path:
            return not path.startswith(f"{TEAM_ROOT}/")
        return path == self._path or path.startswith(self._below) or self._path.startswith(f"{path}/")


def _weakly(changes: Changes) -> Callable[[Sequence[Change]], None]:
    """A watcher that does not keep ``changes`` alive: a loop that was left by ``break`` does not close its iterator."""
    reference = weakref.ref(changes)

    def watch(seen: Sequence[Change]) -> None:
        listening = reference()
        if listening is not None:
            listening.take_in(seen)

    return watch


def _remove(watchers: list[Callable[[Sequence[Change]], None]], watcher: Callable[[Sequence[Change]], None]) -> None:
    if watcher in watchers:
        watchers.remove(watcher)
