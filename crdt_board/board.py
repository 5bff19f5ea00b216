"""The board as an agent sees it, the same whether its writer is in this process or behind a websocket."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Protocol, TypeVar, cast

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.document import Document
from crdt_board.errors import (
    BadRequest,
    BoardClosed,
    BoardError,
    ConnectionFailed,
    InvalidValue,
    LimitExceeded,
    VersionConflict,
)
from crdt_board.limits import DEFAULT_LIMITS, check_name
from crdt_board.live import LiveState, snapshot, snapshot_from_wire
from crdt_board.patching import build_patch
from crdt_board.replica import Change, Replica
from crdt_board.schema import BoardModel
from crdt_board.values import from_validation_error
from crdt_board.wire_values import check_text, invalid_value

M = TypeVar("M", bound=BoardModel)
_Patch = Mapping[str, Any] | BoardModel

_CHANGES_QUEUED_MAX = 100_000
_CHECKPOINTS_MAX = 1000
_NUMBER_MAX = 2**53 - 1
_CLOSE_SECONDS = 10.0

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_CONFIDENCE: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0, le=1, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPresence:
    """An agent that is on the board now, and what it says of itself."""

    agent: str
    role: str | None = None
    step: str | None = None
    focus: str | None = None


class Link(Protocol):
    """What ties a replica to the writer of its board.

    A link sends the replica's pending updates by itself, in order; acknowledges them when they are durable; and gives
    it what others wrote. Its requests are decided after everything that was pending when they were made.
    """

    board_id: str
    epoch: str

    @property
    def failure(self) -> BoardError | None:
        """Why nothing gets through just now, or None."""
        ...

    def hurry(self) -> None:
        """Send what is pending now rather than soon. Must not wait."""
        ...

    async def commit(self, request: CommitRequest) -> Checkpoint:
        """See `Board.commit`. On return the replica holds the checkpoint's entry."""
        ...

    async def checkpoints(self, *, before: int | None, limit: int) -> list[Checkpoint]: ...

    async def state_at(self, version: int) -> tuple[Checkpoint, dict[str, JsonValue]]: ...

    def announce(self, presence: AgentPresence) -> None: ...

    def agents(self) -> list[AgentPresence]: ...

    async def close(self) -> None:
        """Stop. What was not acknowledged is not sent any more. Idempotent."""
        ...


class _Waiters:
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


class BoardSession:
    """What the handles of all agents on one replica share."""

    def __init__(self, replica: Replica, link: Link) -> None:
        self.replica = replica
        self.link = link
        self.waiters = _Waiters()
        self.error: BoardError | None = None
        self.closed = False
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


@dataclass(frozen=True, slots=True)
class _AgentEditor:
    """Local writes of one agent; what the live objects of ``board.state`` write through."""

    replica: Replica
    session: BoardSession
    agent: str

    @property
    def document(self) -> Document:
        return self.replica.document

    def edit(self) -> AbstractContextManager[None]:
        if self.session.error is not None:
            raise self.session.error
        return self.replica.edit(self.agent)


