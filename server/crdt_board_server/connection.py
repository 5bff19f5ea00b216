"""One websocket of one peer: a thin shell around `ServerSession` that reads, submits and writes.

Frames are encoded by the session and the room and written to the transport as they are: a server masks nothing and
compresses nothing, so that the same bytes serve every peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from pydantic import JsonValue
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from crdt_board import control, events
from crdt_board.checkpoints import Checkpoint
from crdt_board.client_ids import Holder
from crdt_board.coordinating import Coordinated
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardError, BoardReplaced, Unavailable
from crdt_board.history.questions import answer_question
from crdt_board.inline_frames import InlineFrames
from crdt_board.limits import Limits
from crdt_board.loading import StoredBoard
from crdt_board.session import Broadcast, Frames, PeerKind, ServerSession
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import NOTHING_KNOWN
from crdt_board.validity import Report
from crdt_board.wire import is_push
from crdt_board_server.close_codes import SHUTTING_DOWN, UNFORESEEN, closing_of
from crdt_board_server.rooms import Room, Rooms, encode_frames

GUEST = "guest"
"""The author of what a stock client writes, unless its address names one (``?agent=``)."""

_REQUESTS_MAX = 32
_REASON_BYTES_MAX = 120
_DECIDE_SECONDS = 2.0
_BEFORE_LOAD_SECONDS_MAX = 0.1
"""How long a peer that comes first may take to ask for a large board, and to take it, before that is loaded."""

_REST_SECONDS_MAX = 0.1
"""How long a peer is not read at most: a store may fail for longer."""

logger = logging.getLogger(__name__)


class Peer:
    """A member of a room over one websocket.

    Invariants:
        1. Everything that the peer sent is submitted in the order in which it came.
        2. Entries are written only by the room, and only after the step 2 (`Room.add` is called in the same moment), or
           after what was written since a step 2 that came from the store.
        3. While more is unsent than ``send_buffer_bytes_max``, the peer is not read either.
    """

    def __init__(self, socket: InlineFrames, kind: PeerKind, agent: str, limits: Limits) -> None:
        self.kind: PeerKind = kind
        self.wrote_since_tick = False
        self._socket = socket
        self._agent = agent
        self._origin = f"connection-{id(self)}"
        self._limits = limits
        self._session = ServerSession(kind, limits)
        self._client_id: int | None = None
        self._cut_off = False  # nothing more is taken from this connection; its replica may have another one by now
        self._room: Room | None = None
        self._behind: bytes | None = None
        self._is_fresh = False
        self._synced_at: int | None = None
        self._missed_presence = False
        self._sent: StoredBoard | None = None  # what the peer holds, until it is a member of its room
        self._early: Sequence[events.ServerEvent] = ()  # came before the board was loaded
        self._ack: tuple[int, int] | None = None
        self._resyncs = 0  # receipts of what was submitted before the latest one acknowledge nothing
        self._has_asked = False
        self._arrived: list[events.UpdatesReceived] = []
        self._plain: list[bytes] = []  # as `_arrived`, of a stock peer
        self._undecided = 0  # submissions
        self._rest: asyncio.TimerHandle | None = None  # while nothing is read
        self._requests: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._has_model = False
        self._schema: int | None = None  # what it writes under, as far as it says

    @property
    def _engine(self) -> Engine:
        assert self._room is not None
        return self._room.engine

    async def run(self, rooms: Rooms, board_id: str) -> None:
        """Serve the peer until it goes, and then clean up after it."""
        try:
            async with rooms.enter(board_id, self._answer_from_store if self.kind == "stock" else None) as room:
                self._room = room
                try:
                    await self._serve()
                finally:
                    self._leave(room)
        except BoardError as error:
            await self._close(error)
        except ConnectionClosed:
            pass  # the usual end; websockets has logged it at debug level
        except Exception:  # the boundary of this connection: only its own peer is cut off
            logger.exception("board %s: the connection of a peer failed", board_id)
            await self._socket.close(UNFORESEEN, "internal failure")

    # As a member of its room.

    def write(self, data: bytes) -> None:
        # A connection that was reset is open to websockets for a moment still, and asyncio would warn of each write.
        if data and self._socket.protocol.state is State.OPEN and not self._socket.transport.is_closing():
            self._socket.transport.write(data)
            self.wrote_since_tick = True

    @property
    def is_full(self) -> bool:
        return self._socket.paused

    def fall_behind(self, state_vector: bytes) -> None:
        self._behind = state_vector

    def miss_presence(self) -> None:
        self._missed_presence = True

    def schema_changed(self) -> None:
        engine = self._engine
        if self._has_model:
            refusal = engine.refusal_of(self._schema)
            if refusal is not None:
                assert self._room is not None
                self._room.remove(self)  # it must not see what it would take for something else
                self.end(refusal)
        elif self._schema is not None and self._schema != engine.schema_version and engine.layout is not None:
            self._schema = engine.schema_version
            self._send(self._session.schema(engine.schema_version, engine.layout))

    def end(self, error: BoardError) -> None:
        self._cut_off = True
        self._start_ending(self._close(error))

    def shut_down(self) -> None:
        """The server is stopping: decide what this peer has sent, acknowledge it, and close with a code to retry."""

        async def finish() -> None:
            with contextlib.suppress(BoardError, TimeoutError):
                if self._room is not None:
                    async with asyncio.timeout(_DECIDE_SECONDS):  # not for as long as the store may fail
                        await self._room.engine.read(lambda _document: None)
                    self._send_ack()
            if self._socket.paused:  # it does not read: it would not hear the code, and keep the server for ten seconds
                self._socket.transport.abort()
            else:
                await self._socket.close(SHUTTING_DOWN, "the server is stopping")

        self._start_ending(finish())

    def keep_alive(self) -> None:
        """Called every ``keepalive_seconds``: say something, unless something was said since the last time.

        One of our own clients is told up to where it was sent everything: an entry that was lost on the way to it would
        otherwise be missed only when the next one comes.
        """
        if self.kind == "own" and self._session.broadcast_ready and self._behind is None:
            self._send(self._session.entry(Broadcast(self._engine.seq, "", ())))
        elif not self.wrote_since_tick:
            self._send(self._session.keepalive())
        self.wrote_since_tick = False

    def drained(self) -> None:
        """The socket took what was waiting; catch up from state if entries were left out meanwhile."""
        if self._room is None:
            return
        if self._behind is not None:
            self._start_request(self._catch_up())
        elif self._missed_presence:
            self._missed_presence = False
            self._send(self._session.presence(self._all_presence()))

    # What the peer sends.

    async def _answer_from_store(self, stored: StoredBoard) -> None:
        """Before a large board is loaded: send it to a peer that asks at once and holds nothing, and wait until it has
        it, since loading holds up the event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEFORE_LOAD_SECONDS_MAX):
                self._early = self._session.receive(await self._socket.next_message())
                if self._early == [events.SyncRequested(NOTHING_KNOWN)]:
                    self._early, self._sent = (), stored
                    self._send(self._session.whole(stored.updates))
                    await self._socket.flush()

    def _join_after(self, sent: StoredBoard, document: Document) -> None:
        """Be in the room from what was sent before the board was loaded; runs in the writer's task (invariant 2)."""
        assert self._room is not None
        if sent.epoch != self._engine.epoch:
            raise BoardReplaced(
                f"board {self._engine.board_id} was made anew while it was loaded; connect again",
                board_id=self._engine.board_id,
            )
        # Somebody has written since then, which is rare: the whole of it costs less than to find out what is new.
        self._send_position(() if sent.seq == self._engine.seq else (document.encode(),))
        self._room.add(self)

    async def _serve(self) -> None:
        if self.kind == "stock":
            self._send(self._session.step1(await self._engine.read(Document.state_vector)))
        if self._sent is not None:
            sent, self._sent = self._sent, None
            await self._engine.read(partial(self._join_after, sent))
        early, self._early = self._early, ()
        for event in early:
            await self._handle(event)
        self._socket.inline, self._socket.arrived = self._take, self._submit_arrived
        while True:
            message = await self._socket.next_message()
            if self._cut_off:
                continue
            for event in self._session.receive(message):
                await self._handle(event)
            if self._socket.paused:
                await self._socket.drain()  # invariant 3

    def _take(self, data: bytes) -> bool:
        """Collect updates as they arrive; everything else, and updates when they must wait, is handled by `_serve`."""
        update = self._session.plain_update(data)
        if (update is None and not is_push(data)) or self._socket.paused or not self._engine.has_room:
            return False
        if self._cut_off:
            return True
        if update is not None:
            self._plain.append(update)
            return True
        self._gather_plain()
        try:
            for event in self._session.receive(data):
                if isinstance(event, events.UpdatesReceived):
                    self._arrived.append(event)
                elif isinstance(event, events.ResyncNeeded):
                    self._send(self._session.resync(event.after))  # now: later pushes may be handled before any task
                    self._start_request(self._ask_for_state())
        except BoardError as error:
            self.end(error)
        return True

    def _gather_plain(self) -> None:
        if self._plain:
            self._arrived.append(events.UpdatesReceived(None, tuple(self._plain), None))
            self._plain.clear()

    def _submit_arrived(self) -> None:
        """Submit what has arrived at once together: of a small update, most of the cost is that of its submission."""
        self._gather_plain()
        if not self._arrived:
            return
        self._rest_if_streaming()
        arrived, self._arrived = self._arrived, []
        try:
            for group in events.by_agent(arrived):
                try:
                    self._submit(events.joined(group))
                except BoardError:  # nothing of it was queued: all that came before the bad one counts
                    for event in itertools.chain.from_iterable(map(events.split, group)):
                        self._submit(event)
        except BoardError as error:
            self.end(error)

    async def _handle(self, event: events.ServerEvent) -> None:
        match event:
            case events.UpdatesReceived():
                await self._engine.wait_for_room()
                self._submit(event)
            case events.SyncRequested(state_vector):
                if self.kind == "stock":
                    self._engine.check_replica(state_vector)
                await self._engine.read(partial(self._synchronise, state_vector))
            case events.PresenceReceived(states):
                self._take_presence(states)
            case events.PresenceQueried():
                self._send(self._session.presence(self._all_presence()))
            case events.HelloReceived(hello):
                await self._welcome(hello)
            case events.ResyncNeeded(after):
                self._send(self._session.resync(after))
                await self._ask_for_state()
            case events.RequestReceived(request_id, body):
                await self._answer(request_id, body)
            case events.ByeReceived(clock):
                await self._engine.read(partial(self._take_back, clock))

    async def _ask_for_state(self) -> None:
        """Send a step 1: the peer answers with what the board lacks."""
        with contextlib.suppress(BoardError):
            self._send(self._session.step1(await self._engine.read(Document.state_vector)))

    def _rest_if_streaming(self) -> None:
        """Read no more until the writer is done with what this peer has sent before, which it did not wait for itself.

        Reading a few updates of a stream costs more than handling them, and the writer takes them up no sooner.
        """
        if self._undecided and self._rest is None:
            self._socket.stop_reading()
            self._rest = asyncio.get_running_loop().call_later(_REST_SECONDS_MAX, self._read_on)

    def _read_on(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
            self._socket.read_on()

    def _submit(self, event: events.UpdatesReceived) -> None:
        self._engine.submit(
            Submission(
                updates=event.updates,
                author=event.agent or self._agent,
                source=self,
                origin=self._origin,
                schema=self._schema,
                is_shared=self.kind == "stock",
                written=partial(self._written, self._resyncs, event.last_number, len(event.updates)),
                is_difference=event.is_difference,
                since=self._synced_at,
            )
        )
        self._undecided += 1

    def _written(self, resyncs: int, number: int | None, count: int, receipt: Receipt) -> None:
        self._undecided -= 1
        if not self._undecided:
            self._read_on()
        if resyncs != self._resyncs:
            number = None  # it is sent again
        for rejected in receipt.rejected:
            guilty = None if number is None else number - count + 1 + rejected.index
            self._send(self._session.rejected(guilty, rejected.values))
        if receipt.error is not None:
            self.end(receipt.error)
        elif receipt.first_unready is not None:
            self._ask_for_the_rest()
            if number is not None:
                self._resyncs += 1
                self._send(self._session.resync(number - count + receipt.first_unready))
        elif number is not None and receipt.seq is not None:
            if self._ack is None:
                asyncio.get_running_loop().call_soon(self._send_ack)
            self._ack = (number, receipt.seq)

    def _ask_for_the_rest(self) -> None:
        """Send a step 1, once for all that was decided in this turn of the loop."""
        if not self._has_asked:
            self._has_asked = True
            asyncio.get_running_loop().call_soon(self._ask_again)
            self._send(self._session.step1(self._engine.state_vector()))

    def _ask_again(self) -> None:
        self._has_asked = False

    def _send_ack(self) -> None:
        """One acknowledgement covers everything that became durable in this turn of the loop."""
        ack, self._ack = self._ack, None
        if ack is not None:
            self._send(self._session.ack(*ack))

    def _synchronise(self, state_vector: bytes, document: Document) -> None:
        """Answer a step 1; runs in the writer's task, so that nothing is published in between (invariant 2)."""
        assert self._room is not None
        self.schema_changed()  # since the hello
        self._send(self._session.step2(document.encode(state_vector)))
        if self._synced_at is None and self._is_fresh:
            self._synced_at = self._engine.seq
        self._send_position()
        self._behind = None
        self._room.add(self)

    def _send_position(self, updates: tuple[bytes, ...] = ()) -> None:
        """Tell the peer up to where it holds everything now, and all that is not in the journal."""
        assert self._room is not None
        if self.kind == "own" or updates:
            self._send(self._session.entry(Broadcast(self._engine.seq, "", updates)))
        if self._room.checkpoint is not None:
            self._send(self._session.checkpoint(self._room.checkpoint))
        self._send(self._session.presence(self._all_presence()))

    async def _welcome(self, hello: control.ClientHello) -> None:
        assert self._room is not None
        engine = self._engine
        if hello.epoch is not None and hello.epoch != engine.epoch:
            raise BoardReplaced(
                f"board {engine.board_id} was made anew since this replica was connected; open it again",
                board_id=engine.board_id,
            )
        if hello.layout is not None:
            self._schema = await engine.join(hello.layout, migrates=hello.migrates, agent=hello.agent)
            self._has_model = True
        else:
            self._schema = engine.schema_version
        self._is_fresh = hello.epoch is None  # another may have edited without having seen what is here
        self._agent = hello.agent
        self._origin = hello.replica
        self._client_id = await self._hold_id(hello)
        greeting = control.ServerHello(
            board=engine.board_id,
            client_id=self._client_id,
            epoch=engine.epoch,
            seq=engine.seq,
            version=engine.version,
            checkpoint=self._room.checkpoint,
            schema_version=engine.schema_version,
            layout=engine.layout,
            limits=control.PeerLimits.of(self._limits),
        )
        self._send(self._session.hello(greeting))
        self._send(self._session.step1(await engine.read(Document.state_vector)))

    async def _hold_id(self, hello: control.ClientHello) -> int:
        """Grant the replica an id, or let it write on under the one that it has, through this connection only."""
        ids, holder = self._engine.client_ids, Holder(hello.replica, self)
        if hello.client_id is None:
            return await ids.grant(holder)
        earlier = ids.resume(hello.client_id, holder)
        if isinstance(earlier, Peer):
            earlier.end(Unavailable("this replica has another connection"))
        return hello.client_id

    def _take_back(self, clock: int, _document: Document) -> None:
        """After a bye; runs in the writer's task, so that everything that came before it has been decided."""
        if self._client_id is not None:
            self._engine.take_back(self._client_id, self, clock=clock)

    def _take_presence(self, states: tuple[Any, ...]) -> None:
        assert self._room is not None
        accepted = self._room.presence.apply(states, self)
        self._room.tell_presence(accepted, self._session.presence(accepted), apart_from=self)

    def _all_presence(self) -> tuple[Any, ...]:
        assert self._room is not None
        return self._room.presence.all_states()

    # Requests.

    async def _answer(self, request_id: int, body: control.RequestBody) -> None:
        while len(self._requests) >= _REQUESTS_MAX:
            await asyncio.wait(self._requests, return_when=asyncio.FIRST_COMPLETED)
        try:
            answer = self._begin(body)
        except BoardError as error:
            self._send(self._session.refused(error, request_id))
            return
        task = self._start_request(self._finish(request_id, answer))
        task.add_done_callback(lambda _task: answer.close())  # the peer may be gone before it was begun

    def _begin(self, body: control.RequestBody) -> Coroutine[Any, Any, JsonValue]:  # noqa: PLR0911 - one a request
        """Start a request; a commit is queued at once, behind the updates that came before it (invariant 1)."""
        match body:
            case control.Commit(request=request):
                request = request.model_copy(update={"origin": self._origin})
                return _committed(self._engine.commit(request, schema=self._schema))
            case control.Coordinate(agent=agent, operations=operations):
                return _coordinated(self._engine.coordinate(agent, operations))
            case control.ListCheckpoints(before=before, limit=limit):
                return _checkpoints(self._engine, before, limit)
            case control.StateAt(version=version):
                return _state_at(self._engine, version)
            case control.ReadState():
                return _state(self._engine)
            case control.Migrate(request=migration):
                return self._engine.migrate(migration)
            case control.Fork() | control.Merge():
                return self._branch(body)
            case control.Report(agent=agent, findings=findings):
                return _reported(self._engine.report(Report(agent=agent, findings=findings, origin=self._origin)))
            case _:
                return answer_question(self._engine.history, body)

    async def _branch(self, body: control.Fork | control.Merge) -> JsonValue:
        branching, agent = self._engine.branching, body.agent
        if isinstance(body, control.Fork):
            return _plain(await branching.fork(body.version, body.board, agent=agent, epoch=body.epoch))
        key = body.idempotency_key
        return _plain(await branching.merge(body.fork, agent=agent, origin=self._origin, idempotency_key=key))

    async def _finish(self, request_id: int, answer: Coroutine[Any, Any, JsonValue]) -> None:
        try:
            frames = self._session.answer(request_id, await answer)
        except BoardError as error:
            frames = self._session.refused(error, request_id)
        except Exception:  # the boundary of this task: the client must not wait for an answer for ever
            logger.exception("board %s: a request failed", self._engine.board_id)
            frames = self._session.refused(
                Unavailable("the server failed on this request; its log says more"), request_id
            )
        self._send_ack()
        self._send(frames)

    async def _catch_up(self) -> None:
        """Send one difference in place of everything that was left out."""

        def send(document: Document) -> None:
            if self._behind is None or self._room is None or self._socket.paused:
                return
            difference, self._behind = document.encode(self._behind), None
            self._send_position((difference,))
            self._room.add(self)

        with contextlib.suppress(BoardError):
            await self._engine.read(send)

    # Ending.

    def _leave(self, room: Room) -> None:
        room.remove(self)
        if self._client_id is not None:
            room.engine.client_ids.forget(self._client_id, self)
        gone = room.presence.drop_owner(self)
        room.tell_presence(gone, self._session.presence(gone), apart_from=self)
        for request in self._requests:
            request.cancel()

    async def _close(self, error: BoardError) -> None:
        if self.kind == "own":
            self._send(self._session.refused(error))
        reason = str(error).encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        await self._socket.close(closing_of(error).close_code, reason)

    def _start_ending(self, ending: Coroutine[Any, Any, None]) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(ending, name="end-connection")
        else:
            ending.close()

    def _start_request(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="request")
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    def _send(self, frames: Frames) -> None:
        self.write(encode_frames(frames))


async def _committed(answer: asyncio.Future[Checkpoint]) -> JsonValue:
    return _plain(await answer)


async def _reported(answer: asyncio.Future[None]) -> JsonValue:
    await answer
    return None


async def _coordinated(answer: asyncio.Future[Coordinated]) -> JsonValue:
    coordinated: JsonValue = (await answer).model_dump(mode="json")
    return coordinated


async def _checkpoints(engine: Engine, before: int | None, limit: int) -> JsonValue:
    return [_plain(checkpoint) for checkpoint in await engine.checkpoints(before=before, limit=limit)]


async def _state_at(engine: Engine, version: int) -> JsonValue:
    checkpoint, state = await engine.history.state_at(version)
    schema_version = engine.last_schema_like(checkpoint.schema_version)
    return {"checkpoint": _plain(checkpoint), "state": state, "schema_version": schema_version}


async def _state(engine: Engine) -> JsonValue:
    state: JsonValue = (await engine.read_state()).model_dump(mode="json")
    return state


def _plain(checkpoint: Checkpoint) -> dict[str, JsonValue]:
    return checkpoint.model_dump(mode="json")
