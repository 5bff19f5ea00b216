"""Client ids: who is granted which, what is refused under them, and when they are used again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.typing import Subprotocol

from crdt_board import VersionConflict, wire
from crdt_board.checkpoints import CommitRequest, SetValue
from crdt_board.client_ids import Holder, new_client_id
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardClosed, MalformedUpdate, StoreUnavailable, Unavailable
from crdt_board.group_commit import GroupCommit
from crdt_board.journal import unpack_updates
from crdt_board.layout import FieldLayout, Layout
from crdt_board.limits import CLIENT_ID_END, CLIENT_ID_FIRST, DEFAULT_LIMITS, Limits
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.testing.faults import FaultyStore
from crdt_board.updates import clock_of, decode_state_vector
from crdt_board_client import connect
from crdt_board_server.close_codes import CLOSINGS
from support.model import Report
from support.places import Place, PlaceKind, level, place_of
from support.server import ServerProcess
from support.stock import stock_socket
from support.waiting import DEADLINE_SECONDS, eventually

LAYOUT = Layout(
    title="Notes", fields=(FieldLayout(name="status", kind="scalar"), FieldLayout(name="draft", kind="text"))
)


@contextlib.asynccontextmanager
async def opened(store: Any, limits: Limits = DEFAULT_LIMITS, rest_until: float = 0.0) -> AsyncIterator[Engine]:
    """A process that has the board open."""
    journal = GroupCommit(store)
    engine = await Engine.open(store, journal, "job", epoch="e", limits=limits, client_ids_rest_until=rest_until)
    try:
        await engine.join(LAYOUT)
        yield engine
    finally:
        await engine.close()
        await journal.close()


@dataclass(eq=False)
class Session:
    """A replica that writes under a granted id."""

    engine: Engine
    name: str = "ann"
    document: Document = field(init=False)

    async def start(self) -> Session:
        client_id = await self.engine.client_ids.grant(Holder(self.name, self))
        self.document = Document(LAYOUT, client_id=client_id)
        await self.follow()
        return self

    async def follow(self) -> None:
        self.document.apply_or_raise([await self.engine.read(lambda document: document.encode())])

    @property
    def client_id(self) -> int:
        return self.document.client_id

    def type(self, text: str) -> bytes:
        draft = self.document.text("draft")
        return self.document.capture(lambda: draft.insert(len(draft), text))

    async def send(self, *updates: bytes, source: object = None, is_difference: bool = False) -> Receipt:
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.engine.submit(
            Submission(
                updates=updates,
                author=self.name,
                source=source or self,
                written=told.set_result,
                is_difference=is_difference,
            )
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await told

    def end(self) -> None:
        clock = clock_of(self.client_id, self.document.state_vector())
        self.engine.take_back(self.client_id, self, clock=clock)


async def test_new_ids_are_beyond_those_of_others() -> None:
    """A new id is none that JavaScript chooses (32 bits) and none of an opened record (bit 52 set)."""
    assert all(CLIENT_ID_FIRST <= new_client_id() < CLIENT_ID_END for _ in range(1000))


async def test_a_session_that_ended_leaves_its_id_to_the_next_one() -> None:
    """One after the other, sessions write under one id, each going on where the last one stopped."""
    async with opened(MemoryStore()) as engine:
        for number in range(20):
            session = await Session(engine, f"agent {number}").start()
            await session.send(session.type("x"))
            session.end()
        assert decode_state_vector(engine.state_vector()) == {session.client_id: 20}
        assert await engine.read(lambda document: str(document.text("draft"))) == "x" * 20


async def test_two_sessions_never_have_one_id() -> None:
    """While it is held, an id is granted to nobody else, however many ask at once."""
    store = MemoryStore()
    async with opened(store) as one, opened(store.peer()) as two:
        sessions = await asyncio.gather(*(Session((one, two)[n % 2], f"{n}").start() for n in range(40)))
        ids = {session.client_id for session in sessions}
        assert len(ids) == 40
        for session in sessions:
            session.end()
        again = await asyncio.gather(*(Session((one, two)[n % 2], f"{n}").start() for n in range(40)))
        assert len({session.client_id for session in again}) == 40


async def test_ids_outlive_the_process_that_granted_them() -> None:
    """A clean close returns the free ids and the engine's own: the next process makes no new one."""
    store = MemoryStore()
    used: set[int] = set()
    for number in range(5):
        async with opened(store.peer()) as engine:
            patch = (SetValue(field="status", value=number),)
            await engine.commit(CommitRequest(step="s", agent="a", fingerprint="f", patch=patch))
            session = await Session(engine).start()
            await session.send(session.type("x"))
            session.end()
            used |= decode_state_vector(engine.state_vector()).keys()
    assert len(used) == 2


