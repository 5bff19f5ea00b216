"""What people and agents see of a task."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.coordination.task_record import TaskRecord, TaskState


class Task(BaseModel):
    """A task as it was at one moment; see `crdt_board.team.tasks.Tasks`. What is None does not apply.

    ``number`` grows from one task to the next. ``attempt`` is how often it was claimed, ``attempts`` how often it may
    be. ``waiting_for`` are those of ``after`` that are not done. ``agent`` has claimed it, or had when it was finished.
    Times are in milliseconds since 1970.
    """

    model_config = ConfigDict(frozen=True)

    key: str
    number: int
    queue: str
    state: TaskState
    payload: JsonValue
    priority: int
    after: tuple[str, ...]
    waiting_for: tuple[str, ...]
    attempt: int
    attempts: int
    put_by: str
    put_ms: int
    not_before_ms: int | None
    agent: str | None
    expires_ms: int | None
    result: JsonValue
    error: str | None
    finished_ms: int | None

    @classmethod
    def of(cls, record: TaskRecord) -> Task:
        content = record.model_dump(exclude={"name", "status", "token", "ttl_ms"})
        return cls(key=record.name, state=record.state, **content)
