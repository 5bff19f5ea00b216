"""The protocol of one connection as two pure state machines: `ServerSession` at one end, `ClientSession` at the other.

A session turns what arrived into events and what its owner wants to say into frames. It does no I/O, keeps no
document and no updates; a thin shell reads, sends and decides. An input that breaks the protocol raises
`ProtocolError` or `LimitExceeded`, after which the session is of no more use and the shell closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import JsonValue

from crdt_board import control, wire
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BoardError, ProtocolError
from crdt_board.events import (
    Acknowledged,
    Answered,
    ByeReceived,
    CheckpointReceived,
    ClientEvent,
    EntryDamaged,
    EntryReceived,
    HelloReceived,
    PresenceQueried,
    PresenceReceived,
    Refused,
    RequestReceived,
    ResendFrom,
    ResyncNeeded,
    SchemaReceived,
    ServerEvent,
    ServerState,
    StateReceived,
    SyncRequested,
    UpdatesReceived,
    ValuesRejected,
    Welcomed,
)
from crdt_board.layout import Layout
from crdt_board.limits import Limits, check_name
from crdt_board.presence import PresenceState
from crdt_board.rejections import Rejection
from crdt_board.updates import EMPTY_UPDATE

PeerKind = Literal["stock", "own"]
"""``own`` peers chose the subprotocol ``crdt-board.v1``; every other Yjs client is ``stock``."""

Frames = list[bytes | str]
"""What to send, in order: bytes as binary frames, str as text frames."""


@dataclass(frozen=True)
class Broadcast:
    """One journal entry on its way to every peer; each form is encoded once, however many connections take it."""

    seq: int
    author: str
    updates: tuple[bytes, ...]

    @cached_property
    def own_frames(self) -> Frames:
        return [wire.encode_entry(self.seq, self.author, self.updates)]

    @cached_property
    def stock_frames(self) -> Frames:
        return [wire.encode_update(update) for update in self.updates]


class ServerSession:
    """The server's end of one connection.

    Invariants:

    1. The first message of an own client is its hello, and there is one. A stock client sends none.
    2. Updates that an own client pushes are handed out once each, in the order of their numbers, without gaps.
    3. After updates were lost, nothing is handed out until the client begins again at the number after the last good
       one; what it had sent before it heard of the loss is passed over without a further complaint.
    4. No entry is sent before the step 2 that it builds on.
    5. A stock client is sent stock frames only: no text, no unknown type. What has no stock form becomes nothing.
    6. An acknowledgement never covers a number that was not handed out, and never falls.
    7. Nothing is handed out after the bye of an own client: others may write under its client id.
    """

    def __init__(self, kind: PeerKind, limits: Limits) -> None:
        self.kind: PeerKind = kind
        self._limits = limits
        self._greeted = kind == "stock"
        self._received = 0  # the last number that was handed out
        self._acked = 0
        self._gap_first: int | None = None  # while waiting for a resend: the latest number beyond the gap
        self._broadcast_ready = False
        self._ended = False

    @property
    def broadcast_ready(self) -> bool:
        """Whether entries may be sent: the client has what they build on."""
        return self._broadcast_ready

    def receive(self, message: str | bytes) -> list[ServerEvent]:
        """What a text or binary frame of the client means.

        Raises:
            ProtocolError, LimitExceeded: the client broke the protocol; close the connection.
        """
        if self._ended:  # invariant 7
            return []
        return self._receive_text(message) if isinstance(message, str) else self._receive_binary(message)

    def plain_update(self, data: bytes) -> bytes | None:
        """The update that a binary frame of a stock client is all about; None where `receive` must say what it is."""
        update = wire.stock_update(data) if self.kind == "stock" and not self._ended else None
        return None if update == EMPTY_UPDATE else update

    def hello(self, message: control.ServerHello) -> Frames:
        return self._control(message)

    def step1(self, state_vector: bytes) -> Frames:
        """Ask the client for what the board lacks."""
        return [wire.encode_step1(state_vector)]

    def step2(self, update: bytes) -> Frames:
        """Send what the client lacks; entries may follow from now on."""
        self._broadcast_ready = True
        return [wire.encode_step2(update)]

    def whole(self, updates: Sequence[bytes]) -> Frames:
        """Send all there is to a stock client that holds nothing, in one part or more; it counts as in step with the
        last one. Entries may follow from now on."""
        *before, last = updates
        return [*map(wire.encode_update, before), *self.step2(last)]

    def entry(self, broadcast: Broadcast) -> Frames:
        """Send a journal entry of another peer. Only when `broadcast_ready`."""
        assert self._broadcast_ready, "an entry before the step 2"  # invariant 4
        return broadcast.own_frames if self.kind == "own" else broadcast.stock_frames

    def ack(self, n: int, seq: int) -> Frames:
        """Tell an own client that its updates up to number ``n`` are durable, the last of them in entry ``seq``."""
        assert self._acked <= n <= self._received, (self._acked, n, self._received)  # invariant 6
        self._acked = n
        return self._control(control.Ack(n=n, seq=seq))

    def rejected(self, n: int | None, rejections: Sequence[Rejection]) -> Frames:
        """Tell an own client which values of its update ``n`` were taken back; at least one, all of one agent."""
        assert n is None or n <= self._received, (n, self._received)
        values = tuple(
            control.RejectedValue(path=each.path, rule=each.rule, message=each.message) for each in rejections
        )
        return self._control(control.Rejected(n=n, agent=rejections[0].agent, values=values))

    def resync(self, after: int) -> Frames:
        """Ask an own client to push everything after number ``after`` again; its updates in between were not taken.

        What was handed out after that number is to be forgotten, and not acknowledged: it is handed out again.
        """
        assert self._acked <= after <= self._received, (self._acked, after, self._received)
        self._received = after
        if self._gap_first is None:
            self._gap_first = after
        return self._control(control.Resync(n=after))

    def answer(self, request_id: int, result: JsonValue) -> Frames:
        return self._control(control.Answer(id=request_id, result=result))

    def refused(self, error: BoardError, request_id: int | None = None) -> Frames:
        """Refuse a request, or without ``request_id`` something else that the client sent."""
        return self._control(control.refusal(error, request_id))

    def schema(self, number: int, layout: Layout) -> Frames:
        """Tell a client without a model of the board's new schema."""
        return self._control(control.SchemaChanged(schema_version=number, layout=layout))

    def checkpoint(self, checkpoint: Checkpoint) -> Frames:
        return self._control(control.CheckpointMade(checkpoint=checkpoint))

    def presence(self, states: Iterable[PresenceState]) -> Frames:
        return [wire.encode_awareness(states)]

    def keepalive(self) -> Frames:
        """A sign of life that every client understands."""
        return [wire.KEEPALIVE]

    def _control(self, message: control.ServerMessage) -> Frames:
        return [control.encode(message)] if self.kind == "own" else []  # invariant 5

    def _receive_binary(self, data: bytes) -> list[ServerEvent]:
        if not self._greeted:  # invariant 1
            raise ProtocolError("the first message must be a hello")
        update = wire.stock_update(data)
        if update is not None:
            return self._receive_update(update, is_difference=False)
        try:
            frame = wire.decode_frame(data, self._limits)
        except ProtocolError as error:
            if self.kind == "own" and error.data.get("reason") == "checksum":
                return [self._lose(None)]
            raise
        return self._receive_frame(frame)

    def _receive_text(self, text: str) -> list[ServerEvent]:
        if self.kind == "stock":
            raise ProtocolError(f"text frames need the subprotocol {wire.SUBPROTOCOL}")
        message = control.decode_client_message(text, self._limits)
        is_hello = isinstance(message, control.ClientHello)
        if is_hello == self._greeted:  # invariant 1
            raise ProtocolError("the first message, and no other, must be a hello")
        if isinstance(message, control.ClientHello):
            check_name(message.agent, "agent", self._limits.agent_chars_max)
            self._greeted = True
            return [HelloReceived(message)]
        if isinstance(message, control.Bye):
            self._ended = True
            return [ByeReceived(message.clock)]
        return [RequestReceived(message.id, message.body)]

    def _receive_frame(self, frame: wire.Frame) -> list[ServerEvent]:
        match frame:
            case wire.Push() if self.kind == "own":
                return self._receive_push(frame)
            case wire.SyncStep1(state_vector):
                return [SyncRequested(state_vector)]
            case wire.SyncStep2(update) | wire.SyncUpdate(update):
                return self._receive_update(update, is_difference=isinstance(frame, wire.SyncStep2))
            case wire.AwarenessFrame(states):
                return [PresenceReceived(states)] if states else []
            case wire.QueryAwareness():
                return [PresenceQueried()]
        raise ProtocolError(f"a client does not send {type(frame).__name__} frames here")

    def _receive_update(self, update: bytes, *, is_difference: bool) -> list[ServerEvent]:
        return [UpdatesReceived(None, (update,), None, is_difference)] if update != EMPTY_UPDATE else []

    def _receive_push(self, push: wire.Push) -> list[ServerEvent]:
        if push.first > self._received + 1:
            # Numbers rise on their way, so that a lower one than before belongs to a resend whose beginning is lost.
            waiting = self._gap_first is not None and push.first > self._gap_first
            if waiting:  # invariant 3
                self._gap_first = push.first
                return []
            return [self._lose(push.first)]
        self._gap_first = None
        # Nothing may be fresh: the acknowledgement was lost, and handing out nothing acknowledges it again.
        fresh = push.updates[self._received + 1 - push.first :]
        self._received += len(fresh)
        return [UpdatesReceived(push.agent, fresh, self._received)]  # invariant 2

    def _lose(self, first: int | None) -> ResyncNeeded:
        self._gap_first = first if first is not None else self._received
        return ResyncNeeded(self._received)


