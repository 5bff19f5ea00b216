from __future__ import annotations

import random
from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board import control, wire
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, LimitExceeded, NotFound, ProtocolError
from crdt_board.events import (
    Acknowledged,
    Answered,
    ByeReceived,
    CheckpointReceived,
    EntryDamaged,
    EntryReceived,
    HelloReceived,
    PresenceQueried,
    PresenceReceived,
    Refused,
    RequestReceived,
    ResendFrom,
    ResyncNeeded,
    ServerState,
    StateReceived,
    SyncRequested,
    UpdatesReceived,
    Welcomed,
    by_agent,
    joined,
)
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.presence import PresenceState
from crdt_board.session import Broadcast, ClientSession, Frames, PeerKind, ServerSession
from crdt_board.updates import EMPTY_UPDATE

HELLO = control.ClientHello(agent="planner", replica="0123456789abcdef")
SERVER_HELLO = control.ServerHello(
    board="job-1",
    client_id=2**40,
    epoch="e",
    seq=0,
    version=0,
    schema_version=1,
    limits=control.PeerLimits.of(DEFAULT_LIMITS),
)
CHECKPOINT = Checkpoint(
    board_id="job-1",
    epoch="e",
    version=1,
    seq=2,
    parent_hash="0" * 64,
    hash="1" * 64,
    checksum="2" * 64,
    agent="planner",
    step="plan",
    schema_version=1,
    time_ms=5,
)
PRESENT = PresenceState(7, 1, "{}")


def only_binary(frames: Frames) -> bytes:
    (frame,) = frames
    assert isinstance(frame, bytes)
    return frame


def only_text(frames: Frames) -> str:
    (frame,) = frames
    assert isinstance(frame, str)
    return frame


def push(first: int, *updates: bytes) -> bytes:
    return wire.encode_push(first, "planner", updates)


def damaged(frame: bytes) -> bytes:
    return frame[:-1] + bytes((frame[-1] ^ 1,))


@pytest.fixture
def stock() -> ServerSession:
    return ServerSession("stock", DEFAULT_LIMITS)


@pytest.fixture
def own() -> ServerSession:
    """The server's end after the hello."""
    session = ServerSession("own", DEFAULT_LIMITS)
    session.receive(control.encode(HELLO))
    return session


@pytest.fixture
def client() -> ClientSession:
    """The client's end after both hellos; the replica's first pending update is number 11."""
    session = ClientSession(DEFAULT_LIMITS)
    session.start(11)
    session.receive(control.encode(SERVER_HELLO))
    return session


def test_nothing_is_handed_out_after_the_bye(own: ServerSession, client: ClientSession) -> None:
    """Invariant 7: updates, requests, frames and even nonsense that follow a bye are passed over."""
    own.receive(push(1, b"a"))
    assert own.receive(only_text(client.bye(7))) == [ByeReceived(7)]
    request = control.encode(control.Request(id=1, body=control.StateAt(version=1)))
    for message in (push(2, b"b"), wire.encode_step1(b"\x00"), wire.encode_step2(b"x"), request, b"", "nonsense"):
        assert own.receive(message) == []


def test_a_bye_before_the_hello_breaks_the_protocol(client: ClientSession) -> None:
    """Invariant 1 holds for a bye too."""
    with pytest.raises(ProtocolError, match="hello"):
        ServerSession("own", DEFAULT_LIMITS).receive(only_text(client.bye(0)))


def test_the_hello_comes_first_and_once() -> None:
    """Invariant 1: anything before the hello, and a second one, break the protocol."""
    request = control.encode(control.Request(id=1, body=control.StateAt(version=1)))
    with pytest.raises(ProtocolError, match="hello"):
        ServerSession("own", DEFAULT_LIMITS).receive(request)
    with pytest.raises(ProtocolError, match="hello"):
        ServerSession("own", DEFAULT_LIMITS).receive(wire.encode_step1(b"\x00"))
    session = ServerSession("own", DEFAULT_LIMITS)
    assert session.receive(control.encode(HELLO)) == [HelloReceived(HELLO)]
    with pytest.raises(ProtocolError, match="hello"):
        session.receive(control.encode(HELLO))


