"""The server as a process: starting, stopping, dying, and peers that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket as sockets
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pycrdt
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_socket
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from crdt_board import Board, ConnectionFailed, open_board, wire
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.presence import PresenceState
from crdt_board_client import connect
from crdt_board_server.close_codes import CLOSINGS, SHUTTING_DOWN, is_final
from support.model import Report
from support.server import ServerProcess, command_line
from support.stock import close_code, next_frame, stock_peer, stock_socket
from support.waiting import DEADLINE_SECONDS, eventually
from support.web import web_client

StartServer = Callable[..., Awaitable[ServerProcess]]

_PROTOCOL_ERROR = CLOSINGS["protocol_error"].close_code
_TOO_BIG = 1009  # the code of RFC 6455 for a message that is too big; websockets cuts it off unread

_HELLO = '{"type":"hello","agent":"a","replica":"0123456789abcdef"}'

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")


# Health.


async def test_health(server: ServerProcess) -> None:
    """A server says that it is alive and ready, and how many boards and connections it serves."""
    async with web_client(server.http) as http:
        assert (await http.get("/healthz")).json()["status"] == "ok"
        async with connect(server.url, "b", Report, agent="a"), stock_peer(server.url, "c"):
            ready = await http.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {"status": "ok", "problems": [], "boards": 2, "connections": 2}


async def test_new_room_for_two_at_once(shared_server: ServerProcess, board_id: str) -> None:
    """W12: two clients that open a new room at the same moment are both answered, and are in one room."""
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        asyncio.TaskGroup() as group,
    ):
        opening = [
            connect(shared_server.url, f"{board_id}-{number // 2}", Report, agent=f"agent-{number}")
            for number in range(10)
        ]
        boards = [group.create_task(board.__aenter__()) for board in opening]
    try:
        for first, second in zip(boards[::2], boards[1::2], strict=True):
            first.result().state.plan.append("x")
            await second.result().wait_for(lambda state: state.plan == ["x"], 5)
    finally:
        for board in opening:
            await board.__aexit__(None, None, None)


async def test_presence_for_a_late_joiner(shared_server: ServerProcess, board_id: str) -> None:
    """W2: a late joiner gets every presence state at once, in the first message after its step 2."""
    url = shared_server.url
    async with (
        connect(url, board_id, Report, agent="first") as first,
        connect(url, board_id, Report, agent="second"),
        stock_socket(url, board_id) as third,
    ):
        state = PresenceState(7, 1, '{"user":{"name":"third"}}')
        await third.send(wire.encode_awareness([state]))
        await eventually(lambda: len(first.agents) == 3, "three are present")
        async with stock_socket(url, board_id) as late:
            await late.send(wire.encode_step1(pycrdt.Doc().get_state()))
            frames = [await next_frame(late) for _ in range(3)]
    assert [type(frame) for frame in frames] == [wire.SyncStep1, wire.SyncStep2, wire.AwarenessFrame]
    assert isinstance(frames[2], wire.AwarenessFrame)
    assert len(frames[2].states) == 3
    assert state in frames[2].states


# Stopping and dying.


async def _type_until_under_way(board: Board[Report], edits: int) -> None:
    """Make edits, and return in the moment in which some of them are acknowledged and some are not."""
    for number in range(edits):
        board.state.plan.append(f"{board.agent} {number}")
        board.state.spent += 1
        if number % 10 == 0:
            await asyncio.sleep(0)  # the client sends what there is
    async with asyncio.timeout(DEADLINE_SECONDS):
        while board.unacknowledged == 2 * edits:
            await asyncio.sleep(0)


async def test_sigterm_right_after_an_edit(start_server: StartServer) -> None:
    """D5: SIGTERM at any moment after an edit loses nothing acknowledged, in rooms with and without clients."""
    server = await start_server()
    moments: list[Callable[[Board[Report]], Awaitable[None]]] = [
        lambda _board: asyncio.sleep(0),  # nothing was sent yet
        lambda board: eventually(lambda: board.unacknowledged < 40, "some are acknowledged"),
        lambda board: board.flush(DEADLINE_SECONDS),
    ]
    for number, moment in enumerate(moments):
        async with connect(server.url, f"left-{number}", Report, agent="leaver") as board:
            board.state.draft.append("left behind")
        async with connect(server.url, f"used-{number}", Report, agent="stayer") as board:
            for edit in range(20):
                board.state.plan.append(str(edit))
                board.state.spent += 1
            await moment(board)
            server.send_sigterm()
            assert await server.ended() == 0
            acknowledged = 40 - board.unacknowledged
            async with open_board(server.database, f"left-{number}", Report, agent="reader") as cold:
                assert cold.state.draft == "left behind"
            async with open_board(server.database, f"used-{number}", Report, agent="reader") as cold:
                assert len(cold.state.plan) + cold.state.spent >= acknowledged
            await server.start()
            await board.flush(DEADLINE_SECONDS)
            assert board.snapshot() == Report(plan=[str(edit) for edit in range(20)], spent=20)


async def test_sigterm_closes_with_a_code_to_retry(server: ServerProcess) -> None:
    """A server that is stopped closes every connection with a code after which clients come back."""
    async with stock_socket(server.url, "b") as socket:
        await next_frame(socket)
        assert await server.terminate() == 0
        assert await close_code(socket) == SHUTTING_DOWN
    assert not is_final(SHUTTING_DOWN)


async def test_kill_with_edits_under_way(server: ServerProcess) -> None:
    """D1: after ``kill -9``, what was not acknowledged is sent again: no edit is lost and none is doubled."""
    edits, agents = 300, ["writer", "other"]
    under_way: list[int] = []
    async with (
        connect(server.url, "b", Report, agent=agents[0]) as one,
        connect(server.url, "b", Report, agent=agents[1]) as two,
    ):
        for _ in range(3):
            await _type_until_under_way(two, edits)
            await _type_until_under_way(one, edits)
            under_way.append(one.unacknowledged)
            await server.kill9()
            one.state.draft.append("while it was down ")
            await server.start()
        for board in (one, two):
            await board.flush(DEADLINE_SECONDS)
        await one.wait_for(lambda state: state.spent == 3 * 2 * edits, DEADLINE_SECONDS)
        await two.wait_for(lambda state: state.spent == 3 * 2 * edits, DEADLINE_SECONDS)
        assert one.snapshot() == two.snapshot()
        expected = one.snapshot()
    assert max(under_way) > 0
    for agent in agents:
        assert [item for item in expected.plan if item.startswith(agent)] == [
            f"{agent} {number}" for number in range(edits)
        ] * 3
    assert expected.draft == "while it was down " * 3
    await server.terminate()
    async with open_board(server.database, "b", Report, agent="reader") as board:
        assert board.snapshot() == expected
        assert board.version == 0


# Peers that are slow, or go.


async def _next_updates(socket: ClientConnection) -> tuple[bytes, ...]:
    """The updates in the next message, of whatever kind it is."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        message = await socket.recv()
    frame = wire.decode_frame(message, DEFAULT_LIMITS) if isinstance(message, bytes) else None
    match frame:
        case wire.SyncStep2(update) | wire.SyncUpdate(update):
            return (update,)
        case wire.EntryFrame(updates=updates):
            return updates
    return ()


