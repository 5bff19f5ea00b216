"""What requests about leases and tasks carry, what the writer of the board is asked for, and what is answered.

The command line makes the same requests, also of a database file.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, JsonValue

from crdt_board.coordination.leases import BreakLease, LeaseRecord
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.reactions import PATH_CHARS_MAX, ReactionRecord, ReactionState, RetryReaction
from crdt_board.coordination.records import TTL_MS_MAX, TTL_MS_MIN, Name, Token
from crdt_board.coordination.task_operations import (
    AFTER_MAX,
    CLEARED_MAX,
    DELAY_MS_MAX,
    ERROR_CHARS_MAX,
    QUEUES_MAX,
    Attempts,
    CancelTask,
    ClaimTask,
    ClearTasks,
    CompleteTask,
    FailTask,
    FinishedState,
    Priority,
    PutTask,
    ReleaseTask,
    RenewTask,
    RetryTask,
)
from crdt_board.coordination.task_record import TaskRecord
from crdt_board.team.desk import new_token
from crdt_board.team.task_info import Task
from crdt_board_server.api.answers import AgentName, Body

_AGE_SECONDS_MAX = 10**10

Key = Annotated[Name, Field(description="The key of a task.", examples=["extract a.py"])]
ClaimToken = Annotated[Token, Field(description="As the claim was answered with.")]
Ttl = Annotated[
    float,
    Field(ge=TTL_MS_MIN / 1000, le=TTL_MS_MAX / 1000, description="For how many seconds, unless it is renewed."),
]
Delay = Annotated[float, Field(ge=0, le=DELAY_MS_MAX / 1000, description="Seconds before it can be claimed.")]


class TeamRequest(Body):
    """A request of one agent."""

    route: ClassVar[str]
    """Below the board's own."""
    answer_type: ClassVar[type[BaseModel]] = Task

    agent: AgentName = "api"

    def operation(self) -> Operation:
        """What the writer of the board is asked for."""
        raise NotImplementedError

    @staticmethod
    def answer(result: JsonValue) -> BaseModel:
        """What the writer's answer is as an answer of the API."""
        return _task(result)


class PutTaskRequest(TeamRequest):
    """A task to put on the board; once, when it has a key."""

    route: ClassVar[str] = "tasks"

    key: Key | None = None
    queue: Name = "default"
    payload: JsonValue = None
    priority: Priority = 0
    after: Annotated[
        list[Name], Field(max_length=AFTER_MAX, description="Keys of tasks that are to be done first.")
    ] = []
    attempts: Attempts = 3
    delay: Delay = 0.0

    def operation(self) -> PutTask:
        return PutTask(
            name=self.key or new_token(),
            queue=self.queue,
            payload=self.payload,
            priority=self.priority,
            after=tuple(self.after),
            attempts=self.attempts,
            delay_ms=_ms(self.delay),
        )


class ClaimAnswer(BaseModel):
    """The task, and the token that ends or renews the claim; both null when there is nothing to be claimed."""

    task: Task | None
    token: str | None


class ClaimRequest(TeamRequest):
    """The next open task of these queues, or of any, whose payload has all of `where`."""

    route: ClassVar[str] = "tasks/claim"
    answer_type: ClassVar[type[BaseModel]] = ClaimAnswer

    queues: Annotated[list[Name], Field(max_length=QUEUES_MAX)] = []
    where: dict[str, JsonValue] = Field(default={}, examples=[{"lang": "py"}])
    ttl: Ttl = 30.0
    token: Token | None = Field(
        default=None, description="A random text of your own: asking again gives the same task."
    )

    def operation(self) -> ClaimTask:
        token = self.token or new_token()
        return ClaimTask(token=token, ttl_ms=_ms(self.ttl), queues=tuple(self.queues), where=self.where)

    @staticmethod
    def answer(result: JsonValue) -> ClaimAnswer:
        if result is None:
            return ClaimAnswer(task=None, token=None)
        record = TaskRecord.model_validate(result)
        return ClaimAnswer(task=Task.of(record), token=record.token)


class RenewRequest(TeamRequest):
    """A claim that is to last longer."""

    route: ClassVar[str] = "tasks/renew"

    key: Key
    token: ClaimToken
    ttl: Ttl = 30.0

    def operation(self) -> RenewTask:
        return RenewTask(name=self.key, token=self.token, ttl_ms=_ms(self.ttl))


class CompleteRequest(TeamRequest):
    """A task that is done."""

    route: ClassVar[str] = "tasks/complete"

    key: Key
    token: ClaimToken
    result: JsonValue = None

    def operation(self) -> CompleteTask:
        return CompleteTask(name=self.key, token=self.token, result=self.result)


class FailRequest(TeamRequest):
    """An attempt that failed. The task is open again, unless `retry` is false or this was the last attempt."""

    route: ClassVar[str] = "tasks/fail"

    key: Key
    token: ClaimToken
    error: Annotated[str, Field(max_length=ERROR_CHARS_MAX)]
    retry: bool = True
    delay: Delay = 0.0

    def operation(self) -> FailTask:
        return FailTask(name=self.key, token=self.token, error=self.error, retry=self.retry, delay_ms=_ms(self.delay))