def test_an_agent_has_a_name_that_can_be_shown() -> None:
    """A hello under an endless or unprintable name is refused."""
    for name in ("a" * 129, "a\x00"):
        with pytest.raises(LimitExceeded):
            ServerSession("own", DEFAULT_LIMITS).receive(control.encode(HELLO.model_copy(update={"agent": name})))


def test_a_stock_client_is_understood(stock: ServerSession) -> None:
    """Each stock frame has its event; what carries no news has none."""
    assert stock.receive(wire.encode_step1(b"\x00")) == [SyncRequested(b"\x00")]
    assert stock.receive(wire.encode_step2(b"new")) == [UpdatesReceived(None, (b"new",), None, is_difference=True)]
    assert stock.receive(wire.encode_update(b"new")) == [UpdatesReceived(None, (b"new",), None)]
    assert stock.receive(wire.encode_step2(EMPTY_UPDATE)) == []
    assert stock.receive(wire.encode_awareness([PRESENT])) == [PresenceReceived((PRESENT,))]
    assert stock.receive(wire.KEEPALIVE) == []
    assert stock.receive(wire.encode_query_awareness()) == [PresenceQueried()]


@pytest.mark.parametrize("frame", [push(1, b"a"), damaged(push(1, b"a")), wire.encode_auth_denied("no")])
def test_a_stock_client_sends_stock_frames_only(stock: ServerSession, frame: bytes) -> None:
    """H3: what needs the subprotocol is refused without it, and so is what only servers say."""
    with pytest.raises(ProtocolError):
        stock.receive(frame)


def test_a_stock_client_sends_no_text(stock: ServerSession) -> None:
    """H3: text frames need the subprotocol."""
    with pytest.raises(ProtocolError, match="subprotocol"):
        stock.receive(control.encode(HELLO))


def test_a_stock_client_is_sent_stock_frames_only(stock: ServerSession) -> None:
    """Invariant 5: no text and no unknown type, whatever its owner wants to say."""
    sent = stock.step1(b"\x00") + stock.step2(EMPTY_UPDATE) + stock.entry(Broadcast(1, "a", (b"x", b"y")))
    sent += stock.presence([PRESENT]) + stock.keepalive()
    assert [type(wire.decode_frame(frame, DEFAULT_LIMITS)) for frame in sent if isinstance(frame, bytes)] == [
        wire.SyncStep1,
        wire.SyncStep2,
        wire.SyncUpdate,
        wire.SyncUpdate,
        wire.AwarenessFrame,
        wire.AwarenessFrame,
    ]
    assert stock.hello(SERVER_HELLO) + stock.ack(0, 0) + stock.resync(0) + stock.answer(1, None) == []
    assert stock.refused(NotFound("no")) + stock.checkpoint(CHECKPOINT) == []


@pytest.mark.parametrize("kind", ["stock", "own"])
def test_no_entry_is_sent_before_the_step_2(kind: PeerKind) -> None:
    """Invariant 4: a broadcast builds on the state that the step 2 carries."""
    session = ServerSession(kind, DEFAULT_LIMITS)
    entry = Broadcast(1, "writer", (b"x",))
    before = session.broadcast_ready
    with pytest.raises(AssertionError):
        session.entry(entry)
    session.step2(EMPTY_UPDATE)
    assert (before, session.broadcast_ready) == (False, True)
    assert session.entry(entry)


def test_pushed_updates_are_handed_out_once_each(own: ServerSession) -> None:
    """Invariant 2: what is known already is skipped, also when it comes together with news, but acknowledged again."""
    assert own.receive(push(1, b"a", b"b")) == [UpdatesReceived("planner", (b"a", b"b"), 2)]
    assert own.receive(push(1, b"a", b"b")) == [UpdatesReceived("planner", (), 2)]
    assert own.receive(push(2, b"b", b"c")) == [UpdatesReceived("planner", (b"c",), 3)]


def test_updates_that_arrive_at_once_are_joined_by_agent() -> None:
    """Those of one agent in a row are one event, numbered as its last, also when that repeats what was received."""
    received = [
        UpdatesReceived("planner", (b"a", b"b"), 2),
        UpdatesReceived("planner", (), 2),
        UpdatesReceived("writer", (b"c",), 3),
        UpdatesReceived("planner", (b"d",), 4),
    ]
    assert [joined(group) for group in by_agent(received)] == [
        UpdatesReceived("planner", (b"a", b"b"), 2),
        UpdatesReceived("writer", (b"c",), 3),
        UpdatesReceived("planner", (b"d",), 4),
    ]