@linux_only
@pytest.mark.parametrize("subprotocols", [None, [Subprotocol(wire.SUBPROTOCOL)]], ids=["stock", "own"])
async def test_client_that_stops_reading(server: ServerProcess, subprotocols: list[Subprotocol] | None) -> None:
    """W4: 100 MB for a client that reads nothing cost the server a bounded memory; it catches up from the state, and
    others notice nothing."""
    size, rounds = 500_000, 200
    async with (
        connect(server.url, "b", Report, agent="writer") as writer,
        connect(server.url, "b", Report, agent="reader") as reader,
        stock_socket(server.url, "b", max_queue=1, subprotocols=subprotocols) as stalled,
    ):
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        state = doc.get("state", type=pycrdt.Map)
        if subprotocols:
            await stalled.send(_HELLO)
        await stalled.send(wire.encode_step1(doc.get_state()))
        while not await _next_updates(stalled):
            pass
        at_first = most = server.resident_bytes()
        for number in range(rounds):
            writer.state.title = f"{number:04}" + "x" * size
            await reader.wait_for(lambda state, n=number: state.title.startswith(f"{n:04}"), 5)
            most = max(most, server.resident_bytes())
        assert most - at_first < 30_000_000

        received = 0
        while not str(state.get("title", "")).startswith(f"{rounds - 1:04}"):
            for update in await _next_updates(stalled):
                received += len(update)
                doc.apply_update(update)
        assert received < 20_000_000
        writer.state.title = "small again"
        while state["title"] != "small again":
            for update in await _next_updates(stalled):
                doc.apply_update(update)


