"""What long-lived processes rely on: boards that come and go, long journals, clocks that err."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from pathlib import Path
from typing import Any

import pytest

from crdt_board import BoardDeleted, BoardError, BoardHost, BoardModel, Counter, NotFound, Text, open_board
from crdt_board.clock import ManualClock
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.history import BoardHistory
from crdt_board.replica import Replica
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from support.waiting import DEADLINE_SECONDS

BOARDS = 1_500
READS = 100_000
BOARD = "job-884"


class Job(BoardModel):
    target: str = ""
    draft: Text
    spent: Counter


def alive(kind: type[Any]) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


async def test_boards_that_come_and_go_leave_nothing_behind() -> None:
    """W11: after many boards were opened, written and closed, no task, engine, document or replica is left of them."""
    async with BoardHost(MemoryStore()) as host:
        before = {kind: alive(kind) for kind in (Engine, Document, Replica)}
        tasks = len(asyncio.all_tasks())
        for number in range(BOARDS):
            async with open_board(host, f"job-{number}", Job, agent="ann") as board:
                board.state.spent += 1
        async with asyncio.timeout(DEADLINE_SECONDS):
            while host.open_boards() or len(asyncio.all_tasks()) > tasks:
                await asyncio.sleep(0)
        del board
        assert {kind: alive(kind) for kind in before} == before
        assert len(await host.store.boards(limit=BOARDS + 1)) == BOARDS


async def test_reads_of_boards_that_are_not_there_create_nothing() -> None:
    """W11: a hundred thousand questions about unknown boards leave the store empty."""
    store = MemoryStore()
    for number in range(READS):
        with contextlib.suppress(NotFound):
            await BoardHistory.open(store, f"job-{number % 1000}")
            pytest.fail("a board that nobody made was found")
    assert await store.boards() == []


async def test_a_commit_asks_the_store_the_same_however_long_the_journal_is() -> None:
    """V5: what a commit reads and writes does not grow with the history behind it."""
    store = FaultyStore(MemoryStore())
    asked: list[dict[str, int]] = []
    async with BoardHost(store) as host, open_board(host, BOARD, Job, agent="ann") as board:
        for entries in (10, 5_000):
            for _ in range(entries):
                board.state.spent += 1
                await board.flush(DEADLINE_SECONDS)
            before = store.calls.copy()
            await board.commit("step", patch={"target": str(entries)}, expected_version=board.version)
            asked.append({name: count for name, count in (store.calls - before).items() if name != "save_snapshot"})
    assert asked[0] == asked[1]


async def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path) -> None:
    """Versions, history and blame go by the journal; the times are only what the clock said."""
    clock = ManualClock()
    async with (
        BoardHost(await SqliteStore.open(tmp_path / "boards.db"), clock=clock) as host,
        open_board(host, BOARD, Job, agent="ann") as ann,
    ):
        for number in range(4):
            ann.state.draft.append(f"{number} ")
            ann.state.target = str(number)
            await ann.commit(f"step {number}")
            clock.advance(-3_600_000)
        assert [each.step for each in await ann.checkpoints()] == [f"step {number}" for number in (3, 2, 1, 0)]
        edits = await ann.history("target")
        assert [each.differences[0].after for each in edits] == ["3", "2", "1", "0"]
        assert [each.time_ms for each in edits] == sorted(each.time_ms for each in edits)
        assert [each.step for each in await ann.blame("draft")] == [f"step {number}" for number in range(4)]
        assert (await ann.verify()).ok


async def test_a_board_is_deleted_while_agents_write(tmp_path: Path) -> None:
    """Every agent is told, nothing of the board is left, and its neighbour goes on."""
    async with BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as host:
        ended: list[str] = []

        async def write(agent: str) -> None:
            async with open_board(host, BOARD, Job, agent=agent) as board:
                while True:
                    board.state.spent += 1
                    await board.flush()
                    if board.version < 3:
                        await board.commit("step")

        async def be_told(agent: str) -> None:
            with pytest.raises(BoardDeleted):
                await write(agent)
            ended.append(agent)

        writers = [asyncio.create_task(be_told(f"agent-{number}")) for number in range(4)]
        async with open_board(host, "neighbour", Job, agent="ann") as ann, asyncio.timeout(DEADLINE_SECONDS):
            while (head := await host.store.head(BOARD)) is None or head.version < 3:
                ann.state.spent += 1
                await ann.flush()
            await host.delete(BOARD, agent="dan")
            await asyncio.gather(*writers)
            ann.state.spent += 1
            await ann.commit("still here")
        assert len(ended) == 4
        assert await host.store.head(BOARD) is None
        assert await host.store.entries(BOARD, after=0, limit=10) == []
        with pytest.raises(BoardError):
            async with open_board(host, BOARD, Job, agent="late"):
                pass