def test_a_gap_is_complained_of_once(own: ServerSession) -> None:
    """W3, invariant 3: after a lost push, those that follow wait in silence for the resend."""
    own.receive(push(1, b"a"))
    assert own.receive(push(3, b"c")) == [ResyncNeeded(1)]
    assert own.receive(push(4, b"d")) == []
    assert own.receive(push(2, b"b", b"c", b"d")) == [UpdatesReceived("planner", (b"b", b"c", b"d"), 4)]
    assert own.receive(push(5, b"e")) == [UpdatesReceived("planner", (b"e",), 5)]


def test_a_resend_that_loses_its_beginning_is_complained_of_again(own: ServerSession) -> None:
    """W3: numbers that fall without closing the gap show that a resend was under way."""
    own.receive(push(5, b"e"))
    own.receive(push(6, b"f"))
    assert own.receive(push(3, b"c")) == [ResyncNeeded(0)]


def test_a_damaged_push_is_asked_for_again(own: ServerSession) -> None:
    """W3: a failed checksum is a loss, not the end of the connection."""
    own.receive(push(1, b"a"))
    assert own.receive(damaged(push(2, b"b"))) == [ResyncNeeded(1)]
    assert own.receive(push(3, b"c")) == []
    assert own.receive(push(2, b"b", b"c")) == [UpdatesReceived("planner", (b"b", b"c"), 3)]


def test_the_owner_may_hand_updates_back(own: ServerSession) -> None:
    """After a resync to an earlier number, what was handed out is awaited again, and what follows it is passed over."""
    own.receive(push(1, b"a", b"b", b"c"))
    own.ack(1, 1)
    assert own.resync(1) == [control.encode(control.Resync(n=1))]
    assert own.receive(push(4, b"d")) == []
    assert own.receive(push(2, b"b")) == [UpdatesReceived("planner", (b"b",), 2)]


def test_an_acknowledgement_covers_what_was_handed_out(own: ServerSession) -> None:
    """Invariant 6: it neither runs ahead nor falls."""
    own.receive(push(1, b"a", b"b"))
    assert own.ack(2, 9) == [control.encode(control.Ack(n=2, seq=9))]
    for wrong in (1, 3):
        with pytest.raises(AssertionError):
            own.ack(wrong, 9)


def test_an_own_client_may_answer_a_step_1(own: ServerSession) -> None:
    """Stock frames work on an own connection too; such updates have no number and no agent of their own."""
    assert own.receive(wire.encode_step2(b"new")) == [UpdatesReceived(None, (b"new",), None, is_difference=True)]


def test_requests_are_handed_out(own: ServerSession) -> None:
    """A request becomes an event with the id that its answer must carry."""
    body = control.ListCheckpoints(limit=3)
    assert own.receive(control.encode(control.Request(id=4, body=body))) == [RequestReceived(4, body)]


def test_a_client_does_not_send_entries(own: ServerSession) -> None:
    """What only the server says is refused."""
    with pytest.raises(ProtocolError):
        own.receive(wire.encode_entry(1, "writer", [b"x"]))


def test_an_entry_is_encoded_once_for_all_connections() -> None:
    """A hundred connections are given the same bytes object."""
    entry = Broadcast(1, "writer", (b"x",))
    sessions = [ServerSession("own", DEFAULT_LIMITS) for _ in range(2)]
    for session in sessions:
        session.step2(EMPTY_UPDATE)
    first, second = (only_binary(session.entry(entry)) for session in sessions)
    assert first is second


