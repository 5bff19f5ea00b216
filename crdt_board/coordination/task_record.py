"""What a board keeps of a task, and what becomes of it by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Index, Record
from crdt_board.coordination.task_index import TaskIndex
from crdt_board.wire_values import same_wire

Rank = tuple[int, int, str]
"""Of open tasks, the one with the least is claimed first."""

TaskState = Literal["open", "delayed", "blocked", "claimed", "done", "failed", "cancelled"]

_RAN_OUT = "the claim ran out"


class TaskRecord(Record):
    """A task. `state` says where it is; what is None does not apply."""

    prefix: ClassVar[str] = "task"
    index: ClassVar[type[Index] | None] = TaskIndex

    queue: str = "default"
    payload: JsonValue = None
    priority: int = 0
    """Greater ones are claimed first; of alike ones, the one that was put first."""
    after: tuple[str, ...] = ()
    """The tasks that it comes after."""
    waiting_for: tuple[str, ...] = ()
    """Those of them that are not done yet."""
    attempts: int = 3
    """How often it may be claimed."""
    attempt: int = 0
    """How often it was."""
    number: int
    """Grows from one task to the next."""
    put_by: str
    put_ms: int
    not_before_ms: int | None = None

    status: Literal["open", "claimed", "done", "failed", "cancelled"] = "open"
    token: Annotated[str | None, Field(repr=False)] = None
    """The last claim's own."""
    agent: str | None = None
    """Who has claimed it, or had when it was finished."""
    ttl_ms: int | None = None
    expires_ms: int | None = None
    """When the claim ends unless it is renewed."""
    result: JsonValue = None
    error: str | None = None
    """Why the last attempt failed."""
    finished_ms: int | None = None

    @property
    def state(self) -> TaskState:
        if self.status != "open":
            return self.status
        return "blocked" if self.waiting_for else "delayed" if self.not_before_ms is not None else "open"

    @property
    def rank(self) -> Rank:
        return -self.priority, self.number, self.name

    @property
    def is_finished(self) -> bool:
        """Done, failed or cancelled."""
        return self.status not in ("open", "claimed")

    @property
    def is_busy(self) -> bool:
        return self.state in ("open", "delayed", "claimed")

    @property
    def deadline_ms(self) -> int | None:
        if self.status == "claimed":
            return self.expires_ms
        return self.not_before_ms if self.status == "open" else None

    def run_out(self, now_ms: int) -> TaskRecord:
        if self.status == "claimed":
            return self.given_up(_RAN_OUT, now_ms).model_copy(update={"token": None})
        return self.model_copy(update={"not_before_ms": None})

    def when_set_back(self, now_ms: int) -> TaskRecord:
        if self.expires_ms is None or self.ttl_ms is None:
            return self
        return self.model_copy(update={"expires_ms": min(self.expires_ms, now_ms + self.ttl_ms)})

    def in_fork(self) -> TaskRecord:
        if self.status != "claimed":
            return self
        return self.opened().model_copy(update={"attempt": self.attempt - 1})

    def is_claimed_by(self, token: str) -> bool:
        return self.status == "claimed" and self.token == token

    def can_be_claimed(self, queues: Sequence[str], where: Mapping[str, JsonValue]) -> bool:
        """Whether it is open, in one of these queues (in any when there are none), and `matches`."""
        return self.state == "open" and (not queues or self.queue in queues) and self.matches(where)

    def matches(self, where: Mapping[str, JsonValue]) -> bool:
        """Whether the payload is an object with all of these keys and values."""
        payload = self.payload
        return not where or (
            isinstance(payload, dict)
            and all(key in payload and same_wire(payload[key], value) for key, value in where.items())
        )

    def is_like(self, other: TaskRecord) -> bool:
        """Whether both ask for the same work; when it is to begin makes no difference."""
        alike = ("queue", "priority", "after", "attempts")
        return same_wire(self.payload, other.payload) and all(
            getattr(self, name) == getattr(other, name) for name in alike
        )

    def given_up(self, error: str, now_ms: int, *, retry: bool = True, delay_ms: int = 0) -> TaskRecord:
        """What becomes of a claimed task whose attempt has failed."""
        if not retry or self.attempt >= self.attempts:
            return self.finished("failed", now_ms).model_copy(update={"error": error})
        not_before_ms = now_ms + delay_ms if delay_ms else None
        return self.opened().model_copy(update={"error": error, "not_before_ms": not_before_ms})

    def opened(self) -> TaskRecord:
        nobody = {"token": None, "agent": None, "ttl_ms": None, "expires_ms": None}
        return self.model_copy(update={"status": "open", "finished_ms": None, **nobody})

    def finished(self, status: Literal["done", "failed", "cancelled"], now_ms: int) -> TaskRecord:
        """The claim's token stays, by which its owner is known when it says so again."""
        return self.model_copy(
            update={"status": status, "finished_ms": now_ms, "ttl_ms": None, "expires_ms": None, "not_before_ms": None}
        )