async def test_an_id_whose_session_ended_without_a_word_is_never_granted_again() -> None:
    """It may come back with the id, hours later and at another process, and write on."""
    store = MemoryStore()
    async with opened(store) as engine:
        session = await Session(engine).start()
        await session.send(session.type("a"))
        engine.client_ids.forget(session.client_id, session)
    async with opened(store) as engine:
        others = [await Session(engine, f"{n}").start() for n in range(5)]
        assert session.client_id not in {other.client_id for other in others}
        session.engine = engine
        assert engine.client_ids.resume(session.client_id, Holder("ann", session)) is None
        assert (await session.send(session.type("b"))).error is None
        assert await engine.read(lambda document: str(document.text("draft"))) == "ab"


@pytest.mark.parametrize("what", ["unsent", "unready"])
async def test_an_id_is_not_taken_back_while_something_is_missing(what: str) -> None:
    """What was written under an id and is not in the document keeps the id from being granted."""
    async with opened(MemoryStore()) as engine:
        session = await Session(engine).start()
        first, second = session.type("a"), session.type("b")
        if what == "unready":
            assert (await session.send(second)).first_unready == 0
            engine.take_back(session.client_id, session, clock=2)
        else:
            await session.send(first)
            session.end()
        assert (await Session(engine, "bob").start()).client_id != session.client_id


async def test_nobody_else_writes_under_an_id_that_is_held() -> None:
    """New structs under a live session's id are refused from anybody else; what is known may be repeated by all."""
    async with opened(MemoryStore()) as engine:
        owner = await Session(engine).start()
        await owner.send(owner.type("a"))
        everything = await engine.read(lambda document: document.encode())
        forger = Document(LAYOUT, client_id=owner.client_id)
        forger.apply_or_raise([everything])
        forged = forger.capture(lambda: forger.text("draft").insert(0, "forged"))
        with pytest.raises(MalformedUpdate, match=str(owner.client_id)):
            await owner.send(forged, source="a stranger")
        with pytest.raises(Unavailable, match=str(owner.client_id)) as refused:
            await owner.send(forged, source="a stranger", is_difference=True)
        assert refused.value.retryable
        assert (await owner.send(everything, source="a stranger", is_difference=True)).error is None
        assert (await owner.send(everything, source="a stranger")).error is None
        assert (await owner.send(owner.type("b"))).error is None
        assert await engine.read(lambda document: str(document.text("draft"))) == "ab"


async def test_nothing_is_written_under_an_id_after_it_was_taken_back() -> None:
    """A connection that lingers, of a session that has ended, writes under the id no more, whoever has it then."""
    async with opened(MemoryStore()) as engine:
        session = await Session(engine).start()
        await session.send(session.type("a"))
        session.end()
        late = session.type("late")
        with pytest.raises(MalformedUpdate):
            await session.send(late)
        successor = await Session(engine, "bob").start()
        assert successor.client_id == session.client_id
        with pytest.raises(MalformedUpdate):
            await session.send(late)
        await successor.send(successor.type("b"))
        assert await engine.read(lambda document: str(document.text("draft"))) == "ab"


async def test_another_replica_does_not_get_an_id_that_is_held() -> None:
    """Only the replica that holds an id may write on under it through another connection."""
    async with opened(MemoryStore()) as engine:
        session = await Session(engine).start()
        with pytest.raises(Unavailable, match="another replica"):
            engine.client_ids.resume(session.client_id, Holder("stranger", "a stranger"))
        own = await engine.read(lambda document: document.client_id)
        with pytest.raises(Unavailable, match="another replica"):
            engine.client_ids.resume(own, Holder("", "a stranger"))
        assert engine.client_ids.resume(session.client_id, Holder("ann", "its new connection")) is session
        session.end()  # the old connection does not end the new one
        assert engine.client_ids.holds(session.client_id, "its new connection")


async def test_an_id_of_another_process_is_used_only_with_all_that_was_written_under_it() -> None:
    """Invariant 3: a process that has not looked at the journal for a while does so before it grants such an id."""
    store = MemoryStore()
    async with opened(store) as late:
        held = [await Session(late, f"{n}").start() for n in range(3)]
        async with opened(store.peer()) as early:
            session = await Session(early).start()
            await session.send(session.type("by the first"))
            session.end()
        successor = await Session(late, "bob").start()
        while successor.client_id != session.client_id:  # the engine's own came back too
            successor = await Session(late, "bob").start()
        assert (await successor.send(successor.type(", by the second"))).error is None
        assert await late.read(lambda document: str(document.text("draft"))) == "by the first, by the second"
        assert session.client_id not in {each.client_id for each in held}


