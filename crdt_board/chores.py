"""What the writer of a board does unasked beside its entries: snapshots, warnings of bounds that are near, upkeep."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from typing import Any

from crdt_board import snapshots
from crdt_board.document import Document
from crdt_board.headroom import Headroom
from crdt_board.history.upkeep import Upkeep
from crdt_board.limits import Limits
from crdt_board.sizes import writer_warnings
from crdt_board.store.contract import BoardHead, Store
from crdt_board.tail import Tail

_CLOSING_SNAPSHOT_ENTRIES = 64
_CLOSING_SNAPSHOT_BYTES = 32 * 1024
_PAUSE_SECONDS_MAX = 60.0
"""Between two snapshots, however long the first one took or waited for its turn: opening after a crash reads what was
written meanwhile."""

logger = logging.getLogger(__name__)


class Chores:
    """The chores of one board, in tasks of their own where they take long. It listens to the board's tail."""

    def __init__(
        self,
        tail: Tail,
        store: Store,
        head: BoardHead,
        *,
        limits: Limits,
        compress: snapshots.Compress,
        between_batches: Callable[[Callable[[Document], None]], object],
    ) -> None:
        """``between_batches`` has something done when the document holds durable content only."""
        self._tail = tail
        self._store = store
        self._compress = compress
        self._limits = limits
        self._headroom = Headroom(limits)
        self._snapshot_task: asyncio.Task[None] | None = None
        self._snapshot_at = -math.inf
        self._between_batches = between_batches
        self._look_again: asyncio.TimerHandle | None = None
        self._has_ended = False
        self._upkeep = Upkeep(store, head, limits)
        tail.on_taken_in = self._upkeep.count
        tail.on_appended = self._snapshot_when_due
        self._warn()

    async def end_upkeep(self) -> None:
        """Stop looking after the stored past, and whether a snapshot is due. Idempotent."""
        self._has_ended = True
        if self._look_again is not None:
            self._look_again.cancel()
        await self._upkeep.close()

    async def last_snapshot(self) -> None:
        """Before the board is closed: take a snapshot when it saves time later."""
        if self._snapshot_task is not None:
            await self._snapshot_task
        loaded = self._tail.loaded
        if (
            loaded.entries_since_snapshot >= _CLOSING_SNAPSHOT_ENTRIES
            or loaded.bytes_since_snapshot >= _CLOSING_SNAPSHOT_BYTES
        ):
            await self._save()

    @property
    def _is_due(self) -> bool:
        loaded, limits = self._tail.loaded, self._limits
        return (
            loaded.entries_since_snapshot >= limits.snapshot_every_entries
            or loaded.bytes_since_snapshot >= limits.snapshot_every_bytes
        )

    def _snapshot_when_due(self) -> None:
        if self._is_due and self._may_take_time():
            self._warn()
            self._snapshot_task = asyncio.create_task(self._save(), name=f"snapshot-{self._tail.board_id}")
        elif self._is_due:
            self._look_when_it_may()

    def _warn(self) -> None:
        """Log what is near a bound, once; as often as there is a snapshot, since one is far shorter than the last fifth
        of any bound."""
        loaded = self._tail.loaded
        measures = writer_warnings(loaded, self._limits)
        for warning in self._headroom.look_at_all(loaded.document, measures):
            logger.warning("board %s is near a limit, beyond which edits are refused: %s", self._tail.board_id, warning)

    def _may_take_time(self) -> bool:
        is_running = self._snapshot_task is not None and not self._snapshot_task.done()
        return not is_running and asyncio.get_running_loop().time() >= self._snapshot_at

    def _save(self) -> Coroutine[Any, Any, None]:
        """Captures the board at once; the coroutine does the rest."""
        began = asyncio.get_running_loop().time()
        return self._save_captured(snapshots.capture(self._tail.loaded), began)

    async def _save_captured(self, captured: snapshots.CapturedBoard, began: float) -> None:
        await snapshots.save(self._store, self._tail.board_id, captured, self._limits, self._compress)
        loop = asyncio.get_running_loop()
        now = loop.time()
        pause = (now - began) * (1 / self._limits.snapshot_time_share - 1)
        self._snapshot_at = now + min(pause, _PAUSE_SECONDS_MAX)
        if self._is_due:
            self._look_when_it_may()

    def _look_when_it_may(self) -> None:
        """Once the pause is over: perhaps nothing is written then that would have it looked."""
        loop = asyncio.get_running_loop()
        if self._look_again is None and not self._has_ended and self._snapshot_at > loop.time():
            self._look_again = loop.call_at(self._snapshot_at, self._between_batches, self._snapshot_if_due)

    def _snapshot_if_due(self, _document: Document) -> None:
        self._look_again = None
        self._snapshot_when_due()
