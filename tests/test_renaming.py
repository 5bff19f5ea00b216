"""An export that is imported under another name: a copy with all versions, that verifies as any board does."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Annotated

import pytest
from typer.testing import CliRunner

from crdt_board import BoardExists, BoardHost, BoardModel, InvalidBoardId, NotFound, Strict, Text, open_board
from crdt_board.checkpoints import parse_pointer
from crdt_board.exports import export_board
from crdt_board.history import BoardHistory, Retention
from crdt_board.imports import import_board
from crdt_board.store.contract import BoardHead, Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.cli import app
from support.serving import serving
from support.web import web_client

BOARD, COPY = "job", "job-copy"


class Report(BoardModel):
    title: str = ""
    status: Annotated[str, Strict()] = "OPEN"
    body: Text
    last: str = ""


async def exported(store: Store, board_id: str = BOARD) -> bytes:
    file = io.BytesIO()
    await export_board(store, board_id, file, artifacts=None)
    return file.getvalue()


async def copied(store: Store, data: bytes, name: str = COPY) -> BoardHead:
    return (await import_board(store, io.BytesIO(data), board_id=name)).head


async def write(host: BoardHost) -> None:
    """Five versions by two agents, the first under a key, a pointer to the second, and an edit behind them."""
    async with open_board(host, BOARD, Report, agent="ann") as ann, open_board(host, BOARD, Report, agent="bob") as bob:
        await ann.commit("keyed", patch={"title": "one"}, idempotency_key="k", tags=["sent"])
        for number in range(3):
            (ann, bob)[number % 2].state.body.append(f"Sentence {number}. ")
            made = await (ann, bob)[number % 2].commit(f"write {number}")
        await ann.commit("decide", patch={"status": "DONE", "last": made.pointer}, expected_version=ann.version)
        bob.state.body.append("Not committed.")
        await bob.flush()


@pytest.mark.parametrize("policy", [None, Retention(keep_versions=2), Retention(keep_versions=1)], ids=str)
async def test_a_copy_holds_what_the_board_held_and_verifies(policy: Retention | None, tmp_path: Path) -> None:
    """Beside its original, every version reads alike, also of a compacted board; both go on, each by itself."""
    store: Store = await SqliteStore.open(tmp_path / "boards.db")
    async with BoardHost(store) as host:
        await write(host)
        if policy is not None:
            await (await BoardHistory.open(store, BOARD)).compact(policy)
        before = await store.head(BOARD)
        head = await copied(store, await exported(store))
        assert before is not None
        assert (head.board_id, head.seq, head.version, head.base_seq) == (
            COPY,
            before.seq,
            before.version,
            before.base_seq,
        )
        assert head.epoch != before.epoch
        assert head.hash != before.hash or head.seq == head.base_seq
        here, there = await BoardHistory.open(store, BOARD), await BoardHistory.open(store, COPY)
        assert (await there.verify()).problems == ()
        readable = 0
        for made in await store.checkpoints(BOARD):
            copy = await store.checkpoint(COPY, made.version)
            assert copy is not None
            assert (copy.agent, copy.step, copy.time_ms, copy.checksum) == (
                made.agent,
                made.step,
                made.time_ms,
                made.checksum,
            )
            assert parse_pointer(copy.pointer).board_id == COPY
            assert copy.hash != made.hash
            try:
                expected = (await here.state_at(made.version))[1]
            except NotFound:  # of this one only the record is left
                continue
            assert (await there.state_at(made.version))[1] == expected
            readable += 1
        assert readable >= 2
        assert await there.blame("body", None) == await here.blame("body", None)
        async with open_board(host, COPY, Report, agent="cat") as cat:
            assert (await cat.commit("keyed", patch={"title": "one"}, idempotency_key="k", tags=["sent"])).version == 1
            cat.state.body.append("On.")
            assert (await cat.commit("on")).version == before.version + 1
            assert (await cat.verify()).ok
        assert await store.head(BOARD) == before
        again = await copied(MemoryStore(), await exported(store, COPY), "third")
        assert again.version == before.version + 1


async def test_a_copy_is_another_board_unless_it_has_its_own_name(tmp_path: Path) -> None:
    """A pointer to the original is none to the copy; under its own name it is the same board; names are checked."""
    store = MemoryStore()
    async with BoardHost(store) as host:
        await write(host)
        data = await exported(store)
        first = await store.checkpoint(BOARD, 1)
        assert first is not None
        await copied(store, data)
        with pytest.raises(BoardExists, match=f"there is a board {COPY} already; import under another name"):
            await copied(store, data)
        with pytest.raises(InvalidBoardId):
            await copied(store, data, "no/id")
        assert [head.board_id for head in await store.boards()] == [BOARD, COPY]
        elsewhere = MemoryStore()
        assert await copied(elsewhere, data, BOARD) == await store.head(BOARD)
        assert await elsewhere.checkpoint(BOARD, 1) == first
        async with open_board(host, COPY, Report, agent="cat") as cat:
            with pytest.raises(NotFound):
                await cat.at(first.pointer.replace(f"board:{BOARD}@", f"board:{COPY}@"))
            assert parse_pointer(cat.state.last).board_id == BOARD


async def test_a_copy_of_a_fork_is_a_fork_of_the_same_board() -> None:
    """What is written on the fork and on its copy both merge into the board, and nothing is lost."""
    store = MemoryStore()
    async with BoardHost(store) as host:
        await write(host)
        async with open_board(host, BOARD, Report, agent="ann") as ann:
            await ann.fork("branch")
            await copied(store, await exported(store, "branch"), "branch-copy")
            for name in ("branch", "branch-copy"):
                async with open_board(host, name, Report, agent=name) as there:
                    there.state.body.append(f" By {name}.")
                    await there.commit("write")
                    assert (await there.verify()).ok
            await ann.merge_from("branch")
            await ann.merge_from("branch-copy")
            assert " By branch." in str(ann.state.body)
            assert " By branch-copy." in str(ann.state.body)
            assert {fork.board_id for fork in await ann.forks()} == {"branch", "branch-copy"}
            assert (await ann.verify()).ok


async def crdt_board(*arguments: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(CliRunner().invoke, app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


async def test_the_command_and_the_route_make_copies(tmp_path: Path) -> None:
    """``--as`` over a file, over a new file and at a server; ``?as=`` over HTTP; what is no name is refused."""
    database, file = tmp_path / "boards.db", tmp_path / "job.crdtboard"
    async with serving(await SqliteStore.open(database)) as served:
        await write(served.host)
        file.write_bytes(await exported(served.host.store))
        server = f"http://127.0.0.1:{served.port}"
        for name, where in (
            ("a", ["--db", str(database)]),
            ("b", ["--url", server]),
            ("c", ["--db", str(tmp_path / "new.db")]),
        ):
            code, said, problems = await crdt_board("import", str(file), "--as", name, *where)
            assert (code, said, problems) == (0, f"made board {name} at version 5\n", "")
            code, said, _ = await crdt_board("verify", name, "--json", *where)
            assert (code, json.loads(said)["problems"]) == (0, [])
        async with web_client(server) as client:
            made = await client.post("/api/imports", params={"as": "d"}, content=file.read_bytes())
            assert (made.status_code, made.json()["id"], made.json()["version"]) == (201, "d", 5)
            refused = await client.post("/api/imports", params={"as": "no/id"}, content=file.read_bytes())
            assert (refused.status_code, refused.json()["code"]) == (404, "invalid_board_id")
            again = await client.post("/api/imports", params={"as": "d"}, content=file.read_bytes())
            assert (again.status_code, again.json()["code"]) == (409, "board_exists")
        assert [each.board_id for each in await served.host.store.boards()] == ["a", "b", "d", "job"]
    code, _, problems = await crdt_board("import", str(file), "--as", "no/id", "--db", str(tmp_path / "other.db"))
    assert (code, problems.count("\n"), (tmp_path / "other.db").exists()) == (1, 1, False)
