"""A server whose disk is full while agents work together: all of it goes on when there is space again."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from crdt_board import Board, BoardModel, Text, open_board
from crdt_board.history import BoardHistory
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux sets limits of another process")

_LITTLE_BYTES = 8_192


class Job(BoardModel):
    draft: Text
    done: set[str] = set()


@contextlib.contextmanager
def full_disk(server: ServerProcess) -> Iterator[None]:
    """No file of the server grows any more, as on a disk without space."""
    log = Path(f"{server.database}-wal")
    unlimited = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + _LITTLE_BYTES, unlimited[1]))
    try:
        yield
    finally:
        if server.is_running:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, unlimited)


class Outside:
    """A system on which an effect acts, and which answers when it is let."""

    def __init__(self) -> None:
        self.calls = 0
        self.called, self.answers = asyncio.Event(), asyncio.Event()

    async def call(self) -> int:
        self.calls += 1
        self.called.set()
        await self.answers.wait()
        return self.calls


@pytest_asyncio.fixture
async def boards(server: ServerProcess) -> AsyncIterator[list[Board[Job]]]:
    async with (
        connect(server.url, "job", Job, agent="ann") as ann,
        connect(server.url, "job", Job, agent="bob") as bob,
    ):
        yield [ann, bob]


async def fill(board: Board[Job]) -> asyncio.Task[Any]:
    """Write until the disk is full; the task ends when all of it is durable."""
    board.state.draft.append("x" * 200_000)
    return asyncio.create_task(board.flush(DEADLINE_SECONDS * 4))


async def is_told(server: ServerProcess) -> dict[str, Any]:
    """What the server says when it has noticed."""
    async with httpx.AsyncClient(base_url=server.http, trust_env=False) as client:

        async def look() -> dict[str, Any] | None:
            answer = await client.get("/readyz")
            return answer.json() if answer.status_code == 503 else None

        found: dict[str, Any] = await eventually(look, "the server says that it cannot write")
        return found


async def verified(database: Path) -> bool:
    store = await SqliteStore.open(database)
    try:
        return (await (await BoardHistory.open(store, "job")).verify()).ok
    finally:
        await store.close()


async def test_what_is_under_way_is_done_once_when_there_is_space_again(
    server: ServerProcess, boards: list[Board[Job]]
) -> None:
    """Leases, tasks, an effect and an approval; nothing that was acknowledged is lost, and no process was restarted."""
    ann, bob = boards
    outside = Outside()
    await bob.tasks.put({"file": "a.py"}, key="extract")
    await bob.tasks.put(None, key="later", queue="later")
    asked = await bob.ask("Ship it?", key="ship")
    effect = asyncio.create_task(ann.effect("ticket", "t1", outside.call))
    await outside.called.wait()
    async with ann.lease("payments", ttl=60) as lease, ann.tasks.claim(timeout=DEADLINE_SECONDS) as task:
        with full_disk(server):
            filling = await fill(ann)
            told = await is_told(server)
            assert "the disk" in told["problems"][0]
            outside.answers.set()
            under_way = [
                asyncio.create_task(work)
                for work in (
                    task.complete({"found": 3}),
                    bob.decide("ship", "approve"),
                    bob.tasks.put(None, key="put on a full disk"),
                    ann.commit("committed", patch={"done": {"all"}}, lease=lease),
                )
            ]
            await is_told(server)
            assert not filling.done()
            assert not effect.done()
            assert not any(each.done() for each in under_way)
        async with asyncio.timeout(DEADLINE_SECONDS * 2):
            await filling
            assert await effect == 1
            await asyncio.gather(*under_way)
            assert lease.is_held
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert (await asked.decided()).option == "approve"
        assert await bob.effect("ticket", "t1", outside.call) == 1
    assert outside.calls == 1
    async with connect(server.url, "job", Job, agent="eve") as eve:
        assert eve.snapshot().done == {"all"}
        assert len(str(eve.snapshot().draft)) == 200_000
        assert {each.key: each.state for each in eve.tasks.all()} == {
            "extract": "done",
            "later": "open",
            "put on a full disk": "open",
        }
        assert eve.tasks.get("extract").result == {"found": 3}
        assert eve.leases == []
    assert await verified(server.database)


async def test_nothing_acknowledged_is_lost_when_a_server_with_a_full_disk_is_killed(
    start_server: Callable[..., Awaitable[ServerProcess]],
) -> None:
    """What waited is written by the next process; an effect whose result waited is asked for again, and has it."""
    server = await start_server()
    outside = Outside()
    async with connect(server.url, "job", Job, agent="ann") as ann:
        ann.state.draft.append("before;")
        await ann.flush(DEADLINE_SECONDS)
        effect = asyncio.create_task(ann.effect("ticket", "t1", outside.call))
        await outside.called.wait()
        with full_disk(server):
            filling = await fill(ann)
            await is_told(server)
            outside.answers.set()
            committing = asyncio.create_task(ann.commit("committed", patch={"done": {"all"}}))
            await is_told(server)
            pid = server.pid
            await server.kill9()
        await server.start()
        assert server.pid != pid
        async with asyncio.timeout(DEADLINE_SECONDS * 2):
            await filling
            assert (await committing).version == 1
            assert await effect == 1
    async with connect(server.url, "job", Job, agent="eve") as eve:
        assert str(eve.snapshot().draft).startswith("before;")
        assert len(str(eve.snapshot().draft)) == 200_007
        assert await eve.effect("ticket", "t1", outside.call) == 1
    assert outside.calls == 1
    assert await verified(server.database)


async def test_requests_over_http_are_told_and_not_done_later(server: ServerProcess) -> None:
    """Nobody waits for them any more when there is space again: a claim would be that of nobody."""
    async with (
        connect(server.url, "job", Job, agent="ann") as ann,
        httpx.AsyncClient(
            base_url=f"{server.http}/api/boards/job", trust_env=False, timeout=DEADLINE_SECONDS
        ) as client,
    ):
        await ann.tasks.put(None, key="extract")
        asked = await ann.ask("Ship it?", key="ship")
        with full_disk(server):
            filling = await fill(ann)
            await is_told(server)
            answers = await asyncio.gather(
                client.post("/tasks", json={"key": "another"}),
                client.post("/tasks/claim", json={}),
                client.post("/commits", json={"step": "made", "patch": {}}),
                client.post("/approvals/ship/decision", json={"option": "approve"}),
                client.post("/forks", json={"board": "fork"}),
                client.get("/tasks"),
            )
            assert not filling.done()
        await filling
        for answer in answers[:-1]:
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), answer.text
            assert "the board cannot be written" in answer.json()["detail"]
            assert answer.headers["Retry-After"] == "1"
        assert answers[-1].status_code in (200, 503)
        tasks = (await client.get("/tasks")).json()["tasks"]
        assert [(each["key"], each["state"]) for each in tasks] == [("extract", "open")]
        assert (ann.version, asked.state) == (0, "pending")
        assert (await client.post("/tasks/claim", json={})).json()["task"]["key"] == "extract"


async def test_a_command_over_a_file_says_that_the_disk_is_full(tmp_path: Path) -> None:
    """It does not wait for space without a word, and has done nothing."""
    file = tmp_path / "boards.db"
    async with open_board(file, "job", Job, agent="ann") as board:
        board.state.draft.append("x" * 200_000)
        await board.commit("begun")
    command = [str(Path(sys.executable).with_name("crdt-board")), "tasks", "put", "job", f'"{"x" * 60_000}"']
    process = await asyncio.create_subprocess_exec(
        *("prlimit", "--fsize=60000", "--", *command, "--db", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, problems = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, said) == (1, b""), problems
    assert b"error: no answer within 5 s, since the board cannot be written" in problems
    async with open_board(file, "job", Job, agent="ann") as board:
        assert board.tasks.all() == []
