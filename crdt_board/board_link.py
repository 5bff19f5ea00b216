"""Between a board's handles and its writer: what a link does, and what all handles on one replica share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from crdt_board.artifacts.contract import ArtifactAccess
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.clock import Clock, SystemClock
from crdt_board.control import Question
from crdt_board.coordination.operations import Operation
from crdt_board.document import Document
from crdt_board.errors import BoardError
from crdt_board.findings import Findings
from crdt_board.rejections import OnRejected, Rejections
from crdt_board.replica import Replica
from crdt_board.undo import UndoHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPresence:
    """An agent that is on the board now, and what it says of itself."""

    agent: str
    role: str | None = None
    step: str | None = None
    focus: str | None = None
    reacts: bool = False
    """Whether it has reactions, or follows the journal."""
    idle_at: int | None = None
    """The newest journal entry after which those had nothing to do; None before anybody has asked."""
    settling: bool = False
    """Whether it waits for the board to be settled, and so asks for ``idle_at`` of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state of a checkpoint in wire form.

    ``schema_version`` is the newest schema of the board that only adds optional fields to the checkpoint's own.
    """

    checkpoint: Checkpoint
    state: dict[str, JsonValue]
    schema_version: int


class Link(Protocol):
    """What ties a replica to the writer of its board.

    A link sends the replica's pending updates by itself, in order; acknowledges them when they are durable; and gives
    it what others wrote. Its requests are decided after everything that was pending when they were made.
    """

    board_id: str

    @property
    def failure(self) -> BoardError | None:
        """Why nothing gets through just now, or None."""
        ...

    @property
    def artifacts(self) -> ArtifactAccess:
        """Where the artifacts of the board are. Raises BadRequest when there is no place for any."""
        ...

    def hurry(self) -> None:
        """Send what is pending now rather than soon. Must not wait."""
        ...

    async def commit(self, request: CommitRequest) -> Checkpoint:
        """See `Board.commit`. On return the replica holds the checkpoint's entry."""
        ...

    async def checkpoints(self, *, before: int | None, limit: int) -> list[Checkpoint]: ...

    async def state_at(self, version: int) -> StoredState: ...

    async def fork(self, version: int, board_id: str, agent: str) -> Checkpoint:
        """See `Board.fork`."""
        ...

    async def merge(self, fork_id: str, agent: str) -> Checkpoint:
        """See `Board.merge_from`. On return the replica holds the checkpoint's entry."""
        ...

    async def ask(self, question: Question) -> JsonValue:
        """The answer to a question about the board's past; see `crdt_board.history.questions`."""
        ...

    async def report(self, agent: str, findings: Findings) -> None:
        """Have the writer record what ``agent`` finds of the rules that its model knows; durable on return."""
        ...

    async def coordinate(self, agent: str, operations: Sequence[Operation]) -> list[JsonValue]:
        """The writer's answers to operations of ``agent``, in order, all decided or none; durable on return.

        On return the replica holds what they changed. An operation may reach the writer twice.
        """
        ...

    def announce(self, presence: AgentPresence) -> None:
        """Tell everybody, this replica too: whoever waits looks again.

        Raises LimitExceeded, and tells nobody, when that is more than a peer takes of one replica.
        """
        ...

    def agents(self) -> list[AgentPresence]: ...

    async def close(self) -> None:
        """Stop. What was not acknowledged is not sent any more. Idempotent.

        A replica that has failed in nothing and owes nothing leaves its client id to others; see
        `crdt_board.client_ids`. Nothing may be edited through it any more.
        """
        ...


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel ``task`` and wait until it has ended; raises the error that it ended with, if it did.

    Awaiting the task itself would not tell its cancellation from one of the caller, which must not be lost.
    """
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class Waiters:
    """Coroutines that wait for something about a replica to become true; checked whenever it moves."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._error: BoardError | None = None

    def check(self) -> None:
        for future, is_true in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if is_true():
                    future.set_result(None)
            except Exception as error:  # noqa: BLE001 - a caller's own predicate: its error is the caller's
                future.set_exception(error)

    def fail(self, error: BoardError) -> None:
        self._error = error
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)

    async def until(self, is_true: Callable[[], bool], timeout: float | None) -> None:
        """Raises TimeoutError after ``timeout`` seconds."""
        if is_true():
            return
        if self._error is not None:
            raise self._error
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = is_true
        try:
            async with asyncio.timeout(timeout):
                await future
        finally:
            del self._waiting[future]


@dataclass(frozen=True, slots=True, eq=False)
class Owed:
    """An operation that ends a claim, or a place in line: others wait for it until it is decided."""

    agent: str
    operation: Operation


class BoardSession:
    """What the handles of all agents on one replica share."""

    def __init__(
        self, replica: Replica, link: Link, clock: Clock | None = None, *, on_rejected: OnRejected | None = None
    ) -> None:
        self.replica = replica
        self.link = link
        self.clock: Clock = clock or SystemClock()
        self.waiters = Waiters()
        self.rejections = Rejections(on_rejected)
        self.error: BoardError | None = None
        self.closed = False
        self.claims: dict[object, float] = {}
        """What is lost unless the writer hears of it in time, and how many seconds that is."""
        self.owed: set[Owed] = set()
        self._background: set[asyncio.Task[None]] = set()
        replica.on_progress = self.waiters.check
        replica.watchers.append(lambda _changes: self.waiters.check())

    def fail(self, error: BoardError) -> None:
        """Nothing will become durable any more: end whoever waits, and every later call, with ``error``."""
        if self.error is None:
            self.error = error
            self.waiters.fail(error)

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` until `end_background` at the latest."""
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def end_background(self) -> None:
        """End what `spawn` started."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)

    @property
    def shortest_claim_seconds(self) -> float | None:
        return min(self.claims.values(), default=None)

    async def give_back_owed(self, seconds: float) -> None:
        """Have the writer decide on what is `owed`, for so many seconds at most; what it says does not matter any more.

        Sent one by one, since what was given back before may be refused.
        """
        owed, self.owed = self.owed, set()
        if not owed or self.link.failure is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                asked = (self.link.coordinate(each.agent, [each.operation]) for each in owed)
                await asyncio.gather(*asked, return_exceptions=True)


@dataclass(slots=True)
class AgentEditor:
    """Local writes of one agent; what the live objects of ``board.state`` write through."""

    replica: Replica
    session: BoardSession
    agent: str
    history: UndoHistory | None = None
    """What this handle can take back; None until it asks for it."""

    @property
    def document(self) -> Document:
        return self.replica.document

    def now_ms(self) -> int:
        return self.session.clock.now_ms()

    def edit(self, content: JsonValue = None, *, group: object = None) -> AbstractContextManager[None]:
        if self.session.error is not None:
            raise self.session.error
        return self.replica.edit(self.agent, content, history=self.history, group=group)
