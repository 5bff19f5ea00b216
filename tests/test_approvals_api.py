"""Approvals over HTTP, and on the command line over a file and over a server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from crdt_board import BoardHost, BoardModel, Text, open_board
from crdt_board.clock import ManualClock
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from crdt_board_server.api.approval_lists import ApprovalLists
from crdt_board_server.cli import app
from support.serving import serving
from support.waiting import DEADLINE_SECONDS
from support.web import web_client

BOARD = "job-884"


class Job(BoardModel):
    status: str = ""
    draft: Text


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> Path:
    """A board of one version, on which something was asked about the draft, and a board on which nothing was."""
    file = tmp_path / "boards.db"
    async with open_board(file, BOARD, Job, agent="ann") as ann:
        ann.state.draft.append("The plan.\n")
        await ann.commit("plan")
        ann.state.draft.append("Two weeks [maybe].\x1b[2J\n")
        await ann.ask("Ship it?", about=["draft"], key="ship/1", payload={"cost": 3})
        await ann.ask("Lunch?", options=["pizza", "soup"], key="lunch")
    async with open_board(file, "a-quiet-one", Job, agent="ann"):
        pass
    return file


@pytest_asyncio.fixture
async def client(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(await SqliteStore.open(database)) as served,
        web_client(served.url) as client,
    ):
        yield client


async def listed(client: httpx.AsyncClient, address: str = f"/api/boards/{BOARD}/approvals", **query: Any) -> list[str]:
    answer = await client.get(address, params=query)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["approvals"]]


async def test_approvals_are_listed_shown_and_decided(client: httpx.AsyncClient) -> None:
    """By state, over one board and over all of them; with what they are about; the decision is everywhere at once."""
    assert await listed(client) == ["ship/1", "lunch"]
    address = f"/api/boards/{BOARD}/approvals/ship%2F1"
    shown = (await client.get(address)).json()
    assert (shown["state"], shown["agent"], shown["version"], shown["payload"]) == ("pending", "ann", 1, {"cost": 3})
    assert shown["content"]["draft"].startswith("The plan.\nTwo weeks")
    body = {"option": "approve", "comment": "Well done.", "seen": shown["hash"], "agent": "eve"}
    decided = await client.post(f"{address}/decision", json=body)
    assert decided.status_code == 200, decided.text
    decision = decided.json()["decision"]
    assert (decision["state"], decision["option"], decision["agent"]) == ("decided", "approve", "eve")
    assert (await client.get(address)).json()["decision"] == decision
    for where in (f"/api/boards/{BOARD}/approvals", "/api/approvals"):
        assert await listed(client, where, state="pending") == ["lunch"]
        assert await listed(client, where, state="decided") == ["ship/1"]
        assert await listed(client, where, state="expired") == []


async def test_approvals_of_all_boards_come_in_pages_of_boards(client: httpx.AsyncClient) -> None:
    """A page may be empty and still say where to go on; what is asked between two looks is seen."""
    first = (await client.get("/api/approvals", params={"limit": 1})).json()
    assert first == {"approvals": [], "after": "a-quiet-one"}
    assert await listed(client, "/api/approvals", after="a-quiet-one") == ["ship/1", "lunch"]
    made = await client.post("/api/boards/a-quiet-one/approvals", json={"question": "Awake?", "key": "awake"})
    assert (made.status_code, made.json()["options"]) == (201, ["approve", "reject"])
    assert await listed(client, "/api/approvals") == ["awake", "ship/1", "lunch"]
    await client.delete("/api/boards/a-quiet-one")
    assert await listed(client, "/api/approvals") == ["ship/1", "lunch"]


async def test_a_question_is_asked_and_taken_back_over_http(client: httpx.AsyncClient) -> None:
    """Under a key once; an agent that is connected waits for the answer, a change of the subject closes it."""
    address = f"/api/boards/{BOARD}/approvals"
    body = {"question": "Really?", "about": ["draft"], "expires_seconds": 60, "key": "k", "agent": "bot"}
    made = await client.post(address, json=body)
    assert (made.status_code, made.json()["expires_ms"]) == (201, made.json()["asked_ms"] + 60_000)
    assert (await client.post(address, json=body)).json() == made.json()
    other = await client.post(address, json={**body, "question": "Else?"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    unnamed = [(await client.post(address, json={"question": "?"})).json()["id"] for _ in range(2)]
    assert len({*unnamed}) == 2
    for _ in range(2):
        gone = await client.post(f"{address}/{unnamed[0]}/withdrawal", json={"agent": "bot"})
        assert (gone.status_code, gone.json()["decision"]["agent"]) == (200, "bot")
    url = f"ws://{client.base_url.host}:{client.base_url.port}"
    async with connect(url, BOARD, Job, agent="ann") as ann:
        ann.state.draft.append("New.")
        await ann.flush(DEADLINE_SECONDS)
    late = await client.post(f"{address}/k/decision", json={"option": "approve"})
    assert (late.status_code, late.headers["content-type"]) == (409, "application/problem+json")
    problem = late.json()
    assert (problem["code"], problem["data"]["state"], problem["data"]["agent"], problem["data"]["path"]) == (
        "approval_closed", "superseded", "ann", "draft",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_line", "body", "status", "code"),
    [
        ("GET /api/boards/nope/approvals", None, 404, "not_found"),
        (f"GET /api/boards/{BOARD}/approvals/nope", None, 404, "not_found"),
        (f"GET /api/boards/{BOARD}/approvals?state=open", None, 422, "bad_request"),
        ("POST /api/boards/nope/approvals", {"question": "?"}, 404, "not_found"),
        (f"POST /api/boards/{BOARD}/approvals", {"question": ""}, 422, "bad_request"),
        (f"POST /api/boards/{BOARD}/approvals", {"question": "\x1b[2J"}, 422, "bad_request"),
        (f"POST /api/boards/{BOARD}/approvals", {"question": "?", "about": ["drafft"]}, 422, "invalid_value"),
        (f"POST /api/boards/{BOARD}/approvals", {"question": "?", "payload": "x" * 70_000}, 413, "limit_exceeded"),
        (f"POST /api/boards/{BOARD}/approvals/nope/decision", {"option": "approve"}, 404, "not_found"),
        (f"POST /api/boards/{BOARD}/approvals/lunch/decision", {"option": "approve"}, 422, "invalid_value"),
        (f"POST /api/boards/{BOARD}/approvals/lunch/decision", {"option": "soup", "seen": "0" * 64}, 409,
         "approval_mismatch"),
        (f"POST /api/boards/{BOARD}/approvals/nope/withdrawal", {}, 404, "not_found"),
    ],
)  # fmt: skip
async def test_wrong_requests_are_answered_with_problems(
    client: httpx.AsyncClient, request_line: str, body: Any, status: int, code: str
) -> None:
    """Status and stable code; nothing is decided, and no board is made."""
    answer = await client.request(*request_line.split(), json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await listed(client, state="pending") == ["ship/1", "lunch"]
    assert (await client.get("/api/boards/nope")).status_code == 404


async def test_the_event_stream_tells_of_approvals(client: httpx.AsyncClient) -> None:
    """What is asked and decided is an entry of the kind ``coordination``, which wakes who watches."""
    newest = (await client.get(f"/api/boards/{BOARD}")).json()["seq"]
    seen: list[str] = []
    async with (
        asyncio.timeout(DEADLINE_SECONDS),
        client.stream("GET", f"/api/boards/{BOARD}/events", params={"after": newest - 1}) as answer,
    ):
        async for line in answer.aiter_lines():
            seen += [line] if line.startswith("event: ") else []
            if len(seen) == 2:
                break
            if line.startswith("data: "):
                await client.post(f"/api/boards/{BOARD}/approvals/lunch/decision", json={"option": "soup"})
    assert seen == ["event: coordination"] * 2


async def test_what_has_run_out_is_shown_as_expired_before_anybody_has_written_it_down() -> None:
    """A look at a board that nobody has open changes nothing, and does not show as pending what nobody can decide."""
    clock = ManualClock()
    async with BoardHost(MemoryStore(clock=clock), clock=clock) as host:
        async with open_board(host, BOARD, Job, agent="ann") as ann:
            await ann.ask("Ship?", about=["draft"], expires=10, key="ship")
        lists = ApprovalLists(host)
        assert (await lists.of(BOARD))[0].state == "pending"
        clock.advance(10_000)
        (shown,), after = await lists.page(after="", limit=10)
        assert (shown.state, shown.decision and shown.decision.at_ms, after) == ("expired", shown.expires_ms, None)
        assert (await lists.one(BOARD, "ship")).state == "expired"
        assert host.open_boards() == {}


def crdt_board(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "240"})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_lists_shows_and_decides(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """The same over a file, while a server has it open, and over that server."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str, code: int = 0) -> str:
        exit_code, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert exit_code == code, (said, problems)
        return problems if code else said

    everywhere = await run("approvals")
    assert "Ship it?" in everywhere
    assert "approve | reject" in everywhere
    assert [each["id"] for each in json.loads(await run("approvals", BOARD, "--json"))] == ["ship/1", "lunch"]
    assert "nothing waits for a decision" in await run("approvals", "a-quiet-one")
    shown = await run("approvals", BOARD, "ship/1")
    assert "Two weeks [maybe].\\x1b[2J" in shown
    assert "\x1b" not in shown
    assert "+ Two weeks [maybe]." in shown
    assert 'payload: {"cost": 3}' in shown
    said = await run("decide", BOARD, "ship/1", "approve", "--comment", "Well done.", "--agent", "eve")
    assert "+ Two weeks" in said
    assert said.endswith("decided: approve, as eve\n")
    assert "is not open any more: approve, by eve" in await run("decide", BOARD, "ship/1", "reject", code=1)
    (decided,) = json.loads(await run("approvals", BOARD, "--state", "decided", "--json"))
    assert (decided["decision"]["comment"], decided["decision"]["agent"]) == ("Well done.", "eve")
    assert "decided: approve, by eve" in await run("approvals", "--state", "all")
    assert await run("withdraw", BOARD, "lunch", "--agent", "eve") == "withdrew lunch\n"
    assert "withdrawn by eve" in await run("approvals", BOARD, "--state", "withdrawn")
    assert "there is no approval nope" in await run("decide", BOARD, "nope", "approve", code=1)
    assert "there is no board nope" in await run("approvals", "nope", code=1)


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_asks(client: httpx.AsyncClient, database: Path, place: str) -> None:
    """A question is put with its options and what it is about, once under its key; a wrong one is refused."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def ask(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(crdt_board, "ask", *arguments, *where)

    asking = ("Dinner?", "--option", "rice", "--option", "soup", "--about", "draft", "--expires", "2d", "--key", "d")
    for _ in range(2):
        assert await ask(BOARD, *asking, "--agent", "eve") == (0, "d\n", "")
    asked = (await client.get(f"/api/boards/{BOARD}/approvals/d")).json()
    assert (asked["options"], asked["about"], asked["agent"]) == (["rice", "soup"], ["draft"], "eve")
    assert asked["expires_ms"] - asked["asked_ms"] == 2 * 24 * 3600 * 1000
    code, said, _ = await ask(BOARD, "Tea?", "--json")
    assert (code, json.loads(said)["options"]) == (0, ["approve", "reject"])
    for wrong, why in (
        ((BOARD, "Tea?", "--about", "drafft"), "drafft"),
        ((BOARD, ""), "question"),
        ((BOARD, "Tea?", "--expires", "soon"), "30d"),
        (("nope", "Tea?"), "there is no board nope"),
    ):
        code, said, problem = await ask(*wrong)
        assert (code, said, problem.count("\n")) == (1, "", 1)
        assert why in problem


async def test_what_a_question_is_about_is_shown_the_same_every_time(database: Path) -> None:
    """Keys are in alphabetical order, what is long is on lines of its own, and all of it is set in."""
    async with open_board(database, BOARD, agent="ann") as ann:
        ann.state.update(notes={"b": "y" * 80, "a": "x"})
        await ann.ask("So?", about=["draft", "notes"], key="so")
    shown = (await asyncio.to_thread(crdt_board, "approvals", BOARD, "so", "--db", str(database)))[1]
    about = shown[shown.index("  draft:") :].splitlines()
    assert about == [
        "  draft:",
        "    The plan.",
        "    Two weeks [maybe].\\x1b[2J",
        "  notes:",
        "    {",
        '      "a": "x",',
        f'      "b": "{"y" * 80}"',
        "    }",
        "  what differs there now from version 1:",
        *about[9:],
    ]


@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_command_line_refuses_to_decide_on_what_has_changed(
    client: httpx.AsyncClient, database: Path, place: str
) -> None:
    """It shows what is different now, says who changed it, and exits with 1."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]
    url = f"ws://{client.base_url.host}:{client.base_url.port}"
    async with connect(url, BOARD, Job, agent="bob") as bob:
        bob.state.draft.replace("Two weeks", "Three months")
    code, said, problems = await asyncio.to_thread(crdt_board, "decide", BOARD, "ship/1", "approve", *where)
    assert (code, problems) == (1, "error: approval ship/1 is not open any more: superseded: bob changed draft\n")
    assert "+ Three months" in said
    assert "superseded: bob changed draft" in said


