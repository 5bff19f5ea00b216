"""The client's connection: lost, cut and damaged on the way, refused, and the server that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve
from websockets.typing import Subprotocol

import crdt_board_client.connection
from crdt_board import (
    BadRequest,
    Board,
    BoardClosed,
    BoardReplaced,
    ConnectionFailed,
    InvalidValue,
    LimitExceeded,
    ProtocolError,
    SchemaMismatch,
    StoreUnavailable,
    Unavailable,
    VersionConflict,
)
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from crdt_board.wire import SUBPROTOCOL
from crdt_board_client import connect
from crdt_board_client.backoff import Backoff
from crdt_board_client.connection import Connection, Socket
from crdt_board_client.presence import AgentTable
from crdt_board_server.sources import open_source
from support.model import Report
from support.places import has_version, level
from support.relay import (
    Cut,
    Message,
    Relay,
    Way,
    damaged,
    is_difference,
    is_entry,
    is_message,
    is_push,
    relay_to,
)
from support.serving import Served, serving
from support.waiting import DEADLINE_SECONDS, eventually

BOARD = "job"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect and send again after milliseconds rather than seconds."""
    monkeypatch.setattr(crdt_board_client.connection, "_RESEND_SECONDS", 0.1)
    monkeypatch.setattr("crdt_board_client.backoff._FIRST_SECONDS", 0.01)
    monkeypatch.setattr("crdt_board_client.backoff._MAX_SECONDS", 0.05)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest_asyncio.fixture
async def served(store: FaultyStore) -> AsyncIterator[Served]:
    async with serving(store) as served:
        yield served


@pytest_asyncio.fixture
async def relay(served: Served) -> AsyncIterator[Relay]:
    async with relay_to(served.url) as relay:
        yield relay


def joined(url: str, agent: str) -> contextlib.AbstractAsyncContextManager[Board[Report]]:
    return connect(url, BOARD, Report, agent=agent)


@pytest_asyncio.fixture
async def far(relay: Relay) -> AsyncIterator[Board[Report]]:
    """A board behind the relay."""
    async with joined(relay.url, "far") as board:
        yield board
        relay.judge = lambda _way, message: message


@pytest_asyncio.fixture
async def near(served: Served) -> AsyncIterator[Board[Report]]:
    """The same board without the relay."""
    async with joined(served.url, "near") as board:
        yield board


class Once:
    """Does something to the first message that fits, and lets all others pass."""

    def __init__(self, way: Way, fits: Callable[[Message], bool], act: Callable[[Any], Message | None]) -> None:
        self.done = 0
        self._way, self._fits, self._act = way, fits, act

    def __call__(self, way: Way, message: Message) -> Message | None:
        if self.done or way != self._way or not self._fits(message):
            return message
        self.done += 1
        return self._act(message)


def cut(_message: Message) -> None:
    raise Cut


def lose(_message: Message) -> None:
    return None


# Connections that break


@pytest.mark.parametrize(
    ("way", "fits"),
    [
        ("up", lambda message: is_message(message, "request")),
        ("down", is_entry),
        ("down", lambda message: is_message(message, "checkpoint")),
        ("down", lambda message: is_message(message, "answer")),
    ],
    ids=["request", "entry", "checkpoint", "answer"],
)
async def test_a_commit_whose_connection_is_cut_is_made_once(
    relay: Relay, far: Board[Report], near: Board[Report], way: Way, fits: Callable[[Message], bool]
) -> None:
    """D1: cut anywhere between request and answer, a commit without a key is made once and answered."""
    relay.judge = broken = Once(way, fits, cut)
    async with asyncio.timeout(DEADLINE_SECONDS):
        made = await far.commit("step", patch={"spent": 5, "plan": ["x"]})
    assert broken.done == 1
    assert relay.connections == 2
    assert (made.version, far.version) == (1, 1)
    await has_version(near, 1)
    assert [one.version for one in await near.checkpoints()] == [1]
    assert far.snapshot() == near.snapshot() == Report(spent=5, plan=["x"])


@pytest.mark.parametrize(("way", "fits"), [("up", is_push), ("down", lambda message: is_message(message, "ack"))])
async def test_an_edit_whose_connection_is_cut_is_there_once(
    relay: Relay, far: Board[Report], near: Board[Report], way: Way, fits: Callable[[Message], bool]
) -> None:
    """D1: cut before an edit arrived, or before it was acknowledged, the edit is there once and acknowledged."""
    relay.judge = broken = Once(way, fits, cut)
    far.state.spent += 5
    far.state.plan.append("x")
    await far.flush(DEADLINE_SECONDS)
    assert broken.done == 1
    await near.wait_for(lambda state: len(state.plan) == 1, DEADLINE_SECONDS)
    assert near.snapshot() == Report(spent=5, plan=["x"])