async def test_a_crash_loses_only_the_ids_in_memory() -> None:
    """Of a hundred ids that were given back, all but ``client_ids_kept_max`` are in the store soon."""
    store = MemoryStore()
    async with opened(store) as engine:
        sessions = [await Session(engine, f"{n}").start() for n in range(100)]
        for session in sessions:
            session.end()
        other = store.peer()
        found: list[int] = []

        async def arrived() -> bool:
            found.extend(await other.take_client_ids("job", 100))
            return len(found) >= 100 - DEFAULT_LIMITS.client_ids_kept_max

        await eventually(arrived, "the surplus is in the store")
        assert set(found) < {session.client_id for session in sessions}


async def test_a_store_that_fails_costs_ids_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Invariant 2: an id is granted all the same, and one whose return failed is never granted again."""
    inner = MemoryStore()
    store = FaultyStore(inner)
    store.fail("take_client_ids")
    async with opened(store) as engine:
        session = await Session(engine).start()
        session.end()
        store.fail("return_client_ids", when="after")
    assert "client ids are lost" in caplog.text
    assert session.client_id in await inner.take_client_ids("job", 16)


async def test_ids_come_back_when_a_board_does_not_load() -> None:
    """A process that could not load the board returns what it took."""
    inner = MemoryStore()
    async with opened(inner) as engine:
        (await Session(engine).start()).end()
    store = FaultyStore(inner)
    store.fail("schemas")
    with pytest.raises(StoreUnavailable):
        await Engine.open(store, GroupCommit(store), "job", epoch="e")
    assert len(await inner.take_client_ids("job", 16)) == 2


async def test_free_ids_rest_when_a_server_has_started() -> None:
    """Until then, new ids are granted, and those that are given back meanwhile."""
    store = MemoryStore()
    async with opened(store) as engine:
        before = await Session(engine).start()
        before.end()
    later = asyncio.get_running_loop().time() + 3600
    async with opened(store, rest_until=later) as engine:
        session = await Session(engine).start()
        assert session.client_id != before.client_id
        session.end()
        assert (await Session(engine).start()).client_id == session.client_id
    assert before.client_id in await store.take_client_ids("job", 16)


async def test_after_a_failed_append_the_engine_writes_under_another_id() -> None:
    """Of a patch whose append failed nobody knows for good that it is dead; its clocks are not used again."""
    store = FaultyStore(MemoryStore())
    async with opened(store) as engine:
        first = await engine.read(lambda document: document.client_id)
        store.fail("append")
        for value in ("x", "y"):
            patch = (SetValue(field="status", value=value),)
            await engine.commit(CommitRequest(step="s", agent="a", fingerprint="f", patch=patch))
        second = await engine.read(lambda document: document.client_id)
        assert first != second
        assert decode_state_vector(engine.state_vector()).keys() == {second}


# Through the public interface, in this process and at a server.


@pytest.fixture(params=["embedded", "served"])
def kind(request: pytest.FixtureRequest) -> PlaceKind:
    return request.param  # type: ignore[no-any-return]


async def _clients(place: Place) -> int:
    updates = [update for entry in await place.entries() for update in unpack_updates(entry.payload)]
    document = Document(Report.board_layout())
    document.apply_or_raise(updates)
    return len(decode_state_vector(document.state_vector()))


async def test_sessions_one_after_the_other_are_one_client(kind: PlaceKind, tmp_path: Path) -> None:
    """Thirty agents that come, count and leave are one client of the board, and the counter is exact."""
    async with place_of(kind, tmp_path / "boards.db") as place, place.open(Report, "watcher") as watcher:
        for number in range(30):
            async with place.open(Report, f"agent-{number}") as board:
                board.state.spent += 1
                board.state.draft.append(f"{number} ")
        await watcher.wait_for(lambda state: state.spent == 30, DEADLINE_SECONDS)
        assert str(watcher.state.draft) == "".join(f"{number} " for number in range(30))
        assert await _clients(place) == 1


async def test_an_agent_that_leaves_with_an_error_leaves_its_id_too(kind: PlaceKind, tmp_path: Path) -> None:
    """An exception in the block does not cost an id when everything is durable."""
    async with place_of(kind, tmp_path / "boards.db") as place, place.open(Report, "watcher"):

        async def fail() -> None:
            async with place.open(Report, "agent") as board:
                board.state.spent += 1
                raise ZeroDivisionError

        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                await fail()
        assert await _clients(place) == 1


async def test_whoever_has_the_id_next_is_another_replica(kind: PlaceKind, tmp_path: Path) -> None:
    """What the last holder of its id wrote counts as somebody else's for a commit with ``reads``."""
    async with place_of(kind, tmp_path / "boards.db") as place, place.open(Report, "watcher") as watcher:
        async with place.open(Report, "ann") as board:
            await board.commit("start")
            board.state.title = "changed"
            ann = board._session.replica.document.client_id
        await level(watcher)
        async with place.open(Report, "bob") as board:
            assert board._session.replica.document.client_id == ann
            with pytest.raises(VersionConflict):
                await board.commit("late", reads=["title"], expected_version=1)


