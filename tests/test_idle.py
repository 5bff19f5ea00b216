"""What a server keeps of boards and connections in which nothing happens, and how it finds that a peer is gone."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from crdt_board.coordination.task_index import TaskIndex
from crdt_board.coordination.task_record import TaskRecord
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.host import BoardHost
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board_client import connect
from crdt_board_server import websocket
from crdt_board_server.websocket import BoardConnection
from support.serving import Served, serving
from support.waiting import DEADLINE_SECONDS, eventually

PING_SECONDS = 0.05

_UPGRADE = (
    b"GET /ws/b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_PING = bytes((0x80 | Opcode.PING, 0))
_CLOSE = int(CloseCode.INTERNAL_ERROR).to_bytes(2)


class Counting(ClientConnection):
    """A client that answers as it should, and counts what it was asked."""

    pings = 0

    def process_event(self, event: object) -> None:
        if isinstance(event, Frame) and event.opcode is Opcode.PING:
            self.pings += 1
        super().process_event(event)  # type: ignore[arg-type]


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A server that pings every `PING_SECONDS`."""
    monkeypatch.setattr(websocket, "_PING_SECONDS", PING_SECONDS)
    monkeypatch.setattr(websocket, "_CLOSE_SECONDS", PING_SECONDS)
    async with serving(MemoryStore()) as served:
        yield served


# Boards.


class Told:
    """Takes a receipt, and can be looked for."""

    def __init__(self) -> None:
        self.receipt: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    def __call__(self, receipt: Receipt) -> None:
        self.receipt.set_result(receipt)


async def _write(engine: Engine) -> weakref.ref[Told]:
    """Make an update durable; the result is what was told of it."""
    theirs, told = Document(strays=True), Told()
    update = theirs.capture(lambda: theirs.state_map.update({"note": "x"}))
    engine.submit(Submission(updates=[update], author="a", source=None, written=told))
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert (await told.receipt).seq is not None
    return weakref.ref(told)


async def test_what_was_written_last_is_let_go() -> None:
    """An idle board keeps neither the updates that it wrote last nor who was told of them."""
    async with BoardHost(MemoryStore()) as host, host.board("b") as engine:
        told = await _write(engine)
        await engine.read(lambda _document: None)
        gc.collect()
        assert told() is None


def test_boards_without_a_model_have_one_layout() -> None:
    """One without fields, for all of them."""
    assert Document().layout is Document(strays=True).layout


def test_no_index_is_kept_of_tasks_that_a_board_has_none_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made when it is asked for, or when there is a task."""
    made: list[TaskIndex] = []

    def make() -> TaskIndex:
        made.append(TaskIndex())
        return made[-1]

    monkeypatch.setattr(TaskRecord, "index", make)
    ledger = Document().ledger
    assert len(ledger) == 0
    assert not made
    assert ledger.index(TaskRecord) is ledger.index(TaskRecord) is made[0]


# Connections.


async def test_a_silent_connection_is_one_task(served: Served) -> None:
    """That of its handler, and one more for each board: what pings, pings all."""
    before = _tasks()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(connect_socket(f"{served.url}/ws/b", ping_interval=None))
        await eventually(lambda: len(served.peers) == 5, "all are connected")
        await eventually(lambda: _tasks() - before == {"_Acceptor.handler": 5, "Engine._run": 1}, "nothing else runs")


async def test_who_does_not_answer_is_cut_off(served: Served) -> None:
    """After three pings; also when it does not answer the closing either."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        with contextlib.closing(writer):
            writer.write(_UPGRADE % served.port)
            await reader.readuntil(b"\r\n\r\n")
            sent = await reader.read(-1)
            await eventually(lambda: not len(served.peers), "the connection is gone")
    assert sent.count(_PING) == 3
    assert _CLOSE in sent


async def test_who_never_takes_what_it_is_sent_is_cut_off_in_the_end() -> None:
    """After five minutes. It cannot be asked: a ping would stand behind all that it does not read."""
    async with asyncio.timeout(DEADLINE_SECONDS), serving(MemoryStore()) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1_000)
        with contextlib.closing(writer):
            writer.write(_UPGRADE % served.port)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x82\x84\0\0\0\0\0\0\1\0")  # a sync step 1
            await eventually(lambda: len(served.peers), "it is there")
            (connection,) = served.peers._connections
            async with connect(served.url, "b", agent="ann") as ann:
                ann.state["draft"] = "x" * 15_000_000
                await ann.flush()
                await eventually(lambda: connection.paused, "it is full")
                for _ in range(14):
                    connection.ping_or_cut_off()
                await ann.flush()
                assert len(served.peers) == 2
                connection.ping_or_cut_off()
                await eventually(lambda: len(served.peers) == 1, "it is gone")


async def test_who_answers_is_pinged_on_and_on(served: Served) -> None:
    """And is not cut off, though it says nothing else."""
    async with connect_socket(f"{served.url}/ws/b", create_connection=Counting) as answering:
        assert isinstance(answering, Counting)
        await eventually(lambda: answering.pings > 6, "it was pinged more often than a dead one would be")
        assert answering.protocol.state is State.OPEN


async def test_a_fault_of_one_connection_is_not_that_of_the_others(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are pinged on, and what went wrong is logged."""
    ping_or_cut_off, faulty = BoardConnection.ping_or_cut_off, list[BoardConnection]()

    def fail_for_first(connection: BoardConnection) -> None:
        faulty[:] = faulty or [connection]
        if connection is faulty[0]:
            raise RuntimeError("a fault of the test")
        ping_or_cut_off(connection)

    monkeypatch.setattr(BoardConnection, "ping_or_cut_off", fail_for_first)
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connect_socket(f"{served.url}/ws/b", create_connection=Counting))
            for _ in range(3)
        ]
        await eventually(lambda: sorted(map(_pings, clients))[1] > 2, "both others are pinged")
        assert min(map(_pings, clients)) <= 1


def _pings(client: ClientConnection) -> int:
    assert isinstance(client, Counting)
    return client.pings


def _tasks() -> Counter[str]:
    """The tasks of this loop, counted by what they run."""
    return Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
