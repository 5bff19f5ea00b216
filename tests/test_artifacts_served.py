"""Artifacts at a server: the HTTP routes, the Python client over them, and the command line over both."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from crdt_board import Artifact, BoardModel, open_board
from crdt_board.artifacts import Artifacts
from crdt_board.artifacts.http import HttpArtifacts
from crdt_board.errors import ArtifactCorrupt, BadRequest, ConnectionFailed, LimitExceeded, NotFound, Unavailable
from crdt_board.limits import Limits
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from crdt_board_server.cli import app
from support.server import ServerProcess
from support.serving import Served, serving
from support.web import web_client

MEBIBYTE = 1024 * 1024
CONTENT = b"<script>alert(1)</script>" + bytes(range(256)) * 10_000
PLACE = "/api/artifacts"


class Report(BoardModel):
    best: Artifact | None = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "boards.db-artifacts"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    limits = Limits(artifact_bytes_max=8 * MEBIBYTE)
    async with serving(await SqliteStore.open(tmp_path / "boards.db"), limits=limits) as served:
        yield served


@pytest_asyncio.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(served.url) as client:
        yield client


@pytest_asyncio.fixture
async def artifacts(served: Served) -> AsyncIterator[Artifacts]:
    access = HttpArtifacts(served.url)
    yield Artifacts(access)
    await access.close()


async def put(client: httpx.AsyncClient, content: bytes = CONTENT, media_type: str = "text/html") -> Artifact:
    answer = await client.post(PLACE, content=content, headers={"Content-Type": media_type})
    assert answer.status_code == 201, answer.text
    return Artifact.model_validate_json(answer.content)


async def in_chunks(content: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


async def test_an_agent_puts_and_another_gets(server: ServerProcess, board_id: str, tmp_path: Path) -> None:
    """The same calls as in process, at the address of the board; what was answered survives kill -9."""
    file = tmp_path / "plan.txt"
    file.write_bytes(CONTENT)
    async with connect(server.url, board_id, Report, agent="ann") as ann:
        ref = await ann.artifacts.put(file)
        assert (ref.size, ref.media_type) == (len(CONTENT), "text/plain")
        assert await ann.artifacts.put(in_chunks(CONTENT, 1000), media_type="text/plain") == ref
        ann.state.best = ref
        await ann.commit("done", trace=str(ref))
    await server.kill9()
    await server.start()
    async with connect(server.url, board_id, Report, agent="bob") as bob:
        assert bob.state.best == ref
        assert await bob.artifacts.get(ref) == CONTENT
        assert (await bob.artifacts.stat(ref)).size == len(CONTENT)
        assert abs((await bob.artifacts.stat(ref)).stored_ms - time.time() * 1000) < 3_600_000
        missing = f"artifact:sha256:{'0' * 64}"
        assert not await bob.artifacts.exists(missing)
        with pytest.raises(NotFound, match="never put here"):
            await bob.artifacts.get(missing)


async def test_content_is_sent_as_a_download(client: httpx.AsyncClient) -> None:
    """Whatever its type is said to be, no browser shows or runs it on the server's address."""
    ref = await put(client)
    assert ref == Artifact(
        pointer=f"artifact:sha256:{hashlib.sha256(CONTENT).hexdigest()}", size=len(CONTENT), media_type="text/html"
    )
    answer = await client.get(f"{PLACE}/{ref.sha256}")
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["etag"] == f'"{ref.sha256}"'
    head = await client.head(f"{PLACE}/{ref.sha256}")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(CONTENT)))
    known = await client.get(f"{PLACE}/{ref.sha256}", headers={"If-None-Match": f'"x", W/"{ref.sha256}"'})
    assert (known.status_code, known.content) == (304, b"")


