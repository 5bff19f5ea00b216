"""One connection of a link, from hello to loss: sends what is pending, takes in what others write."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from crdt_board import control, events
from crdt_board.errors import (
    BoardClosed,
    BoardError,
    LimitExceeded,
    ProtocolError,
    Unavailable,
    VersionConflict,
    Violated,
)
from crdt_board.following import follow_schema
from crdt_board.headroom import Headroom
from crdt_board.inline_frames import InlineFrames
from crdt_board.layout import Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.rejections import Rejections
from crdt_board.replica import Replica
from crdt_board.session import ClientSession, Frames
from crdt_board.update_walk import first_clocks
from crdt_board.updates import EMPTY_UPDATE, NOTHING_KNOWN, decode_state_vector
from crdt_board.wire import is_entry
from crdt_board_client.presence import AgentTable
from crdt_board_client.progress import Progress
from crdt_board_client.requests import Requests

_RENEW_SECONDS = 10.0
"""How often presence is repeated: other Yjs clients forget what they have not heard of for 30 s."""

_RESEND_SECONDS = 5.0
"""How long an acknowledgement may take before updates are sent again, in case they were lost on the way."""

_LEAVE_SECONDS = 2.0

_INCOMING = replace(DEFAULT_LIMITS, update_bytes_max=1 << 30, control_bytes_max=1 << 30)
"""A client takes from its server whatever a board holds."""


@dataclass(slots=True, eq=False)
class LinkState:
    """What outlives the connections of one link."""

    board_id: str
    agent: str
    table: AgentTable
    wake: asyncio.Event
    """Set when there is something to send."""
    requests: Requests
    model: Layout | None
    """None for a replica without a model."""
    migrates: tuple[int, ...]
    on_replica: Callable[[Replica], None]
    """Called with the replica when it was made."""
    replica: Replica | None = None
    """None until a server has granted its client id."""
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    """What the server knows the replica by, over all its connections."""
    epoch: str = ""
    """Which board this replica belongs to, of those that had its name; empty before the first connection."""
    presence_changed: bool = False
    rejections: Rejections = field(default_factory=Rejections)
    """Where it is noted that writes of this replica were taken back."""


class Socket(InlineFrames, ClientConnection):
    """A client's websocket."""


