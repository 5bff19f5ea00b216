"""H7: which web pages may use the server, over websockets and HTTP."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from crdt_board.errors import BadRequest, ForbiddenOrigin
from crdt_board.store.memory import MemoryStore
from crdt_board_server.origins import Origins
from support.server import command_line
from support.serving import Served, serving
from support.web import web_client


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(MemoryStore()) as served:
        yield served


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://localhost.evil.example:8765"},
    {"Host": "evil.example", "Origin": "http://evil.example"},
    {"Host": "evil.example:80"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_pages_of_other_sites_are_refused(served: Served, headers: dict[str, str]) -> None:
    """With a sentence and a stable code, before a board is opened; also where a foreign name leads to this machine."""
    async with web_client(served.url) as client:
        for method, address in (("GET", "/api/boards"), ("POST", "/api/imports"), ("GET", "/healthz")):
            answer = await client.request(method, address, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden_origin")
            assert "--origin" in answer.json()["detail"]
    with pytest.raises(InvalidStatus) as refused:
        async with connect(f"{served.url}/ws/job", additional_headers=headers):
            pass
    assert refused.value.response.status_code == 403
    assert not served.host.open_boards()


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "http://localhost:5173"}, {"Origin": "http://[::1]:3000"}, {"Host": "localhost"}],
    ids=str,
)
async def test_programs_and_pages_of_this_machine_are_served(served: Served, headers: dict[str, str]) -> None:
    """A client that is no browser sends no origin; a page that this machine serves is its user's own."""
    async with web_client(served.url) as client:
        assert (await client.get("/api/boards", headers=headers)).status_code == 200
    if "Host" not in headers:
        async with connect(f"{served.url}/ws/job", additional_headers=headers) as socket:
            assert await socket.recv()


def test_what_is_allowed_is_allowed_and_nothing_beside_it() -> None:
    """Scheme, name and port count; a server on every network takes its own pages and those that it was told of."""
    loopback = Origins(["https://boards.example"])
    loopback.check("boards.example", "https://boards.example")
    loopback.check("127.0.0.1:8765", "https://boards.example:443")
    for origin in ("http://boards.example", "https://boards.example:444", "https://a.boards.example"):
        with pytest.raises(ForbiddenOrigin):
            loopback.check("127.0.0.1:8765", origin)
    public = Origins(["https://boards.example"], loopback=False)
    public.check("10.0.0.5:8765", None)
    public.check("10.0.0.5:8765", "http://10.0.0.5:8765")
    for origin in ("http://localhost:5173", "http://10.0.0.5", "http://evil.example"):
        with pytest.raises(ForbiddenOrigin):
            public.check("10.0.0.5:8765", origin)


@pytest.mark.parametrize("text", ["boards.example", "ftp://boards.example", "https://", "https://a/b", "*"])
def test_what_is_no_origin_is_one_error(text: str, tmp_path: Path) -> None:
    """At the start of the server, with what to write instead."""
    with pytest.raises(BadRequest, match="write it like"):
        Origins([text])
    # A process of its own: `serve` sets up logging for all of the process it runs in.
    options = ("--origin", text, "--db", str(tmp_path / "b.db"), "--port", "0")
    done = subprocess.run([*command_line(), *options], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "is no origin" in done.stderr) == (2, True)
