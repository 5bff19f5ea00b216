"""A large board that nobody has open: a newcomer is sent what is stored, verified, before it is loaded."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pycrdt
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from crdt_board import BoardHost, BoardModel, Scratch, open_board, wire
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.journal import pack_updates
from crdt_board.loading import SnapshotContent, StoredBoard
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Receipt, Submission
from crdt_board_server.close_codes import CLOSINGS, SHUTTING_DOWN
from crdt_board_server.connection import Peer
from support.server import ServerProcess
from support.serving import Served, serving
from support.stock import close_code, next_frame, stock_peer, stock_socket
from support.waiting import DEADLINE_SECONDS, eventually

BOARD = "history"
KEYS = 2_000
LARGE = {f"key-{number}": f"a value of some forty letters, {number:8}" for number in range(KEYS)}


class Client:
    """Who wrote the history: a Yjs document, of which each change is one update."""

    def __init__(self) -> None:
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self.values = self.doc.get("values", type=pycrdt.Map)

    def put(self, values: dict[str, str]) -> bytes:
        before = self.doc.get_state()
        with self.doc.transaction():
            self.values.update(values)
        return self.doc.get_update(before)


async def write(engine: Engine, update: bytes) -> Receipt:
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(Submission(updates=[update], author="ann", source=None, written=told.set_result))
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await told


async def make_large(path: Path, *, later: int = 0) -> Client:
    """A board in a snapshot, and this many entries after it."""
    client = Client()
    for updates in [client.put(LARGE)], [client.put({f"later-{n}": "new"}) for n in range(later)]:
        async with BoardHost(await SqliteStore.open(path)) as host, host.board(BOARD) as engine:
            for update in updates:
                await write(engine, update)
    assert [rows(path, "SELECT count(*) FROM snapshots"), rows(path, "SELECT count(*) FROM entries")] == [1, 1 + later]
    return client


def rows(path: Path, statement: str, *values: bytes) -> int:
    """How many rows a statement changed, or the number that it asks for."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        found = connection.execute(statement, values)
        return found.fetchone()[0] if found.description else found.rowcount


@contextlib.asynccontextmanager
async def served(path: Path) -> AsyncIterator[Served]:
    async with serving(await SqliteStore.open(path)) as server:
        yield server


def apply(doc: pycrdt.Doc[Any], frame: wire.Frame) -> None:
    assert isinstance(frame, wire.SyncStep2 | wire.SyncUpdate)
    doc.apply_update(frame.update)


def held(doc: pycrdt.Doc[Any]) -> dict[str, str]:
    found: dict[str, str] = doc.get("values", type=pycrdt.Map).to_py() or {}
    return found


async def until_step2(socket: ClientConnection) -> list[wire.Frame]:
    """What the server says up to its step 2."""
    frames = [await next_frame(socket)]
    while not isinstance(frames[-1], wire.SyncStep2):
        frames.append(await next_frame(socket))
    return frames


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "boards.db"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, the server waits for the newcomer to ask."""
    monkeypatch.setattr("crdt_board_server.connection._BEFORE_LOAD_SECONDS_MAX", DEADLINE_SECONDS)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many updates each snapshot held that was put into a document."""
    counts: list[int] = []
    load = SnapshotContent.load

    def counting(content: SnapshotContent, *arguments: Any, **named: Any) -> Any:
        counts.append(len(content.updates))
        return load(content, *arguments, **named)

    monkeypatch.setattr(SnapshotContent, "load", counting)
    return counts


@pytest.mark.parametrize("later", [0, 1, 40])
async def test_a_newcomer_has_the_whole_board_before_it_is_loaded(
    database: Path, loaded: list[int], later: int
) -> None:
    """Entries after the snapshot come before the step 2, by which a client knows that it has everything."""
    client = await make_large(database, later=later)
    loaded.clear()
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        await socket.send(wire.encode_step1(doc.get_state()))
        frames = await until_step2(socket)
        assert len(frames) == 1 + later
        for frame in frames:
            apply(doc, frame)
        assert held(doc) == held(client.doc)
        assert doc.get_state() == client.doc.get_state()
        step1, presence = await next_frame(socket), await next_frame(socket)
        assert loaded == [1]
        assert step1 == wire.SyncStep1(doc.get_state())
        assert isinstance(presence, wire.AwarenessFrame)


async def test_what_is_stored_is_what_the_loaded_board_gives(database: Path) -> None:
    client = await make_large(database, later=3)
    offered: list[StoredBoard] = []

    async def look(stored: StoredBoard) -> None:
        offered.append(stored)

    async with BoardHost(await SqliteStore.open(database)) as host:
        engine = await host.acquire(BOARD, look)
        whole = await engine.read(lambda document: document.encode())
        assert (offered[0].seq, offered[0].epoch) == (engine.seq, engine.epoch)
        host.release(engine)
    docs: list[pycrdt.Doc[Any]] = [pycrdt.Doc(), pycrdt.Doc()]
    for update in offered[0].updates:
        docs[0].apply_update(update)
    docs[1].apply_update(whole)
    assert docs[0].get_update() == docs[1].get_update()
    assert held(docs[0]) == held(client.doc)