class ClientSession:
    """The client's end of one connection.

    The replica numbers its updates for its own lifetime; on the wire they are numbered from 1 on each connection.
    Everything in this class's interface is in the replica's numbers.

    Invariants:

    1. The first control message of the server is its hello, and there is one; or it refuses, at any time.
    2. On the wire, the number of each update is its replica number less one fixed offset, from `start` on.
    3. An acknowledgement never covers a number that was not pushed, and never falls.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._offset = 0
        self._pushed = 0  # the last number on the wire
        self._pushed_max = 0  # the last one before any was pushed again
        self._acked = 0
        self._welcomed = False

    @property
    def next_number(self) -> int:
        """The replica's number of the update that `push` expects next."""
        return self._offset + self._pushed + 1

    def start(self, pending_first: int) -> None:
        """Say which update of the replica is the first one to push on this connection. Before any push."""
        assert self._pushed_max == 0, "updates were pushed already"
        self._offset = pending_first - 1

    def hello(self, message: control.ClientHello) -> Frames:
        return [control.encode(message)]

    def step1(self, state_vector: bytes) -> Frames:
        return [wire.encode_step1(state_vector)]

    def step2(self, update: bytes) -> Frames:
        return [wire.encode_step2(update)]

    def presence(self, states: Iterable[PresenceState]) -> Frames:
        return [wire.encode_awareness(states)]

    def request(self, request_id: int, body: control.RequestBody) -> Frames:
        return [control.encode(control.Request(id=request_id, body=body))]

    def bye(self, clock: int) -> Frames:
        """End for good, at this clock of the replica's client id; when everything was acknowledged, and as the last."""
        return [control.encode(control.Bye(clock=clock))]

    def push(self, groups: Iterable[tuple[str, Sequence[bytes]]]) -> Frames:
        """Push updates from `next_number` on, grouped by the agent that made them; in as few frames as limits allow."""
        frames: Frames = []
        for agent, updates in groups:
            for chunk in _chunks(updates, self._limits):
                frames.append(wire.encode_push(self._pushed + 1, agent, chunk))  # invariant 2
                self._pushed += len(chunk)
        self._pushed_max = max(self._pushed_max, self._pushed)
        return frames

    def retry(self) -> ResendFrom:
        """Begin again after the last acknowledged update, when no answer came in time."""
        return self._rewind(self._acked)

    def receive(self, message: str | bytes) -> list[ClientEvent]:
        """What a text or binary frame of the server means.

        Raises:
            ProtocolError, LimitExceeded: the server broke the protocol; close the connection.
        """
        return self._receive_text(message) if isinstance(message, str) else self._receive_binary(message)

    def _receive_binary(self, data: bytes) -> list[ClientEvent]:
        try:
            frame = wire.decode_frame(data, self._limits)
        except ProtocolError as error:
            if error.data.get("reason") == "checksum":
                return [EntryDamaged()]
            raise
        match frame:
            case wire.EntryFrame(seq, author, updates):
                return [EntryReceived(seq, author, updates)]
            case wire.SyncStep1(state_vector):
                return [ServerState(state_vector)]
            case wire.SyncStep2(update) | wire.SyncUpdate(update):
                return [StateReceived(update)]
            case wire.AwarenessFrame(states):
                return [PresenceReceived(states)] if states else []
            case wire.QueryAwareness():
                return [PresenceQueried()]
        raise ProtocolError(f"a server does not send {type(frame).__name__} frames")

    def _receive_text(self, text: str) -> list[ClientEvent]:
        message = control.decode_server_message(text, self._limits)
        if isinstance(message, control.Refused):
            return [Refused(message.id, control.error_of(message))]
        if isinstance(message, control.ServerHello) == self._welcomed:  # invariant 1
            raise ProtocolError("the first control message, and no other, must be a hello")
        self._welcomed = True
        return self._receive_message(message)

    def _receive_message(self, message: control.ServerMessage) -> list[ClientEvent]:
        match message:
            case control.ServerHello():
                return [Welcomed(message)]
            case control.Ack() | control.Rejected():
                return self._receive_receipt(message)
            case control.Resync(n=n):
                return self._receive_resync(n)
            case control.CheckpointMade(checkpoint=checkpoint):
                return [CheckpointReceived(checkpoint)]
            case control.SchemaChanged():
                return [SchemaReceived(message)]
            case control.Answer(id=request_id, result=result):
                return [Answered(request_id, result)]
        raise AssertionError(message)

    def _receive_receipt(self, message: control.Ack | control.Rejected) -> list[ClientEvent]:
        if isinstance(message, control.Rejected):
            return self._receive_rejected(message)
        return self._receive_ack(message.n, message.seq)

    def _receive_ack(self, n: int, seq: int) -> list[ClientEvent]:
        self._check_number(n)
        if n <= self._acked:  # invariant 3
            return []
        self._acked = n
        self._pushed = max(self._pushed, n)
        return [Acknowledged(self._offset + n, seq)]

    def _receive_rejected(self, message: control.Rejected) -> list[ClientEvent]:
        number = None
        if message.n is not None:
            self._check_number(message.n)
            number = self._offset + message.n
        rejections = (Rejection(each.path, each.rule, each.message, message.agent) for each in message.values)
        return [ValuesRejected(number, tuple(rejections))]

    def _receive_resync(self, n: int) -> list[ClientEvent]:
        self._check_number(n)
        return [self._rewind(max(n, self._acked))]

    def _check_number(self, n: int) -> None:
        if n > self._pushed_max:  # invariant 3
            raise ProtocolError(f"the server speaks of update {n} where {self._pushed_max} were pushed")

    def _rewind(self, n: int) -> ResendFrom:
        self._pushed = n
        return ResendFrom(self.next_number)


def _chunks(updates: Sequence[bytes], limits: Limits) -> Iterable[Sequence[bytes]]:
    """``updates`` in stretches that keep to the limits of a batch; one large update is a stretch of its own."""
    start, size = 0, 0
    for index, update in enumerate(updates):
        full = size + len(update) > limits.batch_bytes_max or index - start >= limits.batch_updates_max
        if full and index > start:
            yield updates[start:index]
            start, size = index, 0
        size += len(update)
    if start < len(updates):
        yield updates[start:]