async def test_hundred_clients_vanish_during_a_broadcast(server: ServerProcess) -> None:
    """W8: a hundred connections are reset in the middle of a broadcast: nothing is logged, no other room is touched."""
    async with (
        connect(server.url, "busy", Report, agent="writer") as writer,
        connect(server.url, "busy", Report, agent="reader") as reader,
        connect(server.url, "calm", Report, agent="one") as one,
        connect(server.url, "calm", Report, agent="two") as two,
    ):
        crowd = [await connect_socket(f"{server.url}/ws/busy", compression=None, proxy=None) for _ in range(100)]
        for member in crowd:
            await member.send(wire.encode_step1(pycrdt.Doc().get_state()))
            await member.send(wire.encode_awareness([PresenceState(id(member) % 2**31, 1, "{}")]))
        for member in crowd:
            while not isinstance(await next_frame(member), wire.SyncStep2):
                pass
        before = server.log()
        for number in range(200):
            writer.state.draft.append("x" * 100)
            one.state.spent += 1
            if number >= 50 and crowd:
                for _ in range(10):
                    _reset(crowd.pop().transport)
            await asyncio.sleep(0)
        assert not crowd
        await reader.wait_for(lambda state: len(state.draft) == 20_000, 5)
        await two.wait_for(lambda state: state.spent == 200, 5)
        async with web_client(server.http) as http:

            async def alone() -> bool:
                return bool((await http.get("/readyz")).json()["connections"] == 4)

            await eventually(alone, "the server has noticed that a hundred are gone")
        assert server.log() == before


def _reset(transport: asyncio.BaseTransport) -> None:
    """Close a connection as a dying machine does: with a TCP reset and without a word."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()


async def test_a_client_that_leaves_behind_its_requests_is_no_word_in_the_log(server: ServerProcess) -> None:
    """W8: what it asked for was not begun when it left, and nobody minds."""
    said = server.log()
    bodies: list[dict[str, Any]] = [
        {"op": "state"},
        {"op": "state_at", "version": 1},
        {"op": "checkpoints", "before": None, "limit": 1},
        {"op": "fork", "agent": "ann", "version": 1, "board": "other", "epoch": "0" * 16},
        {"op": "verify"},
    ]
    for number in range(20):
        async with stock_socket(server.url, "b", subprotocols=[Subprotocol(wire.SUBPROTOCOL)]) as socket:
            await socket.send(json.dumps({"type": "hello", "agent": "ann", "replica": f"{number:016}"}))
            await socket.recv()
            for request_id, body in enumerate(bodies):
                socket.protocol.send_text(json.dumps({"type": "request", "id": request_id, "body": body}).encode())
            socket.protocol.send_text(b"no message")
            socket.transport.write(b"".join(socket.protocol.data_to_send()))
            await socket.wait_closed()
    assert await server.terminate() == 0
    assert "never awaited" not in server.log().removeprefix(said)


async def test_connections_beyond_the_open_files_of_the_server_hold_nobody_up(start_server: StartServer) -> None:
    """W8, H3: who is connected is served, the log says once what is wrong, and new ones come in when there is room."""
    limited = ("sh", "-c", 'ulimit -n 100 && exec "$0" "$@"', *command_line())
    server = await start_server(command=limited)
    async with connect(server.url, "b", Report, agent="ann") as ann:
        with contextlib.ExitStack() as stack:
            for _ in range(150):
                stack.enter_context(sockets.create_connection(("127.0.0.1", server.port)))
            await eventually(lambda: "open files" in server.log(), "a word of it in the log")
            for number in range(3):
                ann.state.title = f"step {number}"
                await ann.commit(f"step {number}", timeout=DEADLINE_SECONDS)
        async with connect(server.url, "b", Report, agent="bob", timeout=DEADLINE_SECONDS) as bob:
            assert bob.version == 3
    assert server.log().count("ulimit -n") == 1


async def test_last_client_leaves_with_much_under_way(server: ServerProcess) -> None:
    """W12: what a client sent before it closed the connection is stored, also when it was the last one on the board."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    plan = doc.get("plan", type=pycrdt.Array)
    frames: list[bytes] = []
    doc.observe(lambda event: frames.append(wire.encode_update(event.update)))
    for number in range(5000):
        plan.append(str(number))
    async with stock_socket(server.url, "b", max_queue=None) as socket:
        for frame in frames:
            await socket.send(frame)
    async with connect(server.url, "b", Report, agent="reader") as board:
        assert board.state.plan == [str(number) for number in range(5000)]