async def test_what_another_process_writes_before_a_board_is_loaded_is_seen(database: Path) -> None:
    client = await make_large(database)
    store, noticed = await SqliteStore.open(database), asyncio.Event()
    wait = store.wait_for_others

    async def noting() -> None:
        await wait()
        noticed.set()

    store.wait_for_others = noting  # type: ignore[method-assign]
    async with (
        BoardHost(store) as host,
        BoardHost(await SqliteStore.open(database)) as another,
        another.board(BOARD) as writer,
    ):

        async def look(_stored: StoredBoard) -> None:
            noticed.clear()
            await write(writer, client.put({"later": "new"}))
            async with asyncio.timeout(DEADLINE_SECONDS):
                await noticed.wait()

        engine = await host.acquire(BOARD, look)
        await eventually(lambda: engine.seq == 2, "the entry of the other process")
        host.release(engine)


async def test_what_a_newcomer_sends_at_once_waits_and_is_written(database: Path) -> None:
    client = await make_large(database, later=2)
    edit = client.put({"mine": "at once"})
    async with served(database) as server:
        async with stock_socket(server.url, BOARD) as socket:
            doc: pycrdt.Doc[Any] = pycrdt.Doc()
            await socket.send(wire.encode_step1(doc.get_state()))
            await socket.send(wire.encode_update(edit))
            for frame in await until_step2(socket):
                apply(doc, frame)
            assert "mine" not in held(doc)
            while "mine" not in held(doc):  # it is sent its own update when that is durable
                frame = await next_frame(socket)
                if isinstance(frame, wire.SyncUpdate):
                    apply(doc, frame)
        assert held(doc) == held(client.doc)
        async with stock_peer(server.url, BOARD) as late:
            assert held(late.doc) == held(client.doc)


async def test_newcomers_who_come_at_once_hear_each_other(database: Path) -> None:
    await make_large(database, later=2)
    async with served(database) as server, contextlib.AsyncExitStack() as stack:
        peers = await asyncio.gather(
            *(stack.enter_async_context(stock_peer(server.url, BOARD)) for _ in range(4)),
        )
        for number, peer in enumerate(peers):
            peer.doc.get("values", type=pycrdt.Map)[f"from-{number}"] = "hello"
        for peer in peers:
            await eventually(lambda peer=peer: {f"from-{n}" for n in range(4)} <= held(peer.doc).keys(), "all four")
            assert len(held(peer.doc)) == KEYS + 2 + 4


async def test_a_newcomer_who_takes_long_holds_up_nobody_and_misses_nothing(database: Path) -> None:
    """What others write while it takes the board is in what it gets next."""
    client = Client()
    async with BoardHost(await SqliteStore.open(database)) as host, host.board(BOARD) as engine:
        for number in range(16):  # 16 MB, more than the system keeps on the way
            await write(engine, client.put({f"large-{number}": str(number % 10) * 1_000_000}))
    async with served(database) as server, stock_socket(server.url, BOARD, max_size=None) as socket:
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        await socket.send(wire.encode_step1(doc.get_state()))
        socket.transport.pause_reading()
        await eventually(lambda: any(peer.paused for peer in server.peers._connections), "the system takes no more")
        async with stock_socket(server.url, BOARD, max_size=None) as other:
            await other.send(wire.encode_step1(client.doc.get_state()))
            await until_step2(other)
            await other.send(wire.encode_update(client.put({"meanwhile": "written"})))
            while not isinstance(await next_frame(other), wire.SyncUpdate):  # it is durable
                pass
        socket.transport.resume_reading()
        while "meanwhile" not in held(doc):
            frame = await next_frame(socket)
            if isinstance(frame, wire.SyncStep2 | wire.SyncUpdate):
                apply(doc, frame)
        assert held(doc) == held(client.doc)


async def test_who_holds_something_gets_the_difference(database: Path) -> None:
    client = await make_large(database, later=1)
    known = client.doc.get_state()
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_step1(known))
        assert await next_frame(socket) == wire.SyncStep1(known)
        (answer,) = await until_step2(socket)
        assert isinstance(answer, wire.SyncStep2)
        assert len(answer.update) < 100


async def test_what_comes_before_the_question_is_handled_first(database: Path) -> None:
    client = await make_large(database)
    edit = client.put({"mine": "first"})
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_update(edit))
        await socket.send(wire.encode_step1(pycrdt.Doc().get_state()))
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        apply(doc, (await until_step2(socket))[-1])
        assert held(doc) == held(client.doc)