async def test_nothing_is_edited_after_the_block(kind: PlaceKind, tmp_path: Path) -> None:
    """A handle that outlives its block raises, and writes nothing under an id that others have by then."""
    async with place_of(kind, tmp_path / "boards.db") as place, place.open(Report, "watcher") as watcher:
        async with place.open(Report, "ann") as board:
            board.state.spent += 1
        with pytest.raises(BoardClosed):
            board.state.spent += 1
        assert watcher.state.spent == 1


# On the wire.


@contextlib.asynccontextmanager
async def _own_socket(server: ServerProcess, board_id: str) -> AsyncIterator[ClientConnection]:
    async with stock_socket(
        server.url, board_id, subprotocols=[Subprotocol(wire.SUBPROTOCOL)], max_queue=None
    ) as socket:
        yield socket


async def _greet(socket: ClientConnection, name: str, client_id: int | None = None) -> dict[str, Any]:
    await socket.send(json.dumps({"type": "hello", "agent": "a", "replica": name, "client_id": client_id}))
    return await _next(socket, "hello")


async def _next(socket: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            message = await socket.recv()
            if isinstance(message, str) and (found := json.loads(message))["type"] == kind:
                return found  # type: ignore[no-any-return]


async def _close_code(socket: ClientConnection) -> int | None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        await socket.wait_closed()
    return socket.close_code


async def test_the_newer_connection_of_a_replica_ends_the_older_one(
    shared_server: ServerProcess, board_id: str
) -> None:
    """The older one cannot push any more, so that it cannot do so after the id was taken back."""
    name = "0123456789abcdef"
    async with _own_socket(shared_server, board_id) as older, _own_socket(shared_server, board_id) as newer:
        client_id = (await _greet(older, name))["client_id"]
        assert (await _greet(newer, name, client_id))["client_id"] == client_id
        assert await _close_code(older) == CLOSINGS["unavailable"].close_code
        await newer.send('{"type":"bye","clock":0}')

        async def is_granted() -> bool:
            async with _own_socket(shared_server, board_id) as other:
                return (await _greet(other, "fedcba9876543210"))["client_id"] == client_id  # type: ignore[no-any-return]

        await eventually(is_granted, "the id is granted again")


async def test_a_stranger_is_refused_the_id_of_a_live_replica(shared_server: ServerProcess, board_id: str) -> None:
    """Whoever does not know the replica's name does not get its id, and the replica is not disturbed."""
    async with _own_socket(shared_server, board_id) as owner, _own_socket(shared_server, board_id) as stranger:
        client_id = (await _greet(owner, "0123456789abcdef"))["client_id"]
        hello = {"type": "hello", "agent": "a", "replica": "another stranger", "client_id": client_id}
        await stranger.send(json.dumps(hello))
        assert await _close_code(stranger) == CLOSINGS["unavailable"].close_code
        await owner.send('{"type":"request","id":1,"body":{"op":"checkpoints"}}')
        assert (await _next(owner, "answer"))["result"] == []


async def test_after_its_bye_a_replica_is_not_heard(shared_server: ServerProcess, board_id: str) -> None:
    """What is pushed behind a bye is not written."""
    async with connect(shared_server.url, board_id, Report, agent="ann") as board:
        async with _own_socket(shared_server, board_id) as socket:
            client_id = (await _greet(socket, "0123456789abcdef"))["client_id"]
            document = Document(Report.board_layout(), client_id=client_id)
            before = document.capture(lambda: document.text("draft").insert(0, "before "))
            behind = document.capture(lambda: document.text("draft").insert(0, "behind "))
            await socket.send(wire.encode_push(1, "bob", [before]))
            await _next(socket, "ack")
            await socket.send('{"type":"bye","clock":7}')
            await socket.send(wire.encode_push(2, "bob", [behind]))
        board.state.draft.append("after")
        await board.flush(DEADLINE_SECONDS)
        await board.wait_for(lambda state: "before" in str(state.draft), DEADLINE_SECONDS)
        assert sorted(str(board.state.draft).split()) == ["after", "before"]