@dataclass(slots=True, eq=False)
class Connection:
    """One connection of a link.

    Invariants:
        1. The order is: hello, step 1; when the server's hello has come, pending updates and requests, where what was
           pending when a request was made is sent before it; at the end of the replica its bye, and nothing after it.
        2. A request that was not answered on an earlier connection is sent again.
        3. The replica's ``seq`` and ``version`` cover only what has arrived; where something is missing, the difference
           is asked for.
    """

    link: LinkState
    socket: Socket
    on_synced: Callable[[], None]
    """Called when the replica holds what the board held when the connection was made."""
    _session: ClientSession = field(default_factory=lambda: ClientSession(_INCOMING))
    _progress: Progress = field(default_factory=Progress)
    _welcome: control.ServerHello | None = None
    _failure: Exception | None = None
    _sender: asyncio.Task[None] | None = None
    _started: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self) -> None:
        """Serve the replica until the connection ends, and raise why.

        Raises:
            ConnectionClosed: it was lost, or closed by the server.
            BoardError, DocumentBroken: it makes no sense to go on; `ProtocolError` when the server does.
        """
        await self._introduce()
        try:
            self.socket.inline = self._take
            await self._read()
        except ConnectionClosed:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self.socket.inline = None
            tasks = [*([self._sender] if self._sender else []), *self._started]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def leave(self) -> None:
        """If the replica owes nothing, say that it ends, so that the server takes its client id back.

        Nothing is sent any more afterwards. Whether the server hears it is not known: if not, the id is not used again.
        """
        if self._sender is None or not self._replica.owes_nothing:
            return
        self._sender.cancel()
        await asyncio.wait([self._sender])
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._send(self._session.bye(self._replica.clock))

    def take_checkpoint(self, version: int, seq: int) -> None:
        """The server has told of this checkpoint, in whatever way; entry ``seq`` made it, or one before it."""
        if self._progress.take_checkpoint(version, seq):
            self._ask_for_difference()
        self._tell_progress()

    @property
    def _replica(self) -> Replica:
        if self.link.replica is None:
            raise ProtocolError("the server sent something before its hello")
        return self.link.replica

    async def _introduce(self) -> None:
        link, replica = self.link, self.link.replica
        self._session.start(replica.acknowledged + 1 if replica else 1)
        link.requests.send_again()  # invariant 2
        link.presence_changed = True
        hello = control.ClientHello(
            agent=link.agent,
            replica=link.name,
            client_id=replica.document.client_id if replica else None,
            epoch=link.epoch or None,
            layout=link.model,
            migrates=link.migrates,
        )
        await self._send(self._session.hello(hello))
        await self._send(self._session.step1(replica.document.state_vector() if replica else NOTHING_KNOWN))

    # Sending.

    async def _send_until_it_fails(self) -> None:
        """End the reader along with the sender, whose error then is the connection's."""
        try:
            await self._send_for_ever()
        except ConnectionClosed:
            pass  # the reader is told too
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._fail(error)

    async def _send_for_ever(self) -> None:
        """Send what is pending, then wait for more; repeat presence, and updates whose acknowledgement is overdue."""
        link, replica, loop = self.link, self._replica, asyncio.get_running_loop()
        renew_at = loop.time() + _RENEW_SECONDS
        while True:
            link.wake.clear()
            requests = link.requests.take_unsent()  # before what is pending is listed: invariant 1
            await self._send_pending()
            for request in requests:
                if not request.answer.done():
                    await self._send(self._session.request(request.id, request.body))
            if link.presence_changed or loop.time() >= renew_at:
                link.presence_changed = False
                renew_at = loop.time() + _RENEW_SECONDS
                await self._send(self._session.presence(link.table.own_states()))
            waiting_for = replica.acknowledged
            try:
                async with asyncio.timeout(_RESEND_SECONDS if replica.pending else _RENEW_SECONDS):
                    await link.wake.wait()
            except TimeoutError:
                if replica.pending and replica.acknowledged == waiting_for:
                    self._session.retry()

    async def _send_pending(self) -> None:
        """Send what is pending at the moment of the call."""
        pending = self._replica.pending_after(self._session.next_number - 1)
        bytes_max = self._replica.update_bytes_max
        for item in pending:
            if len(item.update) > bytes_max:
                raise LimitExceeded(
                    f"one edit of {len(item.update)} bytes is larger than the {bytes_max} that the server takes; "
                    "split it into several, or store large content with board.artifacts.put and write its pointer",
                    limit="update_bytes_max",
                    value=len(item.update),
                    maximum=bytes_max,
                )
        groups = [(agent, [item.update for item in run]) for agent, run in groupby(pending, lambda item: item.agent)]
        await self._send(self._session.push(groups))

    async def _send_what_is_missing(self, state_vector: bytes) -> None:
        """Send what the server lacks and is not pending, as when it was restored from an older copy."""
        document = self._replica.document
        theirs, ours = decode_state_vector(state_vector), decode_state_vector(document.state_vector())
        begins: dict[int, int] = {}
        for item in self._replica.pending:
            begins = first_clocks(item.update) | begins
        for client, begin in begins.items():
            if theirs.get(client, 0) >= begin:
                ours.pop(client, None)
        if any(theirs.get(client, 0) < clock for client, clock in ours.items()):
            missing = document.encode(state_vector)
            if missing != EMPTY_UPDATE:
                await self._send(self._session.step2(missing))

    async def _send(self, frames: Frames) -> None:
        for frame in frames:
            await self.socket.send(frame)

    # Receiving.

    async def _read(self) -> None:
        while True:
            message = await self.socket.next_message()
            for event in self._session.receive(message):
                await self._handle(event)

    def _take(self, data: bytes) -> bool:
        """Take in entries as they arrive; everything else is handled by `run`."""
        if not is_entry(data):
            return False
        try:
            for event in self._session.receive(data):
                if isinstance(event, events.EntryReceived):
                    self._take_entry(event)
                else:
                    self._miss()
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._fail(error)
        return True

    async def _handle(self, event: events.ClientEvent) -> None:
        link = self.link
        match event:
            case events.EntryReceived():
                self._take_entry(event)
            case events.Acknowledged() | events.ValuesRejected():
                self._take_receipt(event)
            case events.CheckpointReceived(checkpoint):
                self.take_checkpoint(checkpoint.version, checkpoint.seq)
            case events.Answered(request_id, result):
                link.requests.answer(request_id, result)
            case events.Refused(request_id, error):
                self._refuse(request_id, error)
            case events.StateReceived(update):
                self._replica.receive([update], agent=None, seq=None)
                self._progress.take_difference()
                self._be_synced()
            case events.ServerState(state_vector):
                await self._send_what_is_missing(state_vector)
            case events.PresenceReceived(states):
                link.table.take_in(states)
                self._replica.on_progress()
            case events.PresenceQueried():
                await self._send(self._session.presence(link.table.own_states()))
            case events.ResendFrom():
                link.wake.set()
            case events.EntryDamaged():
                self._miss()
            case events.Welcomed(hello):
                self._welcome = hello
                self._start_replica(hello)
            case events.SchemaReceived(schema):
                follow_schema(self._replica, link.model, schema.layout, schema.schema_version)

    def _start_replica(self, hello: control.ServerHello) -> None:
        link = self.link
        link.epoch = hello.epoch
        if link.replica is None:
            link.replica = Replica(None, client_id=hello.client_id, strays=link.model is None)
            link.replica.headroom = Headroom(replace(DEFAULT_LIMITS, **hello.limits.model_dump()))
            link.on_replica(link.replica)
        elif link.replica.document.client_id != hello.client_id:
            raise ProtocolError("the server granted another client id than this replica has")
        link.replica.on_missing = self._miss
        link.replica.update_bytes_max = hello.limits.update_bytes_max
        follow_schema(link.replica, link.model, hello.layout, hello.schema_version)
        self._sender = asyncio.create_task(self._send_until_it_fails(), name=f"sender-{link.board_id}")

    def _take_receipt(self, event: events.Acknowledged | events.ValuesRejected) -> None:
        if isinstance(event, events.Acknowledged):
            self._replica.acknowledge(event.number)
        else:
            self.link.rejections.take_in(event.rejections)

    def _take_entry(self, entry: events.EntryReceived) -> None:
        """Invariant 3. What is missing before the entry does not keep its content from being taken in."""
        if self._progress.take_entry(entry):
            self._ask_for_difference()
        seq = None if self._progress.seq is None else entry.seq
        if entry.updates:
            self._replica.receive(entry.updates, agent=entry.author or None, seq=seq)
        else:
            self._replica.reached(seq=seq)
        self._tell_progress()

    def _miss(self) -> None:
        if self._progress.miss():
            self._ask_for_difference()

    def _tell_progress(self) -> None:
        version = self._progress.take_version()
        if version:
            self._replica.reached(version=version)

    def _ask_for_difference(self) -> None:
        self._start(self._send(self._session.step1(self._replica.document.state_vector())))

    def _be_synced(self) -> None:
        replica = self._replica
        assert self._welcome is not None
        self.on_synced()
        replica.reached(seq=self._welcome.seq, version=self._welcome.version)

    def _refuse(self, request_id: int | None, error: BoardError) -> None:
        if isinstance(error, BoardClosed):
            return  # the server closed the board, and this connection next: the request is made again on the next one
        if request_id is not None:
            if isinstance(error, VersionConflict | Violated):
                self.take_checkpoint(error.current_version, error.seq)
            self.link.requests.refuse(request_id, error)
        elif not isinstance(error, Unavailable) or not error.retryable:
            raise error

    def _fail(self, error: Exception) -> None:
        """End the connection because of ``error``."""
        self._failure = self._failure or error
        self._start(self.socket.close())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="answer")
        self._started.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._started.discard(task)
        if not task.cancelled():
            task.exception()  # the connection went away meanwhile, which `run` is told too
