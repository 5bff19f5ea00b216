"""The parts of the benchmarks of contention and drafting that figures depend on."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import reporting
from benchmarks.bench_contention import FULL, Samples, Suite
from benchmarks.contention import board_modes
from benchmarks.contention.classic import ClassicStore, LocalClient, Refused
from benchmarks.contention.clocks import RealClock, VirtualClock
from benchmarks.contention.other_modes import classic_mode
from benchmarks.contention.work import Cell, Mode, Operation, Sight, Tally, Think, run_agents
from benchmarks.drafting.recorded import refused, saves_of_two
from benchmarks.drafting.writing import empty_draft, sentence_of, words_lost, write_together
from benchmarks.harness import Run
from crdt_board import Board

TWO_SECONDS = Think("2 s", 2.0)


async def tally_of(mode: Mode, cell: Cell, *, seconds: float = 100.0) -> Tally:
    return await run_agents(mode, cell, VirtualClock(seconds), seed=1, sight=Sight())


def counting(value: dict[str, int], name: str, *, stale: bool) -> Mode:
    """A mode over a dict: it writes what it read before thinking, or what is there after it, plus one."""

    async def operate(_agent: int, operation: Operation) -> None:
        seen = value["v"]
        await operation.think()
        value["v"] = (seen if stale else value["v"]) + 1

    async def count() -> int:
        return value["v"]

    return Mode(name, operate, count)


async def test_lost_updates_are_counted() -> None:
    """Of two agents that read, think for equally long and write, every second write is lost; of a sum none."""
    lost = await tally_of(counting({"v": 0}, "stale", stale=True), Cell(2, 1, TWO_SECONDS, 10))
    kept = await tally_of(counting({"v": 0}, "sum", stale=False), Cell(2, 1, TWO_SECONDS, 10))
    assert (lost.done, lost.lost) == (20, 10)
    assert (kept.done, kept.lost) == (20, 0)
    assert kept.seconds == 20.0


async def test_optimistic_retries_are_counted(tmp_path: Path) -> None:
    """Of N agents that think for equally long one gets through each time, so N - 1 thoughts come to nothing."""
    with closing(ClassicStore(tmp_path / "classic.db")) as store:
        tally = await tally_of(classic_mode([LocalClient(store, "job")] * 5), Cell(5, 1, TWO_SECONDS), seconds=20)
    assert (tally.done, tally.lost) == (10, 0)
    assert tally.retries == 4.0


async def test_a_turn_is_one_agents_at_a_time() -> None:
    """On the virtual clock a turn is held while its holder thinks, and goes on to whoever has waited longest."""
    clock, order = VirtualClock(100), []

    async def agent(number: int) -> None:
        async with clock.turn("lease"):
            await clock.sleep(1)
            order.append((number, clock.now))
        clock.leave()

    clock.begin(3)
    await asyncio.gather(*map(agent, range(3)))
    assert order == [(0, 1.0), (1, 2.0), (2, 3.0)]


async def test_a_mark_is_seen_when_all_have_seen_it() -> None:
    """A write counts as visible when the last viewer has it, and one that was refused never does."""
    sight = Sight()
    sight.begin(2)
    withdrawn = sight.place()
    assert withdrawn is not None
    sight.withdraw(withdrawn)
    mark = sight.place()
    assert mark is not None
    for viewer, seen in ((0, withdrawn), (1, withdrawn), (0, mark), (0, mark)):
        sight.seen(viewer, seen)
    assert sight.milliseconds == []
    assert sight.place() is None
    sight.seen(1, mark)
    assert len(sight.milliseconds) == 1


def test_a_classic_store_refuses_whoever_comes_second(tmp_path: Path) -> None:
    """A commit on another version than the head's changes nothing; one without a version goes over the head."""
    file = tmp_path / "classic.db"
    with closing(ClassicStore(file)) as store:
        assert store.commit("job", {"a": 1, "b": 1}, 0) == 1
        with pytest.raises(Refused):
            store.commit("job", {"a": 2}, 0)
        assert store.commit("job", {"b": 3}, None) == 2
    with closing(ClassicStore(file)) as store:
        assert store.load("job") == (2, {"a": 1, "b": 3})


