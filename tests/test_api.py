"""The HTTP API, and the command line over it and over a database file, with the real server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import pytest_asyncio
from pydantic import model_validator
from typer.main import get_command
from typer.testing import CliRunner

from crdt_board import BoardModel, Text, open_board
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import error_types
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from crdt_board_server.cli import app
from support.serving import serving
from support.waiting import DEADLINE_SECONDS
from support.web import web_client

BOARD = "job-884"


class Finding(BoardModel):
    title: str = ""


class Migration(BoardModel):
    status: str = "OPEN"
    plan: list[str] = []
    findings: dict[str, Finding] = {}
    steps: list[Finding] = []
    draft: Text


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> Path:
    """A board of two versions, and an edit after them."""
    file = tmp_path / "boards.db"
    async with open_board(file, BOARD, Migration, agent="ann") as ann:
        ann.state.draft.append("The plan is good.\nTwo weeks.\n")
        ann.state.findings["f1"].title = "cast"
        await ann.commit("plan")
        bob = ann.as_agent("bob")
        bob.state.draft.replace("Two weeks", "Three [months]")
        bob.state.findings["f1"].title = "cast!"
        await bob.commit("review", patch={"status": "DONE"})
        bob.state.plan.append("ship")
        bob.state.steps.append(Finding(title="build"))
    return file


@pytest_asyncio.fixture
async def client(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(await SqliteStore.open(database)) as served,
        web_client(served.url) as client,
    ):
        yield client


async def got(client: httpx.AsyncClient, address: str, **parameters: Any) -> Any:
    answer = await client.get(f"/api/boards{address}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_boards_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    """Every page but the last says where to go on."""
    for name in ("a", "b", "c"):
        async with open_board_at(client, name):
            pass
    first = await got(client, "", limit=2)
    assert ([each["id"] for each in first["boards"]], first["after"]) == (["a", "b"], "b")
    second = await got(client, "", limit=2, after="b")
    assert [each["id"] for each in second["boards"]] == ["c", BOARD]
    assert (await got(client, "", limit=2, after=second["after"])) == {"boards": [], "after": None}


def open_board_at(client: httpx.AsyncClient, board_id: str) -> Any:
    return connect(f"ws://{client.base_url.host}:{client.base_url.port}", board_id, Migration, agent="ann")


async def test_the_past_of_a_board_is_answered(client: httpx.AsyncClient) -> None:
    """State at a version, checkpoints, journal, diff, history, blame and verification."""
    assert (await got(client, f"/{BOARD}"))["version"] == 2
    now, then = await got(client, f"/{BOARD}/state"), await got(client, f"/{BOARD}/state", version=1)
    assert (now["state"]["plan"], now["checkpoint"], now["version"]) == (["ship"], None, 2)
    assert (then["state"]["findings"], then["checkpoint"]["step"]) == ({"f1": {"title": "cast"}}, "plan")
    page = await got(client, f"/{BOARD}/checkpoints", limit=1)
    assert ([each["version"] for each in page["checkpoints"]], page["before"]) == ([2], 2)
    page = await got(client, f"/{BOARD}/checkpoints", limit=1, before=2)
    assert ([each["version"] for each in page["checkpoints"]], page["before"]) == ([1], None)
    journal = await got(client, f"/{BOARD}/journal", limit=2)
    assert ([each["seq"] for each in journal["entries"]], journal["after"]) == ([1, 2], 2)
    assert journal["entries"][0]["payload"] is None
    diff = await got(client, f"/{BOARD}/diff", before=1, after=2)
    assert [each["path"] for each in diff["differences"]] == ["draft", "findings/f1/title", "status"]
    edits = await got(client, f"/{BOARD}/history", path="findings/f1/title")
    assert [(each["agent"], each["step"]) for each in edits["edits"]] == [("bob", "review"), ("ann", "plan")]
    stretches = (await got(client, f"/{BOARD}/blame", path="draft"))["stretches"]
    assert "".join(each["text"] for each in stretches) == now["state"]["draft"]
    assert (await got(client, f"/{BOARD}/verify"))["problems"] == []


@pytest.mark.parametrize(
    ("address", "status", "code"),
    [
        ("/api/boards/nope", 404, "not_found"),
        ("/api/boards/nope/state", 404, "not_found"),
        ("/api/boards/no%20pe", 404, "invalid_board_id"),
        ("/api/boards/..%2f..%2fetc", 404, "not_found"),
        ("/api/boards/%00", 404, "invalid_board_id"),
        (f"/api/boards/{BOARD}/state?version=3", 404, "not_found"),
        (f"/api/boards/{BOARD}/history?path=nothing", 400, "bad_request"),
        (f"/api/boards/{BOARD}/history", 422, "bad_request"),
        (f"/api/boards/{BOARD}/blame?path=status", 400, "bad_request"),
        (f"/api/boards/{BOARD}/diff?before=-1", 422, "bad_request"),
        ("/api/boards?limit=0", 422, "bad_request"),
        ("/api/nothing", 404, "not_found"),
    ],
)
async def test_every_error_is_a_problem_document(
    client: httpx.AsyncClient, address: str, status: int, code: str
) -> None:
    """H4: RFC 9457, with a code of the error table and a sentence; nothing is created by asking."""
    answer = await client.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["code"] in error_types()
    assert problem["detail"]
    assert [each["id"] for each in (await got(client, ""))["boards"]] == [BOARD]


async def test_problems_are_described_as_what_they_are(client: httpx.AsyncClient) -> None:
    """The description has no other type for them than the one that they are sent as, and says what is in them."""
    described = (await client.get("/openapi.json")).json()
    problem = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    contents = [
        answer["content"]
        for methods in described["paths"].values()
        for route in methods.values()
        for answer in route["responses"].values()
        if problem in answer.get("content", {}).values()
    ]
    assert len(contents) > 100
    assert all(content == {"application/problem+json": problem} for content in contents)
    assert described["components"]["schemas"]["ProblemDocument"]["required"] == ["title", "status", "detail", "code"]


async def test_a_method_that_an_address_does_not_have_has_a_code_of_its_own(client: httpx.AsyncClient) -> None:
    """The answer, its header and the table say the same."""
    answer = await client.delete("/api/boards")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["title"]) == (405, "method_not_allowed", "MethodNotAllowed")
    assert (answer.headers["allow"], problem["detail"]) == ("GET, POST", "this address takes GET, POST, not DELETE")


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        ('{"step": "s"}', "text/plain", "with the header Content-Type: application/json"),
        ('{"step": "s"', "application/json", "the body is not JSON: Expecting ',' delimiter at character 12"),
    ],
)
async def test_a_body_that_is_no_json_is_told_so(client: httpx.AsyncClient, content: str, kind: str, said: str) -> None:
    """Also when it only does not say that it is."""
    answer = await client.post(f"/api/boards/{BOARD}/commits", content=content, headers={"content-type": kind})
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["title"]) == (400, "bad_request", "BadRequest")
    assert said in problem["detail"]


async def test_a_store_that_fails_is_a_problem_that_says_when_to_come_back(database: Path) -> None:
    """Unavailable answers 503 with Retry-After."""
    store = await SqliteStore.open(database)
    async with serving(store) as served, web_client(served.url) as client:
        await store.close()
        answer = await client.get("/api/boards")
    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "store_unavailable", "1")


_ENDLESS_STREAMS = """
[[operations]]
include-path = "/api/boards/{board_id}/events"
request-timeout = 5
"""
"""For so long a stream of events is listened to, though none may come: ten seconds unless told."""


@pytest.mark.long
async def test_the_api_keeps_to_its_description(client: httpx.AsyncClient, tmp_path: Path) -> None:
    """schemathesis, from the OpenAPI document: no undescribed status, no answer that does not fit, no failure."""
    (tmp_path / "schemathesis.toml").write_text(_ENDLESS_STREAMS)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(client.base_url.join("/openapi.json"))),
        *("--max-examples", "3", "--phases", "examples,fuzzing", "--seed", "1", "--no-color"),
        # A path that names no field of this board is valid by the document, and refused.
        *("--exclude-checks", "positive_data_acceptance"),
        *("--exclude-path", "/api/imports"),  # what it takes is not JSON; see the tests of exports
    ]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said.decode()


def crdt_board(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in this process; its exit code and what it printed to both outputs."""
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_is_installed() -> None:
    """The program that the package installs knows the commands."""
    program = Path(sys.executable).with_name("crdt-board")
    done = subprocess.run([str(program), "--help"], capture_output=True, text=True, timeout=60, check=True)
    assert all(name in done.stdout for name in ("boards", "show", "history", "diff", "blame", "verify"))