async def test_sigterm_with_a_client_that_does_not_read(server: ServerProcess) -> None:
    """A client that reads nothing does not keep a server from stopping in time."""
    async with connect(server.url, "b", Report, agent="writer") as writer:
        async with stock_socket(server.url, "b", max_queue=1) as stalled:
            await stalled.send(wire.encode_step1(pycrdt.Doc().get_state()))
            for number in range(20):
                writer.state.title = f"{number} " + "x" * 1_000_000
                await writer.flush(DEADLINE_SECONDS)
            async with asyncio.timeout(5):
                assert await server.terminate() == 0
            stalled.transport.abort()
        await server.start()
        await writer.flush(DEADLINE_SECONDS)


# Peers that are wrong.

_STOCK_FAULTS: dict[str, tuple[bytes | str, int]] = {
    "a text frame": ("hello", _PROTOCOL_ERROR),
    "an empty frame": (b"", _PROTOCOL_ERROR),
    "an unknown type": (b"\x63\x00", _PROTOCOL_ERROR),
    "an unknown sync type": (b"\x00\x07\x00", _PROTOCOL_ERROR),
    "an endless varint": (b"\xff" * 50, _PROTOCOL_ERROR),
    "an update cut off": (b"\x00\x02\xff\x01abc", _PROTOCOL_ERROR),
    "an update that is none": (wire.encode_update(b"\x01\x02\x03\x04\x05"), CLOSINGS["malformed_update"].close_code),
    "a count of 2^32": (wire.encode_update(b"\xff\xff\xff\xff\x0f"), CLOSINGS["malformed_update"].close_code),
    "bytes behind the frame": (wire.encode_update(b"\x00\x00") + b"x", _PROTOCOL_ERROR),
    "a frame of our own": (wire.encode_push(1, "guest", [b"\x00\x00"]), _PROTOCOL_ERROR),
    "presence that is no JSON": (b"\x01\x05\x01\x05\x01\x01{", _PROTOCOL_ERROR),
    "too much presence": (
        wire.encode_awareness([PresenceState(1, 1, '{"a":"' + "x" * DEFAULT_LIMITS.awareness_bytes_max + '"}')]),
        CLOSINGS["limit_exceeded"].close_code,
    ),
    "an oversize frame": (b"\x00" * (wire.frame_bytes_max(DEFAULT_LIMITS) + 1), _TOO_BIG),
}


@pytest.mark.parametrize("fault", _STOCK_FAULTS)
async def test_bad_frame_of_a_stock_client(shared_server: ServerProcess, board_id: str, fault: str) -> None:
    """A stock client that breaks the protocol is closed with the code of its fault; the others go on."""
    message, expected = _STOCK_FAULTS[fault]
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as writer,
        stock_peer(shared_server.url, board_id) as other,
        stock_socket(shared_server.url, board_id, max_queue=None) as socket,
    ):
        await socket.send(message)
        assert await close_code(socket) == expected
        writer.state.draft.append("undisturbed")
        await eventually(lambda: other.text("draft") == "undisturbed", "the others go on")