async def test_a_connection_that_breaks_all_the_time_gets_everything_through(
    relay: Relay, far: Board[Report], near: Board[Report]
) -> None:
    """Edits of both sides survive a connection that breaks after every few messages; replicas end up equal."""
    seeded = random.Random(7)

    def judge(_way: Way, message: Message) -> Message:
        if seeded.random() < 0.1:
            raise Cut
        return message

    relay.judge = judge
    for number in range(60):
        far.state.plan.append(f"far {number}")
        near.state.plan.append(f"near {number}")
        far.state.spent += 1
        if number % 10 == 0:
            await far.commit(f"step {number}")
    await far.flush(DEADLINE_SECONDS)
    assert relay.connections > 3
    relay.judge = lambda _way, message: message
    await level(near, far)
    assert far.snapshot() == near.snapshot()
    assert sorted(near.state.plan) == sorted(f"{who} {n}" for who in ("far", "near") for n in range(60))
    assert near.state.spent == 60
    assert [one.version for one in await near.checkpoints()] == list(range(7, 0, -1))


async def test_edits_made_while_the_server_is_away_are_sent_when_it_is_back(tmp_path: Path) -> None:
    """Offline edits take effect at once, are kept, and are durable after the server came back on its port."""
    file = tmp_path / "boards.db"
    async with contextlib.AsyncExitStack() as stack:
        async with serving(await SqliteStore.open(file)) as served:
            board = await stack.enter_async_context(joined(served.url, "ann"))
            other = await stack.enter_async_context(joined(served.url, "bob"))
            board.state.plan.append("before")
            await board.flush(DEADLINE_SECONDS)
        await eventually(lambda: board.failure, "the loss is noticed")
        assert isinstance(board.failure, ConnectionFailed)
        board.state.plan.append("offline")
        other.state.plan.append("also offline")
        committing = asyncio.create_task(board.commit("offline"))
        assert board.state.plan == ["before", "offline"]
        with pytest.raises(Unavailable, match="1 edits are not durable"):
            await board.flush(timeout=0.05)
        async with serving(await SqliteStore.open(file), port=served.port):
            assert (await committing).version == 1
            await level(board, other)
            assert board.failure is None
            assert board.snapshot() == other.snapshot()
            assert sorted(board.state.plan) == ["also offline", "before", "offline"]
            await stack.aclose()


async def test_a_server_that_was_restored_from_an_older_copy_gets_the_rest_again(tmp_path: Path) -> None:
    """What a client holds and the server has lost is sent again, also while newer edits are pending."""
    file, copy = tmp_path / "boards.db", tmp_path / "copy.db"
    async with contextlib.AsyncExitStack() as stack:
        async with serving(await SqliteStore.open(file)) as served, joined(served.url, "ann") as board:
            board.state.plan.append("kept")
        shutil.copy(file, copy)
        async with serving(await SqliteStore.open(file), port=served.port):
            board = await stack.enter_async_context(joined(served.url, "ann"))
            board.state.plan.append("lost by the server")
            await board.flush(DEADLINE_SECONDS)
        await eventually(lambda: board.failure, "the loss is noticed")
        board.state.plan.append("pending")
        async with serving(await SqliteStore.open(copy), port=served.port):
            await board.flush(DEADLINE_SECONDS)
            async with joined(served.url, "bob") as other:
                await other.wait_for(lambda state: len(state.plan) == 3, DEADLINE_SECONDS)
                assert other.state.plan == ["kept", "lost by the server", "pending"]
            await stack.aclose()


async def test_clients_of_a_restored_server_send_what_others_wrote_too(tmp_path: Path) -> None:
    """Each of three clients holds what the others wrote and the server has lost; all of it comes back, once."""
    file, copy = tmp_path / "boards.db", tmp_path / "copy.db"
    names = ("ann", "bob", "cay")
    async with contextlib.AsyncExitStack() as stack:
        async with serving(await SqliteStore.open(file)) as served, joined(served.url, "ann") as board:
            board.state.plan.append("kept")
        shutil.copy(file, copy)
        async with serving(await SqliteStore.open(file), port=served.port):
            boards = [await stack.enter_async_context(joined(served.url, name)) for name in names]
            for name, board in zip(names, boards, strict=True):
                board.state.plan.append(f"lost, of {name}")
            await level(*boards)
        for board in boards:
            await eventually(lambda board=board: board.failure, "the loss is noticed")
        async with serving(await SqliteStore.open(copy), port=served.port):
            for name, board in zip(names, boards, strict=True):
                board.state.plan.append(f"new, of {name}")
                await board.flush(DEADLINE_SECONDS)
            everything = {"kept", *(f"{when}, of {name}" for when in ("lost", "new") for name in names)}
            for board in boards:
                await board.wait_for(lambda state: set(state.plan) == everything, DEADLINE_SECONDS)
                assert len(board.state.plan) == len(everything)
            await stack.aclose()