async def test_a_long_payload_and_difference_are_cut_with_the_command_that_shows_all(database: Path) -> None:
    """Many lines, and long ones; what is short is there as a whole."""
    async with open_board(database, BOARD, Job, agent="ann") as ann:
        asked = await ann.ask("So?", key="so", about=["draft"], payload={"lines": list(range(130))})
        short = await ann.ask("And?", key="and", payload={"cost": 12})
        long = await ann.ask("Or?", key="or", payload="x" * 5_000)
        ann.state.draft.append("\n".join(f"\nline {number} {'long ' * 100}" for number in range(130)))
        await ann.commit("much")
        assert asked.id == "so"
        assert (short.id, long.id) == ("and", "or")
    where = ["--db", str(database)]
    shown = (await asyncio.to_thread(crdt_board, "approvals", BOARD, "so", *where))[1]
    assert f"more lines, see `crdt-board approvals {BOARD} so --json`\n" in shown
    assert re.search(rf"more lines, see `crdt-board diff {BOARD} [0-9]+`\n", shown)
    assert max(map(len, shown.splitlines())) < 250
    assert shown.count("\n") < 80
    shown = (await asyncio.to_thread(crdt_board, "approvals", BOARD, "or", *where))[1]
    assert f"long lines were cut, see `crdt-board approvals {BOARD} or --json`\n" in shown
    assert "x" * 250 not in shown
    shown = (await asyncio.to_thread(crdt_board, "approvals", BOARD, "and", *where))[1]
    assert 'payload: {"cost": 12}\n' in shown
    assert "see `" not in shown


async def test_a_long_subject_is_cut_and_a_wrong_option_is_refused_before_it(database: Path) -> None:
    """What is wrong does not stand behind a hundred lines."""
    async with open_board(database, BOARD, agent="ann") as ann:
        ann.state.update(notes="\n".join(f"line {number}" for number in range(130)))
        await ann.ask("So?", about=["notes"], key="so")
    shown = (await asyncio.to_thread(crdt_board, "approvals", BOARD, "so", "--db", str(database)))[1]
    assert f"line 19\n    … 110 more lines, see `crdt-board show {BOARD}`\n" in shown
    code, said, problem = await asyncio.to_thread(crdt_board, "decide", BOARD, "so", "maybe", "--db", str(database))
    assert (code, said) == (1, "")
    assert "is decided by one of approve, reject" in problem