def test_the_client_understands_the_server(client: ClientSession, own: ServerSession) -> None:
    """Each thing that the server says has its event."""
    assert client.receive(only_binary(own.step1(b"\x00"))) == [ServerState(b"\x00")]
    assert client.receive(only_binary(own.step2(b"state"))) == [StateReceived(b"state")]
    entry = Broadcast(3, "writer", (b"x", b"y"))
    assert client.receive(only_binary(own.entry(entry))) == [EntryReceived(3, "writer", (b"x", b"y"))]
    assert client.receive(only_binary(own.presence([PRESENT]))) == [PresenceReceived((PRESENT,))]
    assert client.receive(only_binary(own.keepalive())) == []
    assert client.receive(wire.encode_query_awareness()) == [PresenceQueried()]
    assert client.receive(only_text(own.checkpoint(CHECKPOINT))) == [CheckpointReceived(CHECKPOINT)]
    assert client.receive(only_text(own.answer(4, {"a": 1}))) == [Answered(4, {"a": 1})]
    (refused,) = client.receive(only_text(own.refused(NotFound("no version 9", version=9), 5)))
    assert isinstance(refused, Refused)
    assert (refused.id, type(refused.error), refused.error.version) == (5, NotFound, 9)


def test_the_server_says_hello_first_and_once(client: ClientSession) -> None:
    """Any other control message before it but a refusal, and a second hello, break the protocol."""
    with pytest.raises(ProtocolError, match="hello"):
        client.receive(control.encode(SERVER_HELLO))
    fresh = ClientSession(DEFAULT_LIMITS)
    with pytest.raises(ProtocolError, match="hello"):
        fresh.receive(control.encode(control.Ack(n=0, seq=0)))
    assert isinstance(fresh.receive(control.encode(control.refusal(NotFound("no"))))[0], Refused)
    assert fresh.receive(control.encode(SERVER_HELLO)) == [Welcomed(SERVER_HELLO)]


def test_replica_numbers_are_mapped_to_those_of_the_connection(client: ClientSession) -> None:
    """Invariant 2: the first pending update is number 1 on the wire, and comes back as the replica's number."""
    assert client.next_number == 11
    first, second = client.push([("planner", [b"a", b"b"]), ("writer", [b"c"])])
    assert first == wire.encode_push(1, "planner", [b"a", b"b"])
    assert second == wire.encode_push(3, "writer", [b"c"])
    assert client.next_number == 14
    assert client.receive(control.encode(control.Ack(n=2, seq=5))) == [Acknowledged(12, 5)]
    assert client.receive(control.encode(control.Resync(n=2))) == [ResendFrom(13)]
    assert client.next_number == 13


def test_acknowledgements_do_not_fall_or_run_ahead(client: ClientSession) -> None:
    """Invariant 3: a repeated one is no news; one of an update that was never pushed breaks the protocol."""
    client.push([("planner", [b"a", b"b"])])
    assert client.receive(control.encode(control.Ack(n=2, seq=5))) == [Acknowledged(12, 5)]
    assert client.receive(control.encode(control.Ack(n=1, seq=5))) == []
    for message in (control.Ack(n=3, seq=5), control.Resync(n=3)):
        with pytest.raises(ProtocolError):
            client.receive(control.encode(message))


def test_a_late_acknowledgement_moves_a_resend_on(client: ClientSession) -> None:
    """What turns out to be durable after all is not pushed again."""
    client.push([("planner", [b"a", b"b", b"c"])])
    assert client.retry() == ResendFrom(11)
    client.receive(control.encode(control.Ack(n=2, seq=5)))
    assert client.next_number == 13


def test_a_push_keeps_to_the_limits_of_a_batch() -> None:
    """Many or large updates are spread over frames, in order; one that is larger than a batch goes alone."""
    limits = replace(DEFAULT_LIMITS, batch_updates_max=2, batch_bytes_max=10)
    session = ClientSession(limits)
    session.start(1)
    frames = session.push([("planner", [b"a", b"b", b"c", b"x" * 20, b"y" * 9, b"zz"]), ("writer", [])])
    pushes = [wire.decode_frame(frame, limits) for frame in frames if isinstance(frame, bytes)]
    assert [(frame.first, len(frame.updates)) for frame in pushes if isinstance(frame, wire.Push)] == [
        (1, 2),
        (3, 1),
        (4, 1),
        (5, 1),
        (6, 1),
    ]


def test_a_damaged_entry_is_asked_for_again(client: ClientSession) -> None:
    """W3: the client sends its step 1 again instead of showing or losing what is damaged."""
    assert client.receive(damaged(wire.encode_entry(1, "writer", [b"x"]))) == [EntryDamaged()]