@pytest.mark.parametrize(
    ("header", "status", "expected"),
    [
        ("bytes=0-0", 206, (0, 1)),
        ("bytes=10-19", 206, (10, 20)),
        ("bytes=10-", 206, (10, 1000)),
        ("bytes=-10", 206, (990, 1000)),
        ("bytes=-5000", 206, (0, 1000)),
        ("bytes=990-5000", 206, (990, 1000)),
        ("bytes=1000-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-4", 200, (0, 1000)),
        ("bytes=0-1,4-5", 200, (0, 1000)),
        ("bytes=-", 200, (0, 1000)),
        ("bytes=x-y", 200, (0, 1000)),
        (f"bytes={'9' * 30}-", 200, (0, 1000)),
        ("lines=1-2", 200, (0, 1000)),
    ],
)
async def test_parts_are_sent(
    client: httpx.AsyncClient, header: str, status: int, expected: tuple[int, int] | None
) -> None:
    """One part, as RFC 9110 says; a header that is not understood is passed over."""
    content = os.urandom(1000)
    ref = await put(client, content)
    answer = await client.get(f"{PLACE}/{ref.sha256}", headers={"Range": header})
    assert answer.status_code == status
    if expected is None:
        assert answer.headers["content-range"] == "bytes */1000"
        assert answer.headers["content-type"] == "application/problem+json"
        return
    start, stop = expected
    assert answer.content == content[start:stop]
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/1000"
        other = {"Range": header, "If-Range": '"other"'}
        assert (await client.get(f"{PLACE}/{ref.sha256}", headers=other)).content == content


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("0" * 64, 404), ("0" * 63, 400), ("0" * 65, 400), ("A" * 64, 400), ("g" * 64, 400), ("%2e%2e", 400),
        ("..%2f..%2fboards.db", 404), ("%00", 400), ("artifact:sha256:" + "0" * 64, 400), ("incoming", 400),
    ],
)  # fmt: skip
async def test_hostile_names_reach_no_file(client: httpx.AsyncClient, name: str, status: int) -> None:
    """H4: a name is 64 lower-case hex digits; everything else is refused with a problem document."""
    await put(client)
    for method in ("GET", "HEAD"):
        answer = await client.request(method, f"{PLACE}/{name}")
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"