_OWN_FAULTS: dict[str, tuple[list[bytes | str], int]] = {
    "binary before hello": ([wire.encode_step1(b"\x00")], _PROTOCOL_ERROR),
    "two hellos": ([_HELLO, _HELLO], _PROTOCOL_ERROR),
    "no JSON": (["{"], _PROTOCOL_ERROR),
    "lone surrogates": (['{"type":"hello","agent":"\\ud800","replica":"0123456789abcdef"}'], _PROTOCOL_ERROR),
    "an unknown message": ([_HELLO, '{"type":"dance"}'], _PROTOCOL_ERROR),
    "an unknown request": ([_HELLO, '{"type":"request","id":1,"body":{"op":"dance"}}'], _PROTOCOL_ERROR),
    "a request of the wrong shape": (
        [_HELLO, '{"type":"request","id":"x","body":{"op":"checkpoints"}}'],
        _PROTOCOL_ERROR,
    ),
    "an agent without a name": (['{"type":"hello","agent":"","replica":"0123456789abcdef"}'], _PROTOCOL_ERROR),
    "a board of another epoch": (
        ['{"type":"hello","agent":"a","replica":"0123456789abcdef","epoch":"other"}'],
        CLOSINGS["board_replaced"].close_code,
    ),
}


@pytest.mark.parametrize("fault", _OWN_FAULTS)
async def test_bad_frame_of_our_own_protocol(shared_server: ServerProcess, board_id: str, fault: str) -> None:
    """A client of our own that breaks the protocol is told why and closed with the code of its fault; others go on."""
    messages, expected = _OWN_FAULTS[fault]
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as writer,
        stock_peer(shared_server.url, board_id) as other,
        stock_socket(
            shared_server.url, board_id, subprotocols=[Subprotocol(wire.SUBPROTOCOL)], max_queue=None
        ) as socket,
    ):
        for message in messages:
            await socket.send(message)
        assert await close_code(socket) == expected
        assert socket.close_reason
        writer.state.draft.append("undisturbed")
        await eventually(lambda: other.text("draft") == "undisturbed", "the others go on")