class Board(Generic[M]):
    """One agent's handle on a board.

    Local edits through ``state`` take effect at once in this replica; they are sent in the background and are durable
    after `flush`. Use it from one event loop only.
    """

    def __init__(self, session: BoardSession, model: type[M], agent: str) -> None:
        """Use `crdt_board.open_board` or `crdt_board_client.connect`."""
        self._session = session
        self._model = model
        self._agent = check_name(agent, "agent", DEFAULT_LIMITS.agent_chars_max)
        self._state = LiveState(model, _AgentEditor(session.replica, session, agent))

    def __repr__(self) -> str:
        return f"<Board {self.id!r} version {self.version} as {self.agent!r}>"

    @property
    def id(self) -> str:
        return self._session.link.board_id

    @property
    def agent(self) -> str:
        """The name under which this handle writes."""
        return self._agent

    @property
    def version(self) -> int:
        """The newest checkpoint that this replica has seen; 0 before the first."""
        return self._session.replica.version

    @property
    def state(self) -> M:
        """The live board: reading gives the present values, writing edits at once. Typed as the model."""
        return cast(M, self._state)

    @property
    def unacknowledged(self) -> int:
        """How many local updates are not known to be durable."""
        return len(self._session.replica.pending)

    @property
    def failure(self) -> BoardError | None:
        """Why local updates do not become durable just now, or None."""
        return self._session.error or self._session.link.failure

    def as_agent(self, agent: str) -> Board[M]:
        """Another agent's handle on the same replica; what it writes is recorded under its own name."""
        return Board(self._session, self._model, agent)

    def snapshot(self) -> M:
        """The present state as a frozen, validated model; nothing in it is shared with the board.

        Raises:
            InvalidValue: what the board holds does not satisfy the model; ``path`` names where.
        """
        return snapshot(self._session.replica.document, self._model)

    def transaction(self) -> AbstractContextManager[None]:
        """Group the edits inside into one update, which others see as a whole.

        An exception inside takes all of them back. Do not wait for anything inside.
        """
        self._session.check()
        return self._session.replica.transaction(self._agent)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every edit made before this call is on disk at the board's writer.

        Raises:
            Unavailable: that did not happen within ``timeout`` seconds (None waits for ever); the edits are kept and
                still being sent.
        """
        replica = self._session.replica
        number = replica.last_number
        self._session.link.hurry()
        try:
            await self._session.waiters.until(lambda: replica.acknowledged >= number, timeout)
        except TimeoutError:
            raise self._no_answer(f"{len(replica.pending)} edits are not durable after {timeout} s") from None

    async def commit(
        self,
        step: str,
        *,
        patch: _Patch | None = None,
        expected_version: int | None = None,
        reads: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        output: JsonValue = None,
        confidence: float | None = None,
        trace: str | None = None,
        handoff: JsonValue = None,
        tags: Sequence[str] = (),
    ) -> Checkpoint:
        """Record a checkpoint: everything this agent wrote before, everything merged so far, and ``patch`` on top.

        ``patch`` maps field names to new values, or is a whole model; only what differs from this replica is written,
        as part of the commit itself, so a refused commit leaves no trace. A copy made by
        ``board.snapshot().model_copy(update=...)`` writes only what the copy changed.

        Without ``expected_version`` a commit merges and never fails because of others' work. With it, the commit is
        refused when another commit came in between; with ``reads`` only when another agent changed one of those
        fields since then (or, without ``expected_version``, since this replica last heard). A repeat with the same
        ``idempotency_key`` and the same step, patch and metadata returns the first result and does nothing.

        Durable on return. Cancelling does not take back a commit that is under way.

        Raises:
            VersionConflict: others were first; carries ``current_version``, ``author`` and ``changed``.
            IdempotencyMismatch: the key was used for another request.
            InvalidValue: the patch does not fit the model, or an argument is not what it should be; the path is named.
            LimitExceeded: a name or the metadata is too long.
        """
        replica = self._session.replica
        base_seq = replica.seq if reads is not None and expected_version is None else None
        return await self._commit(
            _request(
                step=step,
                agent=self._agent,
                expected_version=expected_version,
                reads=None if reads is None else self._checked_fields(reads),
                base_seq=base_seq,
                idempotency_key=idempotency_key,
                output=_json_value(output, "output"),
                confidence=_confidence(confidence),
                trace=trace,
                handoff=_json_value(handoff, "handoff"),
                tags=tags,
            ),
            patch,
        )

    async def attempt(
        self,
        work: Callable[[M], Awaitable[_Patch | None]],
        *,
        step: str,
        reads: Sequence[str] | None = None,
        attempts: int = 10,
        idempotency_key: str | None = None,
    ) -> Checkpoint:
        """Read, run, commit; when others were first, read again and run again, at most ``attempts`` times.

        ``work`` gets a snapshot and returns a patch for `commit`. It runs once per attempt, so what it pays for is paid
        again after a conflict; name the fields it depends on in ``reads`` to conflict on those only.

        Raises:
            VersionConflict: others were first every time; the last conflict is raised.
            Whatever ``work`` and `commit` raise otherwise.
        """
        if attempts < 1:
            raise BadRequest(f"attempts must be at least 1, got {attempts}")
        fields = None if reads is None else self._checked_fields(reads)
        replica = self._session.replica
        conflict: VersionConflict | None = None
        for _ in range(attempts):
            version, seq, before = replica.version, replica.seq, self.snapshot()
            request = _request(
                step=step,
                agent=self._agent,
                expected_version=version,
                reads=fields,
                base_seq=None if fields is None else seq,
                idempotency_key=idempotency_key,
            )
            try:
                return await self._commit(request, await work(before))
            except VersionConflict as error:
                conflict = error
                reached = int(error.data.get("seq") or 0)
                await self._session.waiters.until(lambda reached=reached: replica.seq >= reached, None)  # type: ignore[misc]
        assert conflict is not None
        raise conflict

    async def checkpoints(self, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        """Up to ``limit`` (1 to 1000) checkpoints with ``version < before`` (all when None), newest first."""
        self._session.check()
        _check_number(limit, "limit", 1, _CHECKPOINTS_MAX)
        if before is not None:
            _check_number(before, "before", 0, _NUMBER_MAX)
        return await self._session.link.checkpoints(before=before, limit=limit)

    async def at(self, version: int) -> M:
        """The board as it was at a version, verified against the checksum of its checkpoint.

        Raises:
            NotFound: there is no such version.
            BoardCorrupt: stored history does not verify.
        """
        self._session.check()
        _check_number(version, "version", 0, _NUMBER_MAX)
        _, state = await self._session.link.state_at(version)
        return snapshot_from_wire(state, self._model)

    async def wait_for(self, condition: Callable[[M], bool], timeout: float | None = None) -> M:
        """Wait until ``condition`` holds for the live state; return a snapshot of that moment.

        ``condition`` is called after every change, so it should be quick; its exceptions are raised here.

        Raises:
            TimeoutError: it did not become true within ``timeout`` seconds (None waits for ever).
        """
        await self._session.waiters.until(lambda: bool(condition(self.state)), timeout)
        return self.snapshot()

    async def changes(self, path: str = "") -> AsyncIterator[Change]:
        """What is changed from now on at ``path`` (a field or ``field/key``; everything when empty) and below it.

        Own changes come at once, others' when they are durable. Ends never; leave the loop to stop.

        Raises:
            BadRequest: the path names no field.
            LimitExceeded: the loop fell more than 100,000 changes behind.
        """
        if path:
            self._checked_fields([path.partition("/")[0]])
        queue = _ChangeQueue(path)
        replica = self._session.replica
        replica.watchers.append(queue.put)
        try:
            while True:
                yield await queue.get(self._session)
        finally:
            replica.watchers.remove(queue.put)

    def announce(self, *, role: str | None = None, step: str | None = None, focus: str | None = None) -> None:
        """Tell everybody on the board what this agent is doing. Not stored; gone when the agent leaves."""
        self._session.check()
        self._session.link.announce(AgentPresence(agent=self._agent, role=role, step=step, focus=focus))

    @property
    def agents(self) -> list[AgentPresence]:
        """Who is on the board now, in alphabetical order of their names."""
        return sorted(self._session.link.agents(), key=lambda presence: presence.agent)

    async def close(self) -> None:
        """Wait until everything is durable, at most ten seconds, and stop. Idempotent; closes all handles.

        Raises:
            Unavailable: some edits are not durable; how many is in the message. They are lost with this process.
        """
        session = self._session
        try:
            if session.error is None:
                await self.flush(timeout=_CLOSE_SECONDS)
            elif not session.closed and session.replica.pending:
                raise self._no_answer(f"{len(session.replica.pending)} edits are not durable")
        finally:
            session.closed = True
            await session.link.close()
            session.fail(BoardClosed(f"board {self.id} was closed"))

    async def _commit(self, request: CommitRequest, patch: _Patch | None) -> Checkpoint:
        self._session.check()
        if patch is not None and not isinstance(patch, Mapping | BoardModel):
            raise invalid_value("patch", f"maps field names to values, or is a model, but not a {type(patch).__name__}")
        operations, wire = build_patch(self._session.replica.document, self._model, patch or {})
        fingerprint = _fingerprint(request, wire)
        request = request.model_copy(update={"patch": tuple(operations), "fingerprint": fingerprint})
        return await self._session.link.commit(request)

    def _checked_fields(self, names: Sequence[str]) -> tuple[str, ...]:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise BadRequest(f"reads is a list of field names, like [{names!r}]")
        known = self._session.replica.document.kinds
        for name in names:
            if name not in known:
                raise BadRequest(f"{self._model.__name__} has no field {name!r}; it has {', '.join(sorted(known))}")
        return tuple(names)

    def _no_answer(self, what: str) -> BoardError:
        failure = self.failure
        if failure is None:
            return ConnectionFailed(f"{what}; the writer of board {self.id} has not answered yet")
        return type(failure)(f"{what}: {failure}", **failure.data)


class _ChangeQueue:
    """A bounded queue between the replica, which must not wait, and one loop over `Board.changes`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._below = f"{path}/"
        self._changes: deque[Change] = deque()
        self._overflowed = False
        self._filled = asyncio.Event()

    def put(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if self._path and change.path != self._path and not change.path.startswith(self._below):
                continue
            if len(self._changes) >= _CHANGES_QUEUED_MAX:
                self._overflowed = True
                break
            self._changes.append(change)
        if self._changes:
            self._filled.set()

    async def get(self, session: BoardSession) -> Change:
        while not self._changes:
            self._filled.clear()
            await session.waiters.until(self._filled.is_set, None)
        if self._overflowed:
            raise LimitExceeded(
                f"this loop over changes fell more than {_CHANGES_QUEUED_MAX} changes behind",
                limit="changes_queued_max",
                value=len(self._changes) + 1,
                maximum=_CHANGES_QUEUED_MAX,
            )
        return self._changes.popleft()


def _request(*, tags: Sequence[str] = (), **content: Any) -> CommitRequest:
    for name in ("step", "idempotency_key", "trace"):
        if content.get(name) is not None:
            check_text(content[name], name)
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise invalid_value("tags", f"is a list of texts, like [{tags!r}]")
    content["tags"] = tuple(check_text(tag, "tags") for tag in tags)
    try:
        return CommitRequest.model_validate({"fingerprint": "", **content}, strict=True)
    except ValidationError as error:
        raise from_validation_error(error, "") from None


def _check_number(value: object, name: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid_value(name, f"must be a whole number from {low} to {high}, got {value!r}")


def _json_value(value: JsonValue, name: str) -> JsonValue:
    """A copy of a JSON value, so that later changes to the caller's own do not reach the checkpoint."""
    try:
        copied = _JSON.validate_python(value)
        canonical_json(copied)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{name} must be JSON: {error}", path=name, reason=str(error)) from None
    return copied


def _confidence(value: float | None) -> float | None:
    if value is None:
        return None
    try:
        return _CONFIDENCE.validate_python(value)
    except ValueError:
        reason = "must be a number between 0 and 1"
        raise InvalidValue(f"confidence {reason}, got {value!r}", path="confidence", reason=reason) from None


def _fingerprint(request: CommitRequest, wire_patch: Mapping[str, JsonValue]) -> str:
    content = request.model_dump(mode="json", include={"step", "output", "confidence", "trace", "handoff", "tags"})
    return hashlib.sha256(canonical_json({**content, "patch": dict(wire_patch)})).hexdigest()
