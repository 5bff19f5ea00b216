"""When the writer of a board removes what has run out of scratch fields, and the entries by which it does."""

from __future__ import annotations

from crdt_board.clock import Clock
from crdt_board.limits import Limits
from crdt_board.scratch import plan_expiry
from crdt_board.tail import Tail


class Expiry:
    """Sweeps the scratch fields of one board, a page at a time."""

    def __init__(self, tail: Tail, clock: Clock, limits: Limits) -> None:
        self._tail = tail
        self._clock = clock
        self._limits = limits

    @property
    def is_due(self) -> bool:
        """Whether something may have run out."""
        due = self._tail.fold.scratch.due_at()
        return due is not None and due <= self._clock.now_ms()

    @property
    def seconds_left(self) -> float | None:
        """How long nothing needs to be looked at; None when nothing will run out."""
        due = self._tail.fold.scratch.due_at()
        return None if due is None else min((due - self._clock.now_ms()) / 1000, self._limits.scratch_look_seconds)

    async def sweep(self) -> None:
        """Remove a page of what has run out, if it is still there.

        Raises:
            StoreUnavailable: the store failed.
        """
        tail = self._tail
        await tail.catch_up()
        while due := tail.fold.scratch.due(self._clock.now_ms(), self._limits.scratch_page_keys):
            plan, gone = plan_expiry(tail.loaded, due, self._limits)
            if plan is None or await tail.append([plan]):
                tail.fold.scratch.forget(gone)
                return
            await tail.reload()
            await tail.catch_up()
