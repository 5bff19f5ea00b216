"""The one writer of a board in this process: admit, apply, append, publish, snapshot (DESIGN §5).

Everything that changes a board goes through its `Engine`. Its document is the fold of the journal; it knows no agents'
replicas, sockets or models. Several engines, in one process or many, may write one board through one store: each
append compares the head, and whoever comes second takes in what came first and tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from crdt_board.admission import Admission, check_request
from crdt_board.batch_writer import BatchWriter
from crdt_board.batches import Batch, CommitItem, Merged, ReportItem
from crdt_board.branching import Branching
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.chores import Chores
from crdt_board.client_ids import WRITER, ClientIds
from crdt_board.clock import Clock, SystemClock
from crdt_board.coordinating import Coordinated, CoordinationItem, check_operations
from crdt_board.coordination.operations import Operation
from crdt_board.deadlines import Deadlines
from crdt_board.document import Document
from crdt_board.errors import BoardClosed, BoardDeleted, BoardError, SchemaMismatch
from crdt_board.expiry import Expiry
from crdt_board.group_commit import GroupCommit
from crdt_board.history import BoardHistory
from crdt_board.inbox import Inbox, InboxItem, read_item
from crdt_board.layout import FieldKind, Layout
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_name
from crdt_board.loading import Offer, load_board
from crdt_board.migrations import BoardState, MigrationRequest
from crdt_board.outages import Outages
from crdt_board.publishing import Listener
from crdt_board.rules import check_layout
from crdt_board.schema_changes import SchemaItem, named_keys
from crdt_board.schema_writer import move_misplaced, write_schema
from crdt_board.schemas import BoardSchemas
from crdt_board.signals import Signal
from crdt_board.snapshots import Compress, compress_in_thread
from crdt_board.store.appends import deleted
from crdt_board.store.contract import BoardHead, Store, Tombstone
from crdt_board.submissions import Submission
from crdt_board.tail import NOBODY, Tail
from crdt_board.validity import Report

_Answer = TypeVar("_Answer")

logger = logging.getLogger(__name__)


class Engine:
    """The writer of one board: what is asked of it waits in an inbox, and is done in order by one task.

    The parts that it owns do the work: what may be queued (`Admission`), the end of the journal (`Tail`), batches
    (`BatchWriter`), what nobody asked for (`Chores`, `Expiry`, `Deadlines`). Only that one task lets them change the
    document.
    """

    def __init__(
        self,
        store: Store,
        head: BoardHead,
        tail: Tail,
        *,
        admission: Admission,
        client_ids: ClientIds,
        clock: Clock,
        limits: Limits,
        compress: Compress,
    ) -> None:
        """Use `open`."""
        self.board_id = head.board_id
        self.limits = limits
        self.client_ids = client_ids
        """Grants the ids under which replicas write; an id that is granted to one is closed to all others."""
        self.history = BoardHistory(store, head.board_id, tail.schemas)
        """What the store holds of the board's past; it does not wait for the writer."""
        self.branching = Branching(self, store, clock)
        """Makes forks of the board, and merges them."""
        self._store = store
        self._clock = clock
        self._tail = tail
        self._schemas = tail.schemas
        self._admission = admission
        self._inbox = Inbox(limits)
        self._wake = Signal()
        self._foreign_news = False
        self._closing = False
        self._end: BoardError | None = None
        self._batch: Batch | None = None
        self._outages = Outages(head.board_id)
        self._writer = BatchWriter(tail, store, clock=clock, limits=limits)
        self._expiry = Expiry(tail, clock, limits)
        self._deadlines = Deadlines(clock, self._let_run_out)
        self._deadlines.watch(tail.loaded.document)
        self._chores = Chores(
            tail, store, head, limits=limits, compress=compress, between_batches=self._look_between_batches
        )
        client_ids.on_taken = self.refresh
        self._task = asyncio.create_task(self._run(), name=f"writer-{head.board_id}")

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
        compress: Compress = compress_in_thread,
        offer: Offer | None = None,
    ) -> Engine:
        """Load a board, or make it under ``epoch`` when there is none.

        ``compress`` loads snapshots back. Free client ids are left in the store until ``client_ids_rest_until``, on the
        clock of the event loop. ``offer`` is as in `load_board`; a board with scratch fields is not offered, since what
        has run out is removed before anybody reads it.

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
            if schemas.newest is not None and schemas.newest.ttls_ms:
                offer = None
            loaded = await load_board(store, head, schemas.newest, client_id=client_id, offer=offer)
            buried = await store.tombstones(board_id)
        except BoardError:
            client_ids.take_back(client_id)
            await client_ids.close()
            raise
        tail = Tail(store, journal, loaded, board_id=board_id, schemas=schemas, client_ids=client_ids, clock=clock)
        admission = Admission(tail, client_ids, limits, buried=buried)
        return cls(
            store, head, tail, admission=admission, client_ids=client_ids, clock=clock, limits=limits, compress=compress
        )

    @property
    def failure(self) -> BoardError | None:
        """Why the board cannot be written just now, or None."""
        return self._end or self._outages.failure

    @property
    def epoch(self) -> str:
        """Tells this board from an earlier one of the same name."""
        return self._tail.fold.epoch

    @property
    def seq(self) -> int:
        """The newest durable entry."""
        return self._tail.seq

    @property
    def version(self) -> int:
        """The newest checkpoint; 0 when there is none."""
        return self._tail.fold.version

    @property
    def version_seq(self) -> int:
        """The entry of the newest checkpoint; 0 when there is none."""
        return self._tail.fold.version_seq

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
        return self._tail.loaded.document.kinds

    @property
    def is_open(self) -> bool:
        return not self._closing

    def state_vector(self) -> bytes:
        """What the document holds; durable content only when asked from inside `Listener.published` or `read`."""
        return self._tail.loaded.document.state_vector()

    def check_replica(self, state_vector: bytes) -> None:
        """As `Admission.check_replica`."""
        self._admission.check_replica(state_vector)

    def add_listener(self, listener: Listener) -> None:
        """Publish to ``listener`` whatever becomes durable from now on."""
        self._tail.listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._tail.listeners.remove(listener)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who is published to now, in the order in which they were added."""
        return self._tail.listeners.all()

    def submit(self, submission: Submission) -> None:
        """Queue updates. Each is checked for size, nesting and client ids at once; the rest happens in the writer.

        Raises:
            LimitExceeded, MalformedUpdate: an update is not acceptable; nothing of the submission was queued.
            Unavailable: a difference holds what the owner of a client id has not sent yet; nothing was queued.
            BoardClosed: the engine was closed.
        """
        self._check_open()
        self._admission.check_submission(submission)
        self._put(submission)

    @property
    def has_room(self) -> bool:
        """Whether less than ``inbox_bytes_max`` is queued; peers are not read meanwhile otherwise."""
        return self._inbox.has_room

    async def wait_for_room(self) -> None:
        """Return when `has_room`."""
        await self._inbox.wait_for_room()

    def commit(
        self, request: CommitRequest, *, schema: int | None = None, merged: Merged | None = None
    ) -> asyncio.Future[Checkpoint]:
        """Make a checkpoint of everything submitted before, with the request's patch applied.

        The commit is queued when this returns. When the future is done, the checkpoint is durable and was given to
        every listener. Cancelling the future does not take back a commit under way.

        ``schema`` is the number of the schema that the patch was made under; None when its maker knows of none.
        ``merged`` is what a fork has written, in place of a patch.

        Raises:
            VersionConflict, IdempotencyMismatch, Violated: see `crdt_board.board.Board.commit`; nothing was changed.
            SchemaMismatch: the board was migrated from ``schema``; nothing was changed.
            InvalidValue: the patch does not fit the board's layout, or sets a strict field without an
                ``expected_version``; nothing was changed.
            LimitExceeded: the metadata is too large; nothing was changed.
            BoardClosed: the engine was closed before the commit was decided.
        """
        self._check_open()
        check_request(request, self.limits)
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
            InvalidValue, LimitExceeded: the agent has no name.
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
        if number is None and named_keys(self._tail.loaded.document, layout):
            return await self._change_schema(layout, tuple(migrates), agent)
        number = await self._schemas.join(layout, migrates)
        self._tail.show_schema()
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
        if self.is_open and self._admission.holds_all_of(client_id, clock):
            self.client_ids.take_back(client_id)
        else:
            self.client_ids.forget(client_id, source)

    def give_up_after(self, seconds: float) -> None:
        """From so many seconds on, refuse what waits with the store's error instead of trying again."""
        self._outages.give_up_after(seconds)

    async def close(self) -> None:
        """Write what is queued, take a snapshot when it saves time later, return free client ids, and stop. Idempotent.

        Waits for a store that fails until `give_up_after`. Cancelling gives up at once what was never acknowledged.
        """
        self._closing = True
        self._wake.set()
        self._deadlines.stop()
        await self._chores.end_upkeep()
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise
        finally:
            closed = self.failure or BoardClosed(f"board {self.board_id} was closed")
            self._refuse_all(closed)

    # What follows runs in the writer's task only.

    async def _run(self) -> None:
        try:
            while not (self._closing and self._is_idle()):
                if self._is_idle():
                    await self._rest()
                else:
                    await self._step()
                    if self._inbox:
                        await asyncio.sleep(0)  # a store in memory answers at once, and who was answered is to go on
            if not isinstance(self._end, BoardDeleted):
                await self._chores.last_snapshot()
                self.client_ids.take_back(self._tail.client_id)
                await self.client_ids.close()
        except BoardError as error:
            self._stop(error)
        except asyncio.CancelledError:
            raise
        except BaseException:  # the boundary of this task, for panics of yrs too: its neighbours go on
            logger.exception("board %s stops after an unforeseen failure", self.board_id)
            self._stop(BoardClosed(f"board {self.board_id} stopped after an internal failure; open it again"))

    def _is_idle(self) -> bool:
        return not self._inbox and not self._foreign_news and not self._expiry.is_due

    async def _rest(self) -> None:
        """Return when there is something to do, or something may have run out."""
        self._wake.clear()
        if (seconds := self._expiry.seconds_left) is None:  # a timeout that never comes costs each commit 10 µs
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    async def _step(self) -> None:
        tail, outages = self._tail, self._outages
        await self._look_at_news()
        if self._expiry.is_due:
            await outages.ride_out(self._expiry.sweep, recover=tail.recover)
        while (read := self._inbox.take_read()) is not None:
            if not read.run(tail.loaded.document):
                await outages.ride_out(tail.reload)
                await self._look_at_news()
        batch = self._batch = self._inbox.take_batch()
        if batch.schema is not None:
            await outages.ride_out(partial(write_schema, tail, batch.schema, self.limits), recover=tail.recover)
        elif not batch.is_empty:
            await outages.ride_out(partial(self._writer.write, batch), recover=tail.recover)
        self._batch = None
        if tail.loaded.document.has_misplaced:
            await outages.ride_out(partial(move_misplaced, tail, self.limits), recover=tail.recover)
        if not self._closing:
            self._deadlines.watch(tail.loaded.document)

    async def _look_at_news(self) -> None:
        if self._foreign_news:
            self._foreign_news = False
            await self._outages.ride_out(self._tail.catch_up)

    def _let_run_out(self) -> None:
        """Bring leases and the like to what they are when their time is over."""
        if not self._closing:
            answer: asyncio.Future[Coordinated] = asyncio.get_running_loop().create_future()
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            self._put(CoordinationItem(NOBODY, (), answer))

    def _look_between_batches(self, look: Callable[[Document], None]) -> None:
        if not self._closing:
            item, answer = read_item(look)
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody waits for it
            self._put(item)

    def _put(self, item: InboxItem) -> None:
        self._inbox.put(item)
        self._wake.set()

    def _refuse_all(self, error: BoardError) -> None:
        if self._batch is not None:
            self._batch.refuse(error)
        self._inbox.refuse_all(error)

    def _check_open(self) -> None:
        if self._closing:
            raise self.failure or BoardClosed(f"board {self.board_id} was closed")

    def _stop(self, error: BoardError) -> None:
        level = logging.INFO if isinstance(error, BoardDeleted) else logging.ERROR
        logger.log(level, "board %s stops: %s", self.board_id, error)
        self._closing = True
        self._deadlines.stop()
        self._end = error
        self._refuse_all(error)
        self._tail.listeners.stop(error)
