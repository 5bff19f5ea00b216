"""The one writer of a board in this process: admit, apply, append, publish, snapshot (DESIGN §5).

Everything that changes a board goes through its `Engine`. Its document is the fold of the journal; it knows no agents'
replicas, sockets or models. Several engines, in one process or many, may write one board through one store: each
append compares the head, and whoever comes second takes in what came first and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from crdt_board import snapshots
from crdt_board.applying import Lessons, Poisoned
from crdt_board.branches import open_branch
from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import Checkpoint, CommitRequest, check_decisions, decode_checkpoint
from crdt_board.client_ids import WRITER, ClientIds
from crdt_board.clock import Clock, SystemClock
from crdt_board.coordinating import Coordinated, CoordinationItem, check_operations
from crdt_board.coordination.operations import Operation
from crdt_board.deadlines import Deadlines
from crdt_board.document import Document
from crdt_board.errors import (
    BoardClosed,
    BoardCorrupt,
    BoardDeleted,
    BoardError,
    BoardExists,
    BoardReplaced,
    IdempotencyMismatch,
    InvalidValue,
    LimitExceeded,
    MalformedUpdate,
    NotFound,
    SchemaMismatch,
    StoreUnavailable,
    Unavailable,
    VersionConflict,
)
from crdt_board.fold import NOWHERE
from crdt_board.forks import ForkContent, new_fork
from crdt_board.group_commit import GroupCommit
from crdt_board.headroom import Headroom
from crdt_board.history import BoardHistory
from crdt_board.history.upkeep import Upkeep
from crdt_board.inbox import Inbox, ReadItem, read_item
from crdt_board.journal import Entry, unpack_updates, verify_chain
from crdt_board.layout import FieldKind, Layout
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_board_id, check_name
from crdt_board.loading import LoadedBoard, apply_entries, entry_pages, load_board
from crdt_board.migrations import BoardState, MigrationRequest
from crdt_board.planning import (
    Batch,
    CommitItem,
    Merged,
    Plan,
    ReportItem,
    conflict_of,
    may_be_violated,
    must_plan_anew,
    plan_commit,
    plan_coordination,
    plan_move,
    plan_report,
    plan_schema,
    plan_submissions,
    plan_superseding,
    seal,
)
from crdt_board.publishing import Listener, Listeners, PublishedEntry
from crdt_board.rules import check_layout
from crdt_board.schema_changes import SchemaItem, named_keys
from crdt_board.schemas import BoardSchemas
from crdt_board.scratch import plan_expiry
from crdt_board.sizes import writer_warnings
from crdt_board.store.appends import deleted
from crdt_board.store.contract import Append, Appended, BoardHead, KeyRecord, SchemaRecord, Store, Tombstone
from crdt_board.submissions import Submission
from crdt_board.updates import check_update, clock_of, decode_state_vector
from crdt_board.validity import Report
from crdt_board.verdicts import Suspects

_Answer = TypeVar("_Answer")

_RETRY_SECONDS_FIRST = 0.05
_RETRY_SECONDS_MAX = 5.0
_CONTENTION_SECONDS = 5.0
"""For how long after another process came first what was written is looked up before a decision: one that was made on
an old state is made anew, in a document that is loaded anew."""
_NOBODY = "board"
"""The author of what the engine writes before it has seen anybody else's entry."""

_CLOSING_SNAPSHOT_ENTRIES = 64
_CLOSING_SNAPSHOT_BYTES = 32 * 1024

logger = logging.getLogger(__name__)


