"""The websocket between a replica and the server that writes its board.

One task keeps the connection up: it connects, introduces the replica, sends what is pending, takes in what others
write, and does so again after a pause when the connection goes. Nothing that was not acknowledged is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from pydantic import JsonValue
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from crdt_board import control
from crdt_board.artifacts.http import HttpArtifacts
from crdt_board.board_link import AgentPresence, BoardSession, StoredState, end_task
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.coordinating import Coordinated
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BoardError, BoardReplaced, ConnectionFailed, ProtocolError
from crdt_board.findings import Findings
from crdt_board.forks import new_epoch
from crdt_board.guarding import DocumentBroken
from crdt_board.layout import Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.migrations import BoardState, MigrationRequest
from crdt_board.rejections import OnRejected
from crdt_board.replica import Replica
from crdt_board.wire import SUBPROTOCOL
from crdt_board_client.backoff import Backoff
from crdt_board_client.connection import Connection, LinkState, Socket
from crdt_board_client.presence import AgentTable
from crdt_board_client.refusals import may_pass, refusal
from crdt_board_client.requests import Requests

_OPEN_SECONDS = 5.0
_CLOSE_SECONDS = 2.0

_FINAL_CODES = range(4400, 4500)

logger = logging.getLogger(__name__)


class RemoteLink:
    """Ties a replica to a board on a server; see `Connection` for what is sent and taken in.

    The replica is made when the server has granted its client id, on the first connection, and keeps it for its life.
    A request is sent again on every new connection until it is answered; that it is done once is a matter of its
    idempotency key, which every commit has.
    """

    def __init__(
        self,
        url: str,
        board_id: str,
        agent: str,
        *,
        model: Layout | None = None,
        migrates: tuple[int, ...] = (),
        on_rejected: OnRejected | None = None,
    ) -> None:
        """``model`` is the layout of the agent's model, if it has one, and ``migrates`` what that migrates from."""
        self.board_id = board_id
        self.failure: BoardError | None = None
        self.artifacts = HttpArtifacts(url)
        self._url = url
        self._on_rejected = on_rejected
        self._session: BoardSession | None = None
        self._table = AgentTable(DEFAULT_LIMITS)
        self._table.announce(AgentPresence(agent=agent))
        self._wake = asyncio.Event()
        self._requests = Requests(self._wake.set)
        self._state = LinkState(
            board_id, agent, self._table, self._wake, self._requests, model, migrates, on_replica=self._begin
        )
        self._connection: Connection | None = None
        self._numbered = 0
        self._key_prefix = secrets.token_hex(8)
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._final: BoardError | None = None

    async def start(self, timeout: float) -> BoardSession:
        """Connect, make the replica and fill it. After an error, or when it is cancelled, nothing is left running.

        Raises:
            ConnectionFailed: no server answered within ``timeout`` seconds, or something did that is none, or that
                does not let this client in: so it is said at once.
            SchemaMismatch, BadRequest and others: the server refused; trying again cannot help.
        """
        self._task = asyncio.create_task(self._run(), name=f"connection-{self.board_id}")
        synced = asyncio.create_task(self._synced.wait())
        try:
            await asyncio.wait([synced, self._task], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not self._synced.is_set():
                raise self._final or self.failure or self._no_answer(timeout)
            assert self._session is not None
            return self._session
        except BaseException:
            await self.close()
            raise
        finally:
            synced.cancel()

    @property
    def replica(self) -> Replica:
        assert self._state.replica is not None
        return self._state.replica

    def _begin(self, replica: Replica) -> None:
        replica.on_pending = self._wake.set
        self._session = BoardSession(replica, self, on_rejected=self._on_rejected)
        self._state.rejections = self._session.rejections

    def hurry(self) -> None:
        self._wake.set()

    async def commit(self, request: CommitRequest) -> Checkpoint:
        if request.idempotency_key is None:
            request = request.model_copy(update={"idempotency_key": self._new_key()})
        return await self._made(control.Commit(request=request))

    async def checkpoints(self, *, before: int | None, limit: int) -> list[Checkpoint]:
        result = await self._ask(control.ListCheckpoints(before=before, limit=limit))
        assert isinstance(result, list)
        return [Checkpoint.model_validate(item) for item in result]

    async def state_at(self, version: int) -> StoredState:
        result = await self._ask(control.StateAt(version=version))
        assert isinstance(result, dict)
        state, schema_version = result["state"], result["schema_version"]
        assert isinstance(state, dict)
        assert isinstance(schema_version, int)
        checkpoint = Checkpoint.model_validate(result["checkpoint"])
        return StoredState(checkpoint=checkpoint, state=state, schema_version=schema_version)

    async def read_state(self) -> BoardState:
        return BoardState.model_validate(await self._ask(control.ReadState()))

    async def migrate(self, request: MigrationRequest) -> int:
        number = await self._ask(control.Migrate(request=request))
        assert isinstance(number, int)
        return number

    async def fork(self, version: int, board_id: str, agent: str) -> Checkpoint:
        made = await self._ask(control.Fork(version=version, board=board_id, epoch=new_epoch(), agent=agent))
        return Checkpoint.model_validate(made)

    async def merge(self, fork_id: str, agent: str) -> Checkpoint:
        return await self._made(control.Merge(fork=fork_id, idempotency_key=self._new_key(), agent=agent))

    async def ask(self, question: control.Question) -> JsonValue:
        return await self._ask(question)

    async def report(self, agent: str, findings: Findings) -> None:
        await self._ask(control.Report(agent=agent, findings=findings))

    async def coordinate(self, agent: str, operations: Sequence[Operation]) -> list[JsonValue]:
        body = control.Coordinate(agent=agent, operations=tuple(operations))
        answer = Coordinated.model_validate(await self._ask(body))
        assert self._session is not None
        await self._session.waiters.until(lambda: self.replica.seq >= answer.seq, None)
        return answer.results

    def announce(self, presence: AgentPresence) -> None:
        self._table.announce(presence)
        self._state.presence_changed = True
        self._wake.set()
        if self._state.replica is not None:
            self._state.replica.on_progress()

    def agents(self) -> list[AgentPresence]:
        return self._table.agents()

    async def close(self) -> None:
        leaving, self._closing = not self._closing and self._final is None, True
        try:
            if leaving and self._connection is not None:
                await self._connection.leave()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        try:
            if self._task is not None:
                await end_task(self._task)
        finally:
            await self.artifacts.close()
            self._requests.refuse_all(ConnectionFailed(f"the connection to board {self.board_id} was closed"))

    async def _made(self, body: control.Commit | control.Merge) -> Checkpoint:
        """The checkpoint that a request made, when the replica holds its entry."""
        checkpoint = Checkpoint.model_validate(await self._ask(body))
        if self._connection is not None:  # its own message of the checkpoint may be lost
            self._connection.take_checkpoint(checkpoint.version, checkpoint.seq)
        assert self._session is not None
        await self._session.waiters.until(lambda: self.replica.version >= checkpoint.version, None)
        return checkpoint

    def _new_key(self) -> str:
        """An idempotency key, since a request is sent again when its answer may have been lost."""
        self._numbered += 1
        return f"auto-{self._key_prefix}-{self._numbered}"

    async def _ask(self, body: control.RequestBody) -> JsonValue:
        if self._final is not None:
            raise self._final
        return await self._requests.ask(body)

    @property
    def _is_over(self) -> bool:
        return self._closing or self._final is not None

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._is_over:
            try:
                await self._connect_once(backoff)
            except ConnectionClosed as closed:
                self._note_loss(closed)
            except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as error:
                self._note_failure(error)
            except (ProtocolError, DocumentBroken, BoardReplaced) as error:
                self._end(error if isinstance(error, BoardError) else ProtocolError(f"the replica is broken: {error}"))
            except BoardError as error:
                self._end(error)
            except Exception:  # the boundary of this task
                logger.exception("board %s: the connection failed in an unforeseen way", self.board_id)
                self._end(ConnectionFailed("the connection failed in an unforeseen way; the log says more"))
            self._table.forget_others()
            if not self._is_over:
                claim_seconds = self._session.shortest_claim_seconds if self._session else None
                await asyncio.sleep(backoff.next_seconds(claim_seconds))

    async def _connect_once(self, backoff: Backoff) -> None:
        async with connect_socket(
            f"{self._url}/ws/{self.board_id}",
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            user_agent_header=None,
            create_connection=Socket,
        ) as socket:
            assert isinstance(socket, Socket)
            if socket.subprotocol != SUBPROTOCOL:
                raise ProtocolError(f"{self._url} is a websocket server, but not one of CRDT Board")
            self._connection = Connection(self._state, socket, lambda: self._be_synced(backoff))
            try:
                await self._connection.run()
            finally:
                self._connection = None

    def _be_synced(self, backoff: Backoff) -> None:
        backoff.reset()
        self._synced.set()
        self._set_failure(None)

    def _no_answer(self, timeout: float) -> ConnectionFailed:
        return ConnectionFailed(f"{self._url} did not answer within {timeout:g} s")

    def _note_loss(self, closed: ConnectionClosed) -> None:
        code = closed.rcvd.code if closed.rcvd else None
        reason = closed.rcvd.reason if closed.rcvd else "the connection broke"
        error = ConnectionFailed(f"lost {self._url}: {reason or f'closed with code {code}'}", close_code=code)
        if code in _FINAL_CODES:
            self._end(error)
        else:
            self._set_failure(error)

    def _note_failure(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if isinstance(error, InvalidStatus):
            failure = refusal(self._url, error.response)
            # Where boards were served before, a proxy may have lost its server for a while, and edits may be pending.
            waiting_helps = may_pass(error.response) or self._synced.is_set()
        else:
            failure = ConnectionFailed(
                f"no CRDT Board server answers at {self._url} ({reason}); start one with `crdt-board serve`"
            )
            waiting_helps = not isinstance(error, InvalidURI)
        self._set_failure(failure)
        if not waiting_helps:
            self._end(failure)

    def _set_failure(self, failure: BoardError | None) -> None:
        """Note the state of the connection; an outage is logged once when it begins and once when it ends."""
        if failure is not None and self.failure is None and self._synced.is_set():
            logger.warning("board %s: %s; edits are kept and sent when it is back", self.board_id, failure)
        elif failure is None and self.failure is not None:
            logger.info("board %s: connected to %s again", self.board_id, self._url)
        self.failure = failure
        if self._state.replica is not None:
            self._state.replica.on_progress()

    def _end(self, error: BoardError) -> None:
        self._final = self._final or error
        self.failure = self._final
        self._requests.refuse_all(self._final)
        if self._session is not None:
            self._session.fail(self._final)