@pytest.mark.parametrize("frame", [push(1, b"a"), wire.encode_auth_denied("no")])
def test_a_server_does_not_push(client: ClientSession, frame: bytes) -> None:
    """What only clients say is refused."""
    with pytest.raises(ProtocolError):
        client.receive(frame)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60) | st.text(max_size=60), max_size=10))
def test_random_frames_raise_only_bad_request(frames: list[bytes | str]) -> None:
    """H1: whatever arrives at either end is an event or one of our errors."""
    own_end = ServerSession("own", DEFAULT_LIMITS)
    own_end.receive(control.encode(HELLO))
    for session in (own_end, ServerSession("stock", DEFAULT_LIMITS), ClientSession(DEFAULT_LIMITS)):
        for frame in frames:
            try:
                session.receive(frame)
            except BadRequest:
                continue


class LossyLink:
    """A replica's pending updates, both sessions, and a pipe between them that loses, repeats and damages frames."""

    def __init__(self, source: random.Random, pending_first: int) -> None:
        self.source = source
        self.faults = True
        self.first = pending_first
        self.pending: dict[int, bytes] = {}
        self.durable: list[bytes] = []
        self.acknowledged = pending_first - 1
        self.client = ClientSession(DEFAULT_LIMITS)
        self.client.start(pending_first)
        self.client.receive(control.encode(SERVER_HELLO))
        self.server = ServerSession("own", DEFAULT_LIMITS)
        self.server.receive(control.encode(HELLO))
        self.upward: deque[bytes | str] = deque()
        self.downward: deque[bytes | str] = deque()

    def edit(self, update: bytes) -> None:
        self.pending[self.first + len(self.pending)] = update

    def push(self) -> None:
        number = self.client.next_number
        count = self.source.randint(1, 3)
        updates = [self.pending[each] for each in range(number, number + count) if each in self.pending]
        self.send(self.upward, self.client.push([("planner", updates)]))

    def send(self, pipe: deque[bytes | str], frames: Frames) -> None:
        for frame in frames:
            fate = self.source.random() if self.faults else 1.0
            if fate < 0.15:
                continue
            if fate < 0.25 and isinstance(frame, bytes):
                pipe.append(damaged(frame))
                continue
            pipe.extend([frame] * (2 if fate < 0.4 else 1))

    def serve(self) -> None:
        frame = self.upward.popleft()
        assert isinstance(frame, bytes)
        for event in self.server.receive(frame):
            if isinstance(event, ResyncNeeded):
                self.send(self.downward, self.server.resync(event.after))
                continue
            assert isinstance(event, UpdatesReceived)
            assert event.last_number is not None
            self.durable += event.updates
            self.send(self.downward, self.server.ack(event.last_number, len(self.durable)))

    def listen(self) -> None:
        frame = self.downward.popleft()
        assert isinstance(frame, str)
        for event in self.client.receive(frame):
            if isinstance(event, Acknowledged):
                assert event.number > self.acknowledged
                self.acknowledged = event.number
                assert self.durable[: event.seq] == [self.pending[key] for key in sorted(self.pending)][: event.seq]

    def step(self) -> None:
        actions = [self.push]
        actions += [self.serve] * 2 if self.upward else []
        actions += [self.listen] * 2 if self.downward else []
        self.source.choice(actions)()

    def settle(self) -> None:
        """Deliver all that is under way, then begin again as a client does that waits in vain for an answer."""
        self.faults = False
        for _ in range(2):
            while self.client.next_number in self.pending or self.upward or self.downward:
                while self.upward:
                    self.serve()
                while self.downward:
                    self.listen()
                if self.client.next_number in self.pending:
                    self.push()
            self.client.retry()


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 1_000))
def test_a_lossy_and_repeating_pipe_ends_with_everything_acknowledged_once(
    source: random.Random, pending_first: int
) -> None:
    """W3: whatever is lost, repeated or damaged, each update is handed out once, in order, and acknowledged."""
    link = LossyLink(source, pending_first)
    for index in range(30):
        link.edit(b"update %d" % index)
        link.step()
        link.step()
    link.settle()
    assert link.durable == [b"update %d" % index for index in range(30)]
    assert link.acknowledged == pending_first + 29
