"""The embedded board: several processes on one file, bursts, sudden death, and files that are not ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from crdt_board import Board, BoardHost, LimitExceeded, StoreUnavailable, open_board
from crdt_board.board_link import end_task
from crdt_board.checkpoints import is_intact
from crdt_board.engine import Engine
from crdt_board.journal import GENESIS_HASH, Entry, unpack_updates, verify_chain
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.publishing import Listener
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from support.children import Child, child
from support.model import Report
from support.waiting import DEADLINE_SECONDS

BOARD = "job"
LONG_SECONDS = 60.0


def agent_process(file: Path, agent: str) -> AbstractAsyncContextManager[Child]:
    return child([sys.executable, "-m", "support.embedded_agent", str(file), BOARD, agent])


def opened(where: Path | BoardHost, agent: str = "reader") -> AbstractAsyncContextManager[Board[Report]]:
    return open_board(where, BOARD, Report, agent=agent)


async def journal_of(file: Path) -> list[Entry]:
    store = await SqliteStore.open(file)
    try:
        return await store.entries(BOARD, after=0, limit=1_000_000)
    finally:
        await store.close()


# Several processes


@pytest.mark.long
async def test_eight_processes_commit_a_hundred_times_each(tmp_path: Path) -> None:
    """D9: all eight hundred commits succeed, versions are gapless, both chains verify, and every patch is there."""
    file = tmp_path / "boards.db"
    async with contextlib.AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(agent_process(file, f"agent-{n}")) for n in range(8)]
        await asyncio.gather(*(agent.answer() for agent in agents))
        made = await asyncio.gather(*(agent.ask("commit", 100) for agent in agents))
    assert sorted(version for versions in made for version in versions) == list(range(1, 801))
    entries = await journal_of(file)
    verify_chain(GENESIS_HASH, 0, entries)
    async with opened(file) as board:
        listed = await board.checkpoints(limit=1000)
        assert [one.version for one in listed] == list(range(800, 0, -1))
        assert all(is_intact(one) for one in listed)
        assert [one.parent_hash for one in listed[:-1]] == [one.hash for one in listed[1:]]
        assert board.state.spent == 800
        assert board.snapshot().scores == {f"agent-{a} {n}": n for a in range(8) for n in range(100)}
        assert await board.at(800) == board.snapshot()


async def test_processes_see_each_others_edits_soon(tmp_path: Path) -> None:
    """An edit that is durable in one process is in another one's replica within a second."""
    file = tmp_path / "boards.db"
    async with agent_process(file, "ann") as ann, agent_process(file, "bob") as bob:
        await asyncio.gather(ann.answer(), bob.answer())
        delays = []
        for number in range(5):
            seeing = asyncio.create_task(bob.ask("see", f"source {number}"))
            await ann.ask("flush", f"source {number}")
            written = asyncio.get_running_loop().time()
            delays.append(await seeing - written)
    assert sorted(delays)[2] < 1.0


async def test_a_process_that_was_killed_after_flush_has_lost_nothing(tmp_path: Path) -> None:
    """D1: kill -9 right after ``flush`` returned: every edit is there, each time."""
    file = tmp_path / "boards.db"
    expected: set[str] = set()
    for round_ in range(4):
        sources = [f"{round_} {number}" for number in range(50)]
        async with agent_process(file, "ann") as ann:
            await ann.answer()
            await ann.ask("flush", *sources)
            await ann.kill()
        expected.update(sources)
        async with opened(file) as board:
            assert board.snapshot().sources == expected
    verify_chain(GENESIS_HASH, 0, await journal_of(file))


async def test_a_process_that_was_killed_in_the_middle_leaves_a_sound_board(tmp_path: Path) -> None:
    """D1: kill -9 while commits are under way: each one is there as a whole or not at all, and the board goes on."""
    file = tmp_path / "boards.db"
    async with agent_process(file, "ann") as ann, opened(file) as board:
        await ann.answer()
        committing = asyncio.create_task(ann.ask("commit", 100_000))
        await board.wait_for(lambda state: state.spent >= 20, DEADLINE_SECONDS)
        await ann.kill()
        with pytest.raises(AssertionError, match="ended"):
            await committing
    async with opened(file) as board:
        version = board.version
        steps = {made.step for made in await board.checkpoints(limit=1000)}
        assert steps == set(board.snapshot().scores) == {f"ann {number}" for number in range(version)}
        assert board.state.spent in (version, version + 1)
        assert (await board.commit("on")).version == version + 1
    verify_chain(GENESIS_HASH, 0, await journal_of(file))


async def test_a_step_is_not_repeated_after_a_crash(tmp_path: Path) -> None:
    """An agent that was killed after a step, and does it again under the same key, gets the first result."""
    file = tmp_path / "boards.db"
    for round_ in range(2):
        async with agent_process(file, "ann") as ann:
            await ann.answer()
            assert await ann.ask("commit_once", "pay", "pay-1") == 1
            await ann.kill()
        async with opened(file) as board:
            assert board.version == 1 + round_
            assert board.state.plan == ["pay"][round_:]
            await board.commit("next", patch={"plan": []})


# Bursts


