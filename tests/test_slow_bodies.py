"""Bodies of requests that come slowly, in part or not at all, beside clients that are to notice nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from crdt_board import BoardHost, BoardModel, Text, open_board
from crdt_board.exports import export_board
from crdt_board.limits import Limits
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from support.server import ServerProcess
from support.serving import Served, serving
from support.waiting import DEADLINE_SECONDS, eventually

_LIMITS = Limits(body_silent_seconds=0.3, body_bytes_per_second_min=1_000_000)
_ADDRESSES = ("/api/imports", "/api/artifacts", "/api/boards/job/commits")
_WHOLE = json.dumps({"step": "made", "patch": {"status": "x" * 1_000}}).encode()
_TRIES = 5
"""A byte that was on its way when the server closed the connection makes the system forget an answer that nobody has
read yet."""


class Job(BoardModel):
    status: str = ""
    draft: Text


class Upload:
    """A request over a bare socket, whose body comes as a test wants it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """Break off, as a client that was killed."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def answer(self) -> tuple[int, dict[str, object]]:
        """The status and the content of the answer, behind which the server closes the connection."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            head, _, content = (await self._reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(content)


@contextlib.asynccontextmanager
async def upload(port: int, address: str, *, announced: int = len(_WHOLE)) -> AsyncIterator[Upload]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        made = Upload(reader, writer)
        await made.send(
            f"POST {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {announced}\r\n\r\n".encode()
        )
        yield made
    finally:
        await made.end()


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(await SqliteStore.open(tmp_path / "boards.db"), limits=_LIMITS) as served:
        yield served


def opened_files() -> set[str]:
    """The unnamed files that this process has open, among them those in which imports are gathered."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {each for each in found if each.endswith("(deleted)")}


@contextlib.asynccontextmanager
async def leaving_nothing(folder: Path) -> AsyncIterator[None]:
    """Fail when what the block began at the server below ``folder`` goes on after it, or has left a file."""
    tasks, files = asyncio.all_tasks(), opened_files()
    yield
    await eventually(lambda: asyncio.all_tasks() <= tasks, "no request is under way")
    await eventually(lambda: opened_files() <= files, "what was gathered is gone")
    assert not list(folder.glob("boards.db-artifacts/*/*"))


@pytest.mark.parametrize("address", _ADDRESSES)
@pytest.mark.parametrize("part", [b"", _WHOLE[:500]], ids=["never begins", "stops"])
async def test_a_body_that_does_not_come_is_refused(served: Served, tmp_path: Path, address: str, part: bytes) -> None:
    """In time, with an error that says so, and the connection is closed; nothing was done, and nothing is left."""
    async with leaving_nothing(tmp_path), upload(served.port, address) as body:
        await body.send(part)
        status, problem = await body.answer()
    assert (status, problem["code"], problem["data"]["limit"]) == (413, "limit_exceeded", "body_silent_seconds")  # type: ignore[index]
    assert f"{len(part)} bytes in" in str(problem["detail"])


@pytest.mark.parametrize("address", _ADDRESSES)
async def test_a_body_that_drips_is_refused(served: Served, tmp_path: Path, address: str) -> None:
    """It never pauses for long, and yet does not hold its connection for longer than its size allows."""
    for _ in range(_TRIES):
        with contextlib.suppress(ConnectionResetError):
            async with leaving_nothing(tmp_path), upload(served.port, address) as body:
                answering = asyncio.create_task(body.answer())
                for byte in _WHOLE:
                    if (await asyncio.wait([answering], timeout=0.01))[0]:
                        break
                    with contextlib.suppress(ConnectionError):
                        await body.send(bytes([byte]))
                status, problem = await answering
            assert (status, problem["code"]) == (413, "limit_exceeded")
            return
    raise AssertionError("each time the connection was reset before the answer was read")


@pytest.mark.parametrize("address", _ADDRESSES)
async def test_a_body_that_is_cut_off_does_nothing(
    served: Served, tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It had announced more than came. Of a commit, what came would be one by itself."""
    async with leaving_nothing(tmp_path), upload(served.port, address, announced=len(_WHOLE) + 10) as body:
        await body.send(_WHOLE)
    assert await served.host.store.boards() == []
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_slow_bodies_disturb_nobody(served: Served) -> None:
    """Ten of each kind at once: commits over HTTP and edits over a websocket go on, and so does a large body."""
    async with (
        contextlib.AsyncExitStack() as stack,
        connect(served.url, "job", Job, agent="ann") as board,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False) as client,
    ):
        slow = [
            await stack.enter_async_context(upload(served.port, address)) for address in _ADDRESSES for _ in range(10)
        ]
        for body in slow:
            await body.send(_WHOLE[:100])
        answers = asyncio.gather(*(body.answer() for body in slow))
        while not answers.done():
            board.state.draft.append("x")
            await board.flush(DEADLINE_SECONDS)
            made = await client.post("/api/boards/job/commits", json=json.loads(_WHOLE))
            put = await client.post("/api/artifacts", content=b"x" * 200_000)
            assert (made.status_code, put.status_code) == (201, 201)
        assert [status for status, _ in await answers] == [413] * len(slow)
        assert (await client.get("/readyz")).json()["problems"] == []


