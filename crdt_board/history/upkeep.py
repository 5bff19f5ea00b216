"""What keeps a board's stored past in order while it is open: the end of earlier compactions, and its retention.

One for each engine. Everything here goes through the store alone, and in small steps, so that writers do not wait.
"""

from __future__ import annotations

import asyncio
import logging

from crdt_board.errors import BoardError, Conflict
from crdt_board.history.board_history import BoardHistory
from crdt_board.history.compaction import tidy
from crdt_board.limits import Limits
from crdt_board.store.contract import BoardHead, Store

logger = logging.getLogger(__name__)


class Upkeep:
    """Applies the board's retention after every so many entries, whoever wrote them; by default that keeps all.

    Of several processes that have the board open the first one does it, and the others find nothing to do, or are told
    that they came second.
    """

    def __init__(self, store: Store, head: BoardHead, limits: Limits) -> None:
        """Begins with what earlier compactions have left, and with a journal that has grown long meanwhile."""
        self._store = store
        self._board_id = head.board_id
        self._limits = limits
        self._entries = head.seq - head.base_seq
        self._task: asyncio.Task[None] | None = None
        if head.base_seq or self._is_due:
            self._start()

    def count(self, entries: int) -> None:
        """So many entries were added."""
        self._entries += entries
        if self._is_due and (self._task is None or self._task.done()):
            self._start()

    async def close(self) -> None:
        """Stop. What was begun is gone on with by the next opening. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def _is_due(self) -> bool:
        return self._entries >= self._limits.retention_every_entries

    def _start(self) -> None:
        self._task = asyncio.create_task(self._run(apply=self._is_due), name=f"upkeep-{self._board_id}")
        if self._is_due:
            self._entries = 0

    async def _run(self, *, apply: bool) -> None:
        try:
            await tidy(self._store, self._board_id, self._limits)
            if apply:
                await self._apply_retention()
        except Conflict:
            logger.debug("board %s: another process compacts it", self._board_id)
        except BoardError as error:
            logger.warning("board %s: its retention could not be applied: %s", self._board_id, error)
        except Exception:  # the boundary of a background task
            logger.exception("board %s: its retention could not be applied", self._board_id)

    async def _apply_retention(self) -> None:
        history = BoardHistory(self._store, self._board_id)  # not the engine's: who looks back must not wait
        if (await history.retention()).keeps_all:
            return
        report = await history.compact()
        if report.entries or report.dropped:
            logger.info("%s", str(report).splitlines()[0])
