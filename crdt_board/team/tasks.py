"""`board.tasks`: put work on the board, claim it, look at it."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import get_args

from pydantic import JsonValue

from crdt_board.commit_arguments import check_number, json_copy
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.coordination.task_operations import (
    AFTER_MAX,
    ATTEMPTS_MAX,
    CLEARED_MAX,
    DELAY_MS_MAX,
    PRIORITY_MAX,
    QUEUES_MAX,
    CancelTask,
    ClearTasks,
    FinishedState,
    PutTask,
    RetryTask,
)
from crdt_board.coordination.task_record import TaskRecord, TaskState
from crdt_board.errors import BadRequest, LimitExceeded, NotFound, TaskLost
from crdt_board.limits import check_name
from crdt_board.team.claims import Claim, ClaimedTask, Finder
from crdt_board.team.desk import Desk
from crdt_board.team.keeping import checked_ms
from crdt_board.team.task_info import Task
from crdt_board.wire_values import invalid_value

_AGE_SECONDS_MAX = 10**10
_STATES: tuple[TaskState, ...] = get_args(TaskState)
_FINISHED: tuple[FinishedState, ...] = get_args(FinishedState)

logger = logging.getLogger(__name__)

Handler = Callable[[ClaimedTask], Awaitable[JsonValue] | JsonValue]
AnyTask = str | Task | ClaimedTask
"""A task by its key, or itself."""


class Tasks:
    """The tasks of a board, as one agent puts, claims and sees them.

    A task is ``open`` until it is ``claimed``, and then ``done``, or open again when the claim is released, runs out or
    fails, or ``failed`` when it had all its attempts. It is ``blocked`` while a task that it comes after is not done,
    ``delayed`` while its time has not come, and may be ``cancelled``. The writer of the board decides, on the clock of
    its store; what is read here is what this replica knows.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def put(
        self,
        payload: JsonValue = None,
        *,
        key: str | None = None,
        queue: str = "default",
        priority: int = 0,
        after: Sequence[AnyTask] = (),
        attempts: int = 3,
        delay: float = 0.0,
    ) -> Task:
        """Put a task on the board, which any agent can claim. Durable on return.

        With a ``key`` it is put once: when there is a task of that key with the same content already, that is
        returned. Greater priorities are claimed first, and of alike ones whichever was put first. The task can be
        claimed when all tasks of ``after`` are done and ``delay`` seconds are over, ``attempts`` times at most.

        Raises:
            TaskMismatch: there is a task of this key with another content.
            NotFound: there is no such task in ``after``.
            InvalidValue, LimitExceeded: an argument is not what it should be, or the board has too many tasks.
        """
        check_number(priority, "priority", -PRIORITY_MAX, PRIORITY_MAX)
        check_number(attempts, "attempts", 1, ATTEMPTS_MAX)
        operation = PutTask(
            name=secrets.token_hex(8) if key is None else check_name(key, "key", NAME_CHARS_MAX),
            queue=check_name(queue, "queue", NAME_CHARS_MAX),
            payload=json_copy(payload, "payload"),
            priority=priority,
            after=_keys(after, "after", AFTER_MAX),
            attempts=attempts,
            delay_ms=checked_ms(delay, "delay", at_least=0, at_most=DELAY_MS_MAX),
        )
        return await self._asked(operation)

    def claim(
        self,
        *queues: str,
        where: Mapping[str, JsonValue] | None = None,
        ttl: float = 30.0,
        timeout: float | None = None,
    ) -> Claim:
        """Claim the next open task of these queues, or of any, and do it in an ``async with`` block.

        ``async with board.tasks.claim("extract") as task:`` waits until there is one, ``timeout`` seconds at most (None
        for ever, 0 does not wait). ``where`` are keys and values that the payload must have. The claim is renewed while
        the block runs; when this process dies the task is open again after ``ttl`` seconds (0.1 to 86,400).

        At the end of the block the task is done, with ``task.result``. An exception fails the attempt, and the
        cancellation of the block releases the task. Ending the claim inside the block, by ``task.complete(...)`` and
        the like or by ``board.commit(..., task=task)``, comes before that.

        Raises:
            TimeoutError: there was no task for ``timeout`` seconds.
            TaskLost: at the end of the block, when the claim ran out or the task was cancelled inside it.
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        self._desk.session.check()
        return Claim(self._desk, _checked_queues(queues), where or {}, ttl=ttl, timeout=timeout)

    async def work(
        self,
        handler: Handler,
        *queues: str,
        where: Mapping[str, JsonValue] | None = None,
        ttl: float = 30.0,
        idle: float | None = None,
    ) -> int:
        """Claim one task after the other and call ``handler`` with each; return how many it was called with.

        What ``handler``, a function or coroutine function, returns is the result of the task. Its exceptions fail the
        attempt, are logged, and do not end the work. Goes on until there was no task for ``idle`` seconds (None: for
        ever). Cancelling releases the task at hand.

        Raises:
            Unavailable: the board was closed, or the writer gives no answer.
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        finder = Finder(self._desk, _checked_queues(queues), where or {}, ttl=ttl)
        handled, ending = 0, None
        while True:
            task = await self._next(finder, idle, ending)
            if task is None:
                return handled
            handled += 1
            try:
                ending = await _handle(handler, task)
            except BaseException:
                await task.drop()
                raise
            await task.settled()

    async def _next(self, finder: Finder, idle: float | None, ending: Operation | None) -> ClaimedTask | None:
        """End the task before this one and claim the next, by one entry where that is possible."""
        if ending is not None:
            try:
                return await finder.next(idle, ending)
            except TaskLost as lost:
                logger.warning("%s", lost)
            except BadRequest as refused:
                logger.warning("a result was refused: %s", refused)
        return await finder.next(idle)

    def get(self, task: AnyTask) -> Task:
        """A task as this replica knows it. Raises NotFound."""
        key = _key(task)
        record = self._desk.ledger.get(TaskRecord, key)
        if record is None:
            raise NotFound(f"there is no task {key}", task=key)
        return Task.of(record)

    def all(self, *states: TaskState, queue: str | None = None) -> list[Task]:
        """The tasks in these states, or all, in the order in which they were put; as this replica knows them.

        Raises InvalidValue when there is no such state.
        """
        _check_states(states, _STATES)
        records = self._desk.ledger.all(TaskRecord).values()
        chosen = (each for each in records if queue in (None, each.queue) and (not states or each.state in states))
        return [Task.of(record) for record in sorted(chosen, key=lambda record: record.number)]

    async def wait(self, task: AnyTask, timeout: float | None = None) -> Task:
        """Wait until a task is done, failed or cancelled, and return it.

        Raises:
            TimeoutError: it was not, within ``timeout`` seconds (None waits for ever).
            NotFound: there is no such task.
        """
        await self._desk.until(lambda: self.get(task).state in _FINISHED, timeout)
        return self.get(task)

    async def cancel(self, task: AnyTask) -> Task:
        """Nobody is to do the task any more: whoever has claimed it loses it. Nothing happens to a finished one.

        Durable on return. Raises NotFound.
        """
        return await self._asked(CancelTask(name=_key(task)))

    async def retry(self, task: AnyTask) -> Task:
        """Open a failed or cancelled task again, with all its attempts; nothing happens to others.

        Durable on return. Raises NotFound.
        """
        return await self._asked(RetryTask(name=_key(task)))

    async def clear(
        self,
        *tasks: AnyTask,
        states: Sequence[FinishedState] = _FINISHED,
        queue: str | None = None,
        older_than: timedelta | None = None,
    ) -> int:
        """Remove finished tasks, these or all, with their results; return how many. Durable on return.

        Only those in ``states``, of ``queue``, and that were finished longer than ``older_than`` ago. A task stays
        while another one, which is blocked, waits for it.

        Raises:
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        age_ms = (
            0
            if older_than is None
            else checked_ms(older_than.total_seconds(), "older_than", at_least=0, at_most=_AGE_SECONDS_MAX * 1000)
        )
        _check_states(states, _FINISHED)
        operation = ClearTasks(
            names=_keys(tasks, "tasks", CLEARED_MAX) if tasks else None,
            queue=None if queue is None else check_name(queue, "queue", NAME_CHARS_MAX),
            states=tuple(states),
            age_ms=age_ms,
        )
        removed = await self._desk.ask_one(operation)
        assert isinstance(removed, int)
        return removed

    async def _asked(self, operation: Operation) -> Task:
        return Task.of(TaskRecord.model_validate(await self._desk.ask_one(operation)))


async def _handle(handler: Handler, task: ClaimedTask) -> Operation | None:
    """Run the handler; the operation that ends the claim, None when it was ended inside."""
    try:
        result = handler(task)
        result = await result if inspect.isawaitable(result) else result
        return None if task.is_settled else task.completion(result)
    except Exception as error:
        logger.warning("task %s failed", task.key, exc_info=error)
        return None if task.is_settled else task.failure(error)


def _checked_queues(queues: Sequence[str]) -> Sequence[str]:
    if len(queues) > QUEUES_MAX:
        raise LimitExceeded(
            f"a claim is for up to {QUEUES_MAX} queues", limit="queues", value=len(queues), maximum=QUEUES_MAX
        )
    return [check_name(queue, "queue", NAME_CHARS_MAX) for queue in queues]


def _keys(tasks: Sequence[AnyTask], name: str, count_max: int) -> tuple[str, ...]:
    if isinstance(tasks, str):
        raise BadRequest(f"{name} is a list of tasks, like [{tasks!r}]")
    if len(tasks) > count_max:
        raise LimitExceeded(f"{name} has up to {count_max} tasks", limit=name, value=len(tasks), maximum=count_max)
    return tuple(_key(task) for task in tasks)


def _key(task: AnyTask) -> str:
    return check_name(task if isinstance(task, str) else task.key, "key", NAME_CHARS_MAX)


def _check_states(states: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(states, str):
        raise invalid_value("states", f"is a list of states, like [{states!r}]")
    for state in states:
        if state not in known:
            raise invalid_value("states", f"has {state!r}; there are {', '.join(known)}")
