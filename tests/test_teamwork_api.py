"""Leases, tasks and agents over HTTP and on the command line, over a file and over the real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from crdt_board import LeaseLost, TaskLost, open_board
from crdt_board.team.reactions import Event
from crdt_board_client import connect
from crdt_board_server.cli import app
from support.model import Report
from support.places import BOARD, Place, place_of
from support.waiting import DEADLINE_SECONDS, eventually
from support.web import web_client

ADDRESS = f"/api/boards/{BOARD}"


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with place_of("served", tmp_path / "boards.db") as place:
        async with place.open(Report, "ann") as ann:
            await ann.commit("begin")
        yield place


@pytest_asyncio.fixture
async def client(place: Place) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(place.url) as client:
        yield client


async def post(client: httpx.AsyncClient, route: str, status: int = 200, /, **body: Any) -> Any:
    answer = await client.post(f"{ADDRESS}/{route}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def got(client: httpx.AsyncClient, path: str, **parameters: Any) -> Any:
    answer = await client.get(f"{ADDRESS}/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_task_goes_its_way_over_http(client: httpx.AsyncClient, place: Place) -> None:
    """Put, claim, renew and complete; agents on the board see each of it, and they see what it does."""
    async with place.open(Report, "ann") as ann:
        put = await post(client, "tasks", 201, key="t", queue="q", payload={"lang": "py"}, agent="dan")
        assert (put["state"], put["put_by"], ann.tasks.get("t").payload) == ("open", "dan", {"lang": "py"})
        assert await post(client, "tasks", 201, key="t", queue="q", payload={"lang": "py"}) == put
        assert (await post(client, "tasks", 409, key="t", queue="r"))["code"] == "task_mismatch"
        assert (await post(client, "tasks", 404, key="u", after=["nowhere"]))["code"] == "not_found"
        assert await post(client, "tasks/claim", queues=["r"]) == {"task": None, "token": None}
        claimed = await post(client, "tasks/claim", queues=["q"], where={"lang": "py"}, agent="dan")
        assert claimed["token"] not in json.dumps(await got(client, "tasks"))
        own = {"key": "t", "token": claimed["token"]}
        assert (await post(client, "tasks/renew", **own, ttl=60))["expires_ms"] > claimed["task"]["expires_ms"]
        done = await post(client, "tasks/complete", **own, result=[1])
        assert (done["state"], done["result"], ann.tasks.get("t").agent) == ("done", [1], "dan")
        assert (await post(client, "tasks/fail", 409, **own, error="late"))["code"] == "task_lost"
        await ann.tasks.put(key="u")
        token = "a-token-of-my-own"
        once = await post(client, "tasks/claim", token=token)
        assert await post(client, "tasks/claim", token=token) == once
        assert (await post(client, "tasks/release", token=token))["task"]["state"] == "open"
        assert await post(client, "tasks/release", token=token) == {"task": None}
        claimed = await post(client, "tasks/claim")
        failed = await post(client, "tasks/fail", key="u", token=claimed["token"], error="no", retry=False)
        assert (failed["state"], failed["error"]) == ("failed", "no")
        assert (await post(client, "tasks/retry", key="u"))["state"] == "open"
        with pytest.raises(TaskLost):
            async with ann.tasks.claim():
                assert (await post(client, "tasks/cancel", key="u"))["state"] == "cancelled"
        assert await post(client, "tasks/clear", states=["cancelled"]) == {"removed": 1}
        assert await post(client, "tasks/clear") == {"removed": 1}
        assert await got(client, "tasks") == {"tasks": [], "after": None}


async def test_tasks_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    """In the order in which they were put, by state and queue; every page but the last says where to go on."""
    for number in range(5):
        await post(client, "tasks", 201, key=str(number), queue="even" if number % 2 == 0 else "odd")
    await post(client, "tasks", 201, key="last", queue="odd", after=["0"])
    page = await got(client, "tasks", limit=4)
    assert [each["key"] for each in page["tasks"]] == ["0", "1", "2", "3"]
    page = await got(client, "tasks", limit=4, after=page["after"])
    assert ([each["key"] for each in page["tasks"]], page["after"]) == (["4", "last"], None)
    page = await got(client, "tasks", queue="odd", state=["open", "claimed"])
    assert [each["key"] for each in page["tasks"]] == ["1", "3"]


async def test_leases_are_listed_and_broken(client: httpx.AsyncClient, place: Place) -> None:
    """Who holds what, without what would let others pass as the holder; a broken one is free at once."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        with pytest.raises(LeaseLost, match="not held any more"):  # noqa: PT012 - at the end of the block
            async with ann.lease("a/b", ttl=60) as lease:
                (held,) = (await got(client, "leases"))["leases"]
                holder = {"agent": "ann", "fence": lease.fence, "expires_ms": held["holders"][0]["expires_ms"]}
                assert held == {"name": "a/b", "shared": False, "holders": [holder]}
                assert await post(client, "leases/break", name="a/b") == {"holders": [holder]}
                assert await post(client, "leases/break", name="a/b") == {"holders": []}
                async with bob.lease("a/b", timeout=0):
                    await ann.commit("late", lease=lease)


