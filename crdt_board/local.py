"""A board whose writer is in this process: `open_board`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, overload

from pydantic import JsonValue

from crdt_board.artifacts.opening import open_artifacts
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.board import Board, check_model, closing
from crdt_board.board_link import AgentPresence, BoardSession, StoredState, end_task
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.client_ids import Holder
from crdt_board.clock import Clock
from crdt_board.control import Question
from crdt_board.coordination.operations import Operation
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BadRequest, BoardError, SchemaMismatch, Unavailable
from crdt_board.findings import Findings
from crdt_board.following import follow_schema
from crdt_board.forks import new_epoch
from crdt_board.headroom import Headroom
from crdt_board.history.questions import answer_question
from crdt_board.host import BoardHost
from crdt_board.joining import join_or_migrate, migrate_board
from crdt_board.layout import Layout
from crdt_board.limits import DEFAULT_LIMITS, check_board_id, check_name
from crdt_board.publishing import PublishedEntry
from crdt_board.rejections import Rejection
from crdt_board.replica import PendingUpdate, Replica
from crdt_board.schema import BoardModel
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.validity import Report
from crdt_board.views import PlainModel

M = TypeVar("M", bound=BoardModel)


@overload
def open_board(
    where: str | Path | BoardHost,
    board_id: str,
    model: type[M],
    *,
    agent: str,
    artifacts: str | Path | None = None,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[M]]: ...
@overload
def open_board(
    where: str | Path | BoardHost,
    board_id: str,
    model: None = None,
    *,
    agent: str,
    artifacts: str | Path | None = None,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[PlainModel]]: ...
def open_board(
    where: str | Path | BoardHost,
    board_id: str,
    model: type[Any] | None = None,
    *,
    agent: str,
    artifacts: str | Path | None = None,
    on_rejected: Callable[[Rejection], None] | None = None,
) -> AbstractAsyncContextManager[Board[Any]]:
    """Open a board in this process, or make it if there is none.

    Without a ``model`` the board is a plain JSON object: see `crdt_board.live.plain.PlainState`.

    ``where`` is a SQLite file, which other processes may use at the same time; ``":memory:"``, for a board that ends
    with the block; or a `BoardHost`, to have several boards share one store.

    ``artifacts`` is the folder, or the bucket by its URL, that keeps the board's artifacts; without it, they are in
    ``<where>-artifacts`` beside the file.

    On leaving the block everything is durable, or the reason why not is raised.

    ``on_rejected`` is called with each value that the board's writer takes back because the board's schema does not
    allow it; it must not wait. Without it, the next ``flush``, ``commit`` or the end of the block raises WriteRejected.

    Raises:
        InvalidBoardId, LimitExceeded, SchemaMismatch: the id, the agent's name or the model does not fit, or a
            migration of the model failed; the caller's fault.
        VersionConflict: the model migrates the board, and others wrote all the while.
        StoreUnavailable: the file cannot be opened or is not a CRDT Board database; nothing was changed in it.
        BoardCorrupt: the board's history does not verify; nothing was written.
    """
    return _open(where, board_id, model, agent, artifacts=artifacts, on_rejected=on_rejected)


@contextlib.asynccontextmanager
async def _open(
    where: str | Path | BoardHost,
    board_id: str,
    model: type[BoardModel] | None,
    agent: str,
    *,
    artifacts: str | Path | None,
    on_rejected: Callable[[Rejection], None] | None,
) -> AsyncIterator[Board[Any]]:
    check_model(model)
    check_board_id(board_id)
    check_name(agent, "agent", DEFAULT_LIMITS.agent_chars_max)
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(where, BoardHost) and artifacts is not None:
            raise BadRequest("the artifacts of a BoardHost are an argument of the BoardHost")
        host = (
            where
            if isinstance(where, BoardHost)
            else await stack.enter_async_context(await _make_host(where, artifacts))
        )
        engine = await stack.enter_async_context(host.board(board_id))
        link = await _link(engine, model, agent, host.artifacts)
        session = await link.start(host.clock, on_rejected=on_rejected)
        link.announce(AgentPresence(agent=agent))
        board: Board[Any] = Board(session, model, agent)
        async with closing(board):
            yield board


async def _link(
    engine: Engine, model: type[BoardModel] | None, agent: str, artifacts: ArtifactStore | None
) -> LocalLink:
    if model is None:
        return LocalLink(engine, artifacts=artifacts)
    layout, migrates = model.board_layout(), model.board_migrations()
    schema = await join_or_migrate(
        lambda: engine.join(layout, migrates=migrates, agent=agent),
        lambda: migrate_board(engine, model, agent),
        model,
    )
    return LocalLink(engine, model=layout, schema=schema, artifacts=artifacts)


async def _make_host(where: str | Path, artifacts: str | Path | None) -> BoardHost:
    if not isinstance(where, str | Path):
        raise BadRequest(f"a board is opened in a SQLite file, ':memory:' or a BoardHost, not {type(where).__name__}")
    if str(where).startswith(("ws:", "wss:", "http:", "https:")):
        raise BadRequest(f"{where} is the address of a server: use crdt_board_client.connect")
    place = None if artifacts is None else open_artifacts(artifacts)
    return BoardHost(MemoryStore() if where == ":memory:" else await SqliteStore.open(where), artifacts=place)


class LocalLink:
    """Ties a replica to an engine in the same process.

    Invariant: the replica holds all entries that were published, so that what comes next is ready.

    The links that listen to one engine tell each other who is there.
    """

    replica: Replica

    def __init__(
        self,
        engine: Engine,
        *,
        model: Layout | None = None,
        schema: int | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        """``schema`` is the number under which ``model`` has joined; both None for a replica without a model."""
        self.board_id = engine.board_id
        self._model = model
        self._schema = schema
        self._engine = engine
        self._artifacts = artifacts
        self._origin = secrets.token_hex(8)
        self._session: BoardSession | None = None
        self._failed = False
        self._closed = False
        self._sent = 0
        self._joined_at: int | None = None
        self._wake = asyncio.Event()
        self._present: dict[str, AgentPresence] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def failure(self) -> BoardError | None:
        return self._engine.failure

    @property
    def artifacts(self) -> ArtifactStore:
        if self._artifacts is None:
            raise BadRequest(
                "this board has no place for artifacts: open it over BoardHost(store, artifacts=open_artifacts(…))"
            )
        return self._artifacts

    async def start(self, clock: Clock, *, on_rejected: Callable[[Rejection], None] | None = None) -> BoardSession:
        """Make a replica, fill it with what the board holds, and keep it so.

        After an error, or when it is cancelled, nothing is left behind.
        """
        client_id = await self._engine.client_ids.grant(Holder(self._origin, self))
        bytes_max, strays = self._engine.limits.update_bytes_max, self._model is None
        self.replica = Replica(None, client_id=client_id, update_bytes_max=bytes_max, strays=strays)
        self.replica.headroom = Headroom(self._engine.limits)
        self._session = BoardSession(self.replica, self, clock, on_rejected=on_rejected)

        def take_over(document: Document) -> None:
            self._follow_schema()
            self.replica.receive([document.encode()], agent=None, seq=None)
            self.replica.reached(seq=self._engine.seq, version=self._engine.version)
            self._joined_at = self._engine.seq
            self._engine.add_listener(self)

        try:
            await self._engine.read(take_over)
        except BaseException:
            await self.close()
            raise
        self.replica.on_pending = self._wake.set
        self._task = asyncio.create_task(self._run(), name=f"replica-{self.board_id}")
        return self._session

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        for shown in entries:
            news = shown.corrections if shown.source is self else shown.updates
            if news:
                self.replica.receive(news, agent=shown.entry.author, seq=shown.entry.seq, ready=True)
            version = shown.checkpoint.version if shown.checkpoint else None
            self.replica.reached(seq=shown.entry.seq, version=version)

    def schema_changed(self) -> None:
        try:
            self._follow_schema()
        except SchemaMismatch as refusal:
            self._engine.remove_listener(self)
            self._fail(refusal)

    def _follow_schema(self) -> None:
        """Raises SchemaMismatch when this replica cannot go on."""
        engine = self._engine
        refusal = engine.refusal_of(self._schema) if self._model is not None else None
        if refusal is not None:
            raise refusal
        follow_schema(self.replica, self._model, engine.layout, engine.schema_version)
        if self._model is None:
            self._schema = engine.schema_version

    def stopped(self, error: BoardError) -> None:
        self._fail(error)

    async def commit(self, request: CommitRequest) -> Checkpoint:
        await self._submit_all()
        return await self._engine.commit(request.model_copy(update={"origin": self._origin}), schema=self._schema)

    async def report(self, agent: str, findings: Findings) -> None:
        await self._submit_all()
        await self._engine.report(Report(agent=agent, findings=findings, origin=self._origin))

    async def coordinate(self, agent: str, operations: Sequence[Operation]) -> list[JsonValue]:
        await self._submit_all()
        return (await self._engine.coordinate(agent, operations)).results

    async def checkpoints(self, *, before: int | None, limit: int) -> list[Checkpoint]:
        return await self._engine.checkpoints(before=before, limit=limit)

    async def state_at(self, version: int) -> StoredState:
        checkpoint, state = await self._engine.history.state_at(version)
        schema_version = self._engine.last_schema_like(checkpoint.schema_version)
        return StoredState(checkpoint=checkpoint, state=state, schema_version=schema_version)

    async def fork(self, version: int, board_id: str, agent: str) -> Checkpoint:
        return await self._engine.branching.fork(version, board_id, agent=agent, epoch=new_epoch())

    async def merge(self, fork_id: str, agent: str) -> Checkpoint:
        await self._submit_all()
        return await self._engine.branching.merge(fork_id, agent=agent, origin=self._origin)

    async def ask(self, question: Question) -> JsonValue:
        return await answer_question(self._engine.history, question)

    def announce(self, presence: AgentPresence) -> None:
        self._present[presence.agent] = presence
        self._tell_presence()

    def agents(self) -> list[AgentPresence]:
        return [presence for link in self._all_links() for presence in link._present.values()]

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._engine.remove_listener(self)
        self._tell_presence()
        client_id = self.replica.document.client_id
        if self._failed or not self.replica.owes_nothing:
            self._engine.client_ids.forget(client_id, self)
        else:
            self._engine.take_back(client_id, self, clock=self.replica.clock)
        if self._task is not None:
            await end_task(self._task)

    async def _submit_all(self) -> None:
        """Submit everything that is pending at the moment of the call."""
        last = self.replica.last_number
        self.hurry()
        while self._sent < last:
            await self._engine.wait_for_room()
            self.hurry()
            self._check()

    def hurry(self) -> None:
        """Submit what is pending, as far as the engine has room."""
        if self._closed or not self.replica.pending:
            return
        limits = self._engine.limits
        pending = self.replica.pending_after(self._sent)
        try:
            for group in grouped(pending, updates_max=limits.batch_updates_max, bytes_max=limits.batch_bytes_max):
                if not self._engine.has_room:
                    self._wake.set()
                    return
                self._submit(group)
        except BoardError as error:
            self._fail(error)

    def _submit(self, group: list[PendingUpdate]) -> None:
        last = group[-1].number
        self._engine.submit(
            Submission(
                updates=[item.update for item in group],
                author=group[0].agent,
                source=self,
                origin=self._origin,
                schema=self._schema,
                since=self._joined_at,
                written=partial(self._written, last),
            )
        )
        self._sent = last

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._engine.wait_for_room()
            self.hurry()

    def _tell_presence(self) -> None:
        for link in self._all_links():
            link.replica.on_progress()

    def _all_links(self) -> list[LocalLink]:
        return [listener for listener in self._engine.listeners if isinstance(listener, LocalLink)]

    def _check(self) -> None:
        assert self._session is not None
        self._session.check()

    def _written(self, number: int, receipt: Receipt) -> None:
        if receipt.error is not None:
            self._fail(receipt.error)
        elif receipt.first_unready is not None:
            self._miss()
        else:
            assert self._session is not None
            for rejected in receipt.rejected:
                self._session.rejections.take_in(rejected.values)
            self.replica.acknowledge(number)

    def _miss(self) -> None:
        """Either side builds on what the other lacks, which cannot be as long as the store keeps what it was given."""
        self._fail(Unavailable(f"board {self.board_id} and this replica have not seen the same entries; open it again"))

    def _fail(self, error: BoardError) -> None:
        assert self._session is not None
        self._failed = True
        self._session.fail(error)


def grouped(pending: Sequence[PendingUpdate], *, updates_max: int, bytes_max: int) -> Iterator[list[PendingUpdate]]:
    """Runs of one agent's updates, in order, each of at most ``updates_max`` and about ``bytes_max`` bytes."""
    for _, run in groupby(pending, key=lambda item: item.agent):
        group: list[PendingUpdate] = []
        size = 0
        for item in run:
            if group and (len(group) >= updates_max or size + len(item.update) > bytes_max):
                yield group
                group, size = [], 0
            group.append(item)
            size += len(item.update)
        if group:
            yield group