async def test_a_board_is_compacted(client: httpx.AsyncClient) -> None:
    """What would go is said first; afterwards it is gone, and the rest is as it was."""
    before = await got(client, f"/{BOARD}/state")
    address = f"/api/boards/{BOARD}/compact"
    planned = await client.post(address, json={"keep_versions": 1, "dry_run": True})
    assert (planned.status_code, planned.json()["dropped"]) == (200, [{"first": 1, "last": 1}])
    assert (await client.get(f"/api/boards/{BOARD}/state", params={"version": 1})).status_code == 200
    done = await client.post(address, json={"keep_versions": 1})
    assert done.json()["entries"] == planned.json()["entries"] > 0
    gone = await client.get(f"/api/boards/{BOARD}/state", params={"version": 1})
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert "was compacted away" in gone.json()["detail"]
    assert await got(client, f"/{BOARD}/state") == before
    assert (await client.post(address, json={"keep": 1})).status_code == 422
    assert (await client.post("/api/boards/nope/compact", json={})).status_code == 404


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_compacts(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """The same over a file, while a server has it open, and over that server."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str) -> str:
        code, said, problems = await asyncio.to_thread(crdt_board, "compact", BOARD, *arguments, *where)
        assert (code, problems) == (0, "")
        return said

    assert "0 versions and 0 entries" in await run()
    assert "0 versions and 0 entries" in await run("--newer-than", "30d")
    assert "would go: versions 1\n" in await run("--keep-versions", "1", "--dry-run")
    report = json.loads(await run("--keep-versions", "1", "--no-keep-tagged", "--json"))
    assert (report["dry_run"], report["kept"][0]["why"]) == (False, "the newest")
    code, _, problems = await asyncio.to_thread(crdt_board, "compact", BOARD, "--newer-than", "soon", *where)
    assert (code, problems.count("\n")) == (1, 1)
    assert "give an age as 30d" in problems
    code, said, _ = await asyncio.to_thread(crdt_board, "verify", BOARD, *where)
    assert (code, "a base at entry" in said) == (0, True)


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_keeps_a_retention(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """It is shown and set, and is what `compact` goes by when it is told nothing else; the same over HTTP."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str) -> str:
        code, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert (code, problems) == (0, "")
        return said

    assert await run("retention", BOARD) == f"board {BOARD} keeps all versions\n"
    said = await run("retention", BOARD, "--keep-versions", "1", "--newer-than", "1h", "--no-keep-tagged")
    assert said == f"board {BOARD} keeps the newest 1 and those newer than 1:00:00\n"
    assert await got(client, f"/{BOARD}/retention") == {
        "keep_versions": 1,
        "newer_than_seconds": 3600,
        "keep_tagged": False,
    }
    answer = await client.put(f"/api/boards/{BOARD}/retention", json={"keep_versions": 1})
    assert answer.json()["keep_tagged"] is True
    assert "would go: versions 1\n" in await run("compact", BOARD, "--dry-run")
    assert "0 versions" in await run("compact", BOARD, "--keep-versions", "2")
    assert json.loads(await run("retention", BOARD, "--keep-all", "--json"))["keep_versions"] is None
    assert "0 versions" in await run("compact", BOARD)
    code, _, problems = await asyncio.to_thread(
        crdt_board, "retention", BOARD, "--keep-all", "--keep-versions", "1", *where
    )
    assert (code, problems.count("\n")) == (1, 1)


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_shows_a_boards_past(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """The same commands, with the same answers, over a file and over a server."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str) -> str:
        code, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert (code, problems) == (0, "")
        return said

    assert BOARD in await run("boards")
    assert json.loads(await run("boards", "--json"))[0]["version"] == 2
    assert '"title": "cast!"' in await run("show", BOARD)
    assert json.loads(await run("show", BOARD, "--at", "1", "--json"))["state"]["findings"] == {"f1": {"title": "cast"}}
    pointer = Checkpoint.model_validate(json.loads(await run("history", BOARD, "--json"))[-1]).pointer
    assert json.loads(await run("show", pointer, "--json"))["state"]["findings"] == {"f1": {"title": "cast"}}
    listed = json.loads(await run("history", BOARD, "--json"))
    assert [each["step"] for each in listed] == ["review", "plan"]
    pointer = f"board:{BOARD}@1#{listed[1]['hash'][:16]}"
    assert pointer in await run("history", BOARD)
    assert '"cast" -> "cast!"' in await run("history", BOARD, "findings/f1/title")
    assert "+ Three [months]" in await run("diff", BOARD, pointer, "2")
    assert [each["agent"] for each in json.loads(await run("blame", BOARD, "draft", "--json"))] == ["ann", "bob", "ann"]
    assert "bob, version 2 (review)" in await run("blame", BOARD, "draft")
    assert "are intact" in await run("verify", BOARD)
    sizes = json.loads(await run("sizes", BOARD, "--json"))
    assert {each["name"]: each["items"] for each in sizes["fields"]} == {
        "status": None,
        "plan": 1,
        "findings": 1,
        "steps": 1,
        "draft": 34,
    }
    assert (sizes["checkpoints"], sizes["warnings"]) == (2, [])
    assert "0 % of 10,000,000" in await run("sizes", BOARD)


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_changes_whole_boards(
    client: httpx.AsyncClient, database: Path, tmp_path: Path, place: str
) -> None:
    """Fork, merge, export, delete, import and create, over a file and over a server."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str) -> str:
        code, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert code == 0, problems
        return said

    made = json.loads(await run("fork", BOARD, "alt", "--at", "1", "--agent", "dan", "--json"))
    assert (made["board_id"], made["agent"], made["forked_from"][:16]) == ("alt", "dan", f"board:{BOARD}@1#"[:16])
    assert "alt" in await run("forks", BOARD)
    assert "changed: draft, findings, plan, status" in await run("merge", "alt", BOARD)
    file = tmp_path / "alt.export"
    await run("export", "alt", str(file))
    await run("delete", "alt", "--yes", "--agent", "dan")
    code, _, problems = await asyncio.to_thread(crdt_board, "show", "alt", *where)
    assert (code, "was deleted by dan" in problems) == (1, True)
    assert "made board alt at version 2" in await run("import", str(file))
    assert json.loads(await run("show", "alt", "--json"))["state"]["status"] == "DONE"
    assert "has the state of version 1; changed" in await run("restore", "alt", "1")
    assert "made board fresh" in await run("create", "fresh")
    assert not [each.name for each in tmp_path.iterdir() if each.name.startswith(".")]


async def test_a_commit_over_http_keeps_its_promises(client: httpx.AsyncClient) -> None:
    """V1, V4, V10: If-Match has one winner, a key is one commit, what does not fit is refused naming the path."""
    address = f"/api/boards/{BOARD}/commits"
    body = {"step": "http", "patch": {"status": "AGAIN", "plan": ["ship", "x"]}, "agent": "dan"}
    made = await client.post(address, json=body, headers={"If-Match": '"2"', "Idempotency-Key": "k"})
    assert (made.status_code, made.headers["etag"], made.json()["agent"]) == (201, '"3"', "dan")
    again = await client.post(address, json=body, headers={"If-Match": '"2"', "Idempotency-Key": "k"})
    assert again.json() == made.json()
    late = await client.post(address, json={"step": "late", "patch": {"status": "X"}}, headers={"If-Match": '"2"'})
    assert (late.status_code, late.json()["code"]) == (409, "version_conflict")
    assert late.json()["data"]["changed"] == ["plan", "status", "steps"]
    for patch, path in (({"status": 7}, "status"), ({"findings": {"f1": {"nope": 1}}}, "findings/f1/nope")):
        wrong = await client.post(address, json={"step": "wrong", "patch": patch})
        assert (wrong.status_code, wrong.json()["code"], wrong.json()["data"]["path"]) == (422, "invalid_value", path)
    assert (await client.post(address, json={"step": "x"}, headers={"If-Match": "x"})).status_code == 400
    assert (await client.post("/api/boards/nope/commits", json={"step": "x"})).status_code == 404
    state = (await got(client, f"/{BOARD}/state"))["state"]
    assert (state["status"], state["plan"]) == ("AGAIN", ["ship", "x"])
    back = await client.post(f"/api/boards/{BOARD}/restores", json={"version": 1})
    assert (back.status_code, back.json()["version"]) == (201, 4)
    assert (await got(client, f"/{BOARD}/state"))["state"]["findings"] == {"f1": {"title": "cast"}}


async def test_the_event_stream_goes_on_where_a_client_was(client: httpx.AsyncClient) -> None:
    """Entries in order, old and new ones, each once; a deletion ends the stream with its error."""

    async def read(until: str, begun: asyncio.Event | None = None, **options: Any) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        async with client.stream("GET", f"/api/boards/{BOARD}/events", **options) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            name = ""
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    found.append((name, line[6:]))
                    if begun is not None:
                        begun.set()
                    if until in line:
                        return found
        return found

    async with asyncio.timeout(DEADLINE_SECONDS):
        first = await read('"seq":4', params={"after": 1})
        assert [name for name, _ in first] == ["commit", "update", "commit"]
        following = asyncio.create_task(read('"seq":6', headers={"Last-Event-ID": "4"}))
        await client.post(f"/api/boards/{BOARD}/commits", json={"step": "next"})
        assert [json.loads(data)["seq"] for _, data in await following] == [5, 6]
        begun = asyncio.Event()
        ending = asyncio.create_task(read("board_deleted", begun, params={"after": 5}))
        await begun.wait()
        await client.delete(f"/api/boards/{BOARD}")
        assert (await client.get(f"/api/boards/{BOARD}/events")).status_code == 410
        assert [name for name, _ in await ending] == ["commit", "error"]


@pytest.mark.parametrize("place", ["file", "server"])
async def test_watch_prints_what_happens(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """One line for each entry, from the wanted one on, while the board goes on; Ctrl-C ends it."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]
    program = Path(sys.executable).with_name("crdt-board")
    process = await asyncio.create_subprocess_exec(
        str(program), "watch", BOARD, "--after", "4", "--json", *where, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert json.loads(await process.stdout.readline())["seq"] == 5
        await client.post(f"/api/boards/{BOARD}/commits", json={"step": "next"})
        assert json.loads(await process.stdout.readline())["kind"] == "commit"
        process.send_signal(signal.SIGINT)
        assert await process.wait() in (0, 130)


async def test_a_deletion_is_asked_about(client: httpx.AsyncClient, database: Path) -> None:
    """Without --yes and without an answer nothing is deleted."""
    code, _, asked = await asyncio.to_thread(crdt_board, "delete", BOARD, "--db", str(database))
    assert code == 1
    assert "2 versions for good?" in asked
    assert (await got(client, f"/{BOARD}"))["version"] == 2


@pytest.mark.parametrize("place", ["file", "server"])
async def test_what_ends_things_tells_it_as_json(
    client: httpx.AsyncClient, database: Path, tmp_path: Path, place: str
) -> None:
    """`export`, `dismiss` and `delete` print one object with ``--json``; an export to standard output has no room."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]
    file = tmp_path / "job.export"
    code, said, problems = await asyncio.to_thread(crdt_board, "export", BOARD, str(file), "--json", *where)
    assert (code, json.loads(said), problems) == (0, {"file": str(file)}, "")
    assert file.is_file()
    code, said, problems = await asyncio.to_thread(crdt_board, "export", BOARD, "-", "--json", *where)
    assert (code, said, problems.count("\n")) == (2, "", 1)
    code, said, _ = await asyncio.to_thread(crdt_board, "delete", BOARD, "--yes", "--json", *where)
    assert (code, json.loads(said)) == (0, {"deleted": BOARD, "version": 2, "seq": 5})


def test_every_command_that_answers_can_do_so_in_json() -> None:
    """But for those whose answer is a server, a file, or bytes."""

    def without_json(command: Any, name: str) -> set[str]:
        inner = getattr(command, "commands", {})
        found = {each for key, one in inner.items() for each in without_json(one, f"{name} {key}".strip())}
        options = {option for each in command.params for option in each.opts}
        return found if inner or "--json" in options else {name}

    assert without_json(get_command(app), "") == {"serve", "artifacts get"}


async def test_whole_boards_are_changed_over_http(client: httpx.AsyncClient) -> None:
    """Status codes and bodies of the routes that change boards."""
    made = await client.post("/api/boards", json={"board": "fresh"})
    assert (made.status_code, made.json()["seq"]) == (201, 0)
    assert (await client.post("/api/boards", json={"board": "fresh"})).json()["code"] == "board_exists"
    made = await client.post(f"/api/boards/{BOARD}/forks", json={"board": "alt"})
    assert (made.status_code, made.json()["forked_from"].split("#")[0]) == (201, f"board:{BOARD}@2")
    assert [each["board_id"] for each in (await got(client, f"/{BOARD}/forks"))["forks"]] == ["alt"]
    merged = await client.post("/api/boards/alt/merges", json={"board": BOARD, "agent": "dan"})
    assert (merged.status_code, merged.json()["agent"]) == (201, "dan")
    whole = await client.get("/api/boards/alt/export")
    assert whole.headers["content-disposition"].endswith('filename="alt.crdtboard"')
    gone = await client.delete("/api/boards/alt", params={"agent": "dan"})
    assert gone.status_code == 204
    late = await client.get("/api/boards/alt/state")
    assert (late.status_code, late.json()["code"], late.json()["data"]["agent"]) == (410, "board_deleted", "dan")
    back = await client.post("/api/imports", content=whole.content)
    assert (back.status_code, back.json()["version"]) == (201, 2)
    wrong = await client.post("/api/imports", content=b"x")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nope"], "there is no board nope"),
        (["show", "../nope"], "is not a board id"),
        (["diff", BOARD, "x"], "is no version"),
        (["diff", BOARD, f"board:{BOARD}@1#{'0' * 16}"], "is not the one that"),
        (["history", BOARD, "nothing"], "has no field 'nothing'"),
        (["history", BOARD, "findings/f1/titel"], "has no field 'titel'; did you mean 'title'?"),
        (
            ["history", BOARD, "plan/0"],
            "plan is a list, whose changes are told for the field as a whole; ask for 'plan'",
        ),
        (["history", BOARD, "steps/0"], "not by an index; item 0 is steps/"),
        (["history", BOARD, "steps/7"], "not by an index"),
        (["history", BOARD, "status/x/y"], "status is a scalar"),
        (["withdraw", BOARD, "\udcff"], "the name of an approval must be 1 to 200 printable characters"),
        (["tasks", "put", BOARD, "[NaN]"], "should be a finite number"),
        (["tasks", "complete", BOARD, "one", "NaN", "--token", "t" * 16], "should be a finite number"),
        (["export", BOARD, "/dev/full"], "cannot write /dev/full: No space left on device"),
    ],
)
@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_wrong_command_is_one_line(
    client: httpx.AsyncClient, database: Path, place: str, arguments: list[str], said: str
) -> None:
    """What is wrong, on one line, and exit code 1."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]
    code, output, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
    assert (code, output) == (1, "")
    assert said in problems
    assert problems.count("\n") == 1


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path, database: Path) -> None:
    """An export into a pipe reaches its reader; a command that is run by root leaves devices what they are."""
    pipe, whole = tmp_path / "pipe", tmp_path / "whole"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(pipe.read_bytes)
        assert crdt_board("export", BOARD, str(pipe), "--db", str(database))[0] == 0
        received = reading.result(DEADLINE_SECONDS)
    assert pipe.is_fifo()
    whole.write_bytes(received)
    assert crdt_board("import", str(whole), "--db", str(tmp_path / "fresh.db"))[0] == 0


def test_an_import_of_what_is_no_export_makes_no_database(tmp_path: Path, database: Path) -> None:
    """A file is made for a board that is sound, and for nothing else."""
    fresh, broken, whole = tmp_path / "fresh.db", tmp_path / "broken", tmp_path / "whole"
    crdt_board("export", BOARD, str(whole), "--db", str(database))
    broken.write_bytes(whole.read_bytes()[:-9])
    code, _, problems = crdt_board("import", str(broken), "--db", str(fresh))
    assert (code, problems.count("\n")) == (1, 1)
    assert not list(tmp_path.glob("fresh.db*"))
    assert crdt_board("import", str(whole), "--db", str(fresh))[0] == 0
    assert "are intact" in crdt_board("verify", BOARD, "--db", str(fresh))[1]


def test_a_file_that_is_named_counts_more_than_the_environment(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CRDT_BOARD_URL stands for --url only where neither is given; both at once are refused, in either order."""
    monkeypatch.setenv("CRDT_BOARD_URL", "http://127.0.0.1:1")
    file, server = ("--db", str(database)), ("--url", "http://127.0.0.1:1")
    assert crdt_board("show", BOARD, *file)[0] == 0
    assert "no CRDT Board server answers" in crdt_board("show", BOARD)[2]
    for both in ((*file, *server), (*server, *file)):
        code, said, problem = crdt_board("delete", BOARD, "--yes", *both)
        assert (code, said) == (2, "")
        assert "not both" in " ".join(problem.replace("│", " ").split())
    assert crdt_board("show", BOARD, *file)[0] == 0


def test_help_says_under_whose_name_something_is_recorded() -> None:
    """The default of --agent is the user's name."""
    assert "you, " in " ".join(crdt_board("merge", "--help")[1].split())


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_merge_of_nothing_new_makes_no_version(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """The newest version is the answer, and it is said that there was nothing; a deletion is something."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str) -> str:
        code, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert (code, problems) == (0, "")
        return said

    await run("fork", BOARD, "alt")
    assert "holds all that alt has already; nothing was committed" in await run("merge", BOARD, "alt")
    answer = await client.post(f"/api/boards/{BOARD}/merges", json={"board": "alt"})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    async with connect(f"ws://127.0.0.1:{client.base_url.port}", "alt", Migration, agent="ann") as board:
        del board.state.findings["f1"]
    assert "changed: findings" in await run("merge", BOARD, "alt")
    assert "nothing was committed" in await run("merge", BOARD, "alt")


def test_no_database_and_no_server_are_told_apart(tmp_path: Path) -> None:
    """A file that is missing is not made, and a server that is not there is named."""
    missing = tmp_path / "none.db"
    code, _, problems = crdt_board("boards", "--db", str(missing))
    assert (code, missing.exists()) == (1, False)
    assert "there is no database" in problems
    code, _, problems = crdt_board("boards", "--url", "http://127.0.0.1:1")
    assert code == 1
    assert "no CRDT Board server answers at http://127.0.0.1:1" in problems


class Sprint(BoardModel):
    start: int = 1
    end: int = 5

    @model_validator(mode="after")
    def ends_after_start(self) -> Self:
        if self.start > self.end:
            raise ValueError("ends before it starts")
        return self


@pytest.mark.parametrize("place", ["file", "server"])
async def test_violations_are_shown_and_dismissed(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """Who has no model sees what stands, cannot commit, and can drop it and commit the repair."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]
    url = f"ws://{client.base_url.host}:{client.base_url.port}"
    async with connect(url, "sprint", Sprint, agent="ann") as ann:
        async with connect(url, "sprint", agent="bob") as bob:
            bob.state["start"] = 9
            await bob.flush(DEADLINE_SECONDS)
        await ann.wait_for(
            lambda _state: bool(ann.violations) and ann.violations[0].agent is not None, DEADLINE_SECONDS
        )
    code, said, _ = await asyncio.to_thread(crdt_board, "violations", "sprint", *where, "--json")
    assert (code, [each["key"] for each in json.loads(said)]) == (0, ["ends_after_start@"])
    repair = {"step": "repair", "patch": {"start": 2}}
    refused = await client.post("/api/boards/sprint/commits", json=repair)
    assert (refused.status_code, refused.json()["code"]) == (409, "board_violated")
    code, _, problems = await asyncio.to_thread(crdt_board, "dismiss", "sprint", "nothing@", *where)
    assert (code, "no violation nothing@ stands" in problems) == (1, True)
    code, said, problems = await asyncio.to_thread(
        crdt_board, "dismiss", "sprint", "ends_after_start@", "--json", *where
    )
    assert (code, json.loads(said)) == (0, {"dismissed": "ends_after_start@"}), problems
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await got(client, "/sprint/violations"))["violations"]:
            await asyncio.sleep(0.01)
    assert (await client.post("/api/boards/sprint/commits", json=repair)).status_code == 201


async def test_a_body_that_is_too_large_is_refused_unread(client: httpx.AsyncClient) -> None:
    """It gets 413 and a problem, whether its length is announced or not, and nothing is changed."""
    most = DEFAULT_LIMITS.control_bytes_max

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(most // 65_536 + 1):
            yield bytes(65_536)

    address = f"/api/boards/{BOARD}/commits"
    for content in (b" " * (most + 1), pieces()):
        answer = await client.post(address, content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.headers["content-type"]) == (413, "application/problem+json")
        assert answer.json()["data"]["limit"] == "control_bytes_max"
    whole = json.dumps({"step": "large", "patch": {"status": "x" * 3_000_000}})
    assert (await client.post(address, content=whole, headers={"content-type": "application/json"})).is_success


async def test_a_page_of_the_journal_ends_where_its_updates_are_many(database: Path) -> None:
    """With payloads a page is cut by bytes, but holds one entry at least, and every entry comes once."""
    limits = replace(DEFAULT_LIMITS, journal_page_bytes_max=2_000)
    store = await SqliteStore.open(database)
    async with (
        serving(store, limits=limits) as served,
        web_client(served.url) as client,
    ):
        async with connect(served.url, BOARD, Migration, agent="ann") as board:
            for number, size in enumerate((900, 900, 900, 5_000, 10, 10)):
                board.state.status = str(number) * size
                await board.flush()
        pages: list[list[int]] = []
        after: int | None = 0
        while after is not None:
            page = await got(client, f"/{BOARD}/journal", after=after, payload=True)
            pages.append([each["seq"] for each in page["entries"]])
            after = page["after"]
        seqs = [seq for page in pages for seq in page]
        assert seqs == list(range(1, len(seqs) + 1))
        assert [len(page) for page in pages][-3:] == [2, 1, 2]
        assert len((await got(client, f"/{BOARD}/journal"))["entries"]) == len(seqs)


async def test_a_mistake_in_a_body_is_not_passed_over(client: httpx.AsyncClient) -> None:
    """Unknown keys, unknown fields, and reads without a version are refused, each by name."""
    for address, body, said in (
        ("forks", {"board": "x", "at": 1}, "at"),
        ("commits", {"step": "x", "expected_version": 0}, "expected_version"),
        ("commits", {"step": "x", "patch": {"statsu": "X"}}, "did you mean 'status'?"),
        ("commits", {"step": "x", "reads": ["status"]}, "reads needs If-Match"),
    ):
        answer = await client.post(f"/api/boards/{BOARD}/{address}", json=body)
        assert answer.status_code in (400, 422)
        assert said in answer.text
    unknown = await client.post(
        f"/api/boards/{BOARD}/commits", json={"step": "x", "reads": ["nope"]}, headers={"If-Match": '"2"'}
    )
    assert unknown.status_code == 422
    assert (await got(client, f"/{BOARD}"))["version"] == 2