class Engine:
    """The writer of one board.

    Invariants:
        1. Between two batches the document and the fold hold exactly the entries up to ``seq``, all durable.
        2. Listeners have been given exactly the entries up to ``seq`` since they were added, once each, in order; or
           in place of some that were compacted away before they were seen, the whole board.
        3. Nothing is acknowledged, and no listener sees anything, before it is durable.
        4. A refused commit leaves nothing in the document.
    """

    def __init__(
        self,
        store: Store,
        journal: GroupCommit,
        head: BoardHead,
        loaded: LoadedBoard,
        schemas: BoardSchemas,
        *,
        client_ids: ClientIds,
        clock: Clock,
        limits: Limits,
    ) -> None:
        """Use `open`."""
        self.board_id = head.board_id
        self.limits = limits
        self.client_ids = client_ids
        """Grants the ids under which replicas write; an id that is granted to one is closed to all others."""
        self.failure: BoardError | None = None
        """Why the board cannot be written just now, or None."""
        self._store = store
        self._journal = journal
        self._clock = clock
        self._loaded = loaded
        self._schemas = schemas
        self._client_id = loaded.document.client_id
        client_ids.on_taken = self.refresh
        self._inbox = Inbox(limits)
        self._buried: set[int] = set()
        """The clients that wrote to boards of this name which were deleted."""
        self._listeners = Listeners(head.board_id)
        self._wake = asyncio.Event()
        self._foreign_news = False
        self._closing = False
        self._give_up_at = math.inf
        self._hurry = asyncio.Event()
        self.history = BoardHistory(store, head.board_id, schemas)
        """What the store holds of the board's past; it does not wait for the writer."""
        self._batch = Batch()
        self._in_flight: dict[str, Plan] = {}
        self._contended_until = -math.inf
        self._shown_schema = schemas.number
        self._last_author = _NOBODY
        self._suspects = Suspects(limits)
        self._deadlines = Deadlines(clock, self._let_run_out)
        self._deadlines.watch(loaded.document)
        self._headroom = Headroom(limits)
        self._warn()
        self._snapshot_task: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run(), name=f"writer-{head.board_id}")
        self._upkeep = Upkeep(store, head, limits)

    @classmethod
    async def open(
        cls,
        store: Store,
        journal: GroupCommit,
        board_id: str,
        *,
        epoch: str,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        client_ids_rest_until: float = 0.0,
    ) -> Engine:
        """Load a board, or make it under ``epoch`` when there is none.

        Free client ids are left in the store until ``client_ids_rest_until``, on the clock of the event loop.

        Raises:
            StoreUnavailable: the store did not answer; nothing was decided.
            BoardCorrupt: the journal does not verify; nothing was written.
        """
        clock = clock or SystemClock()
        client_ids = ClientIds(store, board_id, limits, rest_until=client_ids_rest_until)
        client_id = await client_ids.grant(WRITER)  # before the head is read: see invariant 3 of `ClientIds`
        try:
            head = await store.head(board_id) or await store.create(board_id, epoch=epoch, created_ms=clock.now_ms())
            client_ids.epoch = head.epoch
            schemas = BoardSchemas(store, board_id, await store.schemas(board_id))
            loaded = await load_board(store, head, schemas.newest, client_id=client_id)
            buried = await store.tombstones(board_id)
        except BoardError:
            client_ids.take_back(client_id)
            await client_ids.close()
            raise
        engine = cls(store, journal, head, loaded, schemas, client_ids=client_ids, clock=clock, limits=limits)
        for tombstone in buried:
            engine._buried |= decode_state_vector(tombstone.clients).keys()
        return engine

    @property
    def epoch(self) -> str:
        """Tells this board from an earlier one of the same name."""
        return self._loaded.fold.epoch

    @property
    def seq(self) -> int:
        """The newest durable entry."""
        return self._loaded.fold.seq

    @property
    def version(self) -> int:
        """The newest checkpoint; 0 when there is none."""
        return self._loaded.fold.version

    @property
    def schema_version(self) -> int:
        """The number of the newest schema; 0 when no model was ever used."""
        return self._schemas.number

    @property
    def layout(self) -> Layout | None:
        """The newest schema, with the roots in which this board keeps its fields; None before any model was used."""
        return self._schemas.newest

    def refusal_of(self, schema: int | None) -> SchemaMismatch | None:
        """Why a peer that writes under this schema cannot go on, or None."""
        return self._schemas.refusal_of(schema)

    @property
    def fields(self) -> dict[str, FieldKind]:
        """The fields of the newest schema; empty when no model was ever used."""
        return self._loaded.document.kinds

    @property
    def is_open(self) -> bool:
        return not self._closing

    def state_vector(self) -> bytes:
        """What the document holds; durable content only when asked from inside `Listener.published` or `read`."""
        return self._loaded.document.state_vector()

    def check_replica(self, state_vector: bytes) -> None:
        """Return when a replica that holds this may write; for peers that do not say to which epoch they belong.

        Raises:
            BoardReplaced: it holds what was written to an earlier board of this name, and not to this one.
            MalformedUpdate: ``state_vector`` is none.
        """
        if not self._buried:
            return
        present = decode_state_vector(self.state_vector())
        clocks = decode_state_vector(state_vector)
        if any(clock > present.get(client, 0) for client, clock in clocks.items() if client in self._buried):
            raise BoardReplaced(
                f"board {self.board_id} was deleted and made anew; this replica belongs to the old one",
                board_id=self.board_id,
            )

    def add_listener(self, listener: Listener) -> None:
        """Publish to ``listener`` whatever becomes durable from now on."""
        self._listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who is published to now, in the order in which they were added."""
        return self._listeners.all()

    def submit(self, submission: Submission) -> None:
        """Queue updates. Each is checked for size, nesting and client ids at once; the rest happens in the writer.

        Raises:
            LimitExceeded, MalformedUpdate: an update is not acceptable; nothing of the submission was queued.
            Unavailable: a difference holds what the owner of a client id has not sent yet; nothing was queued.
            BoardClosed: the engine was closed.
        """
        self._check_open()
        submission.extents = [check_update(update, self.limits) for update in submission.updates]
        for ends, _ in submission.extents:
            closed = [client for client in ends if self.client_ids.is_closed_to(client, submission.source)]
            if closed:
                self._check_known({client: ends[client] for client in closed}, submission)
        self._put(submission)

    @property
    def has_room(self) -> bool:
        """Whether less than ``inbox_bytes_max`` is queued; peers are not read meanwhile otherwise."""
        return self._inbox.has_room

    async def wait_for_room(self) -> None:
        """Return when `has_room`."""
        await self._inbox.wait_for_room()

    def commit(self, request: CommitRequest, *, schema: int | None = None) -> asyncio.Future[Checkpoint]:
        """Make a checkpoint of everything submitted before, with the request's patch applied.

        The commit is queued when this returns. When the future is done, the checkpoint is durable and was given to
        every listener. Cancelling the future does not take back a commit under way.

        ``schema`` is the number of the schema that the patch was made under; None when its maker knows of none.

        Raises:
            VersionConflict, IdempotencyMismatch, Violated: see `crdt_board.board.Board.commit`; nothing was changed.
            SchemaMismatch: the board was migrated from ``schema``; nothing was changed.
            InvalidValue: the patch does not fit the board's layout, or sets a strict field without an
                ``expected_version``; nothing was changed.
            LimitExceeded: the metadata is too large; nothing was changed.
            BoardClosed: the engine was closed before the commit was decided.
        """
        return self._commit(request, schema=schema)

    async def merge(
        self, fork_id: str, *, agent: str, origin: str = "", idempotency_key: str | None = None
    ) -> Checkpoint:
        """Commit everything that a fork of this board, or any board with a common past, has and this one has not.

        Edits of both sides merge like concurrent ones. Durable on return, and given to every listener. When there is
        nothing that this board has not, it returns the newest checkpoint and makes none.

        Raises:
            NotFound: there is no board ``fork_id``.
            VersionConflict: both have decided a strict field, differently; nothing was changed.
            Violated: the state afterwards would break a rule, as far as is known; nothing was changed.
            IdempotencyMismatch: the key was used for another request; nothing was changed.
            SchemaMismatch: the fork's model does not fit, or one of the two was migrated since; nothing was changed.
            BadRequest: the boards have no common past.
        """
        branch = await open_branch(self._store, self.board_id, fork_id)
        if branch.layout is not None:
            await self.join(branch.layout, agent=agent)

        def look(document: Document) -> tuple[int, int]:
            conflict = branch.conflict_with(document, self.version, self.seq)
            if conflict is not None:
                raise conflict
            is_known = idempotency_key is None and not branch.brings_news_to(document)
            return self.seq, self.version if is_known else 0

        step = f"merge {fork_id}"
        request = CommitRequest(
            step=step, agent=agent, fingerprint=step, origin=origin, idempotency_key=idempotency_key
        )
        while True:
            seq, known_at = await self.read(look)
            if known_at and (known := await self._store.checkpoint(self.board_id, known_at)):
                return known
            try:
                watched = request.model_copy(update={"reads": branch.strict, "base_seq": seq})
                return await self._commit(watched, merged=branch.merged)
            except VersionConflict:
                continue  # a strict field was decided meanwhile: look again

    async def fork(self, version: int, board_id: str, *, agent: str, epoch: str) -> Checkpoint:
        """Make a board that begins at a version of this one; return its first checkpoint. Durable on return.

        A repeat with the same ``epoch``, which is a new random one for every fork, does nothing.

        Raises:
            NotFound: there is no such version.
            BoardExists: there is a board of this name.
            InvalidBoardId: ``board_id`` is not one.
        """
        check_board_id(board_id, self.limits)
        checkpoint, content = await self._content_at(version)
        board = new_fork(
            content,
            checkpoint,
            await self._store.schemas(self.board_id),
            board_id=board_id,
            epoch=epoch,
            agent=agent,
            now_ms=self._clock.now_ms(),
            limits=self.limits,
        )
        if await self._store.create_with(board):
            return board.beginning.checkpoints[0]
        head, made = await self._store.head(board_id), await self._store.checkpoint(board_id, 1)
        if head is None or head.epoch != epoch or made is None:
            raise BoardExists(f"there is a board {board_id} already; choose another name", board_id=board_id)
        return made

    async def _content_at(self, version: int) -> tuple[Checkpoint, ForkContent]:
        """What the board held at a version: at once when nothing came after it, and else read from the store."""

        def look(document: Document) -> tuple[str, ForkContent] | None:
            fold = self._loaded.fold
            is_now = (fold.version, fold.version_seq) == (version, fold.seq)
            return (document.checksum(), ForkContent.of(document)) if is_now else None

        now = await self.read(look)
        if now is not None:
            checkpoint = await self._store.checkpoint(self.board_id, version)
            if checkpoint is not None and checkpoint.checksum == now[0]:
                return checkpoint, now[1]
        checkpoint, loaded = await self.history.load_version(version)
        return checkpoint, ForkContent.of(loaded.document)

    async def delete(self, agent: str) -> None:
        """Remove the board and everything that is stored of it, and stop; a tombstone stays.

        What was submitted before is decided first. Whoever listens is told `BoardDeleted`, in other processes too.
        """
        await self.read(lambda _document: None)
        tombstone = Tombstone(
            board_id=self.board_id,
            epoch=self.epoch,
            deleted_ms=self._clock.now_ms(),
            agent=agent,
            clients=self.state_vector(),
        )
        if await self._store.delete(tombstone):
            self._stop(deleted(tombstone))
            self._wake.set()

    def _commit(
        self, request: CommitRequest, *, schema: int | None = None, merged: Merged | None = None
    ) -> asyncio.Future[Checkpoint]:
        self._check_open()
        _check_request(request, self.limits)
        answer: asyncio.Future[Checkpoint] = asyncio.get_running_loop().create_future()
        self._put(CommitItem(request, answer, schema=schema, merged=merged))
        return answer

    def coordinate(self, agent: str, operations: Sequence[Operation]) -> asyncio.Future[Coordinated]:
        """Decide on what agents ask for who work together: all of the operations, or none.

        Queued when this returns, behind everything submitted before; durable, and given to every listener, when the
        future is done. Cancelling it does not take back what is under way.

        Raises:
            LimitExceeded, InvalidValue: an operation is too large, or holds what cannot be kept.
            BoardError: one is refused (see `crdt_board.coordination`); nothing was changed.
            BoardClosed: the engine was closed before it was decided.
        """
        self._check_open()
        check_operations(agent, operations, self.limits)
        answer: asyncio.Future[Coordinated] = asyncio.get_running_loop().create_future()
        self._put(CoordinationItem(agent, operations, answer))
        return answer

    def report(self, report: Report) -> asyncio.Future[None]:
        """Record what an agent found of rules that only models know, once for each rule and place.

        Queued when this returns, behind everything submitted before; durable when the future is done.

        Raises:
            LimitExceeded: the agent has no name.
            BoardClosed: the engine was closed.
        """
        self._check_open()
        check_name(report.agent, "agent", self.limits.agent_chars_max)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(ReportItem(report, answer))
        return answer

    async def read(self, look: Callable[[Document], _Answer]) -> _Answer:
        """Run ``look`` on the document at a moment when it holds durable content only.

        Everything submitted before has been decided by then. ``look`` must not change the document.
        """
        self._check_open()
        item, answer = read_item(look)
        self._put(item)
        return await answer

    def refresh(self) -> None:
        """Look soon for entries of other processes."""
        self._foreign_news = True
        self._wake.set()

    async def join(self, layout: Layout, *, migrates: Sequence[int] = (), agent: str = "") -> int:
        """Let a model with this layout use the board; return the number of the schema that it uses.

        ``migrates`` are the numbers of the schemas that it has migrations from. What agents without a model wrote under
        the names of its fields is brought to where these are, by an entry of ``agent``.

        Raises:
            SchemaMismatch: the model does not fit, or its agent must `migrate` the board first, which it can when
                ``board_schema`` is in ``migrates``; nothing was changed.
            ModelError: what it says of its fields cannot be checked; nothing was changed.
            StoreUnavailable: the store did not answer.
        """
        check_layout(layout, self.limits)
        number = self._schemas.find(layout, migrates)
        if number is None and named_keys(self._loaded.document, layout):
            return await self._change_schema(layout, tuple(migrates), agent)
        number = await self._schemas.join(layout, migrates)
        self._show_schema()
        return number

    async def migrate(self, request: MigrationRequest) -> int:
        """Bring the board to the schema of an agent's model, and to the state that it made of the one before.

        When the board is at that schema already, nothing is changed. Returns the number of the schema. Durable on
        return; cancelling does not take it back.

        Raises:
            VersionConflict: the state was changed after the agent read it; read again.
            SchemaMismatch: the board is at another schema; join again.
            InvalidValue: the state does not fit the layout.
            ModelError: as `join`.
        """
        check_layout(request.layout, self.limits)
        return await self._change_schema(request.layout, request.migrates, request.agent, request)

    async def read_state(self) -> BoardState:
        """The durable state of now, for `migrate`."""

        def look(document: Document) -> BoardState:
            number, newest = self._schemas.number, self._schemas.newest
            return BoardState(seq=self.seq, schema_version=number, layout=newest, state=document.wire_state())

        return await self.read(look)

    async def _change_schema(
        self, layout: Layout, migrates: tuple[int, ...], agent: str, request: MigrationRequest | None = None
    ) -> int:
        self._check_open()
        check_name(agent, "agent", self.limits.agent_chars_max)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._put(SchemaItem(layout, migrates, agent, answer, migration=request))
        return await answer

    def last_schema_like(self, number: int) -> int:
        """The newest schema of the board that is ``number``, or only adds optional fields to it."""
        return self._schemas.last_like(number)

    async def checkpoints(self, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        """Up to ``limit`` checkpoints with ``version < before``, newest first."""
        return await self._store.checkpoints(self.board_id, before=before, limit=limit)

    def take_back(self, client_id: int, source: object, *, clock: int) -> None:
        """Let others use an id: the replica that wrote under it through ``source``, up to ``clock``, is done.

        It must not send anything any more, and everything that it sent has been decided. Unless the document holds all
        of it, without gaps, the id is not used again.
        """
        if not self.client_ids.holds(client_id, source):
            return
        known = clock_of(client_id, self._loaded.document.state_vector())
        if self.is_open and clock <= known:
            self.client_ids.take_back(client_id)
        else:
            self.client_ids.forget(client_id, source)

    def give_up_after(self, seconds: float) -> None:
        """From so many seconds on, refuse what waits with the store's error instead of trying again."""
        self._give_up_at = min(self._give_up_at, asyncio.get_running_loop().time() + seconds)
        self._hurry.set()

    async def close(self) -> None:
        """Write what is queued, take a snapshot when it saves time later, return free client ids, and stop. Idempotent.

        Waits for a store that fails until `give_up_after`. Cancelling gives up at once what was never acknowledged.
        """
        self._closing = True
        self._wake.set()
        self._deadlines.stop()
        await self._upkeep.close()
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        finally:
            closed = self.failure or BoardClosed(f"board {self.board_id} was closed")
            self._batch.refuse(closed)
            self._inbox.refuse_all(closed)

    # What follows runs in the writer's task only.

    async def _run(self) -> None:
        try:
            while not (self._closing and self._is_idle()):
                if self._is_idle():
                    await self._rest()
                else:
                    await self._step()
            if not isinstance(self.failure, BoardDeleted):
                await self._close_with_snapshot()
                self.client_ids.take_back(self._client_id)
                await self.client_ids.close()
        except BoardError as error:
            self._stop(error)
        except asyncio.CancelledError:
            raise
        except BaseException:  # the boundary of this task, for panics of yrs too: its neighbours go on
            logger.exception("board %s stops after an unforeseen failure", self.board_id)
            self._stop(BoardClosed(f"board {self.board_id} stopped after an internal failure; open it again"))

    def _is_idle(self) -> bool:
        return not self._inbox and not self._foreign_news and not self._has_expired()

    async def _rest(self) -> None:
        """Return when there is something to do, or something may have run out."""
        self._wake.clear()
        due = self._loaded.fold.scratch.due_at()
        left = None if due is None else min((due - self._clock.now_ms()) / 1000, self.limits.scratch_look_seconds)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()

    def _has_expired(self) -> bool:
        due = self._loaded.fold.scratch.due_at()
        return due is not None and due <= self._clock.now_ms()

    async def _expire(self) -> None:
        """Remove a page of what has run out of scratch fields, if it is still there."""
        await self._catch_up()
        while due := self._loaded.fold.scratch.due(self._clock.now_ms(), self.limits.scratch_page_keys):
            plan, gone = plan_expiry(self._loaded, due, self.limits)
            if plan is None or await self._append_one(plan):
                self._loaded.fold.scratch.forget(gone)
                return
            await self._reload()
            await self._catch_up()

    async def _step(self) -> None:
        await self._look_at_news()
        if self._has_expired():
            await self._until_store_answers(self._expire, recover=self._recover)
        while (read := self._inbox.take_read()) is not None:
            if not read.run(self._loaded.document):
                await self._until_store_answers(self._reload)
                await self._look_at_news()
        self._batch = self._inbox.take_batch()
        if self._batch.schema:
            await self._until_store_answers(self._write_schema, recover=self._recover)
        elif self._batch.submissions or self._batch.coordination or self._batch.commit or self._batch.report:
            await self._until_store_answers(self._write, recover=self._recover)
        self._batch = Batch()
        if self._loaded.document.has_misplaced:
            await self._until_store_answers(self._move_misplaced, recover=self._recover)

    async def _look_at_news(self) -> None:
        if self._foreign_news:
            self._foreign_news = False
            await self._until_store_answers(self._catch_up)

    async def _until_store_answers(
        self, attempt: Callable[[], Awaitable[None]], *, recover: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Run ``attempt``; while the store fails, again after a growing pause, each time after ``recover``.

        Raises:
            StoreUnavailable: the board is being closed, and was to give up by now.
        """
        pause, loop = _RETRY_SECONDS_FIRST, asyncio.get_running_loop()
        while True:
            try:
                if self.failure is not None and recover is not None:
                    await recover()
                await attempt()
            except StoreUnavailable as error:
                if self.failure is None:
                    logger.warning("board %s: the store failed, trying again: %s", self.board_id, error)
                self.failure = error
                if loop.time() >= self._give_up_at:
                    raise
                await self._pause(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, _RETRY_SECONDS_MAX)
            else:
                self.failure = None
                return

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the moment to give up, which may be set meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := min(until, self._give_up_at) - loop.time()) > 0:
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._hurry.wait()

    async def _recover(self) -> None:
        """After a failed append: rebuild the document, then learn from the journal whether the append took place."""
        if any(plan.source is None and plan.updates for plan in self._in_flight.values()):
            # Under the old id the same clocks would be used again, while nobody knows for good that the append is dead.
            self._client_id = self.client_ids.renew(self._client_id)
        await self._reload()
        await self._catch_up()

    async def _write(self) -> None:
        """Make the current batch durable and publish it."""
        batch = self._batch
        while not batch.durable:
            if batch.coordinates and asyncio.get_running_loop().time() < self._contended_until:
                await self._catch_up()
            batch.refuse_outdated(self._schemas.refusal_of)
            commit = batch.open_commit()
            if commit is not None:
                await self._look_up(commit)
            await self._append(batch, await self._plan(batch))
        for submission in batch.submissions:
            submission.finish(self.seq)
        for item in batch.coordination:
            item.finish(self.seq)
        self._deadlines.watch(self._loaded.document)
        if batch.report is not None:
            batch.report.finish()

    async def _plan(self, batch: Batch) -> list[Plan]:
        """Apply the batch. When yrs panics, or what is to be refused was applied with more, rebuild the document and
        apply one update at a time to find the guilty."""
        lessons = Lessons(suspects=self._suspects)
        is_timed = batch.coordinates or self._loaded.document.ledger.watching
        now_ms = await self._store.now_ms() if is_timed else self._clock.now_ms()
        while True:
            try:
                plans = plan_submissions(self._loaded, batch, self.limits, lessons)
                plans += plan_superseding(self._loaded, plans, now_ms)
                commit = batch.open_commit()
                plans += plan_coordination(self._loaded, batch, self.limits, now_ms)
                plan = plan_commit(self._loaded, commit, plans, self.limits, now_ms) if commit else None
                if batch.report is not None:
                    plan = plan_report(self._loaded, batch.report.report, plans, self.limits)
                return [*plans, plan] if plan else plans
            except Poisoned as poisoned:
                if poisoned.suspect is None:
                    logger.warning("board %s: what was written is refused and the document rebuilt", self.board_id)
                    lessons = lessons.learned(poisoned.updates, poisoned.error)
                await self._reload()

    async def _append(self, batch: Batch, plans: list[Plan]) -> None:
        """Append the plans; ``batch.durable`` stays False when they must be made anew because a commit was refused, or
        because the board has another schema by now."""
        schema = self._schemas.number
        while plans:
            entries = seal(
                self._loaded,
                plans,
                board_id=self.board_id,
                schema_version=self.schema_version,
                now_ms=self._clock.now_ms(),
            )
            self._in_flight = {entry.hash: plan for entry, plan in zip(entries, plans, strict=True)}
            result = await self._journal.append(_append_request(entries, plans, expected_seq=self.seq))
            if isinstance(result, Appended):
                self._take_in(entries)
                self._snapshot_when_due()
                break
            self._in_flight.clear()
            self._contended_until = asyncio.get_running_loop().time() + _CONTENTION_SECONDS
            loaded = self._loaded
            await self._catch_up()
            # After a jump the document is another one, which holds nothing of these plans.
            if self._loaded is not loaded:
                return
            if self._schemas.number != schema:
                await self._reload()
                return
            if batch.coordinates or must_plan_anew(self._loaded, plans):
                await self._reload()
                return
            if not await self._still_allowed(plans):
                return
        batch.durable = True

    async def _write_schema(self) -> None:
        """Bring the board to the schema that waits for it, and answer."""
        item = self._batch.schema
        assert item is not None
        while not item.answer.done():
            try:
                item.schema_version = self._schemas.number
                number = self._find_schema(item)
                if number is not None:
                    item.finish(number)
                    return
                records = self._schemas.following(item.layout, item.migrates)
                layout = Layout.model_validate_json(records[-1].document)
                plan = plan_schema(self._loaded, item, layout, self.limits, await self._store.now_ms())
            except BoardError as error:
                item.refuse(error)
                await self._reload()
                return
            if not await self._append_one(plan, records):
                await self._reload()
                await self._catch_up()

    def _find_schema(self, item: SchemaItem) -> int | None:
        """The number under which the item's model uses the board as it is; None when the board must be changed."""
        try:
            return self._schemas.find(item.layout, item.migrates)
        except SchemaMismatch as mismatch:
            if item.migration is None or item.migration.from_version != mismatch.board_schema:
                raise
            return None

    async def _move_misplaced(self) -> None:
        """Bring what was written into ``state`` under the names of other fields to where these are.

        An agent without a model does so until it has heard of the board's schema. What does not fit stays there.
        """
        while names := self._loaded.document.take_misplaced():
            author = self._last_author
            plan = plan_move(self._loaded, names, author, self.limits, await self._store.now_ms())
            if plan is not None and not await self._append_one(plan):
                await self._reload()
                await self._catch_up()

    async def _append_one(self, plan: Plan, schemas: Sequence[SchemaRecord] = ()) -> bool:
        """Append an entry of the engine's own; False when the board has changed meanwhile."""
        entries = seal(
            self._loaded,
            [plan],
            board_id=self.board_id,
            schema_version=self.schema_version,
            now_ms=self._clock.now_ms(),
        )
        self._in_flight = {entries[0].hash: plan}
        request = _append_request(entries, [plan], expected_seq=self.seq, schemas=schemas)
        if not isinstance(await self._journal.append(request), Appended):
            self._in_flight.clear()
            return False
        self._schemas.extend(schemas)
        self._show_schema()
        self._take_in(entries)
        self._snapshot_when_due()
        return True

    async def _still_allowed(self, plans: list[Plan]) -> bool:
        """After others' entries came in between: drop a commit that they refuse.

        Returns False when everything must be planned anew: the patch of a commit that is refused, or may be, was in the
        document, which has been rebuilt without it (invariant 4).
        """
        commit = plans[-1].commit
        if commit is None:
            return True
        await self._look_up(commit)
        refusal = conflict_of(self._loaded.fold, commit, plans[:-1])
        if refusal is not None:
            commit.refuse(refusal)
        if not commit.answer.done():
            if may_be_violated(self._loaded, commit):
                await self._reload()
                return False
            plans[-1].checksum = self._loaded.document.checksum()
            return True
        if plans.pop().updates:
            await self._reload()
            return False
        return True

    async def _look_up(self, commit: CommitItem) -> None:
        """Ask the store where the commit's preconditions start, and answer it if its idempotency key was used."""
        request = commit.request
        if (request.expected_version or 0) > self.version:
            await self._catch_up()  # another process made it, and handed it over
        commit.base_seq = await self._base_seq(request)
        if request.idempotency_key is None:
            return
        record = (await self._store.keys(self.board_id, [request.idempotency_key])).get(request.idempotency_key)
        if record is None:
            return
        if record.version > self.version:
            await self._catch_up()
        if record.fingerprint != request.fingerprint:
            commit.refuse(
                IdempotencyMismatch(
                    f"idempotency key {record.key!r} was used for another request, which made version {record.version}",
                    key=record.key,
                    version=record.version,
                )
            )
            return
        checkpoint = await self._store.checkpoint(self.board_id, record.version)
        if checkpoint is None:
            commit.refuse(NotFound(f"version {record.version} of board {self.board_id} is gone"))
        else:
            commit.finish(checkpoint)

    async def _base_seq(self, request: CommitRequest) -> int:
        if request.reads is not None and request.base_seq is not None:
            return request.base_seq
        if not request.expected_version:
            return 0
        if request.expected_version == self.version:
            return self._loaded.fold.version_seq
        # Where the version was compacted away, the one before it: that finds too many changes rather than too few.
        found = await self._store.checkpoints(self.board_id, before=request.expected_version + 1, limit=1)
        return found[0].seq if found else 0

    def _take_in(self, entries: Sequence[Entry]) -> None:
        """Advance the fold by durable entries whose updates are in the document, show them, then answer commits."""
        published: list[PublishedEntry] = []
        for entry in entries:
            self._last_author = entry.author
            plan = self._in_flight.get(entry.hash)
            self._loaded.advance(entry, plan.origin if plan else NOWHERE)
            published.append(
                PublishedEntry(
                    entry,
                    plan.updates if plan else unpack_updates(entry.payload),
                    plan.source if plan else None,
                    decode_checkpoint(entry.checkpoint) if entry.checkpoint else None,
                    plan.corrections if plan else (),
                )
            )
        self._listeners.publish(published)
        self._upkeep.count(len(published))
        for shown in published:
            plan = self._in_flight.pop(shown.entry.hash, None)
            if plan is not None:
                self._batch.durable = True
            if plan is not None and plan.commit and shown.checkpoint:
                plan.commit.finish(shown.checkpoint)

    async def _catch_up(self) -> None:
        """Take in what the journal has after ``seq``: others' entries, or our own of an append that seemed to fail."""
        head = await self._head()
        await self._schemas.reload()  # after the head, and before the entries that are written under them
        self._show_schema()
        if head.base_seq > self.seq:
            await self._jump(head)
        try:
            async for page in entry_pages(self._store, self.board_id, after=self.seq, until=head.seq):
                verify_chain(self._loaded.fold.hash, self.seq, page)
                apply_entries(self._loaded, page)
                self._take_in(page)
            self._deadlines.watch(self._loaded.document)
        except BoardCorrupt:
            head = await self._head()
            if head.base_seq <= self.seq:
                raise
            await self._jump(head)  # somebody compacted the board while we read on
        self._in_flight.clear()

    async def _jump(self, head: BoardHead) -> None:
        """Go to the journal's end at once, since entries that we have not seen became part of the base.

        What was in them is shown as one entry without an author that holds the whole board.
        """
        for plan in self._in_flight.values():
            if plan.commit is not None and plan.commit.request.idempotency_key is None:
                plan.commit.refuse(
                    StoreUnavailable("the store failed, and it is not known whether the commit was made")
                )
        self._loaded = loaded = await load_board(self._store, head, self._schemas.newest, client_id=self._client_id)
        entry = Entry(
            board_id=self.board_id,
            epoch=self.epoch,
            seq=loaded.fold.seq,
            kind="update",
            author="",
            time_ms=self._clock.now_ms(),
            paths=(),
            checkpoint="",
            payload=b"",
            hash=loaded.fold.hash,
        )
        updates = [loaded.document.encode()]
        checkpoint = await self._store.checkpoint(self.board_id, loaded.fold.version)
        self._listeners.publish([PublishedEntry(entry, updates, None, checkpoint)])

    async def _reload(self) -> None:
        """Rebuild the document as it was after ``seq`` (invariant 1); the fold stays (invariant 2)."""
        fold = self._loaded.fold
        try:
            self._loaded = await load_board(
                self._store, await self._head(), self._schemas.newest, until=fold.seq, client_id=self._client_id
            )
            self._loaded.fold = fold
        except NotFound:
            await self._jump(await self._head())
        self._declare_newest()  # a model may have joined meanwhile

    def _show_schema(self) -> None:
        self._declare_newest()
        if self._shown_schema != self._schemas.number:
            self._shown_schema = self._schemas.number
            self._listeners.tell_schema()

    def _declare_newest(self) -> None:
        newest = self._schemas.newest
        if newest is not None and newest is not self._loaded.document.layout:
            self._loaded.document.declare(newest)
        self._loaded.track_scratch()

    async def _head(self) -> BoardHead:
        head = await self._store.head(self.board_id)
        if head is not None and head.epoch == self.epoch:
            return head
        for tombstone in await self._store.tombstones(self.board_id):
            if tombstone.epoch == self.epoch:
                raise deleted(tombstone)
        raise BoardCorrupt(f"board {self.board_id} is gone from the store", board_id=self.board_id, seq=None)

    def _snapshot_when_due(self) -> None:
        loaded, limits = self._loaded, self.limits
        if (
            loaded.entries_since_snapshot >= limits.snapshot_every_entries
            or loaded.bytes_since_snapshot >= limits.snapshot_every_bytes
        ) and (self._snapshot_task is None or self._snapshot_task.done()):
            self._warn()
            self._snapshot_task = asyncio.create_task(
                snapshots.save(self._store, self.board_id, snapshots.capture(loaded), limits),
                name=f"snapshot-{self.board_id}",
            )

    def _warn(self) -> None:
        """Log what is near a bound, once; as often as there is a snapshot, since one is far shorter than the last fifth
        of any bound."""
        measures = writer_warnings(self._loaded, self.limits)
        for warning in self._headroom.look_at_all(self._loaded.document, measures):
            logger.warning("board %s is near a limit, beyond which edits are refused: %s", self.board_id, warning)

    async def _close_with_snapshot(self) -> None:
        if self._snapshot_task is not None:
            await self._snapshot_task
        loaded = self._loaded
        if (
            loaded.entries_since_snapshot >= _CLOSING_SNAPSHOT_ENTRIES
            or loaded.bytes_since_snapshot >= _CLOSING_SNAPSHOT_BYTES
        ):
            await snapshots.save(self._store, self.board_id, snapshots.capture(loaded), self.limits)

    def _check_known(self, ends: dict[int, int], submission: Submission) -> None:
        """Peers send on what others wrote under ids that they hold, but nothing that these have not written yet."""
        written = decode_state_vector(self._loaded.document.state_vector())
        for client_id, end in ends.items():
            if end <= written.get(client_id, 0):
                continue
            if submission.is_difference and client_id != self._client_id:
                # After a crash that lost a part of the journal: the owner sends it too, and then this is known.
                raise Unavailable(f"client id {client_id} is that of another replica, which is to send this first")
            raise MalformedUpdate(f"an update under client id {client_id}, which is that of somebody else")

    def _let_run_out(self) -> None:
        """Bring leases and the like to what they are when their time is over."""
        if not self._closing:
            answer: asyncio.Future[Coordinated] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            self._put(CoordinationItem(_NOBODY, (), answer))

    def _put(self, item: Submission | CoordinationItem | CommitItem | ReportItem | ReadItem | SchemaItem) -> None:
        self._inbox.put(item)
        self._wake.set()

    def _check_open(self) -> None:
        if self._closing:
            raise self.failure or BoardClosed(f"board {self.board_id} was closed")

    def _stop(self, error: BoardError) -> None:
        level = logging.INFO if isinstance(error, BoardDeleted) else logging.ERROR
        logger.log(level, "board %s stops: %s", self.board_id, error)
        self._closing = True
        self._deadlines.stop()
        self.failure = error
        self._batch.refuse(error)
        self._inbox.refuse_all(error)
        self._listeners.stop(error)


def _append_request(
    entries: Sequence[Entry], plans: Sequence[Plan], *, expected_seq: int, schemas: Sequence[SchemaRecord] = ()
) -> Append:
    checkpoints = [decode_checkpoint(entry.checkpoint) for entry in entries if entry.checkpoint]
    request = plans[-1].commit.request if plans[-1].commit else None
    keys: list[KeyRecord] = []
    if request is not None and request.idempotency_key is not None:
        version = checkpoints[-1].version
        keys.append(KeyRecord(key=request.idempotency_key, fingerprint=request.fingerprint, version=version))
    return Append(
        board_id=entries[0].board_id,
        epoch=entries[0].epoch,
        expected_seq=expected_seq,
        entries=entries,
        checkpoints=checkpoints,
        keys=keys,
        schemas=schemas,
    )


def _check_request(request: CommitRequest, limits: Limits) -> None:
    check_decisions(request)
    check_operations(request.agent, request.operations, limits)
    check_name(request.step, "step", limits.step_chars_max)
    if request.idempotency_key is not None:
        check_name(request.idempotency_key, "idempotency_key", limits.idempotency_key_chars_max)
    try:
        size = len(canonical_json(request.model_dump(mode="json", include={"output", "handoff", "trace", "tags"})))
    except ValueError as error:
        reason = f"output, handoff, trace and tags must be JSON that every reader reads alike: {error}"
        raise InvalidValue(reason, path="output", reason=reason) from None
    if size > limits.checkpoint_metadata_bytes_max:
        raise LimitExceeded(
            f"output, handoff, trace and tags of a commit take {size} bytes, "
            f"{limits.checkpoint_metadata_bytes_max} are allowed; keep large results outside and name them",
            limit="checkpoint_metadata_bytes_max",
            value=size,
            maximum=limits.checkpoint_metadata_bytes_max,
        )