async def test_damaged_push_is_asked_for_again(shared_server: ServerProcess, board_id: str) -> None:
    """A push that was damaged on its way is asked for again, and is taken then."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    doc.get("draft", type=pycrdt.Text).insert(0, "arrives")
    push = wire.encode_push(1, "a", [doc.get_update()])
    async with (
        stock_peer(shared_server.url, board_id) as other,
        stock_socket(
            shared_server.url, board_id, subprotocols=[Subprotocol(wire.SUBPROTOCOL)], max_queue=None
        ) as socket,
    ):
        await socket.send(_HELLO)
        await socket.send(push[:-1] + bytes([push[-1] ^ 1]))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await socket.recv() != '{"type":"resync","n":0}':
                pass
        await socket.send(push)
        await eventually(lambda: other.text("draft") == "arrives", "the update has arrived")


async def test_a_bad_update_among_good_ones(shared_server: ServerProcess, board_id: str) -> None:
    """Of updates that arrive at once, those before a bad one are stored, and none behind it."""
    updates: list[bytes] = []
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    doc.observe(lambda event: updates.append(event.update))
    plan = doc.get("plan", type=pycrdt.Array)
    for number in range(4):
        plan.append(str(number))
    updates.insert(2, b"\x01\x02\x03\x04\x05")
    frames = [Frame(Opcode.BINARY, wire.encode_update(update)).serialize(mask=True) for update in updates]
    async with stock_socket(shared_server.url, board_id) as socket:
        socket.transport.write(b"".join(frames))
        assert await close_code(socket) == CLOSINGS["malformed_update"].close_code
    async with connect(shared_server.url, board_id, Report, agent="reader") as reader:
        assert reader.state.plan == ["0", "1"]


async def test_nested_update_closes_its_sender_only(shared_server: ServerProcess, board_id: str) -> None:
    """H2: an update of 200 kB that nests 100,000 arrays, which overflows the stack of yrs, is refused unread."""
    depth = 100_000
    # One client, one struct: an item of kind "any", in the root "state" under the key "deep", with a nested array.
    head = bytes([1, 1, 1, 0, 0x28, 1, 5]) + b"state" + bytes([4]) + b"deep" + bytes([1])
    update = head + b"\x75\x01" * depth + b"\x7e" + b"\x00"
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as writer,
        stock_peer(shared_server.url, board_id) as other,
        stock_socket(shared_server.url, board_id) as socket,
    ):
        await socket.send(wire.encode_update(update))
        assert await close_code(socket) == CLOSINGS["malformed_update"].close_code
        writer.state.draft.append("undisturbed")
        await eventually(lambda: other.text("draft") == "undisturbed", "the others go on")
        assert shared_server.is_running


_BAD_PATHS = {
    "dots": "/ws/..",
    "encoded dots": "/ws/%2e%2e",
    "dots and a file": "/ws/../boards.db",
    "an encoded slash": "/ws/a%2Fb",
    "a slash": "/ws/a/b",
    "NUL": "/ws/a%00b",
    "a line feed": "/ws/a%0ab",
    "no board": "/ws/",
    "no prefix": "/elsewhere",
    "other letters": "/ws/%C3%A9",
    "broken UTF-8": "/ws/%ff",
    "129 characters": "/ws/" + "a" * 129,
    "10,000 characters": "/ws/" + "a" * 10_000,
    "a bad agent": "/ws/a?agent=%00",
}


@pytest.mark.parametrize("case", _BAD_PATHS)
async def test_bad_board_id(server_answers: Callable[[str], Awaitable[tuple[int, str]]], case: str) -> None:
    """H4: an address that names no board is answered with one line that says so, and makes no board."""
    status, answer = await server_answers(_BAD_PATHS[case])
    assert 400 <= status < 500
    assert len(answer) < 1000
    assert "Traceback" not in answer


@pytest.fixture
def server_answers(shared_server: ServerProcess) -> Callable[[str], Awaitable[tuple[int, str]]]:
    """Asks for a websocket at a path as it stands, and returns how the server refuses."""

    async def ask(path: str) -> tuple[int, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", shared_server.port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                answer = (await reader.read(100_000)).decode()
        finally:
            writer.transport.abort()
        return int(answer.split(" ", 2)[1]), answer

    return ask


# Wrong use of the command line and of the client.


def _serve(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command_line(), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "NO_COLOR": "1"},
    )


def _is_one_clear_error(result: subprocess.CompletedProcess[str], *words: str) -> None:
    output = result.stdout + result.stderr
    assert result.returncode == 1, output
    assert "Traceback" not in output
    assert len([line for line in output.splitlines() if line.startswith("error: ")]) == 1, output
    for word in words:
        assert word in output


async def test_port_in_use(shared_server: ServerProcess, tmp_path: Path) -> None:
    """A port that is taken is one clear error that says what to do; no database is made."""
    result = await asyncio.to_thread(_serve, "--port", str(shared_server.port), "--db", str(tmp_path / "new.db"))
    _is_one_clear_error(result, str(shared_server.port), "--port")
    assert list(tmp_path.iterdir()) == []


def test_address_of_another_machine(tmp_path: Path) -> None:
    """An address that is not this machine's is one clear error."""
    _is_one_clear_error(_serve("--host", "192.0.2.1", "--port", "0", "--db", str(tmp_path / "new.db")), "--host")


def _a_text(file: Path) -> None:
    file.write_text("Dear diary, " * 1000)


def _another_database(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("create table customers (name text)")
        connection.execute("insert into customers values ('Ada')")
    connection.close()


def _a_folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize("make", [_a_text, _another_database, _a_folder])
def test_foreign_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A file that is no database of CRDT Board is one clear error that names it, and is left as it was."""
    file = tmp_path / "foreign.db"
    make(file)
    before = file.read_bytes() if file.is_file() else None
    _is_one_clear_error(_serve("--port", "0", "--db", str(file)), str(file))
    assert (file.read_bytes() if file.is_file() else None) == before


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    """A database in a folder that is not there is one clear error that names it."""
    file = tmp_path / "nowhere" / "boards.db"
    _is_one_clear_error(_serve("--port", "0", "--db", str(file)), str(file))


async def test_no_server(tmp_path: Path) -> None:
    """Connecting to where no server is raises one error that names the address and says what to do."""
    with sockets.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ConnectionFailed, match=rf"ws://127\.0\.0\.1:{port}.*crdt-board serve"):
        async with connect(f"ws://127.0.0.1:{port}", "b", Report, agent="a", timeout=0.5):
            pass


async def test_another_server() -> None:
    """Connecting to a server that is something else raises one error that names the address."""

    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match=rf"ws://127\.0\.0\.1:{port}"):
            async with connect(f"ws://127.0.0.1:{port}", "b", Report, agent="a", timeout=0.5):
                pass
        await asyncio.gather(*answering, return_exceptions=True)
