"""Exports with artifacts over HTTP and with the command line, between files and servers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from crdt_board import Artifact, BoardModel, open_board
from crdt_board.artifacts import Artifacts
from crdt_board.artifacts.http import HttpArtifacts
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from crdt_board_server.cli import app
from crdt_board_server.sources import open_source
from support.server import ServerProcess
from support.serving import Served, serving
from support.web import web_client

BOARD = "job"
CONTENT = os.urandom(2_500_000)
MEBIBYTE = 1024 * 1024


class Report(BoardModel):
    best: Artifact | None = None
    log: Artifact | None = None


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "boards.db"


@pytest_asyncio.fixture
async def served(database: Path) -> AsyncIterator[Served]:
    """A server with a board of two artifacts."""
    async with serving(await SqliteStore.open(database)) as served:
        async with open_board(served.host, BOARD, Report, agent="ann") as board:
            board.state.best = await board.artifacts.put(CONTENT)
            board.state.log = await board.artifacts.put(b"log")
            await board.commit("made")
        yield served


@pytest_asyncio.fixture
async def client(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(served.url) as client:
        yield client


@pytest_asyncio.fixture
async def other(tmp_path: Path) -> AsyncIterator[Served]:
    """A server without boards."""
    async with serving(await SqliteStore.open(tmp_path / "other.db")) as served:
        yield served


def where(served: Served, database: Path, place: str) -> list[str]:
    return ["--db", str(database)] if place == "file" else ["--url", f"http://127.0.0.1:{served.port}"]


async def crdt_board(*arguments: str) -> tuple[int, str, str]:
    """Its exit code and what it printed to both outputs."""
    done = await asyncio.to_thread(CliRunner().invoke, app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def damage(database: Path) -> str:
    """Alter the log; return its hash."""
    (log,) = (each for each in Path(f"{database}-artifacts/sha256").iterdir() if each.stat().st_size == 3)
    log.write_bytes(b"lag")
    return log.name


@pytest.mark.parametrize("way", [("file", "server"), ("server", "file")], ids=" to ".join)
async def test_the_commands_take_artifacts_along(
    served: Served, other: Served, database: Path, way: tuple[str, str]
) -> None:
    """V9: export here, import there; the content is there."""
    here, there = where(served, database, way[0]), where(other, database.with_name("other.db"), way[1])
    file = str(database.with_name("job.crdtboard"))
    assert (await crdt_board("export", BOARD, file, *here))[0] == 0
    code, said, problems = await crdt_board("import", file, *there)
    assert (code, said, problems) == (0, "made board job at version 1, with 2 artifacts\n", "")
    async with connect(other.url, BOARD, Report, agent="bob") as board:
        assert board.state.best is not None
        assert await board.artifacts.get(board.state.best) == CONTENT


@pytest.mark.parametrize("place", ["file", "server"])
async def test_artifacts_can_be_left_out(
    served: Served, other: Served, database: Path, tmp_path: Path, place: str
) -> None:
    """``--no-artifacts``: also where one is damaged; the import says how many are missing."""
    here, there = where(served, database, place), where(other, tmp_path / "other.db", place)
    file = tmp_path / "job.crdtboard"
    digest = damage(database)
    code, _, problems = await crdt_board("export", BOARD, str(file), *here)
    assert (code, problems.count("\n"), file.exists()) == (1, 1, False)
    assert f"only without its artifacts: artifact {digest} is damaged" in problems
    assert (await crdt_board("export", BOARD, str(file), "--no-artifacts", *here))[0] == 0
    assert file.stat().st_size < 10_000
    code, said, problems = await crdt_board("import", str(file), "--json", *there)
    assert (code, json.loads(said)["artifacts"], len(json.loads(said)["missing"])) == (0, 0, 2)
    assert "2 artifacts that it points to are missing here: artifact:sha256:" in problems


async def test_a_new_database_has_its_artifacts(served: Served, database: Path, tmp_path: Path) -> None:
    """Beside it, or where ``--artifacts`` says; a file that is broken makes no database; a server has its own place."""
    file, broken, place = tmp_path / "job.crdtboard", tmp_path / "broken", tmp_path / "place"
    assert (await crdt_board("export", BOARD, str(file), "--db", str(database)))[0] == 0
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(content)
    code, _, problems = await crdt_board("import", str(broken), "--db", str(tmp_path / "broken.db"))
    assert (code, problems.count("\n"), (tmp_path / "broken.db").exists()) == (1, 1, False)
    fresh = str(tmp_path / "fresh.db")
    assert (await crdt_board("import", str(file), "--db", fresh))[0] == 0
    assert len(list(Path(f"{fresh}-artifacts/sha256").iterdir())) == 2
    elsewhere = ["--db", str(tmp_path / "else.db"), "--artifacts", str(place)]
    assert (await crdt_board("import", str(file), *elsewhere))[0] == 0
    assert len(list((place / "sha256").iterdir())) == 2
    assert (await crdt_board("delete", BOARD, "--yes", "--db", str(tmp_path / "else.db")))[0] == 0
    assert (await crdt_board("import", str(file), *elsewhere))[0] == 0
    assert (await crdt_board("export", BOARD, str(tmp_path / "again"), *elsewhere))[0] == 0
    code, _, problems = await crdt_board("export", BOARD, "--db", str(tmp_path / "else.db"))
    assert (code, "which is not there, and 1 more are not" in problems) == (1, True)
    code, _, problems = await crdt_board("export", BOARD, "--artifacts", "x", "--url", "http://127.0.0.1:9")
    assert (code, "has its own place" in problems) == (1, True)


async def test_exports_over_http(served: Served, other: Served, client: httpx.AsyncClient, database: Path) -> None:
    """With and without artifacts; what is damaged or missing is an error of its own, as is what was altered."""
    address = f"/api/boards/{BOARD}/export"
    whole, bare = await client.get(address), await client.get(address, params={"artifacts": "false"})
    assert len(bare.content) < 10_000 < len(CONTENT) < len(whole.content)
    async with web_client(other.url) as there:

        async def imported(content: bytes) -> tuple[int, Any]:
            answer = await there.post("/api/imports", content=content)
            return answer.status_code, answer.json()

        status, made = await imported(bare.content)
        assert (status, made["artifacts"], len(made["missing"])) == (201, 0, 2)
        assert made["missing"] == sorted(made["missing"])
        await there.delete(f"/api/boards/{BOARD}")
        altered = bytearray(whole.content)
        altered[len(altered) // 2] ^= 1
        status, problem = await imported(bytes(altered))
        assert (status, problem["code"]) == (400, "bad_request")
        assert (await there.get("/api/boards")).json()["boards"] == []
        status, made = await imported(whole.content)
        assert (status, made["id"], made["version"], made["artifacts"], made["missing"]) == (201, BOARD, 1, 2, [])
    digest = damage(database)
    problem = (await client.get(address)).json()
    assert (problem["status"], problem["code"], problem["data"]) == (500, "artifact_corrupt", {"sha256": digest})
    Path(f"{database}-artifacts/sha256", digest).unlink()
    problem = (await client.get(address)).json()
    assert (problem["status"], problem["code"], problem["data"]) == (404, "not_found", {"sha256": digest})


async def test_a_large_artifact_takes_little_memory(server: ServerProcess, tmp_path: Path) -> None:
    """60 MiB out of a server and into it again, in less memory than a third of that."""
    parts = 60

    async def content() -> AsyncIterator[bytes]:
        for _ in range(parts):
            yield os.urandom(MEBIBYTE)

    access = HttpArtifacts(server.http)
    ref = await Artifacts(access).put(content())
    async with connect(server.url, BOARD, Report, agent="ann") as board:
        board.state.best = ref
        await board.commit("made")
    file, before = tmp_path / "file", most_resident_bytes(server)
    for arguments in (["export", BOARD, str(file)], ["delete", BOARD, "--yes"], ["import", str(file)]):
        code, _, problems = await crdt_board(*arguments, "--url", server.http)
        assert code == 0, problems
    assert most_resident_bytes(server) - before < parts * MEBIBYTE // 3
    assert await Artifacts(access).exists(ref)
    await access.close()


def most_resident_bytes(server: ServerProcess) -> int:
    """The most memory that the process has held since it was started (Linux only)."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize("place", ["file", "server"])
async def test_progress_is_told(served: Served, other: Served, database: Path, place: str) -> None:
    """Of an export and an import, up to the last byte, in more than one step."""
    address = "http://127.0.0.1:{}".format
    out: list[tuple[int, int]] = []
    with database.with_name("file").open("w+b") as file:
        async with open_source(database, address(served.port) if place == "server" else None) as source:
            await source.export(BOARD, file, lambda *step: out.append(step))
        file.seek(0)
        back: list[tuple[int, int]] = []
        there = database.with_name("other.db")
        async with open_source(there, address(other.port) if place == "server" else None) as source:
            await source.import_(file, lambda *step: back.append(step))
    for told in (out, back):
        assert len([step for step in told if 0 < step[0] < step[1]]) > 1
        assert told[-1][0] == told[-1][1] >= len(CONTENT)
