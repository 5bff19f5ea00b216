"""What waits for the writer of a board, in the order in which it came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crdt_board.batches import Batch, CommitItem, ReportItem
from crdt_board.coordinating import CoordinationItem
from crdt_board.document import Document
from crdt_board.errors import BoardError, MalformedUpdate
from crdt_board.guarding import DocumentBroken
from crdt_board.limits import Limits
from crdt_board.schema_changes import SchemaItem
from crdt_board.signals import Signal
from crdt_board.submissions import Submission

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class ReadItem:
    """A look at the document between two batches. ``run`` answers, and tells whether the document is still sound."""

    run: Callable[[Document], bool]
    refuse: Callable[[BoardError], None]


def read_item(look: Callable[[Document], Answer]) -> tuple[ReadItem, asyncio.Future[Answer]]:
    """An item that runs ``look``, and the future of its result."""
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def run(document: Document) -> bool:
        if answer.done():
            return True
        try:
            answer.set_result(look(document))
        except DocumentBroken as panic:
            answer.set_exception(MalformedUpdate(f"the CRDT engine panicked: {panic}"))
            return False
        except Exception as error:  # noqa: BLE001 - the caller's own function: its error is the caller's answer
            answer.set_exception(error)
        return True

    def refuse(error: BoardError) -> None:
        if not answer.done():
            answer.set_exception(error)

    return ReadItem(run, refuse), answer


InboxItem = Submission | CoordinationItem | CommitItem | ReportItem | ReadItem | SchemaItem


class Inbox:
    """A queue that knows how many bytes it holds, and hands them out in batches."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._items: list[InboxItem] = []
        self._bytes = 0
        self._room = Signal(is_set=True)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    async def wait_for_room(self) -> None:
        await self._room.wait()

    def put(self, item: InboxItem) -> None:
        self._items.append(item)
        if isinstance(item, Submission):
            self._count(item.size)

    def take_read(self) -> ReadItem | None:
        """The read at the head of the queue, if one is."""
        if self._items and isinstance(self._items[0], ReadItem):
            item = self._items.pop(0)
            assert isinstance(item, ReadItem)
            return item
        return None

    def take_batch(self) -> Batch:
        """Submissions up to a limit, the coordination behind them, and the commit or report behind that; or a schema. A
        read or schema ends one before it, and so do submissions behind coordination."""
        batch = Batch()
        if self._items and isinstance(self._items[0], SchemaItem):
            item = self._items.pop(0)
            assert isinstance(item, SchemaItem)
            batch.schema = item
            return batch
        taken = updates = size = 0
        limits = self._limits
        for item in self._items:
            if updates >= limits.batch_updates_max or size >= limits.batch_bytes_max:
                break
            if isinstance(item, ReadItem | SchemaItem) or (batch.coordination and isinstance(item, Submission)):
                break
            taken += 1
            if isinstance(item, CommitItem):
                batch.commit = item
                break
            if isinstance(item, ReportItem):
                batch.report = item
                break
            if isinstance(item, CoordinationItem):
                batch.coordination.append(item)
                updates += 1
                continue
            batch.submissions.append(item)
            updates += len(item.updates)
            size += item.size
        del self._items[:taken]
        self._count(-size)
        return batch

    def refuse_all(self, error: BoardError) -> None:
        items, self._items = self._items, []
        self._count(-self._bytes)
        for item in items:
            item.refuse(error)

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.inbox_bytes_max:
            self._room.clear()
        else:
            self._room.set()