async def test_a_server_that_stops_does_not_wait_for_bodies(
    start_server: Callable[..., Awaitable[ServerProcess]],
) -> None:
    """Their clients are told to try again; the server ends in order, with nothing in its log."""
    server = await start_server()
    async with contextlib.AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(upload(server.port, address)) for address in _ADDRESSES]
        for body in slow:
            await body.send(_WHOLE[:100])
        started = Path(f"{server.database}-artifacts")
        await eventually(lambda: list(started.glob("incoming/*")), "the artifact is being put")
        server.send_sigterm()
        answers = [await body.answer() for body in slow]
    assert [(status, problem["code"]) for status, problem in answers] == [(503, "unavailable")] * len(slow)
    assert await server.ended() == 0
    assert "error" not in server.log()
    assert not list(started.glob("*/*"))


async def test_what_was_uploaded_when_the_server_was_killed_is_not_there(
    start_server: Callable[..., Awaitable[ServerProcess]], tmp_path: Path
) -> None:
    """An import is not half a board, nor a put half an artifact; both can be made again, and a sweep clears up."""
    async with BoardHost(await SqliteStore.open(tmp_path / "from.db")) as host:
        async with open_board(host, "moved", Job, agent="ann") as board:
            board.state.draft.append("written")
            await board.commit("made")
        with (tmp_path / "moved.export").open("wb") as opened:
            await export_board(host.store, "moved", opened, artifacts=host.artifacts)
    export = (tmp_path / "moved.export").read_bytes()
    server = await start_server()
    artifacts = Path(f"{server.database}-artifacts")
    async with contextlib.AsyncExitStack() as stack:
        importing = await stack.enter_async_context(upload(server.port, "/api/imports", announced=len(export)))
        putting = await stack.enter_async_context(upload(server.port, "/api/artifacts", announced=4_000_000))
        await importing.send(export[:-1])
        await putting.send(b"x" * 3_000_000)
        await eventually(lambda: sum(each.stat().st_size for each in artifacts.glob("incoming/*")), "it is written")
        await server.kill9()
    await server.start()
    async with httpx.AsyncClient(base_url=server.http, trust_env=False, timeout=DEADLINE_SECONDS) as client:
        assert (await client.get("/api/boards")).json()["boards"] == []
        assert (await client.get("/api/artifacts")).json()["artifacts"] == []
        assert (await client.post("/api/imports", content=export)).status_code == 201
        assert list(artifacts.glob("incoming/*"))
        assert (await client.post("/api/artifacts/sweeps", json={"grace_seconds": 0})).status_code == 200
    assert not list(artifacts.glob("incoming/*"))
