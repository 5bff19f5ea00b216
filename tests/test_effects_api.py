"""Effects and steps over HTTP and on the command line."""

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

from crdt_board import BoardModel, EffectInDoubt, StepResult, open_board
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.cli import app
from support.serving import serving
from support.web import web_client

BOARD = "job-884"


class Job(BoardModel):
    status: str = ""


def lost() -> int:
    raise ConnectionResetError("the answer is lost")


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> Path:
    """A board with two steps, one of them open since its effect is in doubt."""
    file = tmp_path / "boards.db"
    async with open_board(file, BOARD, Job, agent="ann") as board:
        await board.step("plan").run(lambda: StepResult({"tasks": 3}, patch={"status": "PLANNED"}))

        @board.step("order")
        async def order() -> int:
            await board.effect("quote", "q", lambda: 99)
            return await board.effect("order", None, lost)

        with pytest.raises(ConnectionResetError):
            await order()
    return file


@pytest_asyncio.fixture
async def client(database: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(await SqliteStore.open(database)) as served,
        web_client(served.url) as client,
    ):
        yield client


def crdt_board(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


async def test_effects_and_steps_are_shown_and_resolved_over_http(client: httpx.AsyncClient) -> None:
    """The lists say what happened; a resolution is answered with the effect, a second one with what the first said."""
    effects = (await client.get(f"/api/boards/{BOARD}/effects")).json()["effects"]
    assert [(each["effect"], each["key"], each["state"]) for each in effects] == [
        ("order", f"{BOARD}/order@1", "in_doubt"),
        ("quote", "q", "done"),
    ]
    assert "the answer is lost" in effects[0]["reason"]
    steps = (await client.get(f"/api/boards/{BOARD}/steps")).json()["steps"]
    assert [(each["step"], each["state"], each["version"], each["output"]) for each in steps] == [
        ("plan", "done", 1, {"tasks": 3}),
        ("order", "open", 0, None),
    ]
    wanted = {"effect": "order", "key": f"{BOARD}/order@1", "took_place": True, "result": 7, "agent": "eve"}
    for result in (7, 8):
        answer = await client.post(f"/api/boards/{BOARD}/resolutions", json={**wanted, "result": result})
        assert (answer.status_code, answer.json()["effect"]["result"]) == (200, 7)
        assert answer.json()["effect"]["resolved_by"] == "eve"
    for body, status, code in (
        ({**wanted, "took_place": False, "result": None}, 409, "conflict"),
        ({**wanted, "key": "other"}, 404, "not_found"),
        ({**wanted, "took_place": False}, 400, "bad_request"),
        ({**wanted, "effect": "a/b"}, 422, "bad_request"),
    ):
        answer = await client.post(f"/api/boards/{BOARD}/resolutions", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
    assert (await client.get("/api/boards/nope/effects")).status_code == 404
    assert (await client.get("/api/boards/nope/steps")).status_code == 404


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_person_resolves_on_the_command_line_and_the_agent_goes_on(
    client: httpx.AsyncClient, database: Path, place: str
) -> None:
    """The same over a file, while a server has it open, and over that server."""
    where = ["--db", str(database)] if place == "file" else ["--url", str(client.base_url)]

    async def run(*arguments: str, code: int = 0) -> str:
        ended, said, problems = await asyncio.to_thread(crdt_board, *arguments, *where)
        assert ended == code, problems
        return said if code == 0 else problems

    listed: list[dict[str, Any]] = json.loads(await run("effects", BOARD, "--in-doubt", "--json"))
    [key] = [each["key"] for each in listed]
    assert "in doubt" in await run("effects", BOARD)
    assert "ConnectionResetError" in await run("effects", BOARD, "--in-doubt")
    assert '{"tasks": 3}' in await run("steps", BOARD)
    assert [each["state"] for each in json.loads(await run("steps", BOARD, "--json"))] == ["done", "open"]
    assert "not JSON" in await run("resolve", BOARD, "order", key, "--took-place", "--result", "seven", code=1)
    for found in ("--took-place", "--not-done"):  # a typing error must not look like an answer
        assert "none is in doubt" in await run("resolve", BOARD, "order", "other", found, code=1)
    assert "--took-place or --not-done" in await run("resolve", BOARD, "order", key, code=2)
    said = await run("resolve", BOARD, "order", key, "--took-place", "--result", "7", "--agent", "eve")
    assert said == f"order {key} took place; its result is 7\n"
    assert "none is in doubt" in await run("effects", BOARD, "--in-doubt")
    async with open_board(database, BOARD, Job, agent="ann") as board:
        assert await board.effect("order", key, lost) == 7


async def test_what_did_not_take_place_may_run_again(client: httpx.AsyncClient, database: Path) -> None:
    """After --not-done the next agent that asks runs it."""
    key = f"{BOARD}/order@1"
    where = ["--url", str(client.base_url)]
    done = await asyncio.to_thread(crdt_board, "resolve", BOARD, "order", key, "--not-done", "--json", *where)
    assert (done[0], json.loads(done[1])) == (0, {"effect": None})
    async with open_board(database, BOARD, Job, agent="ann") as board:
        assert await board.effect("order", key, lambda: 5) == 5
        with pytest.raises(ConnectionResetError):
            await board.effect("order", "more", lost)
        with pytest.raises(EffectInDoubt):
            await board.effect("order", "more", lost)