async def test_a_board_that_was_made_anew_does_not_take_the_old_content(tmp_path: Path) -> None:
    """A replica of a board that was deleted and made again ends with BoardReplaced; the new board stays as it is."""
    async with contextlib.AsyncExitStack() as stack:
        async with serving(await SqliteStore.open(tmp_path / "one.db")) as served:
            board = await stack.enter_async_context(joined(served.url, "ann"))
            board.state.plan.append("old")
            await board.flush(DEADLINE_SECONDS)
        async with serving(await SqliteStore.open(tmp_path / "two.db"), port=served.port):
            async with joined(served.url, "bob") as new:
                with pytest.raises(BoardReplaced):
                    await board.wait_for(lambda state: len(state.plan) == 5, DEADLINE_SECONDS)
                with pytest.raises(BoardReplaced):
                    board.state.plan.append("more")
                assert isinstance(board.failure, BoardReplaced)
                assert new.snapshot() == Report()
            await stack.aclose()


async def test_a_commit_waits_behind_every_edit_that_was_made_before_it(
    near: Board[Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit and a commit made while earlier edits wait for the socket: the edit is in the commit, round by round."""
    rounds = 3
    held: asyncio.Queue[asyncio.Event] = asyncio.Queue()
    sent = 0
    send = Socket.send

    async def send_later(socket: Socket, message: Any) -> None:
        nonlocal sent
        if is_push(message):
            sent += 1
            if sent <= rounds:
                held.put_nowait(released := asyncio.Event())
                await released.wait()
        await send(socket, message)

    monkeypatch.setattr(Socket, "send", send_later)
    near.state.plan.append("first")
    committing: list[asyncio.Task[Any]] = []
    for number in range(rounds):
        released = await asyncio.wait_for(held.get(), DEADLINE_SECONDS)
        near.state.plan.append(f"behind {number}")
        committing.append(asyncio.create_task(near.commit(f"step {number}")))
        await asyncio.sleep(0)  # now the request is made
        released.set()
    for number, made in enumerate(await asyncio.gather(*committing)):
        plan = (await near.at(made.version)).plan
        assert plan[: number + 2] == ["first", *(f"behind {n}" for n in range(number + 1))]


# Messages that are lost or damaged


async def test_a_lost_push_of_an_idle_client_arrives(relay: Relay, far: Board[Report], near: Board[Report]) -> None:
    """W3: one push is lost and the client writes nothing more: the edit still arrives, once."""
    relay.judge = lost = Once("up", is_push, lose)
    far.state.spent += 5
    await far.flush(DEADLINE_SECONDS)
    assert lost.done == 1
    assert relay.connections == 1
    await near.wait_for(lambda state: state.spent == 5, DEADLINE_SECONDS)


async def test_a_lost_push_before_others_arrives_in_order(
    relay: Relay, far: Board[Report], near: Board[Report]
) -> None:
    """W3: the pushes behind a lost one are not taken before it; nothing is lost or doubled."""
    relay.judge = Once("up", is_push, lose)
    for number in range(10):
        far.state.plan.append(str(number))
        await asyncio.sleep(0)
    await far.flush(DEADLINE_SECONDS)
    await near.wait_for(lambda state: len(state.plan) == 10, DEADLINE_SECONDS)
    assert near.state.plan == far.state.plan == [str(number) for number in range(10)]


async def test_a_lost_acknowledgement_is_made_good(relay: Relay, far: Board[Report], near: Board[Report]) -> None:
    """W3: when the last acknowledgement is lost, flush still returns, and the edit is there once."""
    relay.judge = lost = Once("down", lambda message: is_message(message, "ack"), lose)
    far.state.spent += 5
    await far.flush(DEADLINE_SECONDS)
    assert lost.done == 1
    await level(near, far)
    assert near.state.spent == 5


async def test_a_lost_entry_is_noticed_by_the_next_one(relay: Relay, far: Board[Report], near: Board[Report]) -> None:
    """W3: a client that misses an entry asks for the difference when it sees a later one."""
    relay.judge = lost = Once("down", is_entry, lose)
    near.state.plan.append("lost")
    await near.flush(DEADLINE_SECONDS)
    await eventually(lambda: lost.done, "the entry is lost")
    near.state.title = "next"
    await far.wait_for(lambda state: state.title == "next" and state.plan == ["lost"], DEADLINE_SECONDS)
    assert far.snapshot() == near.snapshot()


async def test_a_lost_entry_is_noticed_on_an_idle_board(store: FaultyStore) -> None:
    """W3: nobody writes after the lost entry; the server's sign of life says how far it sent, and the rest is asked."""
    limits = replace(DEFAULT_LIMITS, keepalive_seconds=0.2)
    async with (
        serving(store, limits=limits) as served,
        relay_to(served.url) as relay,
        joined(relay.url, "far") as far,
        joined(served.url, "near") as near,
    ):
        relay.judge = lost = Once("down", is_entry, lose)
        near.state.plan.append("lost")
        await near.flush(DEADLINE_SECONDS)
        await far.wait_for(lambda state: state.plan == ["lost"], DEADLINE_SECONDS)
        assert (lost.done, relay.connections) == (1, 1)


async def test_a_lost_entry_is_noticed_by_its_checkpoint(relay: Relay, far: Board[Report], near: Board[Report]) -> None:
    """W3: a client has no version whose entry it misses; it asks for the difference, and ``expected_version`` holds."""
    relay.judge = lost = Once("down", is_entry, lose)
    await near.commit("one", patch={"title": "near"})
    await has_version(far, 1)
    assert lost.done == 1
    assert far.state.title == "near"


async def test_a_commit_does_not_wait_for_ever_when_its_entry_is_lost(
    relay: Relay, far: Board[Report], near: Board[Report]
) -> None:
    """W3: a client that misses the entry of its own commit asks for the difference, and returns with the patch."""
    relay.judge = lost = Once("down", is_entry, lose)
    made = await asyncio.wait_for(far.commit("one", patch={"title": "far"}), DEADLINE_SECONDS)
    assert lost.done == 1
    assert (far.version, far.state.title) == (made.version, "far")


async def test_a_lost_checkpoint_message_keeps_nobody_waiting(
    relay: Relay, far: Board[Report], near: Board[Report]
) -> None:
    """W3: who commits, or is refused, hears of the checkpoint from the answer too."""
    relay.judge = lost = Once("down", lambda message: is_message(message, "checkpoint"), lose)
    await asyncio.wait_for(far.commit("one"), DEADLINE_SECONDS)
    assert (lost.done, far.version) == (1, 1)
    relay.judge = lost = Once("down", lambda message: is_message(message, "checkpoint"), lose)
    seen: list[int] = []

    async def work(_before: Report) -> None:
        seen.append(far.version)
        if len(seen) == 1:
            await near.commit("two")

    await asyncio.wait_for(far.attempt(work, step="three"), DEADLINE_SECONDS)
    assert (lost.done, seen) == (1, [1, 2])


async def test_a_lost_entry_hides_no_conflict(
    served: Served, relay: Relay, far: Board[Report], near: Board[Report]
) -> None:
    """W3: while an entry is missing, later ones are content, but ``reads`` goes back to before the missing one."""
    entries = Once("down", is_entry, lose)

    def judge(way: Way, message: Message) -> Message | None:
        return None if way == "down" and is_difference(message) else entries(way, message)

    relay.judge = judge
    near.state.title = "unseen"
    await near.flush(DEADLINE_SECONDS)
    async with joined(served.url, "other") as other:
        other.state.plan.append("seen")  # builds on nothing of what is missing
        await far.wait_for(lambda state: state.plan == ["seen"], DEADLINE_SECONDS)
    assert (entries.done, far.state.title) == (1, "")
    with pytest.raises(VersionConflict, match="title"):
        await asyncio.wait_for(far.commit("on", patch={"title": "far"}, reads=["title"]), DEADLINE_SECONDS)


@pytest.mark.parametrize("at", [1, 5, -9, -1])
async def test_a_damaged_push_is_sent_again(relay: Relay, far: Board[Report], near: Board[Report], at: int) -> None:
    """A bit that turned over in a push never reaches a document; the push is sent again."""
    relay.judge = broken = Once("up", is_push, lambda message: damaged(message, at % len(message)))
    far.state.draft.append("größe")
    far.state.spent += 5
    await far.flush(DEADLINE_SECONDS)
    assert broken.done == 1
    assert relay.connections == 1
    await level(near, far)
    assert near.snapshot() == far.snapshot() == Report(draft="größe", spent=5)


@pytest.mark.parametrize("at", [1, 5, -9, -1])
async def test_a_damaged_entry_is_asked_for_again(
    relay: Relay, far: Board[Report], near: Board[Report], at: int
) -> None:
    """A bit that turned over in an entry never reaches the replica; the difference is asked for."""
    relay.judge = broken = Once("down", is_entry, lambda message: damaged(message, at % len(message)))
    near.state.draft.append("größe")
    await far.wait_for(lambda state: state.draft == "größe", DEADLINE_SECONDS)
    assert broken.done == 1
    assert relay.connections == 1
    near.state.draft.append("!")
    await level(near, far)
    assert far.snapshot() == near.snapshot() == Report(draft="größe!")


# Servers that refuse


async def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    """Nobody listens: ConnectionFailed within the timeout, naming the address and how to start a server."""
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens on it, and nobody else can
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}"
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(ConnectionFailed, match=r"crdt-board serve") as refused:
                await connect(url, BOARD, Report, agent="ann", timeout=0.2).__aenter__()
    assert url in str(refused.value)


async def test_a_server_that_says_nothing_is_one_clear_error() -> None:
    """Somebody listens and never answers: ConnectionFailed within the timeout."""
    ended = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(ConnectionFailed, match=r"did not answer within 0\.2 s"):
            await connect(url, BOARD, Report, agent="ann", timeout=0.2).__aenter__()
        ended.set()


@contextlib.asynccontextmanager
async def answering(head: str) -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP server that gives one answer to every request, and the answers that it has given."""
    answers: list[str] = []
    tasks: set[Any] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            answers.append(head)
            writer.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", answers
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)


_NONE = "\r\nContent-Length: 0"


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (f"404 Not Found{_NONE}", r"something answers at ws://.*, but not as a board does \(HTTP 404\): give the add"),
        (f"400 Bad Request{_NONE}", r"not as a board does \(HTTP 400\)"),
        (f"405 Method Not Allowed{_NONE}", r"not as a board does \(HTTP 405\)"),
        (f"426 Upgrade Required{_NONE}", r"not as a board does \(HTTP 426\)"),
        (f"200 OK{_NONE}", r"not as a board does \(HTTP 200\)"),
        (f"401 Unauthorized{_NONE}", r"was refused \(HTTP 401\): whoever answers there does not let this client in"),
        ("403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nno", r"was refused \(HTTP 403\): no"),
    ],
    ids=lambda value: value[:3],
)
async def test_an_answer_that_waiting_does_not_change_is_told_at_once(head: str, said: str) -> None:
    """One request, and one error that says what answers there and what to do."""
    async with answering(head) as (url, answers), asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(ConnectionFailed, match=said):
            await connect(url, BOARD, Report, agent="ann", timeout=10 * DEADLINE_SECONDS).__aenter__()
        assert len(answers) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_an_answer_that_may_pass_is_waited_out(status: int) -> None:
    """Busy, or starting: the client tries again until its timeout, and says then what it was answered."""
    async with answering(f"{status} Later{_NONE}") as (url, answers):
        with pytest.raises(ConnectionFailed, match=rf"takes no connections just now \(HTTP {status}\)"):
            await connect(url, BOARD, Report, agent="ann", timeout=0.3).__aenter__()
        assert len(answers) > 1


async def test_a_proxy_that_lost_its_server_ends_no_replica(store: FaultyStore) -> None:
    """Who had the board before goes on trying when the same address answers 404 for a while."""
    async with serving(store) as served, connect(served.url, BOARD, Report, agent="ann") as board:
        link: Any = board._session.link
        async with answering(f"404 Not Found{_NONE}") as (url, answers):
            right, link._url = link._url, url
            link._connection.socket.transport.abort()
            board.state.title = "meanwhile"
            await eventually(lambda: len(answers) > 2, "several tries")
            link._url = right
        await board.flush(DEADLINE_SECONDS)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:80", "ws://", "ws://:80", "ws://h/?x=1", "ws://h:p", "ws://h:99999", 5],
)
async def test_what_is_no_address_is_refused(url: Any) -> None:
    """An address that cannot be one is refused at once, saying what it should look like."""
    with pytest.raises(BadRequest, match="ws://host:port"):
        await connect(url, BOARD, Report, agent="ann").__aenter__()


@pytest.mark.parametrize("address", ["http", "HTTP://{}/", "ws"])
async def test_an_address_is_taken_as_the_server_prints_it(tmp_path: Path, address: str) -> None:
    """Over HTTP or for websockets, with a slash at its end or without; artifacts are found there, too."""
    async with serving(await SqliteStore.open(tmp_path / "boards.db")) as served:
        place = f"127.0.0.1:{served.port}"
        url = address.format(place) if "{}" in address else f"{address}://{place}"
        async with connect(url, BOARD, Report, agent="ann") as board:
            board.state.title = "one"
            ref = await board.artifacts.put(b"content")
            assert await board.artifacts.get(ref) == b"content"
        async with open_source(tmp_path / "other.db", url) as source:
            assert (await source.state(BOARD, None)).state["title"] == "one"


Handler = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def scripted(handler: Handler, *, ours: bool = True) -> AsyncIterator[str]:
    """A websocket server that does what a test says."""
    subprotocols = [Subprotocol(SUBPROTOCOL)] if ours else None
    async with serve(handler, "127.0.0.1", 0, subprotocols=subprotocols) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_websocket_server_of_somebody_else_is_one_clear_error() -> None:
    """A server that does not take our subprotocol is named as not ours, at once."""

    async def other(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with scripted(other, ours=False) as url, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(ProtocolError, match="not one of CRDT Board"):
            await connect(url, BOARD, Report, agent="ann", timeout=DEADLINE_SECONDS).__aenter__()


@pytest.mark.parametrize("code", [4400, 4405, 4413, 4499])
async def test_a_final_close_code_ends_the_attempts(code: int) -> None:
    """44xx: the client does not connect again, and who waits hears the reason."""
    connections = 0

    async def refuse(connection: ServerConnection) -> None:
        nonlocal connections
        connections += 1
        await connection.close(code, "the reason")

    async with scripted(refuse) as url, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(ConnectionFailed, match="the reason") as refused:
            await connect(url, BOARD, Report, agent="ann", timeout=DEADLINE_SECONDS).__aenter__()
    assert refused.value.close_code == code
    assert connections == 1


@pytest.mark.parametrize("code", [1000, 1011, 4500, 4511, 4599])
async def test_any_other_close_code_is_tried_again(served: Served, code: int) -> None:
    """45xx, and what a server does not choose: the client connects again until it is let in."""
    refusals = 3
    relay = Relay(served.url)

    async def refuse_at_first(connection: ServerConnection) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            await connection.close(code, "later")
        else:
            await relay.handle(connection)

    async with scripted(refuse_at_first) as url, joined(url, "ann") as board:
        assert refusals == 0
        assert (await board.commit("in")).version == 1


@pytest.mark.parametrize("message", ["{}", '{"type":"hello"}', b"", b"\x63", '{"type":"ack","n":5,"seq":1}'])
async def test_a_server_that_breaks_the_protocol_is_one_clear_error(message: Message) -> None:
    """What a server may not say ends the connection for good with ProtocolError."""

    async def babble(connection: ServerConnection) -> None:
        await connection.send(message)
        await connection.wait_closed()

    async with scripted(babble) as url, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(ProtocolError):
            await connect(url, BOARD, Report, agent="ann", timeout=DEADLINE_SECONDS).__aenter__()


async def test_a_refusal_is_the_servers_own_error(served: Served) -> None:
    """An error of the server arrives as the exception that it raised, with its data."""

    class Other(Report):
        reviewer: str

    async with joined(served.url, "ann"):
        with pytest.raises(SchemaMismatch, match="reviewer") as refused:
            await connect(served.url, BOARD, Other, agent="bob").__aenter__()
    assert refused.value.board_schema == 1


async def test_a_server_whose_store_is_down_is_tried_again(store: FaultyStore, served: Served) -> None:
    """D2: a board that cannot be read just now is waited for, never opened empty."""
    store.fail("head")
    async with joined(served.url, "ann") as board:
        assert board.snapshot() == Report()
    store.break_down("head")
    with pytest.raises((StoreUnavailable, ConnectionFailed)):
        await connect(served.url, "other", Report, agent="bob", timeout=0.3).__aenter__()
    store.repair()


async def test_an_edit_that_was_made_before_a_smaller_limit_is_one_clear_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit beyond the limit of the server that it is sent to ends the board, saying what to do."""
    opened = joined(served.url, "ann")
    board = await opened.__aenter__()
    with board.transaction():
        board.state.draft.append("x" * 2000)
        monkeypatch.setattr(board._session.replica, "_check_size", lambda _size: None)
    board._session.replica.update_bytes_max = 1000
    with pytest.raises(LimitExceeded, match="split it"):
        await board.flush(DEADLINE_SECONDS)
    with pytest.raises(LimitExceeded, match="split it"):
        board.state.title = "more"
    with pytest.raises(LimitExceeded, match=r"1 edits are not durable: .* split it"):
        await opened.__aexit__(None, None, None)


async def test_an_edit_that_is_too_large_is_refused_at_once() -> None:
    """What the server would not take is refused and taken back where it is made; the board goes on."""
    limits = replace(DEFAULT_LIMITS, update_bytes_max=1000)
    async with serving(MemoryStore(), limits=limits) as served, joined(served.url, "ann") as board:
        board.state.draft.append("kept")

        def edit() -> None:
            with board.transaction():
                board.state.draft.apply("x" * 2000)

        with pytest.raises(LimitExceeded, match="larger than the 1000") as refused:
            edit()
        assert (refused.value.limit, refused.value.maximum) == ("update_bytes_max", 1000)
        board.state.title = "more"
        await board.flush(DEADLINE_SECONDS)
        async with joined(served.url, "bob") as other:
            assert other.snapshot() == board.snapshot() == Report(draft="kept", title="more")


# Leaving


def connections() -> list[str]:
    """The tasks of clients that run now."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("connection-", "sender-"))]


async def test_connecting_that_is_cancelled_leaves_nothing_running() -> None:
    """Cancelled while the server has not answered yet, connect ends its connection."""
    reached, ended = asyncio.Event(), asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await ended.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        connecting = asyncio.create_task(joined(url, "ann").__aenter__())
        await asyncio.wait_for(reached.wait(), DEADLINE_SECONDS)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert connecting.cancelled()
        assert connections() == []
        ended.set()


async def test_a_sender_that_fails_ends_the_board(
    near: Board[Report], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unforeseen failure while sending is logged and told to who waits; nothing looks healthy afterwards."""

    def fail(_table: AgentTable) -> None:
        raise RuntimeError("unforeseen by the sender")

    monkeypatch.setattr(AgentTable, "own_states", fail)
    near.announce(step="x")
    with pytest.raises(ConnectionFailed, match="the log says more"):
        await near.wait_for(lambda state: state.title == "never", DEADLINE_SECONDS)
    assert "unforeseen by the sender" in caplog.text
    with pytest.raises(ConnectionFailed):
        near.state.title = "x"


@pytest.mark.parametrize("said", [object(), 5, b"x"])
async def test_announcing_what_is_no_text_is_refused(near: Board[Report], said: Any) -> None:
    """What the server could not be told is refused where it is said, and the connection goes on."""
    with pytest.raises(InvalidValue, match="role: must be a str"):
        near.announce(role=said)
    near.announce(role="writer")
    near.state.title = "x"
    await near.flush(timeout=DEADLINE_SECONDS)
    assert near.failure is None


async def test_announcing_more_than_the_server_takes_is_refused(near: Board[Report], served: Served) -> None:
    """Texts too long for one awareness message are refused where they are said; what was said before stays."""
    near.announce(role="writer")
    with pytest.raises(LimitExceeded, match="what the agents of this connection say"):
        near.announce(role="x" * DEFAULT_LIMITS.awareness_bytes_max)
    near.announce(step="x" * 60_000)  # near the limit, with room for telling that it is idle
    async with joined(served.url, "other") as other:
        await other.wait_for(lambda _state: any(each.step for each in other.agents), DEADLINE_SECONDS)
        near.state.title = "x"
        await near.settled(timeout=DEADLINE_SECONDS)
    assert near.failure is None


async def test_more_agents_than_one_connection_may_speak_for(near: Board[Report]) -> None:
    """The 33rd agent of a replica that says something of itself is refused, in whatever way; the others go on."""
    agents = [near.as_agent(f"agent-{number}") for number in range(DEFAULT_LIMITS.presence_states_max)]
    for agent in agents[:-1]:
        agent.announce(role="writer")
    last = agents[-1]

    async def follow() -> None:
        async with last.follow("reader"):
            pass

    with pytest.raises(LimitExceeded):
        last.announce(role="writer")
    with pytest.raises(LimitExceeded):
        last.on("title")(lambda _event: None)
    with pytest.raises(LimitExceeded):
        await last.settled(timeout=DEADLINE_SECONDS)
    for _again in range(2):
        with pytest.raises(LimitExceeded):
            await follow()  # gives its place back
    assert not near.leases
    last.state.title = "x"
    await last.commit("write", timeout=DEADLINE_SECONDS)
    agents[0].on("title")(lambda _event: None)
    await agents[0].settled(timeout=DEADLINE_SECONDS)
    assert near.failure is None


async def test_closing_while_a_lost_connection_is_cleared_away(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing in the moment in which a connection is lost ends the link; it does not connect again."""
    cleaning, released = asyncio.Event(), asyncio.Event()

    async def slow_to_end(_connection: Connection) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await released.wait()

    monkeypatch.setattr(Connection, "_send_for_ever", slow_to_end)
    async with joined(relay.url, "ann") as board:

        def cut_all(_way: Way, _message: Message) -> Message:
            raise Cut

        made = relay.connections
        relay.judge = cut_all
        board._session.link._connection._ask_for_difference()  # type: ignore[attr-defined]
        await asyncio.wait_for(cleaning.wait(), DEADLINE_SECONDS)
        closing = asyncio.create_task(board.close())
        await asyncio.wait([closing], timeout=DEADLINE_SECONDS)
        is_closed = closing.done()
        released.set()
        await asyncio.wait([closing, asyncio.create_task(board.close())])
    assert is_closed
    assert relay.connections == made
    assert connections() == []


async def test_leaving_without_a_server_says_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server is gone, leaving the block raises how many edits are lost, within its time."""
    monkeypatch.setitem(Board.close.__kwdefaults__, "timeout", 0.1)
    opened: Any = None
    async with serving(MemoryStore()) as served:
        opened = joined(served.url, "ann")
        board = await opened.__aenter__()
    await eventually(lambda: board.failure, "the loss is noticed")
    board.state.title = "x"
    with pytest.raises(ConnectionFailed, match="1 edits are not durable"):
        await opened.__aexit__(None, None, None)


async def test_a_request_that_waits_when_the_board_is_closed_is_answered(store: FaultyStore, served: Served) -> None:
    """A commit under way hears that its connection was closed."""
    async with joined(served.url, "ann") as board:
        gate = store.hold("append")
        committing = asyncio.create_task(board.commit("x"))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        await board.close()
        with pytest.raises(Unavailable):
            await committing
        with pytest.raises(BoardClosed):
            board.state.title = "x"
        gate.release()


async def test_others_are_forgotten_with_the_connection(relay: Relay, far: Board[Report], near: Board[Report]) -> None:
    """Without a connection nobody else is known to be there; with the next one they are again."""
    await far.wait_for(lambda _state: [one.agent for one in far.agents] == ["far", "near"], DEADLINE_SECONDS)

    def cut_all(_way: Way, _message: Message) -> Message:
        raise Cut

    relay.judge = cut_all
    near.state.title = "x"
    await eventually(lambda: [one.agent for one in far.agents] == ["far"], "others are forgotten")
    relay.judge = lambda _way, message: message
    await far.wait_for(lambda _state: [one.agent for one in far.agents] == ["far", "near"], DEADLINE_SECONDS)


# Backoff


@given(st.integers(), st.integers(1, 30))
def test_pauses_grow_within_their_bounds(seed: int, tries: int) -> None:
    """Each pause is between a tenth of the ceiling and all of it; the ceiling doubles up to five seconds."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("crdt_board_client.backoff._FIRST_SECONDS", 0.1)
        patched.setattr("crdt_board_client.backoff._MAX_SECONDS", 5.0)
        backoff = Backoff(random.Random(seed), 0.1)
        for number in range(tries):
            ceiling = min(0.1 * 2**number, 5.0)
            assert ceiling / 10 <= backoff.next_seconds() <= ceiling
        backoff.reset()
        assert 0.01 <= backoff.next_seconds() <= 0.1


@pytest.mark.parametrize("claim_seconds", [None, 10.0, 30.0])
def test_pauses_of_many_clients_are_spread(monkeypatch: pytest.MonkeyPatch, claim_seconds: float | None) -> None:
    """W7: 2,000 clients that lose one server do not all come back in the same tenth of a pause, nor do holders."""
    monkeypatch.setattr("crdt_board_client.backoff._MAX_SECONDS", 5.0)
    longest = 5.0 if claim_seconds is None else claim_seconds / 10
    pauses = [Backoff(random.Random(seed), 8.0).next_seconds(claim_seconds) for seed in range(2000)]
    tenths = [int(pause / longest * 10) for pause in pauses]
    assert max(pauses) <= longest
    assert max(tenths.count(tenth) for tenth in set(tenths)) < 300
