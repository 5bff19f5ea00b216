"""Processes that are killed in the middle of what must be done wholly or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from crdt_board import BoardHost, open_board
from crdt_board.artifacts import Artifacts
from crdt_board.errors import BoardDeleted
from crdt_board.exports import export_board
from crdt_board.history import BoardHistory
from crdt_board.imports import import_board
from crdt_board.store.contract import Store
from crdt_board.store.sqlite import SqliteStore
from support import deaths
from support.deaths import NOTES, After, Before, acknowledged

_TESTS = Path(__file__).resolve().parent
_SECONDS = 600

few_moments_and_many = pytest.mark.parametrize(
    "moments", [12, pytest.param(150, marks=pytest.mark.slow)], ids=["few", "many"]
)


async def killed(work: str, file: Path, moments: int) -> list[Path]:
    """Copies of the file, on each of which a process was killed at another moment of ``work``; on the last, none."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.dying", deaths.__name__, work, str(file), str(moments)),
        cwd=_TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
    assert process.returncode == 0
    return [Path(line) for line in said.decode().splitlines()]


async def assert_sound(store: Store, board_id: str) -> None:
    found = await (await BoardHistory.open(store, board_id)).verify()
    assert found.ok, found


@few_moments_and_many
async def test_a_board_is_in_one_schema_or_the_other_when_its_migration_was_killed(
    tmp_path: Path, moments: int
) -> None:
    """The next agent with the new model finds it migrated, or migrates it: once; nothing acknowledged is lost."""
    file = tmp_path / "boards.db"
    async with open_board(file, "job", Before, agent="ann") as board:
        board.state.notes.extend(f"note {number}" for number in range(NOTES))
        board.state.spent = 7
        await board.commit("begun")
    schemas_found = set()
    for copy in await killed("migrate", file, moments):
        said = acknowledged(copy)
        store = await SqliteStore.open(copy)
        schemas = len(await store.schemas("job"))
        schemas_found.add(schemas)
        assert (schemas == 2) >= ("migrated" in said)
        state = (await (await BoardHistory.open(store, "job")).state(None)).state
        assert len(state["notes"]) == NOTES
        assert isinstance(state["notes"], list if schemas == 1 else dict)
        assert ("spent" in state, "cost" in state) == (schemas == 1, schemas == 2)
        await assert_sound(store, "job")
        await store.close()
        async with open_board(copy, "job", After, agent="eve") as board:
            found = board.snapshot()
            assert (len(found.notes), found.notes["3"], found.cost) == (NOTES, "note 3", 7)
            for sentence in said:
                assert sentence == "migrated" or str(found.draft).count(f"{sentence};") == 1
            entries = await board._session.link._engine._store.entries("job", after=0, limit=10_000)  # type: ignore[attr-defined]
        assert [each.kind for each in entries].count("migration") == 1
    assert schemas_found == {1, 2}


def rows_of(file: Path) -> dict[str, int]:
    """How many rows each table has that holds what belongs to boards."""
    with closing(sqlite3.connect(file)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


async def write_many(file: Path, board_id: str, count: int) -> None:
    async with open_board(file, board_id, After, agent="ann") as board:
        for number in range(count):
            board.state.draft.append(f"{number};")
            if number % 100 == 0:
                await board.commit(f"step {number}", idempotency_key=f"key {number}")
        await board.flush()


@few_moments_and_many
async def test_a_board_is_there_or_gone_when_its_deletion_was_killed(tmp_path: Path, moments: int) -> None:
    """Whole, or with its tombstone, also for one of its name that was made anew; other boards are untouched. What is
    left of it goes with the next deletion."""
    file = tmp_path / "boards.db"
    await write_many(file, "large", 4_000)
    await write_many(file, "other", 300)
    store = await SqliteStore.open(file)
    old, other = await store.head("large"), await store.entries("other", after=0, limit=10_000)
    await store.close()
    assert old is not None
    ends = set()
    for copy in await killed("delete", file, moments):
        said = acknowledged(copy)
        async with BoardHost(await SqliteStore.open(copy)) as host:
            store = host.store
            head, tombstones = await store.head("large"), await store.tombstones("large")
            ends.add((head is not None and head.epoch == old.epoch, head is not None, bool(tombstones)))
            if head is not None and head.epoch == old.epoch:
                assert (tombstones, said) == ([], [])
                assert head == old
                await assert_sound(store, "large")
                await host.delete("large", agent="eve")
                (tombstone,) = await store.tombstones("large")
            else:
                (tombstone,) = tombstones
                if head is not None:
                    await assert_sound(store, "large")
            assert tombstone.epoch == old.epoch
            if "written anew" in said:
                async with open_board(host, "large", After, agent="eve") as board:
                    assert str(board.snapshot().draft) == "written anew;"
            if await store.head("large") is None:
                with pytest.raises(BoardDeleted):
                    await host.delete("large", agent="eve")
                await host.create("large")
            assert await store.entries("other", after=0, limit=10_000) == other
            await assert_sound(store, "other")
            for board_id in ("large", "other"):
                await host.delete(board_id, agent="eve")
        left = rows_of(copy)
        assert {table: count for table, count in left.items() if count and table != "tombstones"} == {}
    assert ends == {(True, True, False), (False, False, True), (False, True, True)}


@few_moments_and_many
async def test_a_board_is_whole_or_not_there_when_its_import_was_killed(tmp_path: Path, moments: int) -> None:
    """And nothing is in the way of importing it then."""
    file, export = tmp_path / "boards.db", tmp_path / "large.export"
    await write_many(tmp_path / "from.db", "large", 1_000)
    async with BoardHost(await SqliteStore.open(tmp_path / "from.db")) as host:
        assert host.artifacts is not None
        made = await Artifacts(host.artifacts).put(b"x" * 5_000_000)
        async with open_board(host, "large", After, agent="ann") as board:
            board.state.notes["report"] = made.pointer
            await board.commit("pointed")
        wanted = await host.store.head("large")
        with export.open("wb") as opened:
            await export_board(host.store, "large", opened, artifacts=host.artifacts)
    await (await SqliteStore.open(file)).close()
    ends = set()
    for copy in await killed("import_it", file, moments):
        async with BoardHost(await SqliteStore.open(copy)) as host:
            is_there = await host.store.head("large") is not None
            ends.add(is_there)
            assert is_there >= ("imported" in acknowledged(copy))
            if not is_there:
                with export.open("rb") as opened:
                    await import_board(host.store, opened, artifacts=host.artifacts)
            assert await host.store.head("large") == wanted
            await assert_sound(host.store, "large")
            assert host.artifacts is not None
            assert await Artifacts(host.artifacts).get(made) == b"x" * 5_000_000
    assert ends == {True, False}
