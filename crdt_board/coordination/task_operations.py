"""What agents ask the writer of a board for about tasks; `tasks` decides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Frozen, Milliseconds, Name, Token, TtlMs

DELAY_MS_MAX = 366 * 24 * 3600 * 1000
ATTEMPTS_MAX = 1_000
PRIORITY_MAX = 2**31 - 1
AFTER_MAX = 100
QUEUES_MAX = 100
CLEARED_MAX = 1_000
ERROR_CHARS_MAX = 2_000

DelayMs = Annotated[int, Field(ge=0, le=DELAY_MS_MAX)]
Attempts = Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)]
Priority = Annotated[int, Field(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]

FinishedState = Literal["done", "failed", "cancelled"]


class PutTask(Frozen):
    """Put a task on the board under a name of its own; again with the same content: nothing happens."""

    op: Literal["put_task"] = "put_task"
    name: Name
    queue: Name = "default"
    payload: JsonValue = None
    priority: Priority = 0
    after: Annotated[tuple[Name, ...], Field(max_length=AFTER_MAX)] = ()
    attempts: Attempts = 3
    delay_ms: DelayMs = 0


class ClaimTask(Frozen):
    """Claim the first open task of these queues, of any when there are none, whose payload has all of ``where``."""

    op: Literal["claim_task"] = "claim_task"
    token: Token
    ttl_ms: TtlMs
    queues: Annotated[tuple[Name, ...], Field(max_length=QUEUES_MAX)] = ()
    where: dict[str, JsonValue] = {}


class RenewTask(Frozen):
    """Make a claim last until ``ttl_ms`` from now."""

    op: Literal["renew_task"] = "renew_task"
    name: Name
    token: Token
    ttl_ms: TtlMs


class CompleteTask(Frozen):
    """The task is done; so others that come after it may begin."""

    op: Literal["complete_task"] = "complete_task"
    name: Name
    token: Token
    result: JsonValue = None


class FailTask(Frozen):
    """The attempt failed: the task is open again after ``delay_ms`` if it may be tried again, and failed otherwise."""

    op: Literal["fail_task"] = "fail_task"
    name: Name
    token: Token
    error: Annotated[str, Field(max_length=ERROR_CHARS_MAX)]
    retry: bool = True
    delay_ms: DelayMs = 0


class ReleaseTask(Frozen):
    """Give back what is claimed by this token, as if it had not been; nothing happens when nothing is."""

    op: Literal["release_task"] = "release_task"
    token: Token


class CancelTask(Frozen):
    """Nobody is to do the task any more, whoever has it; nothing happens to a finished one."""

    op: Literal["cancel_task"] = "cancel_task"
    name: Name


class RetryTask(Frozen):
    """Open a failed or cancelled task again, with all its attempts; nothing happens to others."""

    op: Literal["retry_task"] = "retry_task"
    name: Name


class ClearTasks(Frozen):
    """Remove finished tasks: these, or those of ``states``, but for those that a blocked task waits for."""

    op: Literal["clear_tasks"] = "clear_tasks"
    names: Annotated[tuple[Name, ...], Field(max_length=CLEARED_MAX)] | None = None
    queue: Name | None = None
    states: tuple[FinishedState, ...] = ("done", "failed", "cancelled")
    age_ms: Milliseconds = 0
    """How long they have been finished at least."""


TaskOperation = (
    PutTask | ClaimTask | RenewTask | CompleteTask | FailTask | ReleaseTask | CancelTask | RetryTask | ClearTasks
)