async def test_who_says_nothing_is_let_in(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may wait for the server to ask first."""
    monkeypatch.setattr("crdt_board_server.connection._BEFORE_LOAD_SECONDS_MAX", 0.0)
    client = await make_large(database)
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        assert await next_frame(socket) == wire.SyncStep1(client.doc.get_state())


async def test_who_breaks_the_protocol_is_cut_off_before_the_board_is_loaded(database: Path, loaded: list[int]) -> None:
    await make_large(database)
    async with served(database) as server:
        loaded.clear()
        async with stock_socket(server.url, BOARD) as socket:
            await socket.send(b"\x00\x07")
            assert await close_code(socket) == CLOSINGS["protocol_error"].close_code
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        async with stock_peer(server.url, BOARD) as peer:
            assert held(peer.doc) == LARGE


async def test_a_server_stops_while_it_waits_for_a_newcomer_to_ask(database: Path) -> None:
    await make_large(database)
    async with contextlib.AsyncExitStack() as stack:
        async with served(database) as server:
            socket = await stack.enter_async_context(stock_socket(server.url, BOARD))
            await eventually(lambda: len(server.peers), "it is connected")
        assert await close_code(socket) == SHUTTING_DOWN


async def test_a_newcomer_who_goes_at_once_leaves_nothing_behind(database: Path) -> None:
    client = await make_large(database)
    async with served(database) as server:
        async with stock_socket(server.url, BOARD) as socket:
            socket.transport.abort()
        await eventually(lambda: not server.host.open_boards() and not len(server.peers), "the board is closed")
        async with stock_peer(server.url, BOARD) as peer:
            assert held(peer.doc) == held(client.doc)


async def test_a_damaged_snapshot_is_sent_to_nobody(database: Path) -> None:
    """It costs time only: the board comes from its journal."""
    client = await make_large(database, later=1)
    another = zlib.compress(pack_updates([Client().put(LARGE | {"key-7": "forged"})]))
    assert rows(database, "UPDATE snapshots SET data = ?", another) == 1
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        await socket.send(wire.encode_step1(doc.get_state()))
        step1, answer = await until_step2(socket)
        assert step1 == wire.SyncStep1(client.doc.get_state())
        apply(doc, answer)
        assert held(doc) == held(client.doc)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET payload = zeroblob(length(payload)) WHERE place & 0xFFFFFFFFF = 2",
        "DELETE FROM entries WHERE place & 0xFFFFFFFFF = 3",
        "UPDATE boards SET hash = zeroblob(32)",
    ],
    ids=["altered entry", "missing entry", "another head"],
)
async def test_nothing_is_sent_of_a_damaged_journal(database: Path, damage: str) -> None:
    await make_large(database, later=2)
    assert rows(database, damage) == 1
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_step1(pycrdt.Doc().get_state()))
        assert await close_code(socket) == CLOSINGS["board_corrupt"].close_code
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_a_board_made_anew_meanwhile_is_not_mixed_up(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was sent what is stored of the one before is told to begin anew."""
    await make_large(database)
    whole = Peer._join_after

    def late(peer: Peer, sent: StoredBoard, document: Document) -> None:
        whole(peer, replace(sent, epoch="another"), document)

    monkeypatch.setattr(Peer, "_join_after", late)
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_step1(pycrdt.Doc().get_state()))
        assert await close_code(socket) == CLOSINGS["board_replaced"].close_code


class Notes(BoardModel):
    found: dict[str, str] = {}
    lately: Annotated[dict[str, str], Scratch(ttl=timedelta(minutes=1))] = {}


async def test_a_board_with_scratch_fields_is_loaded_first(database: Path) -> None:
    """What has run out is removed before anybody reads it."""
    async with open_board(str(database), BOARD, Notes, agent="ann") as board:
        board.state.found.update(LARGE)
    async with served(database) as server, stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_step1(pycrdt.Doc().get_state()))
        assert [type(frame) for frame in await until_step2(socket)] == [wire.SyncStep1, wire.SyncStep2]


async def test_a_server_killed_while_it_opens_a_board_loses_nothing(server: ServerProcess) -> None:
    """``kill -9`` after entries behind a snapshot, and again as soon as a newcomer has them."""
    client = Client()
    await server.terminate()
    async with BoardHost(await SqliteStore.open(server.database)) as host, host.board(BOARD) as engine:
        await write(engine, client.put(LARGE))
    await server.start()
    async with stock_peer(server.url, BOARD) as peer:
        await peer.socket.send(wire.encode_update(client.put({"later": "new"})))
        await eventually(lambda: "later" in held(peer.doc), "it is durable")
        await server.kill9()
    await server.start()
    async with stock_socket(server.url, BOARD) as socket:
        await socket.send(wire.encode_step1(pycrdt.Doc().get_state()))
        await until_step2(socket)
        await server.kill9()
    await server.start()
    async with stock_peer(server.url, BOARD) as peer:
        assert held(peer.doc) == held(client.doc)