def test_lost_words_are_counted() -> None:
    """A word is there as it was written or as it was corrected, and lost otherwise."""
    whole = empty_draft(2) + "".join(sentence_of(section, 0) for section in range(2))
    assert words_lost(whole, 2, 1) == 0
    assert words_lost(whole.replace("teh-1-0", "the-1-0"), 2, 1) == 0
    assert words_lost(whole.replace("teh-1-0", "").replace("w0-0-3", ""), 2, 1) == 2


def test_a_save_on_what_is_not_the_head_is_refused() -> None:
    """Of a recording of two, the saves are refused whose author had not seen the one before."""
    transactions: list[dict[str, Any]] = [
        {"agent": 0, "parents": [], "patches": [[0, 0, "ab"]]},
        {"agent": 1, "parents": [0], "patches": [[2, 0, "c"]]},
        {"agent": 0, "parents": [0], "patches": [[0, 0, "x"]]},
        {"agent": 1, "parents": [1, 2], "patches": [[4, 0, "d"]]},
    ]
    saves = saves_of_two({"txns": transactions, "endContent": "xabcd"})
    assert [save.text for save in saves] == ["ab", "abc", "xabc", "xabcd"]
    assert [save.text for save in refused(saves)] == ["xabc"]


def test_a_table_shows_medians_and_what_is_missing() -> None:
    """A cell is its median, with the spread where there is one, and a dash where nothing was measured."""
    table = reporting.Table("Board", ("s", "%"), {"ours | theirs": ([1.0, 3.0, 2.0], [])}).to_json()
    assert json.loads(json.dumps(table)) == table
    assert reporting.rows_of(table) == [["ours | theirs", "2.00 (1.00 to 3.00)", "-"]]


async def test_a_real_clock_ends() -> None:
    """Agents begin nothing once the time is over, and what they had begun then is done or given up."""
    tally = await run_agents(
        counting({"v": 0}, "sum", stale=False),
        Cell(2, 1, Think("no", 0.0)),
        RealClock(0.01),
        seed=1,
        sight=Sight(),
    )
    assert tally.lost == 0
    assert tally.seconds >= 0.01


async def test_what_was_lost_is_told_by_the_store() -> None:
    """Counts are of a board as it was stored, whatever the replica that asks shows."""

    class Replica:
        state = SimpleNamespace(**{f"v{at}": 7 for at in range(board_modes.FIELDS)})

        async def commit(self, step: str) -> str:
            return step

        async def at(self, version: str) -> Any:
            assert version == "count"
            return SimpleNamespace(**{f"v{at}": 1 for at in range(board_modes.FIELDS)})

    count = board_modes._counting(cast(Board[Any], Replica()), "v")
    assert await count() == board_modes.FIELDS


async def test_a_job_that_was_not_done_is_no_result() -> None:
    """A mode that stops before its agents have done all of a job ends the run, and is not the fastest one."""
    cell = Cell(2, 1, TWO_SECONDS, 10)
    suite = Suite(cast(Run, None), FULL, None, langgraph=False)
    with pytest.raises(SystemExit, match="only 4 of 20 done"):
        await suite._measure(counting({"v": 0}, "sum", stale=False), cell, VirtualClock(3.0), 1, Sight())


class Desks:
    """A document on which nobody sees the last sentence for a while."""

    def __init__(self, seen: list[str], stored: str) -> None:
        self.seen = seen
        self.stored = stored
        self.reviews = 0

    async def write(self, _section: int, _sentence: str) -> int:
        return 0

    async def review(self) -> tuple[int, list[str]]:
        await asyncio.sleep(0)
        self.reviews += 1
        misspelt = [self.seen.pop(0)] if self.seen and self.reviews > 20 else []
        if misspelt:
            self.stored = self.stored.replace("teh-", "the-")
        return 0, misspelt

    async def read(self) -> str:
        return self.stored


async def test_a_review_ends_when_the_stored_document_is_correct() -> None:
    """A reviewer whose replica does not show a misspelt word yet is not done."""
    desk = Desks(["0-0"], "a teh-0-0 word")
    outcome = await write_together([desk, desk], 1)
    assert outcome.text == "a the-0-0 word"
    assert outcome.corrected == ["0-0"]
    assert outcome.seconds > 0


def test_who_did_nothing_is_not_free_of_retries_and_losses() -> None:
    """Where no operation was done there is a rate, of 0, and neither retries nor losses."""
    samples = Samples()
    samples.add(Tally(attempts=3, seconds=0.2), [])
    assert [len(column) for column in samples.columns] == [1, 1, 0, 0, 0, 0, 0, 0]