class ReleaseAnswer(BaseModel):
    """The task; null when nothing was claimed by this token."""

    task: Task | None


class ReleaseRequest(TeamRequest):
    """A claim that is given back as if it had not been made."""

    route: ClassVar[str] = "tasks/release"
    answer_type: ClassVar[type[BaseModel]] = ReleaseAnswer

    token: ClaimToken

    def operation(self) -> ReleaseTask:
        return ReleaseTask(token=self.token)

    @staticmethod
    def answer(result: JsonValue) -> ReleaseAnswer:
        return ReleaseAnswer(task=None if result is None else _task(result))


class CancelRequest(TeamRequest):
    """A task that nobody is to do any more."""

    route: ClassVar[str] = "tasks/cancel"

    key: Key

    def operation(self) -> CancelTask:
        return CancelTask(name=self.key)


class RetryRequest(TeamRequest):
    """A failed or cancelled task that is to be open again, with all its attempts."""

    route: ClassVar[str] = "tasks/retry"

    key: Key

    def operation(self) -> RetryTask:
        return RetryTask(name=self.key)


class ClearAnswer(BaseModel):
    """How many tasks were removed."""

    removed: int


class ClearRequest(TeamRequest):
    """Finished tasks to remove: these, or all."""

    route: ClassVar[str] = "tasks/clear"
    answer_type: ClassVar[type[BaseModel]] = ClearAnswer

    keys: Annotated[list[Name], Field(max_length=CLEARED_MAX)] | None = None
    queue: Name | None = None
    states: list[FinishedState] = ["done", "failed", "cancelled"]
    older_than_seconds: Annotated[float, Field(ge=0, le=_AGE_SECONDS_MAX)] = 0.0

    def operation(self) -> ClearTasks:
        return ClearTasks(
            names=None if self.keys is None else tuple(self.keys),
            queue=self.queue,
            states=tuple(self.states),
            age_ms=_ms(self.older_than_seconds),
        )

    @staticmethod
    def answer(result: JsonValue) -> ClearAnswer:
        return ClearAnswer.model_validate({"removed": result})


class BoardReaction(BaseModel):
    """A reaction at one place. `attempts` are those of the present run, `runs` all that were begun.

    `until_ms` is when a run counts as lost, or is tried again, in milliseconds since 1970.
    """

    name: str
    path: str
    state: ReactionState
    agent: str
    attempts: int
    runs: int
    error: str
    until_ms: int | None

    @classmethod
    def of(cls, record: ReactionRecord) -> BoardReaction:
        content = record.model_dump(exclude={"name", "token", "ttl_ms"})
        return cls(name=record.reaction, path=record.path, **content)


class ReactionPage(BaseModel):
    """Reactions in the order of their names and paths; ``after`` goes on, None at the end."""

    reactions: list[BoardReaction]
    after: str | None


class RetryReactionRequest(TeamRequest):
    """A reaction that failed at a place, to be run again with all its attempts."""

    route: ClassVar[str] = "reactions/retry"
    answer_type: ClassVar[type[BaseModel]] = BoardReaction

    name: Name
    path: Annotated[str, Field(min_length=1, max_length=PATH_CHARS_MAX, examples=["findings/f1"])]

    def operation(self) -> RetryReaction:
        return RetryReaction(name=self.name, path=self.path)

    @staticmethod
    def answer(result: JsonValue) -> BoardReaction:
        return BoardReaction.of(ReactionRecord.model_validate(result))


class LeaseHolder(BaseModel):
    """Who has a lease, and until when in milliseconds since 1970, unless it is renewed."""

    agent: str
    fence: int
    expires_ms: int


class BreakAnswer(BaseModel):
    """Who had it."""

    holders: list[LeaseHolder]


class BreakLeaseRequest(TeamRequest):
    """A lease to take from whoever has it."""

    route: ClassVar[str] = "leases/break"
    answer_type: ClassVar[type[BaseModel]] = BreakAnswer

    name: Name

    def operation(self) -> BreakLease:
        return BreakLease(name=self.name)

    @staticmethod
    def answer(result: JsonValue) -> BreakAnswer:
        return BreakAnswer.model_validate({"holders": result})


class BoardLease(BaseModel):
    """A lease that somebody has, and whether others may share it."""

    name: str
    shared: bool
    holders: list[LeaseHolder]

    @classmethod
    def of(cls, record: LeaseRecord) -> BoardLease:
        return cls.model_validate(record.model_dump(exclude={"holders": {"__all__": {"token", "ttl_ms"}}}))


class LeasePage(BaseModel):
    """What is held now, in alphabetical order."""

    leases: list[BoardLease]


class TaskPage(BaseModel):
    """Tasks in the order in which they were put; ``after`` goes on, None at the end."""

    tasks: list[Task]
    after: int | None


class BoardAgent(BaseModel):
    """An agent that is on the board now, and what it says of itself."""

    agent: str
    role: str | None = None
    step: str | None = None
    focus: str | None = None


class AgentPage(BaseModel):
    """Who is connected to this server, in alphabetical order."""

    agents: list[BoardAgent]


def _task(result: Any) -> Task:
    return Task.of(TaskRecord.model_validate(result))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
