"""Tasks: work that is put on a board once, and claimed by one agent at a time until it is done.

A task is *open*, and can be claimed, when nothing holds it back: a *delayed* one waits for its time, a *blocked* one
for tasks that come before it. A claim lasts for its ttl unless it is renewed, and counts as an attempt.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from crdt_board.coordination.task_index import TaskIndex
from crdt_board.coordination.task_operations import (
    CancelTask,
    ClaimTask,
    ClearTasks,
    CompleteTask,
    FailTask,
    PutTask,
    ReleaseTask,
    RenewTask,
    RetryTask,
)
from crdt_board.coordination.task_record import TaskRecord
from crdt_board.errors import NotFound, TaskLost, TaskMismatch

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft, Ledger


def put(draft: Draft, op: PutTask) -> JsonValue:
    """Answers with the task. Raises TaskMismatch when there is another one of this name, NotFound for an unknown one in
    ``after``."""
    there = draft.get(TaskRecord, op.name)
    wanted = TaskRecord(
        name=op.name,
        queue=op.queue,
        payload=op.payload,
        priority=op.priority,
        after=op.after,
        attempts=op.attempts,
        number=_next_number(draft),
        put_by=draft.agent,
        put_ms=draft.now_ms,
        not_before_ms=draft.now_ms + op.delay_ms if op.delay_ms else None,
    )
    if there is None:
        return _stored(draft, wanted.model_copy(update={"waiting_for": _unfinished(draft, op)}))
    if not there.is_like(wanted):
        raise TaskMismatch(
            f"there is another task {op.name} already, {there.state}, put by {there.put_by}; choose another key",
            task=op.name,
            state=there.state,
        )
    return _answer(there)


def claim(draft: Draft, op: ClaimTask) -> JsonValue:
    """Answers with the task; None when there is none to be claimed."""
    held = _claimed_by(draft, op.token)
    if held is not None:
        return _answer(held)
    task = _first(draft, op)
    if task is None:
        return None
    return _stored(
        draft,
        task.model_copy(
            update={
                "status": "claimed",
                "token": op.token,
                "agent": draft.agent,
                "attempt": task.attempt + 1,
                "ttl_ms": op.ttl_ms,
                "expires_ms": draft.now_ms + op.ttl_ms,
            }
        ),
    )


def renew(draft: Draft, op: RenewTask) -> JsonValue:
    """Answers with the task. Raises TaskLost when the claim does not stand any more."""
    task = _claimed(draft, op.name, op.token)
    return _stored(draft, task.model_copy(update={"ttl_ms": op.ttl_ms, "expires_ms": draft.now_ms + op.ttl_ms}))


def complete(draft: Draft, op: CompleteTask) -> JsonValue:
    """Answers with the task. Raises TaskLost when the claim does not stand any more."""
    task = draft.get(TaskRecord, op.name)
    if task is not None and task.status == "done" and task.token == op.token:
        return _answer(task)
    done = _claimed(draft, op.name, op.token).finished("done", draft.now_ms)
    answer = _stored(draft, done.model_copy(update={"result": op.result, "error": None}))
    for dependent in _dependents(draft, op.name):
        left = tuple(name for name in dependent.waiting_for if name != op.name)
        draft.put(dependent.model_copy(update={"waiting_for": left}))
    return answer


def fail(draft: Draft, op: FailTask) -> JsonValue:
    """Answers with the task. Raises TaskLost when the claim does not stand any more."""
    task = draft.get(TaskRecord, op.name)
    if task is not None and task.status != "claimed" and task.error is not None and task.token == op.token:
        return _answer(task)
    task = _claimed(draft, op.name, op.token)
    after = task.given_up(op.error, draft.now_ms, retry=op.retry, delay_ms=op.delay_ms)
    return _stored(draft, after.model_copy(update={"token": op.token}))


def release(draft: Draft, op: ReleaseTask) -> JsonValue:
    """Answers with the task; None when nothing is claimed by this token."""
    task = _claimed_by(draft, op.token)
    if task is None:
        return None
    return _stored(draft, task.opened().model_copy(update={"attempt": task.attempt - 1}))


def cancel(draft: Draft, op: CancelTask) -> JsonValue:
    """Answers with the task. Raises NotFound."""
    task = _known(draft, op.name)
    return _answer(task) if task.is_finished else _stored(draft, task.finished("cancelled", draft.now_ms))


def retry(draft: Draft, op: RetryTask) -> JsonValue:
    """Answers with the task. Raises NotFound."""
    task = _known(draft, op.name)
    if task.status not in ("failed", "cancelled"):
        return _answer(task)
    return _stored(draft, task.opened().model_copy(update={"attempt": 0}))


def clear(draft: Draft, op: ClearTasks) -> JsonValue:
    """Answers with how many were removed."""
    if op.names is None:
        chosen: Sequence[TaskRecord] = list(draft.all(TaskRecord))
    else:
        chosen = [task for task in (draft.get(TaskRecord, name) for name in op.names) if task is not None]
    removed = 0
    for task in sorted(chosen, key=lambda task: -task.number):  # whatever waits for others was put after them
        if _may_go(task, op, draft.now_ms) and not _dependents(draft, task.name):
            draft.drop(task)
            removed += 1
    return removed


def _may_go(task: TaskRecord, op: ClearTasks, now_ms: int) -> bool:
    is_chosen = task.status in op.states and op.queue in (None, task.queue)
    return is_chosen and (task.finished_ms or now_ms) <= now_ms - op.age_ms


def _unfinished(draft: Draft, op: PutTask) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(op.after) if _known(draft, name).status != "done")


def _known(draft: Draft, name: str) -> TaskRecord:
    task = draft.get(TaskRecord, name)
    if task is None:
        raise NotFound(f"there is no task {name}; it was never put on the board, or was cleared", task=name)
    return task


def _claimed(draft: Draft, name: str, token: str) -> TaskRecord:
    task = draft.get(TaskRecord, name)
    if task is None or not task.is_claimed_by(token):
        state = task.state if task is not None else None
        agent = task.agent if task is not None else None
        now = {None: "is gone", "claimed": f"was claimed by {agent}"}.get(state, f"is {state}")
        raise TaskLost(f"task {name} {now}: this claim of {draft.agent} ended before", task=name, state=state)
    return task


def _claimed_by(draft: Draft, token: str) -> TaskRecord | None:
    name = index_of(draft.ledger).claimed_by(token)
    there = (draft.get(TaskRecord, name),) if name is not None else ()
    tasks = (*there, *draft.changed(TaskRecord))
    return next((task for task in tasks if task is not None and task.is_claimed_by(token)), None)


def _next_number(draft: Draft) -> int:
    return max((index_of(draft.ledger).last_number, *(task.number for task in draft.changed(TaskRecord)))) + 1


def _dependents(draft: Draft, name: str) -> list[TaskRecord]:
    """The tasks that wait for one."""
    there = (draft.get(TaskRecord, each) for each in sorted(index_of(draft.ledger).waiting_for(name)))
    changed = (task for task in draft.changed(TaskRecord) if name in task.waiting_for)
    found = {task.name: task for task in (*there, *changed) if task is not None and name in task.waiting_for}
    return list(found.values())


def _first(draft: Draft, op: ClaimTask) -> TaskRecord | None:
    unchanged = (
        task for task in open_tasks(draft.ledger, op.queues, op.where) if not draft.differs(TaskRecord, task.name)
    )
    found = [*itertools.islice(unchanged, 1)]
    found += (task for task in draft.changed(TaskRecord) if task.can_be_claimed(op.queues, op.where))
    return min(found, key=lambda task: task.rank, default=None)


def open_tasks(ledger: Ledger, queues: Sequence[str], where: Mapping[str, JsonValue]) -> Iterator[TaskRecord]:
    """What can be claimed of these queues, or of any when there are none, in the order in which it is."""
    for name in index_of(ledger).open(queues):
        task = ledger.get(TaskRecord, name)
        if task is not None and task.matches(where):
            yield task


def opened_tasks(
    ledger: Ledger, queues: Sequence[str], where: Mapping[str, JsonValue], openings: int
) -> Iterator[TaskRecord]:
    """As `open_tasks`, without those that were open before `TaskIndex.openings` was this, if that can be told."""
    names = index_of(ledger).opened_after(openings)
    if names is None:
        yield from open_tasks(ledger, queues, where)
        return
    for name in names:
        task = ledger.get(TaskRecord, name)
        if task is not None and task.can_be_claimed(queues, where):
            yield task


def index_of(ledger: Ledger) -> TaskIndex:
    return cast(TaskIndex, ledger.index(TaskRecord))


def _stored(draft: Draft, task: TaskRecord) -> JsonValue:
    draft.put(task)
    return _answer(task)


def _answer(task: TaskRecord) -> JsonValue:
    content: JsonValue = task.model_dump(mode="json", exclude_defaults=True)
    return content
