"""The websocket between a replica and the server that writes its board.

One task keeps the connection up: it connects, introduces the replica, sends what is pending, takes in what others
write, and does so again after a pause when the connection goes. Nothing that was not acknowledged is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from pydantic import JsonValue
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from crdt_board import control, events
from crdt_board.board_link import AgentPresence, BoardSession
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.document import DocumentBroken
from crdt_board.errors import (
    BoardError,
    BoardReplaced,
    ConnectionFailed,
    LimitExceeded,
    ProtocolError,
    Unavailable,
)
from crdt_board.inline_frames import InlineFrames
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.reader import Reader
from crdt_board.replica import Replica
from crdt_board.session import ClientSession, Frames
from crdt_board.updates import EMPTY_UPDATE, decode_state_vector
from crdt_board.wire import SUBPROTOCOL, is_entry
from crdt_board_client.backoff import Backoff
from crdt_board_client.presence import AgentTable

_OPEN_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
_RENEW_SECONDS = 10.0
"""How often presence is repeated: other Yjs clients forget what they have not heard of for 30 s."""

_RESEND_SECONDS = 5.0
"""How long an acknowledgement may take before updates are sent again, in case they were lost on the way."""

_FINAL_CODES = range(4400, 4500)

_INCOMING = replace(DEFAULT_LIMITS, update_bytes_max=1 << 30, control_bytes_max=1 << 30)
"""A client takes from its server whatever a board holds."""

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Request:
    id: int
    body: control.RequestBody
    answer: asyncio.Future[JsonValue]


class RemoteLink:
    """Ties a replica to a board on a server.

    Invariants:
        1. On each connection the order is: hello, step 1, pending updates, open requests; then in the order of calls.
        2. A request is sent again on every new connection until it is answered; a commit has an idempotency key.
        3. The replica is given entries in order; where one is missing, the difference is asked for.
    """

    def __init__(self, url: str, board_id: str, agent: str, replica: Replica) -> None:
        self.board_id = board_id
        self.epoch = ""
        self.replica = replica
        self.failure: BoardError | None = None
        self._url = url
        self._agent = agent
        self._session: BoardSession | None = None
        self._table = AgentTable(DEFAULT_LIMITS)
        self._table.announce(AgentPresence(agent=agent))
        self._presence_changed = False
        self._requests: dict[int, _Request] = {}
        self._unsent: list[_Request] = []
        self._numbered = 0
        self._key_prefix = secrets.token_hex(8)
        self._wake = asyncio.Event()
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._final: BoardError | None = None
        self._limits: Limits | control.PeerLimits = DEFAULT_LIMITS

    async def start(self, session: BoardSession, timeout: float) -> None:
        """Connect and fill the replica.

        Raises:
            ConnectionFailed: no server answered within ``timeout`` seconds.
            SchemaMismatch, BadRequest and others: the server refused; trying again cannot help.
        """
        self._session = session
        self.replica.on_pending = self._wake.set
        self._task = asyncio.create_task(self._run(), name=f"connection-{self.board_id}")
        synced = asyncio.create_task(self._synced.wait())
        try:
            await asyncio.wait([synced, self._task], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            synced.cancel()
        if self._synced.is_set():
            return
        error = self._final or self.failure or ConnectionFailed(f"{self._url} did not answer within {timeout:g} s")
        await self.close()
        raise error

    def hurry(self) -> None:
        self._wake.set()

    async def commit(self, request: CommitRequest) -> Checkpoint:
        if request.idempotency_key is None:
            self._numbered += 1
            request = request.model_copy(update={"idempotency_key": f"auto-{self._key_prefix}-{self._numbered}"})
        result = await self._ask(control.Commit(request=request))
        checkpoint = Checkpoint.model_validate(result)
        assert self._session is not None
        await self._session.waiters.until(lambda: self.replica.version >= checkpoint.version, None)
        return checkpoint

    async def checkpoints(self, *, before: int | None, limit: int) -> list[Checkpoint]:
        result = await self._ask(control.ListCheckpoints(before=before, limit=limit))
        assert isinstance(result, list)
        return [Checkpoint.model_validate(item) for item in result]

    async def state_at(self, version: int) -> tuple[Checkpoint, dict[str, JsonValue]]:
        result = await self._ask(control.StateAt(version=version))
        assert isinstance(result, dict)
        state = result["state"]
        assert isinstance(state, dict)
        return Checkpoint.model_validate(result["checkpoint"]), state

    def announce(self, presence: AgentPresence) -> None:
        self._table.announce(presence)
        self._presence_changed = True
        self._wake.set()

    def agents(self) -> list[AgentPresence]:
        return self._table.agents()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._fail_requests(ConnectionFailed(f"the connection to board {self.board_id} was closed"))

    async def _ask(self, body: control.RequestBody) -> JsonValue:
        if self._final is not None:
            raise self._final
        self._numbered += 1
        request = _Request(self._numbered, body, asyncio.get_running_loop().create_future())
        self._requests[request.id] = request
        self._unsent.append(request)
        self._wake.set()
        try:
            return await request.answer
        finally:
            self._requests.pop(request.id, None)

    async def _run(self) -> None:
        backoff = Backoff()
        while self._final is None:
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
            if self._final is None:
                await asyncio.sleep(backoff.next_seconds())

    async def _connect_once(self, backoff: Backoff) -> None:
        async with connect_socket(
            f"{self._url}/ws/{self.board_id}",
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            max_size=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            user_agent_header=None,
            create_connection=_Socket,
        ) as socket:
            assert isinstance(socket, _Socket)
            if socket.subprotocol != SUBPROTOCOL:
                raise ProtocolError(f"{self._url} is a websocket server, but not one of CRDT Board")
            await _Connection(self, socket, backoff).run()

    def _note_loss(self, closed: ConnectionClosed) -> None:
        code = closed.rcvd.code if closed.rcvd else None
        reason = closed.rcvd.reason if closed.rcvd else "the connection broke"
        error = ConnectionFailed(f"lost {self._url}: {reason or f'closed with code {code}'}", close_code=code)
        if code in _FINAL_CODES:
            self._end(error)
        else:
            logger.debug("board %s: %s", self.board_id, error)
            self._set_failure(error)

    def _note_failure(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        failure = ConnectionFailed(
            f"no CRDT Board server answers at {self._url} ({reason}); start one with `crdt-board serve`"
        )
        self._set_failure(failure)
        if isinstance(error, InvalidURI):
            self._end(failure)

    def _set_failure(self, failure: BoardError | None) -> None:
        self.failure = failure
        self.replica.on_progress()

    def _end(self, error: BoardError) -> None:
        self._final = self._final or error
        self.failure = self._final
        self._fail_requests(self._final)
        if self._session is not None:
            self._session.fail(self._final)

    def _fail_requests(self, error: BoardError) -> None:
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_exception(error)


class _Socket(InlineFrames, ClientConnection):
    """A client's websocket."""


