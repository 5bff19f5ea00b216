"""Which task is next, without looking at all of them: a board keeps tens of thousands, and each claim asks."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from crdt_board.coordination.records import Record

if TYPE_CHECKING:
    from crdt_board.coordination.task_record import Rank, TaskRecord


_OPENED_KEPT = 100


class TaskIndex:
    """The open tasks of each queue in the order of their claims, and who waits for whom."""

    def __init__(self) -> None:
        self.last_number = 0
        """The greatest that a task was seen with."""
        self.openings = 0
        """How often a task has become open, or is another open one."""
        self._opened: deque[str] = deque(maxlen=_OPENED_KEPT)
        self._queues: dict[str, list[Rank]] = {}
        self._waiting: dict[str, set[str]] = {}
        self._claims: dict[str, str] = {}

    def replace(self, old: Record | None, new: Record | None) -> None:
        if old is not None:
            self._remove(cast("TaskRecord", old))
        if new is not None:
            self._add(cast("TaskRecord", new))

    def claimed_by(self, token: str) -> str | None:
        """The task that is claimed by a token."""
        return self._claims.get(token)

    def waiting_for(self, name: str) -> Collection[str]:
        """The tasks that wait for one, in no order."""
        return self._waiting.get(name, ())

    def open(self, queues: Sequence[str]) -> Iterator[str]:
        """The open tasks of these queues, or of all when there are none, in the order in which they are claimed."""
        wanted = [self._queues[queue] for queue in dict.fromkeys(queues or self._queues) if queue in self._queues]
        return (rank[-1] for rank in (wanted[0] if len(wanted) == 1 else heapq.merge(*wanted)))

    def opened_after(self, openings: int) -> Sequence[str] | None:
        """The tasks that became open after the first so many; None when that is too long ago to be known."""
        count = self.openings - openings
        return list(itertools.islice(reversed(self._opened), count)) if count <= len(self._opened) else None

    def _add(self, task: TaskRecord) -> None:
        self.last_number = max(self.last_number, task.number)
        if task.state == "open":
            bisect.insort(self._queues.setdefault(task.queue, []), task.rank)
            self.openings += 1
            self._opened.append(task.name)
        if task.status == "claimed" and task.token is not None:
            self._claims[task.token] = task.name
        for name in task.waiting_for:
            self._waiting.setdefault(name, set()).add(task.name)

    def _remove(self, task: TaskRecord) -> None:
        if task.state == "open":
            ranks = self._queues[task.queue]
            del ranks[bisect.bisect_left(ranks, task.rank)]
            if not ranks:
                del self._queues[task.queue]
        if task.status == "claimed" and task.token is not None:
            self._claims.pop(task.token, None)
        for name in task.waiting_for:
            self._waiting[name].discard(task.name)
            if not self._waiting[name]:
                del self._waiting[name]
