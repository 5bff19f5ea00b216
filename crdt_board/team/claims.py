"""A claimed task in the hands of an agent, and how it gets one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType

from pydantic import JsonValue

from crdt_board.commit_arguments import json_copy
from crdt_board.coordinating import check_operations
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.task_index import TaskIndex
from crdt_board.coordination.task_operations import (
    DELAY_MS_MAX,
    ERROR_CHARS_MAX,
    ClaimTask,
    CompleteTask,
    FailTask,
    ReleaseTask,
    RenewTask,
)
from crdt_board.coordination.task_record import TaskRecord
from crdt_board.coordination.tasks import index_of, open_tasks, opened_tasks
from crdt_board.errors import BadRequest, TaskLost
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.team.desk import Desk, new_token
from crdt_board.team.keeping import Keeping, answer_seconds, checked_ms, give_back, give_back_later
from crdt_board.wire_values import invalid_value


class ClaimedTask:
    """A task that this agent has claimed; given by `Tasks.claim` and `Tasks.work`.

    The claim is renewed in the background. Should that not get through for longer than its ttl, then somebody else may
    have the task before this process has noticed; whatever ends the claim is refused then.
    """

    def __init__(self, desk: Desk, record: TaskRecord, *, asked_at: float) -> None:
        assert record.token is not None
        assert record.ttl_ms is not None
        self.key = record.name
        self.queue = record.queue
        self.payload = record.payload
        self.attempt = record.attempt
        """Which attempt this is, from 1 on."""
        self.attempts = record.attempts
        """How many there may be."""
        self.result: JsonValue = None
        """What the task is completed with at the end of the block."""
        self._desk = desk
        self._token = record.token
        self._ttl_ms = record.ttl_ms
        renewal = RenewTask(name=self.key, token=self._token, ttl_ms=self._ttl_ms)
        late = TaskLost(f"task {self.key} was not renewed in time, and somebody else may have it", task=self.key)
        self._keeping = Keeping(desk, renewal, ttl_ms=self._ttl_ms, until=asked_at + self._ttl_ms / 1000, late=late)
        self._is_settled = False

    def __repr__(self) -> str:
        return f"<ClaimedTask {self.key!r} attempt {self.attempt} of {self.attempts}>"

    @property
    def is_settled(self) -> bool:
        """Whether the claim was ended: by `complete`, `fail`, `release` or a commit."""
        return self._is_settled

    @property
    def is_held(self) -> bool:
        """False as soon as this process cannot be sure any more that the task is its own."""
        return self._keeping.is_held

    def check(self) -> None:
        """Raise TaskLost unless `is_held`."""
        self._keeping.check()

    async def complete(self, result: JsonValue = None) -> None:
        """The task is done, with a result that everybody can read. Durable on return.

        Raises:
            TaskLost: the claim ran out, or the task was cancelled; nothing was changed.
            InvalidValue, LimitExceeded: ``result`` is no JSON, or too large.
        """
        await self._settle(self.completion(result))

    async def fail(self, error: str | BaseException, *, retry: bool = True, delay: float = 0.0) -> None:
        """This attempt failed: the task is open again after ``delay`` seconds, unless ``retry`` is False or this was
        the last attempt; then it has failed. Durable on return.

        Raises:
            TaskLost: the claim ran out, or the task was cancelled; nothing was changed.
        """
        await self._settle(self.failure(error, retry=retry, delay=delay))

    async def release(self) -> None:
        """Give the task back as if it had not been claimed. Durable on return; nothing happens when it is lost."""
        await self._settle(self.giving_back)

    async def drop(self) -> None:
        """As `release`, without being kept up when the writer cannot be reached."""
        if await self.settled():
            await give_back(self._desk, self.giving_back, ttl_ms=self._ttl_ms)

    async def drop_with(self, error: BaseException) -> None:
        """As `fail`, without being kept up when the writer cannot be reached."""
        if await self.settled():
            await give_back(self._desk, self.failure(error), ttl_ms=self._ttl_ms)

    async def settled(self) -> bool:
        """The claim ends, or has been ended by a commit; False when it had before."""
        before, self._is_settled = self._is_settled, True
        await self._keeping.end()
        return not before

    def completion(self, result: JsonValue) -> CompleteTask:
        """What completes the task."""
        self._check_open()
        operation = CompleteTask(name=self.key, token=self._token, result=json_copy(result, "result"))
        check_operations(self._desk.agent, [operation], DEFAULT_LIMITS)
        return operation

    def failure(self, error: str | BaseException, *, retry: bool = True, delay: float = 0.0) -> FailTask:
        """What fails the attempt."""
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        text = text.encode(errors="replace").decode()[:ERROR_CHARS_MAX]
        delay_ms = checked_ms(delay, "delay", at_least=0, at_most=DELAY_MS_MAX)
        return FailTask(name=self.key, token=self._token, error=text, retry=retry, delay_ms=delay_ms)

    @property
    def giving_back(self) -> ReleaseTask:
        """What gives the task back."""
        return ReleaseTask(token=self._token)

    def _check_open(self) -> None:
        if self._is_settled:
            raise BadRequest(f"the claim to task {self.key} was ended before")

    async def _settle(self, operation: Operation) -> None:
        self._check_open()
        await self._desk.ask_one(operation)
        await self.settled()


class Claim:
    """What `Tasks.claim` returns: claims a task when its block is entered."""

    def __init__(
        self, desk: Desk, queues: Sequence[str], where: Mapping[str, JsonValue], *, ttl: float, timeout: float | None
    ) -> None:
        self._finder = Finder(desk, queues, where, ttl=ttl)
        self._timeout = timeout
        self._task: ClaimedTask | None = None

    async def __aenter__(self) -> ClaimedTask:
        if self._task is not None:
            raise BadRequest("a claim is entered once; call board.tasks.claim(...) again")
        self._task = await self._finder.next(self._timeout)
        if self._task is None:
            raise TimeoutError(f"{self._finder} had no open task within {self._timeout} s")
        return self._task

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        assert task is not None
        if task.is_settled:
            return
        if error is None:
            try:
                await task.complete(task.result)
            except BadRequest as refused:
                await task.drop_with(refused)
                raise
            finally:
                await task.settled()
        elif isinstance(error, Exception):
            await task.drop_with(error)
        else:  # this agent is told to stop, which says nothing of the task
            await task.drop()


class Finder:
    """Looks for the next task of some queues, and waits for one."""

    def __init__(self, desk: Desk, queues: Sequence[str], where: Mapping[str, JsonValue], *, ttl: float) -> None:
        self._desk = desk
        self._queues = tuple(queues)
        self._where = _checked_where(where)
        self._ttl_ms = checked_ms(ttl, "ttl")
        self._seen: tuple[TaskIndex, int] | None = None
        """In which index, and after how many openings, there was nothing for it."""

    def __str__(self) -> str:
        return f"queue {', '.join(self._queues)}" if self._queues else "the board"

    async def next(self, timeout: float | None, *before: Operation) -> ClaimedTask | None:
        """The next open task; None when there was none for ``timeout`` seconds (None waits for ever).

        ``before`` is decided in the same entry as the first attempt to claim. Cancelling leaves nothing claimed.
        """
        loop = asyncio.get_running_loop()
        give_up_at = None if timeout is None else loop.time() + timeout
        while True:
            task = await self._try(give_up_at, before)
            left = None if give_up_at is None else give_up_at - loop.time()
            if task is not None or (left is not None and left <= 0):
                return task
            before = ()
            try:
                await self._desk.until(self._sees_one, left)
            except TimeoutError:
                return None

    async def _try(self, give_up_at: float | None, before: Sequence[Operation]) -> ClaimedTask | None:
        token, asked_at = new_token(), asyncio.get_running_loop().time()
        wanted = ClaimTask(token=token, ttl_ms=self._ttl_ms, queues=self._queues, where=self._where)
        try:
            answer = await self._desk.ask_last(*before, wanted, within=answer_seconds(give_up_at))
        except BaseException:
            # The request may have reached the writer. If this does not get through, the claim ends with its ttl.
            give_back_later(self._desk, ReleaseTask(token=token), ttl_ms=self._ttl_ms)
            raise
        if answer is None:
            return None
        return ClaimedTask(self._desk, TaskRecord.model_validate(answer), asked_at=asked_at)

    def _sees_one(self) -> bool:
        """Looks only at what has become open since it saw nothing: it is asked at each change of the board."""
        ledger = self._desk.ledger
        index = index_of(ledger)
        if self._seen is not None and self._seen[0] is index:
            tasks = opened_tasks(ledger, self._queues, self._where, self._seen[1])
        else:
            tasks = open_tasks(ledger, self._queues, self._where)
        self._seen = (index, index.openings) if next(tasks, None) is None else None
        return self._seen is None


def _checked_where(where: object) -> dict[str, JsonValue]:
    copied = json_copy(dict(where), "where") if isinstance(where, Mapping) else None
    if not isinstance(copied, dict):
        raise invalid_value("where", f"must be keys of the payload and their values, got {where!r}")
    return copied