@pytest.mark.long
async def test_a_burst_of_edits_in_one_turn_of_the_loop(tmp_path: Path) -> None:
    """D10: 200,000 edits in one turn are all in the journal, at another agent of the host, and in a cold reload."""
    file = tmp_path / "boards.db"
    count = 200_000
    async with BoardHost(await SqliteStore.open(file)) as host, opened(host, "ann") as ann, opened(host, "bob") as bob:
        insert = ann.state.draft.insert
        for _ in range(count):
            insert(0, "x")
        assert ann.unacknowledged == count
        await ann.flush(LONG_SECONDS)
        await bob.wait_for(lambda state: len(state.draft) == count, LONG_SECONDS)
        assert bob.state.draft == "x" * count
    entries = await journal_of(file)
    verify_chain(GENESIS_HASH, 0, entries)
    assert sum(len(unpack_updates(entry.payload)) for entry in entries) == count
    async with opened(file) as board:
        assert board.state.draft == "x" * count


async def test_a_commit_behind_a_burst_covers_all_of_it(tmp_path: Path) -> None:
    """A commit that is made right after a burst has every edit of it in its version."""
    async with BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as host, opened(host) as board:
        for _ in range(10_000):
            board.state.spent += 1
        made = await board.commit("count")
        assert (await board.at(made.version)).spent == 10_000


async def test_an_edit_that_is_too_large_is_refused_at_once() -> None:
    """What the writer would not take is refused and taken back where it is made; all agents of the replica go on."""
    limits = replace(DEFAULT_LIMITS, update_bytes_max=1000)
    async with BoardHost(MemoryStore(), limits=limits) as host, opened(host, "ann") as ann, opened(host, "bob") as bob:
        ann.state.draft.append("kept")

        def edit() -> None:
            with ann.transaction():
                ann.state.draft.apply("x" * 2000)

        with pytest.raises(LimitExceeded, match="larger than the 1000"):
            edit()
        ann.as_agent("eve").state.title = "more"
        await ann.flush(DEADLINE_SECONDS)
        await bob.wait_for(lambda state: state.title == "more", DEADLINE_SECONDS)
        assert ann.snapshot() == bob.snapshot() == Report(draft="kept", title="more")


# Coming and going


async def test_opening_that_is_cancelled_leaves_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled in the moment in which the replica was filled, open_board leaves nothing at the writer."""
    add = Engine.add_listener

    def add_and_cancel(engine: Engine, listener: Listener) -> None:
        add(engine, listener)
        asyncio.get_running_loop().call_soon(opening.cancel)

    async with BoardHost(MemoryStore()) as host, host.board(BOARD) as engine:
        monkeypatch.setattr(Engine, "add_listener", add_and_cancel)
        opening = asyncio.create_task(opened(host).__aenter__())
        await asyncio.wait([opening])
        assert opening.cancelled()
        assert engine.listeners == ()


async def test_ending_a_task_leaves_a_cancellation_to_its_caller() -> None:
    """Who is cancelled while a task of its own takes its time to end, is cancelled, and that task is not once more."""
    ending, released = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await released.wait()

    async def fail() -> None:
        raise LookupError

    task = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)
    closing = asyncio.create_task(end_task(task))
    await ending.wait()
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert not task.done()
    released.set()
    await end_task(task)
    failed = asyncio.create_task(fail())
    await asyncio.wait([failed])
    with pytest.raises(LookupError):
        await end_task(failed)


# Places that are no boards


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


async def refused(file: Path, match: str) -> None:
    with pytest.raises(StoreUnavailable, match=match) as error:
        await opened(file).__aenter__()
    assert str(file) in str(error.value)


@pytest.mark.parametrize("content", [b"hello, I am a text\n" * 100, b"SQLite format 3\0" + b"\0" * 84, b"x"])
async def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    """A file that is not a board database is one clear error; not a byte of it, or beside it, is changed."""
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    await refused(file, "not a CRDT Board database")
    assert file.read_bytes() == content
    assert list(tmp_path.iterdir()) == [file]


async def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A SQLite database of another program is one clear error and stays as it is."""
    file = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE notes (text)")
        connection.commit()
    before = file.read_bytes()
    await refused(file, "not a CRDT Board database")
    assert file.read_bytes() == before


async def test_a_directory_is_refused(tmp_path: Path) -> None:
    """A directory in place of the file is one clear error."""
    await refused(tmp_path, "not a file")


async def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    """A folder that is not there is named, and not made."""
    await refused(tmp_path / "missing" / "boards.db", "missing does not exist")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(is_root(), reason="root may read and write every file")
@pytest.mark.parametrize("mode", [0o000, 0o444])
async def test_a_file_without_permissions_is_refused(tmp_path: Path, mode: int) -> None:
    """A file that may not be read, or not be written, is one clear error that says what to check."""
    file = tmp_path / "boards.db"
    async with opened(file):
        pass
    file.chmod(mode)
    await refused(file, "check")


async def test_a_board_in_memory_ends_with_its_block() -> None:
    """``":memory:"`` is a board of its own each time, without a file."""
    for _ in range(2):
        async with open_board(":memory:", BOARD, Report, agent="ann") as board:
            assert board.snapshot() == Report()
            board.state.title = "gone"
            assert (await board.commit("x")).version == 1


async def test_boards_of_one_host_are_apart(tmp_path: Path) -> None:
    """H4: boards with look-alike names in one file share nothing."""
    names = ["a", "ab", "a_b", "a~", "A", "a.b"]
    async with BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as host:
        for name in names:
            async with open_board(host, name, Report, agent="ann") as board:
                assert board.snapshot() == Report()
                await board.commit("name", patch={"title": name})
        for name in names:
            async with open_board(host, name, Report, agent="bob") as board:
                assert (board.state.title, board.version) == (name, 1)