async def test_what_is_too_large_is_refused(client: httpx.AsyncClient, artifacts: Artifacts, folder: Path) -> None:
    """Announced or not, and nothing of it stays; the client is told the limit."""
    for content in (b"x" * (8 * MEBIBYTE + 1), in_chunks(b"x" * 9 * MEBIBYTE, 100_000)):
        with pytest.raises(LimitExceeded, match="at most 8388608 bytes") as caught:
            await artifacts.put(content)
        assert caught.value.limit == "artifact_bytes_max"
    answer = await client.post(PLACE, content=b"x" * (8 * MEBIBYTE + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "limit_exceeded")
    assert not [path for path in folder.rglob("*") if path.is_file()]


async def test_requests_that_are_wrong(client: httpx.AsyncClient) -> None:
    """A media type that is none, and a page of another site."""
    wrong = await client.post(PLACE, content=b"x", headers={"Content-Type": "nonsense"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")
    foreign = await client.post(PLACE, content=b"x", headers={"Origin": "https://evil.example"})
    assert (foreign.status_code, foreign.json()["code"]) == (403, "forbidden_origin")


async def test_an_upload_that_breaks_off_leaves_nothing(served: Served, artifacts: Artifacts, folder: Path) -> None:
    """The error of the iterator is the caller's; the server has stored nothing, and goes on."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 3 * MEBIBYTE
        raise RuntimeError("the model hung up")

    with pytest.raises(RuntimeError, match="hung up"):
        await artifacts.put(broken())
    ref = await artifacts.put(b"hello")
    assert await artifacts.get(ref) == b"hello"
    assert [each.name for each in (folder / "sha256").iterdir()] == [ref.sha256]


@pytest.mark.parametrize("size", [1000, 5 * MEBIBYTE])
async def test_damage_at_the_server_is_told(
    client: httpx.AsyncClient, artifacts: Artifacts, folder: Path, size: int
) -> None:
    """D7: a small one is refused at once, a large one breaks off; either is the same error for an agent."""
    ref = await artifacts.put(b"x" * size)
    (folder / "sha256" / ref.sha256).write_bytes(b"y" * size)
    with pytest.raises(ArtifactCorrupt) as caught:
        await artifacts.get(ref)
    assert caught.value.sha256 == ref.sha256
    again = await client.get(f"{PLACE}/{ref.sha256}")
    assert (again.status_code, again.json()["code"]) == (500, "artifact_corrupt")


async def test_a_large_download_of_damage_breaks_off(client: httpx.AsyncClient, folder: Path) -> None:
    """Who knows nothing of hashes sees that the answer is shorter than it says."""
    ref = await put(client, b"x" * 5 * MEBIBYTE)
    (folder / "sha256" / ref.sha256).write_bytes(b"y" * 5 * MEBIBYTE)
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(f"{PLACE}/{ref.sha256}")


async def test_a_place_that_fails_is_told(artifacts: Artifacts, folder: Path) -> None:
    """D6: whatever is asked, also where the answer has no body; nothing is taken for absent."""
    ref = await artifacts.put(b"hello")
    (folder / "sha256").rename(folder / "other")
    (folder / "sha256").write_bytes(b"no folder")
    for ask in (artifacts.put(b"x"), artifacts.get(ref), artifacts.exists(ref)):
        with pytest.raises(Unavailable):
            await ask


async def test_no_server_is_told() -> None:
    """A server that is not there is unavailable, whatever is asked."""
    access = HttpArtifacts("ws://127.0.0.1:9")
    artifacts = Artifacts(access)
    for ask in (artifacts.put(b"x"), artifacts.get(f"artifact:sha256:{'0' * 64}"), access.page(limit=1)):
        with pytest.raises(ConnectionFailed, match=r"http://127\.0\.0\.1:9 did not answer"):
            await ask
    await access.close()


async def test_a_client_without_httpx_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core does without; what needs it names the extra."""
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(BadRequest, match=r"pip install 'crdt-board\[artifacts\]'"):
        await Artifacts(HttpArtifacts("ws://127.0.0.1:9")).put(b"x")


async def test_artifacts_are_listed_in_pages_and_swept(client: httpx.AsyncClient, served: Served, folder: Path) -> None:
    """In the order of their hashes; a sweep over HTTP keeps what boards refer to."""
    made = sorted([await put(client, bytes([number])) for number in range(5)], key=str)
    first = (await client.get(PLACE, params={"limit": 3})).json()
    assert [each["sha256"] for each in first["artifacts"]] == [each.sha256 for each in made[:3]]
    rest = (await client.get(PLACE, params={"limit": 3, "after": first["after"]})).json()
    assert ([each["sha256"] for each in rest["artifacts"]], rest["after"]) == ([each.sha256 for each in made[3:]], None)
    async with open_board(served.host, "job", Report, agent="ann") as board:
        board.state.best = made[0]
    make_old(folder)
    kept = await client.post(f"{PLACE}/sweeps", json={"grace_seconds": 10**9})
    assert (kept.json()["removed"], kept.json()["young"]) == ([], 5)
    planned = await client.post(f"{PLACE}/sweeps", json={"dry_run": True})
    done = await client.post(f"{PLACE}/sweeps", json={})
    for answer in (planned, done):
        assert [each["sha256"] for each in answer.json()["removed"]] == [each.sha256 for each in made[1:]]
    assert [each["sha256"] for each in (await client.get(PLACE)).json()["artifacts"]] == [made[0].sha256]
    assert (await client.post(f"{PLACE}/sweeps", json={"grace_seconds": -1})).status_code == 422


def make_old(folder: Path) -> None:
    """Let every artifact have been put two days ago."""
    then = time.time() - 2 * 24 * 3600
    for file in (folder / "sha256").iterdir():
        os.utime(file, (then, then))


# The command line


def crdt_board(*arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
    """Its exit code and what it printed to both outputs."""
    done = CliRunner().invoke(app, ["artifacts", *arguments], input=given)
    return done.exit_code, done.stdout_bytes, done.stderr


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_commands(served: Served, folder: Path, tmp_path: Path, place: str) -> None:
    """V9: put, list, show, get and sweep, over a database file and a server alike."""
    database = tmp_path / "boards.db"
    where = ["--db", str(database)] if place == "file" else ["--url", f"http://127.0.0.1:{served.port}"]

    async def run(*arguments: str, given: bytes = b"") -> tuple[int, bytes, str]:
        return await asyncio.to_thread(crdt_board, *arguments, *where, given=given)

    async def answer(*arguments: str, given: bytes = b"") -> Any:
        code, said, problems = await run(*arguments, "--json", given=given)
        assert code == 0, problems
        return json.loads(said)

    assert await answer("list") == []
    assert (await run("list"))[1] == b"no artifacts yet\n"
    file = tmp_path / "page.html"
    file.write_bytes(CONTENT)
    ref = Artifact(**await answer("put", str(file)))
    assert (ref.size, ref.media_type) == (len(CONTENT), "text/html")
    assert (await run("put", str(file)))[1] == f"{ref.pointer}\n".encode()
    piped = Artifact(**await answer("put", "-", "--media-type", "text/plain", given=b"hello"))
    assert (piped.size, piped.media_type) == (5, "text/plain")
    assert {each["pointer"] for each in await answer("list")} == {ref.pointer, piped.pointer}
    assert (await answer("show", piped.sha256))["size"] == 5
    assert b"5 bytes" in (await run("show", piped.pointer))[1]
    assert (await run("get", piped.pointer))[:2] == (0, b"hello")
    assert (await run("get", ref.sha256, str(tmp_path / "copy")))[0] == 0
    assert (tmp_path / "copy").read_bytes() == CONTENT
    async with open_board(served.host, "job", Report, agent="ann") as board:
        board.state.best = ref
    make_old(folder)
    assert (await answer("sweep", "--grace", "52w"))["young"] == 2
    planned = await answer("sweep", "--dry-run")
    assert [each["pointer"] for each in planned["removed"]] == [piped.pointer]
    code, said, _ = await run("sweep")
    assert code == 0
    assert piped.pointer.encode() in said
    assert [each["pointer"] for each in await answer("list")] == [ref.pointer]


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["get", "0" * 64], "there is no artifact"),
        (["show", "../../etc/passwd"], "points to no artifact"),
        (["put", "none.txt"], "none.txt cannot be read"),
        (["put", "-", "--media-type", "x"], "is no media type"),
        (["sweep", "--grace", "soon"], "give an age as"),
    ],
)
async def test_a_wrong_command_is_one_line(
    served: Served, tmp_path: Path, place: str, arguments: list[str], said: str
) -> None:
    """What is wrong, on one line, and exit code 1."""
    where = ["--db", str(tmp_path / "boards.db")] if place == "file" else ["--url", f"http://127.0.0.1:{served.port}"]
    code, output, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
    assert (code, output) == (1, b"")
    assert said in problems
    assert problems.count("\n") == 1


def test_places_are_told_apart(tmp_path: Path) -> None:
    """A database that is missing is not made; a place is for a database, and a server has its own."""
    missing = tmp_path / "none.db"
    code, _, problems = crdt_board("list", "--db", str(missing))
    assert (code, missing.exists()) == (1, False)
    assert "there is no database" in problems
    code, _, problems = crdt_board("list", "--artifacts", str(tmp_path), "--url", "http://127.0.0.1:9")
    assert (code, "has its own place" in problems) == (1, True)
    code, _, problems = crdt_board("list", "--url", "example")
    assert (code, "not the address of a server" in problems) == (1, True)


async def test_a_server_keeps_artifacts_where_it_is_told(
    start_server: Callable[..., Awaitable[ServerProcess]], tmp_path: Path
) -> None:
    """``serve --artifacts``; the commands find them there, without the database."""
    place = tmp_path / "elsewhere"
    server = await start_server("--artifacts", str(place))
    access = HttpArtifacts(server.http)
    ref = await Artifacts(access).put(b"hello")
    await access.close()
    assert (place / "sha256" / ref.sha256).is_file()
    code, said, _ = await asyncio.to_thread(crdt_board, "get", ref.pointer, "--artifacts", str(place))
    assert (code, said) == (0, b"hello")


async def test_a_large_artifact_takes_little_memory(server: ServerProcess) -> None:
    """200 MB through the client and the server, both ways, in less memory than a tenth of that."""
    part, parts = os.urandom(MEBIBYTE), 200

    async def content() -> AsyncIterator[bytes]:
        for _ in range(parts):
            yield part

    access = HttpArtifacts(server.http)
    artifacts = Artifacts(access)
    warm = await artifacts.put(part)
    assert await artifacts.get(warm) == part
    before = server.resident_bytes()
    ref = await artifacts.put(content())
    assert ref.size == parts * MEBIBYTE
    peak, got = server.resident_bytes(), 0
    async for chunk in artifacts.stream(ref):
        assert len(chunk) <= MEBIBYTE
        got += len(chunk)
        peak = max(peak, server.resident_bytes())
    await access.close()
    assert got == ref.size
    assert peak - before < 20 * MEBIBYTE