async def test_who_is_present_is_told(client: httpx.AsyncClient, place: Place) -> None:
    """Names, roles, steps and focus of everybody who is connected; nobody on a board that nobody is on."""
    assert await got(client, "agents") == {"agents": []}
    async with place.open_all(Report, "bob", "ann") as (bob, _):
        bob.announce(role="writer", step="draft", focus="draft")
        said = {"agent": "bob", "role": "writer", "step": "draft", "focus": "draft"}

        async def all_said() -> bool:
            return (await got(client, "agents"))["agents"][1:] == [said]

        await eventually(all_said, "both are present")
        assert (await got(client, "agents"))["agents"][0]["agent"] == "ann"


@pytest.mark.parametrize("path", ["agents", "leases", "tasks"])
async def test_a_board_that_is_not_there_is_not_made(client: httpx.AsyncClient, path: str) -> None:
    """H4: looking at one, and asking its writer, is answered with 404."""
    for answer in (await client.get(f"/api/boards/nope/{path}"), await client.post("/api/boards/nope/tasks", json={})):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert [each["id"] for each in (await client.get("/api/boards")).json()["boards"]] == [BOARD]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("tasks", {"key": ""}),
        ("tasks", {"key": "a\nb"}),
        ("tasks", {"keys": "a"}),
        ("tasks", {"payload": "x" * 70_000}),
        ("tasks", {"attempts": 0}),
        ("tasks/claim", {"ttl": 0}),
        ("tasks/claim", {"token": "short"}),
        ("tasks/complete", {"key": "t"}),
        ("tasks/clear", {"states": ["open"]}),
        ("leases/break", {}),
    ],
)
async def test_what_does_not_fit_is_a_problem(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> None:
    """Wrong bodies are refused with a problem document, and change nothing."""
    answer = await client.post(f"{ADDRESS}/{path}", json=body)
    assert answer.status_code in (413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await got(client, "tasks"))["tasks"] == []


async def test_what_ran_out_while_nobody_was_there_is_not_shown(place: Place, client: httpx.AsyncClient) -> None:
    """A claim whose time is over is over, also when the board was not open since."""
    await post(client, "tasks", 201, key="t")
    await post(client, "tasks/claim", ttl=0.1)

    async def is_open() -> bool:
        return (await got(client, "tasks"))["tasks"][0]["state"] == "open"

    await eventually(is_open, "the claim has run out")


def crdt_board(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(params=["file", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path, client: httpx.AsyncClient) -> list[str]:
    return ["--db", str(tmp_path / "boards.db")] if request.param == "file" else ["--url", str(client.base_url)]


async def run(*arguments: str, code: int = 0) -> str:
    ended, said, problems = await asyncio.to_thread(crdt_board, *arguments)
    assert (ended, problems) == (code, ""), problems
    return said


async def test_the_command_line_does_tasks(where: list[str]) -> None:
    """The same commands and answers over a file, which a server has open, and over that server."""
    assert "no tasks" in await run("tasks", "list", BOARD, *where)
    assert await run("tasks", "put", BOARD, '{"lang": "py"}', "--key", "[t]", "--queue", "q", *where) == "[t] is open\n"
    assert "waits for [t]" in await run("tasks", "put", BOARD, "--key", "u", "--after", "[t]", *where)
    assert "no open task" in await run("tasks", "claim", BOARD, "q", "--where", 'lang="js"', *where, code=1)
    assert "no open task" in await run("tasks", "claim", BOARD, "r", *where, code=1)
    claimed = json.loads(await run("tasks", "claim", BOARD, "q", "--where", 'lang="py"', "--json", *where))
    token = ["--token", claimed["token"]]
    assert "is claimed" in await run("tasks", "renew", BOARD, "[t]", "--ttl", "60", *token, *where)
    assert "is done: [1]" in await run("tasks", "complete", BOARD, "[t]", "[1]", *token, *where)
    said = await run("tasks", "claim", BOARD, "--agent", "dan", *where)
    assert "u: attempt 1 of 3" in said
    token = ["--token", said.split("token ")[1].split()[0]]
    assert "u is open" in await run("tasks", "release", BOARD, *token, *where)
    assert "nothing is claimed" in await run("tasks", "release", BOARD, *token, *where)
    token = ["--token", json.loads(await run("tasks", "claim", BOARD, "--json", *where))["token"]]
    assert "u is failed: no" in await run("tasks", "fail", BOARD, "u", "no", "--no-retry", *token, *where)
    assert "u is open" in await run("tasks", "retry", BOARD, "u", *where)
    assert "u is cancelled" in await run("tasks", "cancel", BOARD, "u", *where)
    listed = json.loads(await run("tasks", "list", BOARD, "--state", "done", "--state", "open", "--json", *where))
    assert [(each["key"], each["result"]) for each in listed] == [("[t]", [1])]
    assert "removed 0" in await run("tasks", "clear", BOARD, "--older-than", "1d", *where)
    assert "removed 1" in await run("tasks", "clear", BOARD, "--state", "cancelled", *where)
    assert "removed 1" in await run("tasks", "clear", BOARD, "[t]", *where)


async def test_the_command_line_shows_and_breaks_leases(where: list[str], place: Place) -> None:
    """What an agent holds at the server is shown, and taken from it."""
    async with place.open(Report, "ann") as ann:
        lease = ann.lease("[payments]", ttl=60)
        await lease.__aenter__()
        assert "[payments]" in await run("leases", BOARD, *where)
        assert json.loads(await run("leases", BOARD, "--json", *where))[0]["holders"][0]["agent"] == "ann"
        assert "ann had [payments]" in await run("leases", BOARD, "--break", "[payments]", *where)
        assert "nobody had" in await run("leases", BOARD, "--break", "[payments]", *where, code=1)
        assert "nothing is held" in await run("leases", BOARD, *where)


async def failed_twice(place: Place) -> None:
    """Leave two reactions on the board that have failed."""
    async with place.open(Report, "ann") as ann:

        @ann.on("scores/*", name="[check]", attempts=1)
        def check(_event: Event) -> None:
            raise ValueError("\x1b[2J gone")

        ann.state.scores["a"], ann.state.scores["b"] = 1, 2
        await ann.settled(DEADLINE_SECONDS)


async def test_reactions_over_http(client: httpx.AsyncClient, place: Place) -> None:
    """Listed by state and in pages, and armed again; what has not run is not found."""
    await failed_twice(place)
    page = await got(client, "reactions", state="failed", limit=1)
    assert [(each["name"], each["path"], each["state"]) for each in page["reactions"]] == [
        ("[check]", "scores/a", "failed")
    ]
    page = await got(client, "reactions", after=page["after"])
    assert [(each["path"], each["error"]) for each in page["reactions"]] == [("scores/b", "ValueError: \x1b[2J gone")]
    assert page["after"] is None
    armed = await post(client, "reactions/retry", name="[check]", path="scores/a")
    assert (armed["name"], armed["path"], armed["state"], armed["error"]) == ("[check]", "scores/a", "armed", "")
    assert [each["path"] for each in (await got(client, "reactions", state="armed"))["reactions"]] == ["scores/a"]
    assert (await post(client, "reactions/retry", 404, name="[check]", path="scores/c"))["code"] == "not_found"


async def test_the_command_line_shows_and_retries_reactions(where: list[str], place: Place) -> None:
    """Why they failed is shown, without what would steer the terminal."""
    assert "no reaction has run yet" in await run("reactions", BOARD, *where)
    await failed_twice(place)
    shown = await run("reactions", BOARD, "--state", "failed", *where)
    assert ("scores/b" in shown, "ValueError: \\x1b[2J gone" in shown, "\x1b" in shown) == (True, True, False)
    assert "[check] at scores/b is armed" in await run("reactions", BOARD, "--retry", "[check]@scores/b", *where)
    listed = json.loads(await run("reactions", BOARD, "--json", "--limit", "1", *where))
    assert [(each["path"], each["state"]) for each in listed] == [("scores/a", "failed")]


async def test_the_command_line_shows_agents_of_a_server(place: Place, client: httpx.AsyncClient) -> None:
    """Over a file nobody is present, and the command says where to ask."""
    async with connect(place.url, BOARD, Report, agent="ann"):
        assert "ann" in await run("agents", BOARD, "--url", str(client.base_url))
    code, _, problems = await asyncio.to_thread(crdt_board, "agents", BOARD, "--db", str(place._file))
    assert (code, "ask a server, with --url" in problems) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tasks", "put", BOARD, "{"], "the payload must be JSON"),
        (
            ["tasks", "complete", BOARD, "t", "done", "--token", "x" * 16],
            """the result must be JSON, like '"checked"'""",
        ),
        (["tasks", "claim", BOARD, "--where", "lang=py"], """the value of lang must be JSON, like 'lang="py"'"""),
        (["tasks", "renew", BOARD, "t", "--token", "wrong"], "--token wrong: give what `tasks claim` printed"),
        (["tasks", "put", BOARD, "--key", ""], "key: String should have at least 1 character"),
        (["tasks", "list", BOARD, "--state", "odd"], "choose one of open"),
        (["tasks", "claim", BOARD, "--where", "lang"], "give a key and its value"),
        (["tasks", "claim", BOARD, "--ttl", "0"], "ttl: Input should be greater"),
        (["tasks", "cancel", BOARD, "nope"], "there is no task nope"),
        (["tasks", "complete", BOARD, "nope", "--token", "x" * 16], "task nope is gone"),
        (["tasks", "clear", BOARD, "--older-than", "soon"], "--older-than soon: give an age"),
        (["tasks", "list", "nope"], "there is no board nope"),
        (["leases", "nope"], "there is no board nope"),
        (["reactions", "nope"], "there is no board nope"),
        (["reactions", BOARD, "--state", "odd"], "choose one of armed"),
        (["reactions", BOARD, "--retry", "check"], "give the reaction and the place"),
        (["reactions", BOARD, "--retry", "check@scores/a"], "check has not run at scores/a"),
    ],
)
async def test_a_wrong_command_is_one_line(where: list[str], arguments: list[str], said: str) -> None:
    """What is wrong, on one line, and exit code 1."""
    code, output, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
    assert (code, output, problems.count("\n")) == (1, "", 1)
    assert said in problems


async def test_a_board_in_a_file_has_tasks_without_a_server(tmp_path: Path) -> None:
    """What the command line puts into a file, an embedded agent does."""
    file = tmp_path / "own.db"
    async with open_board(file, BOARD, Report, agent="ann") as ann:
        await run("tasks", "put", BOARD, "7", "--db", str(file))
        async with asyncio.timeout(15), ann.tasks.claim() as task:
            assert task.payload == 7


@pytest.mark.parametrize("content", [r'{"\ud800": 1}', r'{"x": [{"y\udfff": 2}]}'])
@pytest.mark.parametrize(
    "case",
    [
        ("tasks", '{"payload": %s}', "put_task/payload"),
        ("tasks/claim", '{"where": %s}', "claim_task/where"),
        ("approvals", '{"question": "q?", "payload": %s}', "ask_approval/payload"),
        ("commits", '{"step": "s", "output": %s}', "output"),
        ("commits", '{"step": "s", "handoff": %s}', "handoff"),
        ("commits", '{"step": "s", "patch": {"scores": %s}}', "scores"),
        ("resolutions", '{"effect": "mail", "key": "k", "took_place": true, "result": %s}', "result"),
    ],
)
async def test_a_key_that_is_no_unicode_is_refused(
    client: httpx.AsyncClient, place: Place, case: tuple[str, str, str], content: str
) -> None:
    """As a value is: with the path, and nothing is written; it does not become another key."""
    route, body, path = case
    before = await place.entries()
    headers = {"content-type": "application/json"}
    answer = await client.post(f"{ADDRESS}/{route}", content=body % content, headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid_value")
    assert problem["data"]["path"].startswith(path)
    assert "has a key with a lone surrogate at position" in problem["detail"]
    assert await place.entries() == before


async def test_tables_are_short_and_a_text_is_told_in_few_pieces(where: list[str], place: Place) -> None:
    """A long result is cut off, and there as JSON; what a model wrote token by token is one piece of a version."""
    async with place.open(Report, "ann") as ann, place.open(Report, "bob") as bob:
        await ann.tasks.put({}, key="t")
        async with ann.tasks.claim() as task:
            await task.complete("\x9b" + "y" * 5_000)
        for token in ("One ", "sen", "ten", "ce."):
            ann.state.draft.append(token)
            await ann.flush()
        await ann.commit("write")
        await bob.wait_for(lambda state: len(state.draft) == 13, timeout=DEADLINE_SECONDS)
        bob.state.draft.append(" Two.")
        await bob.commit("more")
    listed = await run("tasks", "list", BOARD, *where)
    assert max(map(len, listed.splitlines())) < 300
    assert ("\x9b" in listed, "y…" in listed) == (False, True)
    whole = await run("tasks", "list", BOARD, "--json", *where)
    assert ("\x9b" in whole, json.loads(whole)[0]["result"]) == (False, "\x9b" + "y" * 5_000)
    blamed = await run("blame", BOARD, "draft", *where)
    assert blamed == "ann, version 2 (write)\n  One sentence.\nbob, version 3 (more)\n   Two.\n"
    code, _, problems = await asyncio.to_thread(
        crdt_board, "resolve", BOARD, "mail", "k", "--took-place", "--result", "[" * 100_000, *where
    )
    assert (code, problems.count("\n"), "--result is not JSON" in problems) == (1, 1, True)
