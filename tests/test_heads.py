"""HTTP requests whose heads do not end, beside clients that are to notice nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from crdt_board.limits import Limits
from crdt_board.store.sqlite import SqliteStore
from support.serving import Served, serving
from support.waiting import DEADLINE_SECONDS

_LIMITS = Limits(head_seconds_max=0.3)
_PIECE = 100_000
_PIECES = 1_000
_CHUNKED = b"POST /api/boards/job/commits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(await SqliteStore.open(tmp_path / "boards.db"), limits=_LIMITS) as served:
        yield served


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_SECONDS):
        yield reader, writer
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def send_on(writer: asyncio.StreamWriter, data: bytes) -> None:
    for _ in range(_PIECES):
        writer.write(data)
        await writer.drain()


async def until_the_end(reader: asyncio.StreamReader) -> None:
    while await reader.read(_PIECE):
        pass


async def is_well(served: Served) -> bool:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}") as client:
        return (await client.get("/readyz")).status_code == 200


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET /", b"a" * _PIECE),
        (b"GET /healthz HTTP/1.1\r\nHost: ", b"a" * _PIECE),
        (b"GET /healthz HTTP/1.1\r\n", b"A: b\r\n" * (_PIECE // 6)),
        (_CHUNKED + b"1;", b"a" * _PIECE),
        (_CHUNKED + b"1\r\n{\r\n0\r\n", b"A: b\r\n" * (_PIECE // 6)),
    ],
    ids=["address", "value", "headers", "chunk", "trailers"],
)
async def test_a_head_without_an_end_is_cut_off(served: Served, begin: bytes, more: bytes) -> None:
    """H3: what is not the body of a request is bounded, wherever it stands; its sender is cut off while it sends."""
    async with connected(served.port) as (_reader, writer):
        writer.write(begin)
        with pytest.raises(ConnectionError):
            await send_on(writer, more)
        assert await is_well(served)


async def test_a_head_that_is_too_long_is_told(served: Served) -> None:
    async with connected(served.port) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: ")
        await writer.drain()
        await asyncio.sleep(0.05)  # a read of its own
        writer.write(b"a" * (_LIMITS.head_bytes_max + 1))
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 ")
        problem = json.loads(content)
        assert (problem["code"], problem["data"]["limit"]) == ("limit_exceeded", "head_bytes_max")


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nA: b\r\n"])
async def test_a_head_that_does_not_come_is_not_waited_for(served: Served, begin: bytes) -> None:
    """H3: a connection without a whole request ends, and who has begun one is told."""
    async with connected(served.port) as (reader, writer):
        writer.write(begin)
        answer = await reader.read()
        assert (b'"head_seconds_max"' in answer) == begin.startswith(b"GET")


async def test_the_next_request_of_a_connection_is_bounded_too(served: Served) -> None:
    async with connected(served.port) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"\r\n")
        assert await reader.read() == b""


async def test_an_answer_under_way_is_not_cut_off_by_the_time_of_the_next_head(served: Served) -> None:
    """A stream of events goes on, though its client has sent a part of another request."""
    async with connected(served.port) as (reader, writer):
        writer.write(b"POST /api/boards HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        writer.write(b'Content-Length: 15\r\n\r\n{"board":"job"}')
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
    async with connected(served.port) as (reader, writer):
        writer.write(b"GET /api/boards/job/events HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal")
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(until_the_end(reader), 3 * _LIMITS.head_seconds_max)


async def test_bodies_in_small_pieces_are_taken(served: Served) -> None:
    """Chunks of one byte each are mostly framing, and no fault."""
    body = json.dumps({"step": "made", "output": "x" * 50_000}).encode()
    async with connected(served.port) as (reader, writer):
        writer.write(_CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Type: application/json\r\n\r\n"))
        writer.write(b"".join(b"0001\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        status = (await reader.readuntil(b"\r\n")).split()[1]
        assert status in (b"200", b"201", b"404"), status
