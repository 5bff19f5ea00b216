"""The board as an agent sees it, the same whether its writer is in this process or behind a websocket."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

from pydantic import JsonValue

from crdt_board.artifacts.access import Artifacts
from crdt_board.board_link import AgentEditor, AgentPresence, BoardSession
from crdt_board.board_past import QUERY_SECONDS, BoardPast
from crdt_board.board_team import BoardTeam
from crdt_board.changes import Changes
from crdt_board.checkpoints import Checkpoint
from crdt_board.commit_arguments import check_number, checked_confidence, commit_request, json_copy
from crdt_board.committing import Committing
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.steps import ReopenSteps
from crdt_board.errors import (
    BadRequest,
    BoardClosed,
    BoardError,
    ModelError,
    VersionConflict,
    Violated,
)
from crdt_board.findings import Findings
from crdt_board.headroom import WARNINGS, LimitWarning
from crdt_board.layout import TEAM_ROOT
from crdt_board.limits import DEFAULT_LIMITS, check_board_id, check_name
from crdt_board.paths import field_of
from crdt_board.rule_watch import RuleWatch
from crdt_board.schema import BoardModel
from crdt_board.team.claims import ClaimedTask
from crdt_board.team.leases import Lease
from crdt_board.undo import UndoHistory
from crdt_board.views import ModelView, Patch, PlainModel, PlainView, View
from crdt_board.violation import VIOLATIONS, Violation
from crdt_board.wire_values import check_text

M = TypeVar("M", bound=BoardModel | PlainModel)
_Answer = TypeVar("_Answer")

_CLOSE_SECONDS = 10.0
_CLOSE_SECONDS_AFTER_AN_ERROR = 1.0
_GIVE_BACK_SECONDS = 1.0
"""Less than it takes until others get what is not given back."""
_RETRY_SECONDS_MAX = 0.25


class Board(BoardPast[M], BoardTeam):
    """One agent's handle on a board.

    Local edits through ``state`` take effect at once in this replica; they are sent in the background and are durable
    after `flush`. Use it from one event loop only.
    """

    def __init__(
        self, session: BoardSession, model: type[BoardModel] | None, agent: str, rules: RuleWatch | None = None
    ) -> None:
        """Use `crdt_board.open_board` or `crdt_board_client.connect`."""
        self._session = session
        self._rules = rules or RuleWatch(session, model, agent)
        self._model = model
        self._agent = check_name(agent, "agent", DEFAULT_LIMITS.agent_chars_max)
        self._editor = AgentEditor(session.replica, session, agent)
        self._view: View = PlainView(session.replica) if model is None else ModelView(model, session.replica)
        self._state = self._view.live(self._editor)
        self._committing = Committing(session, self._view, self._rules, agent=self._agent, answered=self._answered)
        super().__init__()

    def __repr__(self) -> str:
        return f"<Board {self.id!r} version {self.version} as {self.agent!r}>"

    @property
    def agent(self) -> str:
        """The name under which this handle writes."""
        return self._agent

    @property
    def state(self) -> M:
        """The live board: reading gives the present values, writing edits at once. Typed as the model.

        Without a model it is a `crdt_board.live.plain.PlainState`, which behaves as a dict.
        """
        return cast(M, self._state)

    @property
    def artifacts(self) -> Artifacts:
        """Content that is kept outside of the board, which points to it: files, images, long outputs.

        Raises:
            BadRequest: there is no place for them; see `BoardHost`.
        """
        self._session.check()
        return Artifacts(self._session.link.artifacts)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The rules that the state which edits have merged to breaks, in the order of places and rules; empty is well.

        They keep nobody from editing, but `commit` from making a version. Sizes are those of this replica's state.
        Validators of the model are run by agents that have it, soon after changes, and what they find is recorded on
        the board until one of them finds it resolved: so agents without the model see it, also when that agent is gone.
        `wait_for` and `changes` wake when they change, the latter with the path ``$violations``.
        """
        document = self._session.replica.document
        return document.standing.all(document)

    @property
    def warnings(self) -> tuple[LimitWarning, ...]:
        """Fields that have reached 80 % of a bound in `Limits`, beyond which edits are refused, in the order of paths.

        A warning goes when its field is below 70 %. `wait_for` and `changes` wake when warnings come or go, the latter
        with the path ``$warnings``, within a hundred changes. Fields of records are looked at where they are changed
        while this replica is open. `sizes` tells what else is bounded.
        """
        return self._session.replica.warnings()

    @property
    def unacknowledged(self) -> int:
        """How many local updates are not known to be durable."""
        return len(self._session.replica.pending)

    def as_agent(self, agent: str) -> Board[M]:
        """Another agent's handle on the same replica; what it writes is recorded under its own name.

        At a server at most 32 agents of one replica may announce themselves, react, follow or wait until all is
        settled; the next one gets LimitExceeded there. How many edit and commit is not bounded.

        Raises InvalidValue when that is empty, LimitExceeded when it is no name or too long.
        """
        return Board(self._session, self._model, agent, self._rules)

    def snapshot(self) -> M:
        """The present state as a frozen model; nothing in it is shared with the board.

        Each value fits its field. Rules over a field as a whole, or over several fields, hold unless `violations` names
        them: a state that breaks them can be read, so that it can be repaired.

        Raises:
            InvalidValue: a value that another client wrote does not fit its field, or a required field was never
                written; ``path`` names where.
        """
        return cast(M, self._view.snapshot())

    def transaction(self) -> AbstractContextManager[None]:
        """Group the edits inside into one update, which others see as a whole.

        An exception inside takes all of them back. Do not wait for anything inside.
        """
        self._session.check()
        return self._session.replica.transaction(self._agent, self._editor.history)

    def enable_undo(self, depth: int = 100) -> None:
        """Remember this handle's edits from now on, so that `undo` can take back the last ``depth`` steps.

        A step is one edit, one `transaction`, or what one ``edit_stream()`` wrote without another edit of this handle
        in between. It costs 2 to 6 µs for each step, and this process keeps what those edits delete or overwrite until
        the board is closed. Again: changes ``depth``.

        Raises:
            BadRequest: ``depth`` is not from 1 to `Limits.undo_steps_max`, or a transaction is open.
        """
        self._session.check()
        check_number(depth, "depth", 1, DEFAULT_LIMITS.undo_steps_max)
        self._check_no_transaction("enable_undo()")
        if self._editor.history is None:
            self._editor.history = self._session.replica.new_history(depth)
        else:
            self._editor.history.depth = depth

    def undo(self) -> bool:
        """Take back the newest step of this handle that still has an effect; False when there is none.

        Others' edits stay, also those made since in the same places: what somebody else has overwritten is not taken
        back, and a step of which nothing is left is passed over. Patches of commits are not steps. An undo is an edit
        like any other: it merges, and others see who made it.

        Raises:
            BadRequest: `enable_undo` was not called, or a transaction is open.
        """
        return self._session.replica.undo(self._agent, self._history("undo()"))

    def redo(self) -> bool:
        """Make the step again that was taken back last; False when there is none, or this handle has edited since.

        Raises:
            BadRequest: as `undo`.
        """
        return self._session.replica.redo(self._agent, self._history("redo()"))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until every edit made before this call is on disk at the board's writer.

        Raises:
            Unavailable: that did not happen within ``timeout`` seconds (None waits for ever); the edits are kept and
                still being sent.
            SchemaMismatch, BoardClosed: nothing will become durable any more.
            WriteRejected: the writer took back a value that the board's schema does not allow; everything else is on
                disk. Raised once, and not when there is an ``on_rejected``.
        """
        self._session.check()
        replica = self._session.replica
        number = replica.last_number
        self._session.link.hurry()
        try:
            await self._session.waiters.until(lambda: replica.acknowledged >= number, timeout)
        except TimeoutError:
            raise self._no_answer(f"{len(replica.pending)} edits are not durable after {timeout} s") from None
        self._session.rejections.check()

    async def commit(
        self,
        step: str,
        *,
        patch: Patch | None = None,
        expected_version: int | None = None,
        reads: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        lease: Lease | None = None,
        task: ClaimedTask | None = None,
        output: JsonValue = None,
        confidence: float | None = None,
        trace: str | None = None,
        handoff: JsonValue = None,
        tags: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Checkpoint:
        """Record a checkpoint: everything this agent wrote before, everything merged so far, and ``patch`` on top.

        ``patch`` maps field names to new values, or is a whole model; only what differs from this replica is written,
        as part of the commit itself, so a refused commit leaves no trace. A copy made by
        ``board.snapshot().model_copy(update=...)`` writes only what the copy changed.

        Without ``expected_version`` a commit merges, and others' work makes it fail only where it breaks a rule of the
        model (`violations`). With it, the commit is
        refused when another commit came in between; with ``reads`` only when one of those fields was changed since
        then (or, without ``expected_version``, since this replica last heard) by anything but edits of this replica. A
        version that the board never had is refused in either case. With ``lease`` it is refused unless that is still
        held. With ``task`` it completes that task, with ``output`` as the result, or is refused. A repeat with the same
        ``idempotency_key`` and the same step, patch and metadata returns the first result and does nothing.

        Durable on return. Cancelling does not take back a commit that is under way.

        Raises:
            VersionConflict: others were first; carries ``current_version``, ``author`` and ``changed``.
            Violated: the state that edits have merged to breaks a rule, and ``patch`` does not resolve that; carries
                ``violations``.
            IdempotencyMismatch: the key was used for another request.
            LeaseLost, TaskLost: ``lease`` or ``task`` is not held any more.
            InvalidValue: the patch does not fit the model or breaks one of its rules, or an argument is not what it
                should be; the path is named, and ``rule``.
            LimitExceeded: a name or the metadata is too long.
            WriteRejected: the writer took back an edit that the board's schema does not allow. With ``version`` in its
                data the commit was made without that edit; otherwise it was not made.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever); whether the commit was made is
                unknown, and a repeat with the same ``idempotency_key`` tells.
        """
        replica = self._session.replica
        request = commit_request(
            step=step,
            agent=self._agent,
            expected_version=expected_version,
            reads=None if reads is None else self._checked_fields(reads),
            base_seq=replica.seq if reads is not None and expected_version is None else None,
            idempotency_key=idempotency_key,
            lease=None if lease is None else lease.claim,
            operations=() if task is None else (task.completion(output),),
            output=json_copy(output, "output"),
            confidence=checked_confidence(confidence),
            trace=trace,
            handoff=json_copy(handoff, "handoff"),
            tags=tags,
        )
        made = await self._committing.commit(request, patch, timeout)
        if task is not None:
            await task.settled()
        return made

    async def attempt(
        self,
        work: Callable[[M], Awaitable[Patch | None] | Patch | None],
        *,
        step: str,
        reads: Sequence[str] | None = None,
        attempts: int = 10,
        idempotency_key: str | None = None,
    ) -> Checkpoint:
        """Read, run, commit; when others were first, read again and run again, at most ``attempts`` times.

        So it does while the board breaks a rule (`violations`) that the patch does not resolve.

        ``work``, a function or coroutine function, gets a snapshot and returns a patch for `commit`. It runs once per
        attempt, so what it pays for is paid again after a conflict; name the fields it depends on in ``reads`` to
        conflict on those only. Edits that ``work`` makes through this handle are no conflict; other handles' are.

        Raises:
            VersionConflict, Violated: others were first, or a rule was broken, every time; the last one is raised.
            Whatever ``work`` and `commit` raise otherwise.
        """
        if attempts < 1:
            raise BadRequest(f"attempts must be at least 1, got {attempts}")
        fields = None if reads is None else self._checked_fields(reads)
        replica = self._session.replica
        conflict: VersionConflict | Violated | None = None
        for number in range(attempts):
            if conflict is not None:
                await asyncio.sleep(random.uniform(0, min(_RETRY_SECONDS_MAX, 0.005 * 2 ** min(number, 10))))
            version, seq, before = replica.version, replica.seq, self.snapshot()
            request = commit_request(
                step=step,
                agent=self._agent,
                expected_version=version,
                reads=fields,
                base_seq=None if fields is None else seq,
                idempotency_key=idempotency_key,
            )
            try:
                with self._committing.refusing_neighbours(fields or ()):
                    patch = work(before)
                    patch = await patch if inspect.isawaitable(patch) else patch
                return await self._committing.commit(request, patch)
            except (VersionConflict, Violated) as error:
                conflict = error
                await self._committing.caught_up_with(error)
        assert conflict is not None
        raise conflict

    async def dismiss(self, violation: Violation, *, timeout: float | None = QUERY_SECONDS) -> None:
        """Drop a recorded violation although nothing was changed: its rule is not in the model any more.

        An agent whose model has the rule, and finds it broken, records it again. Durable on return, under this agent's
        name; nothing happens when it does not stand.

        Raises:
            BadRequest: it is about the size of a field, which only an edit can change.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        self._session.check()
        if violation.agent is None:
            raise BadRequest(f"{violation} is resolved by an edit, and stands until then")
        findings = Findings(seq=self._session.replica.seq, dismissed=(violation.key,))
        await self._answered(self._session.link.report(self._agent, findings), timeout)

    async def merge_from(self, board_id: str, *, timeout: float | None = None) -> Checkpoint:
        """Commit all that a fork of this board has and this one has not; or into a fork, what its parent has.

        Edits of both sides merge like concurrent ones, also when both went on, and a merge can be repeated later for
        what has come since. Edits of the other board that are not durable yet stay out. Returns the checkpoint of the
        merge, or when there is nothing that this board has not the newest one, and makes none; durable on return, and
        in this replica.

        Raises:
            VersionConflict: both sides have decided a `Strict` field, differently; ``changed`` names it, nothing was
                changed. Commit one decision on both, then merge again.
            Violated: what both sides hold breaks a size together, or a violation is recorded on one of them, which
                ``violations`` names; nothing was changed. Resolve it there.
            NotFound: there is no such board.
            BadRequest: neither of the two was forked from the other.
            SchemaMismatch: the fork's model does not fit, or both boards were migrated to it in different steps.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        check_board_id(board_id)
        self._session.check()
        return await self._answered(self._session.link.merge(board_id, self._agent), timeout)

    async def restore(
        self, version: int | str | Checkpoint, *, step: str = "restore", timeout: float | None = None
    ) -> Checkpoint:
        """Commit the state that a version had as a new version: nothing is erased, and offline replicas follow.

        What others write at the same time merges with it. `Max` and `Min` fields keep what they have reached. Steps
        that were done since are forgotten, and run again; effects took place, and stay.

        Raises:
            VersionConflict: a commit came in between; nothing was changed.
            As `at` and `commit` otherwise.
        """
        expected = self.version
        operations, wire = self._view.restoration(await self.at(version))
        request = commit_request(
            step=step,
            agent=self._agent,
            expected_version=expected,
            operations=(ReopenSteps(version=self._wanted_version(version)[0]),),
        )
        findings = self._committing.findings(operations)
        return await self._committing.send(request, operations, wire, timeout, findings=findings)

    async def wait_for(self, condition: Callable[[M], bool], timeout: float | None = None) -> M:
        """Wait until ``condition`` holds for the live state; return a snapshot of that moment.

        ``condition`` is called after every change, so it should be quick; its exceptions are raised here.

        Raises:
            TimeoutError: it did not become true within ``timeout`` seconds (None waits for ever).
            TypeError: ``condition`` is a coroutine function.
        """

        def holds() -> bool:
            result: object = condition(self.state)
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("the condition of wait_for is called after every change: give a plain function")
            return bool(result)

        try:
            await self._session.waiters.until(holds, timeout)
        except TimeoutError:
            raise TimeoutError(f"board {self.id}: the condition did not hold within {timeout} s") from None
        return self.snapshot()

    def changes(self, path: str = "") -> Changes:
        """What is changed from now on at ``path`` (a field or ``field/key``; everything when empty) and below it.

        The paths ``$violations`` and ``$warnings`` tell that `violations` or `warnings` are others than before.
        ``$team`` tells of leases, tasks and the like, as ``$team/lease:payments``, and has to be asked for.

        ``async for change in board.changes("findings")``. Own changes come at once, others' when they are durable.
        Ends never; leave the loop to stop.

        Raises:
            BadRequest: the path names no field.
        """
        if path and path not in (VIOLATIONS, WARNINGS) and field_of(path) != TEAM_ROOT:
            self._view.field(path.partition("/")[0])
        return Changes(self._session, path)

    def announce(self, *, role: str | None = None, step: str | None = None, focus: str | None = None) -> None:
        """Tell everybody on the board what this agent is doing. Not stored; gone when the agent leaves.

        Raises:
            InvalidValue: something else than a text was given.
            LimitExceeded: at a server, more than 32 agents of this replica announce themselves, or what they say takes
                more than 64 KiB together; nothing is announced.
        """
        for name, value in (("role", role), ("step", step), ("focus", focus)):
            if value is not None:
                check_text(value, name)
        self._session.check()
        self._idleness.say(AgentPresence(agent=self._agent, role=role, step=step, focus=focus))

    @property
    def agents(self) -> list[AgentPresence]:
        """Who is on the board now, in alphabetical order of their names."""
        return sorted(self._session.link.agents(), key=lambda presence: presence.agent)

    async def close(self, *, timeout: float = _CLOSE_SECONDS) -> None:
        """Wait until everything is durable, at most ``timeout`` seconds, and stop. Idempotent; closes all handles.

        Who waits for a lease through one of them leaves its line, which may take another second.

        Raises:
            Unavailable: some edits are not durable; how many is in the message. They are lost with this process.
            WriteRejected: as `flush`.
        """
        session = self._session
        try:
            if session.error is None:
                await self.flush(timeout=timeout)
            elif not session.closed and session.replica.pending:
                raise self._no_answer(f"{len(session.replica.pending)} edits are not durable")
        finally:
            session.closed = True
            await session.end_background()
            await self._rules.close()
            session.fail(BoardClosed(f"board {self.id} was closed"))
            await session.give_back_owed(_GIVE_BACK_SECONDS)
            await session.link.close()

    async def _commit_with(
        self,
        step: str,
        patch: Patch | None,
        operations: Sequence[Operation],
        lease: Lease | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        told = dict(metadata or {})
        request = commit_request(
            step=step,
            agent=self._agent,
            lease=None if lease is None else lease.claim,
            operations=tuple(operations),
            output=json_copy(told.pop("output", None), "output"),
            confidence=checked_confidence(told.pop("confidence", None)),
            handoff=json_copy(told.pop("handoff", None), "handoff"),
            **told,
        )
        return await self._committing.commit(request, patch)

    def _history(self, what: str) -> UndoHistory:
        self._session.check()
        self._check_no_transaction(what)
        if self._editor.history is None:
            raise BadRequest(f"{what} needs enable_undo() on this handle, before the edits that are to be taken back")
        return self._editor.history

    def _check_no_transaction(self, what: str) -> None:
        if self._session.replica.in_transaction:
            raise BadRequest(f"{what} does not work inside a transaction")

    def _checked_fields(self, names: Sequence[str]) -> tuple[str, ...]:
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise BadRequest(f"reads is a list of field names, like [{names!r}]")
        return tuple(self._view.field(name) for name in names)


@contextlib.asynccontextmanager
async def closing(board: Board[M]) -> AsyncIterator[Board[M]]:
    """The block of `open_board` and ``connect``: close the board at the end, without hiding an error of the block.

    After an error the wait for durability is short, and none when the block was cancelled; edits that are lost then are
    told in a note on the error.
    """
    board._rules.start()
    try:
        yield board
    except BaseException as error:
        patient = isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError)
        try:
            await board.close(timeout=_CLOSE_SECONDS_AFTER_AN_ERROR if patient else 0)
        except BoardError as lost:
            error.add_note(f"{lost} (lost when the block ended)")
        raise
    await board.close()


def check_model(model: object) -> None:
    """Raise ModelError unless ``model`` is a class made from `BoardModel`, or None."""
    if model is not None and not (isinstance(model, type) and issubclass(model, BoardModel)):
        what = model.__name__ if isinstance(model, type) else f"an instance of {type(model).__name__}"
        raise ModelError(f"the model must be a class made from BoardModel, as in class Plan(BoardModel); got {what}")
