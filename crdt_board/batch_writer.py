"""Making a batch durable: plan, append, and plan again when others were first."""

from __future__ import annotations

import asyncio
import logging
import math

from crdt_board.applying import Lessons, Poisoned
from crdt_board.batches import Batch
from crdt_board.clock import Clock
from crdt_board.commit_planning import may_be_violated, plan_commit
from crdt_board.conflicts import conflict_of
from crdt_board.limits import Limits
from crdt_board.planning import (
    must_plan_anew,
    plan_coordination,
    plan_report,
    plan_submissions,
    plan_superseding,
)
from crdt_board.plans import Plan
from crdt_board.preconditions import look_up
from crdt_board.store.contract import Store
from crdt_board.tail import Tail
from crdt_board.verdicts import Suspects

_CONTENTION_SECONDS = 5.0
"""For how long after another process came first what was written is looked up before a decision: one that was made on
an old state is made anew, in a document that is loaded anew."""

logger = logging.getLogger(__name__)


class BatchWriter:
    """Writes the batches of one board at its tail.

    Invariants:
        1. Nothing is acknowledged before it is durable.
        2. A refused commit leaves nothing in the document.
    """

    def __init__(self, tail: Tail, store: Store, *, clock: Clock, limits: Limits) -> None:
        self._tail = tail
        self._store = store
        self._clock = clock
        self._limits = limits
        self._contended_until = -math.inf
        self._suspects = Suspects(limits)

    async def write(self, batch: Batch) -> None:
        """Make a batch durable, publish it, and answer all that is in it.

        Raises:
            StoreUnavailable: the store failed; after `Tail.recover` the same batch may be given again.
        """
        tail = self._tail
        while not batch.durable:
            if batch.coordinates and asyncio.get_running_loop().time() < self._contended_until:
                await tail.catch_up()
            batch.refuse_outdated(tail.schemas.refusal_of)
            commit = batch.open_commit()
            if commit is not None:
                await look_up(commit, tail, self._store)
            await self._append(batch, await self._plan(batch))
        for submission in batch.submissions:
            submission.finish(tail.seq)
        for item in batch.coordination:
            item.finish(tail.seq)
        if batch.report is not None:
            batch.report.finish()

    async def _plan(self, batch: Batch) -> list[Plan]:
        """Apply the batch. When yrs panics, or what is to be refused was applied with more, rebuild the document and
        apply one update at a time to find the guilty."""
        tail, lessons = self._tail, Lessons(suspects=self._suspects)
        is_timed = batch.coordinates or tail.loaded.document.ledger.watching
        now_ms = await tail.now_ms() if is_timed else self._clock.now_ms()
        while True:
            try:
                return self._planned(batch, lessons, now_ms)
            except Poisoned as poisoned:
                if poisoned.suspect is None and not poisoned.several:
                    logger.warning("board %s: what was written is refused and the document rebuilt", tail.board_id)
                lessons = lessons.learned(poisoned)
                await tail.reload()

    def _planned(self, batch: Batch, lessons: Lessons, now_ms: int) -> list[Plan]:
        loaded, limits = self._tail.loaded, self._limits
        plans = plan_submissions(loaded, batch, limits, lessons)
        plans += plan_superseding(loaded, plans, now_ms)
        commit = batch.open_commit()
        plans += plan_coordination(loaded, batch, limits, now_ms)
        plan = plan_commit(loaded, commit, plans, limits, now_ms) if commit else None
        if batch.report is not None:
            plan = plan_report(loaded, batch.report.report, plans, limits)
        return [*plans, plan] if plan else plans

    async def _append(self, batch: Batch, plans: list[Plan]) -> None:
        """Append the plans; ``batch.durable`` stays False when they must be made anew because a commit was refused, or
        because the board has another schema by now."""
        tail = self._tail
        schema = tail.schemas.number
        while plans and not await tail.append(plans, on_durable=batch.made_durable):
            self._contended_until = asyncio.get_running_loop().time() + _CONTENTION_SECONDS
            loaded = tail.loaded
            await tail.catch_up()
            # After a jump the document is another one, which holds nothing of these plans.
            if tail.loaded is not loaded:
                return
            if tail.schemas.number != schema or batch.coordinates or must_plan_anew(tail.loaded, plans):
                await tail.reload()
                return
            if not await self._still_allowed(plans):
                return
        batch.made_durable()

    async def _still_allowed(self, plans: list[Plan]) -> bool:
        """After others' entries came in between: drop a commit that they refuse.

        Returns False when everything must be planned anew: the patch of a commit that is refused, or may be, was in the
        document, which has been rebuilt without it (invariant 2).
        """
        commit, tail = plans[-1].commit, self._tail
        if commit is None:
            return True
        await look_up(commit, tail, self._store)
        refusal = conflict_of(tail.fold, commit, plans[:-1])
        if refusal is not None:
            commit.refuse(refusal)
        if not commit.answer.done():
            if may_be_violated(tail.loaded, commit):
                await tail.reload()
                return False
            plans[-1].checksum = tail.loaded.document.checksum()
            return True
        if plans.pop().updates:
            await tail.reload()
            return False
        return True