class _Connection:
    """One connection of a `RemoteLink`, from hello to loss."""

    def __init__(self, link: RemoteLink, socket: _Socket, backoff: Backoff) -> None:
        self._link = link
        self._socket = socket
        self._backoff = backoff
        self._replica = link.replica
        self._session = ClientSession(_INCOMING)
        self._seq: int | None = None
        self._welcome: control.ServerHello | None = None
        self._failure: Exception | None = None
        self._started: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        link, replica = self._link, self._replica
        self._session.start(replica.acknowledged + 1)
        link._unsent = list(link._requests.values())  # invariant 2
        hello = control.ClientHello(
            agent=link._agent,
            client_id=replica.document.client_id,
            epoch=link.epoch or None,
            layout=replica.document.layout,
        )
        await self._send(self._session.hello(hello))
        await self._send(self._session.step1(replica.document.state_vector()))
        link._presence_changed = True
        sender = asyncio.create_task(self._send_until_it_fails(), name=f"sender-{link.board_id}")
        try:
            self._socket.inline = self._take
            while True:
                message = await self._socket.next_message()
                received = (
                    self._session.receive_text(message)
                    if isinstance(message, str)
                    else self._session.receive_binary(message)
                )
                for event in received:
                    await self._handle(event)
        finally:
            self._socket.inline = None
            for task in (sender, *self._started):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sender
            if self._failure is not None:
                raise self._failure

    def _take(self, data: bytes) -> bool:
        """Take in entries as they arrive; everything else is handled by `run`."""
        if not is_entry(data):
            return False
        try:
            for event in self._session.receive_binary(data):
                if isinstance(event, events.EntryReceived):
                    self._take_entry(event)
                else:
                    self._ask_for_difference()
        except (BoardError, DocumentBroken) as error:
            self._failure = self._failure or error
            self._start(self._socket.close())
        return True

    async def _send_until_it_fails(self) -> None:
        """End the reader along with the sender, whose error then is the connection's."""
        try:
            await self._send_for_ever()
        except BoardError as error:
            self._failure = error
            await self._socket.close()

    async def _send_for_ever(self) -> None:
        """Send what is pending, then wait for more; repeat presence, and updates whose acknowledgement is overdue."""
        link, loop = self._link, asyncio.get_running_loop()
        renew_at = loop.time() + _RENEW_SECONDS
        while True:
            link._wake.clear()
            await self._send_pending()
            unsent, link._unsent = link._unsent, []
            for request in unsent:
                if not request.answer.done():
                    await self._send(self._session.request(request.id, request.body))
            if link._presence_changed or loop.time() >= renew_at:
                link._presence_changed = False
                renew_at = loop.time() + _RENEW_SECONDS
                await self._send(self._session.presence(link._table.own_states()))
            waiting_for = self._replica.acknowledged
            try:
                async with asyncio.timeout(_RESEND_SECONDS if self._replica.pending else _RENEW_SECONDS):
                    await link._wake.wait()
            except TimeoutError:
                if self._replica.pending and self._replica.acknowledged == waiting_for:
                    self._session.retry()

    async def _send_pending(self) -> None:
        pending = self._replica.pending_after(self._session.next_number - 1)
        bytes_max = self._link._limits.update_bytes_max
        for item in pending:
            if len(item.update) > bytes_max:
                raise LimitExceeded(
                    f"one edit of {len(item.update)} bytes is larger than the {bytes_max} that the server takes; "
                    "split it into several",
                    limit="update_bytes_max",
                    value=len(item.update),
                    maximum=bytes_max,
                )
        groups = [(agent, [item.update for item in run]) for agent, run in groupby(pending, lambda item: item.agent)]
        await self._send(self._session.push(groups))

    async def _handle(self, event: events.ClientEvent) -> None:
        link, replica = self._link, self._replica
        match event:
            case events.EntryReceived():
                self._take_entry(event)
            case events.Acknowledged(number, _):
                replica.acknowledge(number)
            case events.CheckpointReceived(checkpoint):
                replica.reached(version=checkpoint.version)
            case events.Answered(request_id, result):
                self._answer(request_id, result)
            case events.Refused(request_id, error):
                self._refuse(request_id, error)
            case events.StateReceived(update):
                replica.receive([update], agent=None, seq=None)
                self._seq = None  # the next entry says up to where this difference goes
                self._be_synced()
            case events.ServerState(state_vector):
                await self._send_what_is_missing(state_vector)
            case events.PresenceReceived(states):
                link._table.take_in(states)
                replica.on_progress()
            case events.PresenceQueried():
                await self._send(self._session.presence(link._table.own_states()))
            case events.ResendFrom():
                link._wake.set()
            case events.EntryDamaged():
                self._ask_for_difference()
            case events.Welcomed(hello):
                self._welcome = hello
                link._limits = hello.limits
                link.epoch = hello.epoch

    def _take_entry(self, entry: events.EntryReceived) -> None:
        """Invariant 3. An entry without an author only says up to where everything was sent, or brings a difference."""
        is_difference = bool(entry.updates) and not entry.author
        if self._seq is not None and not is_difference and entry.seq > self._seq + bool(entry.author):
            self._ask_for_difference()
        self._seq = entry.seq
        if entry.updates:
            self._replica.receive(entry.updates, agent=entry.author or None, seq=entry.seq)
        else:
            self._replica.reached(seq=entry.seq)

    def _ask_for_difference(self) -> None:
        self._start(self._send(self._session.step1(self._replica.document.state_vector())))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="answer")
        self._started.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._started.discard(task)
        if not task.cancelled():
            task.exception()  # the connection went away meanwhile, which `run` is told too

    def _be_synced(self) -> None:
        assert self._welcome is not None
        self._backoff.reset()
        self._link._synced.set()
        self._link._set_failure(None)
        self._replica.reached(seq=self._welcome.seq, version=self._welcome.version)

    async def _send_what_is_missing(self, state_vector: bytes) -> None:
        """Send what the server lacks and is not pending, as when it was restored from an older copy."""
        theirs, ours = decode_state_vector(state_vector), decode_state_vector(self._replica.document.state_vector())
        own = self._replica.document.client_id
        begins = (_first_clock(item.update) for item in self._replica.pending)
        pending_from = next((clock for clock in begins if clock is not None), None)
        if pending_from is not None and theirs.get(own, 0) >= pending_from:
            ours.pop(own, None)
        if any(theirs.get(client, 0) < clock for client, clock in ours.items()):
            missing = self._replica.document.encode(state_vector)
            if missing != EMPTY_UPDATE:
                await self._send(self._session.step2(missing))

    def _answer(self, request_id: int, result: JsonValue) -> None:
        request = self._link._requests.get(request_id)
        if request is not None and not request.answer.done():
            request.answer.set_result(result)

    def _refuse(self, request_id: int | None, error: BoardError) -> None:
        if request_id is None:
            if not isinstance(error, Unavailable) or not error.retryable:
                raise error
            return
        request = self._link._requests.get(request_id)
        if request is not None and not request.answer.done():
            request.answer.set_exception(error)

    async def _send(self, frames: Frames) -> None:
        for frame in frames:
            await self._socket.send(frame)


def _first_clock(update: bytes) -> int | None:
    """Where what a local update, which is of one client, inserts begins; None when it only deletes."""
    reader = Reader(update)
    if reader.varuint() == 0:
        return None
    reader.varuint()
    reader.varuint()
    return reader.varuint()
