"""Scratch fields: what is written stays for its time to live, at boards embedded and served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import pycrdt
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from crdt_board import BoardHost, BoardModel, Counter, Max, ModelError, Scratch, Strict, Text, open_board
from crdt_board.clock import ManualClock
from crdt_board.history import BoardHistory, Retention
from crdt_board.journal import Entry, make_entry
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.scratch_times import ScratchTimes
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Submission
from support.places import BOARD, Place, PlaceKind, place_of
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS, eventually

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


class Job(BoardModel):
    target: str = ""
    notes: Annotated[dict[str, str], Scratch(ttl=HOUR)] = {}
    seen: Annotated[set[str], Scratch(ttl=HOUR)] = set()
    focus: Annotated[str, Scratch(ttl=HOUR)] = "nothing"
    draft: Annotated[Text, Scratch(ttl=HOUR)]
    steps: Annotated[list[str], Scratch(ttl=HOUR), Field(max_length=100)] = []


class Timed(Place):
    """A place whose boards live by a clock that the test turns."""

    def __init__(self, kind: PlaceKind, file: Path) -> None:
        super().__init__(kind, file)
        self.clock = ManualClock()

    async def start(self) -> None:
        await super().start()
        self.host.clock = self.clock


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Timed]:
    async with place_of(request.param, tmp_path / "boards.db", Timed) as place:
        assert isinstance(place, Timed)
        yield place


def turn(host: BoardHost, clock: ManualClock, milliseconds: int) -> None:
    """Turn the clock, and let the writers of boards look at it now instead of within a minute."""
    clock.advance(milliseconds)
    for engine in host.open_boards().values():
        engine.refresh()


async def expiries(store: Any) -> list[Entry]:
    return [each for each in await store.entries(BOARD, after=0, limit=10_000) if each.kind == "expiry"]


async def test_each_key_lives_from_its_last_write_and_other_kinds_as_a_whole(place: Timed) -> None:
    """A key of a dict or set runs out by itself; a scalar, text or list after the last write of anything in it."""
    async with place.open(Job) as board:
        board.state.target = "billing"
        board.state.notes.update(a="1", b="2")
        board.state.seen |= {"x", "y"}
        board.state.focus, board.state.steps = "tests", ["one"]
        board.state.draft.append("Hello")
        await board.flush(DEADLINE_SECONDS)
        turn(place.host, place.clock, HOUR_MS // 2)
        board.state.notes["a"] = "1"  # the same value, written again
        board.state.seen.add("x")
        board.state.steps.append("two")
        await board.flush(DEADLINE_SECONDS)
        turn(place.host, place.clock, HOUR_MS // 2)

        left = await board.wait_for(lambda state: "b" not in state.notes, DEADLINE_SECONDS)
        assert left == Job(target="billing", notes={"a": "1"}, seen={"x"}, steps=["one", "two"])
        turn(place.host, place.clock, HOUR_MS // 2)
        left = await board.wait_for(lambda state: "a" not in state.notes, DEADLINE_SECONDS)
        assert left == Job(target="billing")
        made = await expiries(place.store)
        assert [each.author for each in made] == ["board", "board"]
        assert {"notes/b", "focus"} <= {*made[0].paths}


async def test_a_board_that_was_closed_is_swept_before_anybody_reads_it(place: Timed) -> None:
    """After a restart, and from a compacted journal, what ran out meanwhile is gone when the board is opened."""
    async with place.open(Job) as board:
        board.state.notes["old"] = "1"
        await board.commit("one")
        place.clock.advance(HOUR_MS // 2)
        board.state.notes["young"] = "2"
        made = await board.commit("two")
    await (await BoardHistory.open(place.store, BOARD)).compact(Retention(keep_versions=1))
    await place.restart()
    place.clock.advance(HOUR_MS // 2)
    async with place.open(Job) as board:
        assert board.snapshot().notes == {"young": "2"}
        assert (await board.at(made.version)).notes == {"old": "1", "young": "2"}
    place.clock.advance(24 * HOUR_MS)
    await place.restart()
    place.clock.advance(24 * HOUR_MS)
    async with place.open(Job) as board:
        assert board.snapshot() == Job()
        verified = await board.verify()
        assert not verified.problems


async def test_what_a_stock_client_writes_runs_out_too_and_its_next_write_stays(place: Timed) -> None:
    """A client that knows nothing of times to live has its keys removed, and may write them again."""
    if place.kind == "embedded":
        pytest.skip("stock clients come to a server")
    async with place.open(Job) as board, stock_peer(place.url, BOARD) as peer:
        notes = peer.doc.get("notes", type=pycrdt.Map)
        notes["a"] = "1"
        await board.wait_for(lambda state: state.notes == {"a": "1"}, DEADLINE_SECONDS)
        turn(place.host, place.clock, HOUR_MS)
        await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)
        await eventually(lambda: "a" not in notes, "the removal reaches the stock client")
        notes["a"] = "2"
        await board.wait_for(lambda state: state.notes == {"a": "2"}, DEADLINE_SECONDS)


async def test_a_key_that_is_written_while_it_is_removed_stays() -> None:
    """A write that had not seen the removal wins over it, in a dict, a text and a list."""
    clock = ManualClock()
    async with BoardHost(MemoryStore(), clock=clock) as host, open_board(host, BOARD, Job, agent="ann") as board:
        board.state.notes["a"] = "old"
        board.state.draft.append("old")
        board.state.steps.append("old")
        await board.flush(DEADLINE_SECONDS)
        away: pycrdt.Doc[Any] = pycrdt.Doc()
        away.apply_update(await host.open_boards()[BOARD].read(lambda document: document.encode()))
        before = away.get_state()
        away.get("notes", type=pycrdt.Map)["a"] = "fresh"
        away.get("draft", type=pycrdt.Text).insert(3, "fresh")
        away.get("steps", type=pycrdt.Array).append("fresh")
        turn(host, clock, HOUR_MS)
        await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)
        assert board.snapshot() == Job()
        host.open_boards()[BOARD].submit(
            Submission(updates=[away.get_update(before)], author="bob", source=object(), written=lambda _receipt: None)
        )
        kept = await board.wait_for(lambda state: bool(state.notes), DEADLINE_SECONDS)
        assert kept == Job(notes={"a": "fresh"}, draft=Text("fresh"), steps=["fresh"])


async def test_of_several_processes_on_one_file_one_removes_and_the_others_find_nothing_to_do(tmp_path: Path) -> None:
    """Each writer looks when something runs out, and the journal holds one removal."""
    clock = ManualClock()
    stores = [await SqliteStore.open(tmp_path / "boards.db") for _ in range(3)]
    hosts = [BoardHost(store, clock=clock) for store in stores]
    boards = [open_board(host, BOARD, Job, agent=f"agent-{number}") for number, host in enumerate(hosts)]
    opened = [await board.__aenter__() for board in boards]
    try:
        opened[0].state.notes.update({str(number): "x" for number in range(100)})
        await opened[0].flush(DEADLINE_SECONDS)
        for board in opened:
            await board.wait_for(lambda state: len(state.notes) == 100, DEADLINE_SECONDS)
        clock.advance(HOUR_MS)
        for host in hosts:
            host.open_boards()[BOARD].refresh()
        for board in opened:
            await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)
        for host in hosts:
            engine = host.open_boards()[BOARD]
            await engine.read(lambda _document: None)
            assert engine._tail.fold.scratch.due_at() is None
        assert len(await expiries(stores[0])) == 1
    finally:
        for each in boards:
            await each.__aexit__(None, None, None)
        for host in hosts:
            await host.close()


async def test_many_keys_go_in_pages_and_edits_between_them_are_made() -> None:
    """What ran out at once is removed a page at a time, and an entry that lists no keys lets no other key live on."""
    clock, store = ManualClock(), MemoryStore()
    limits = replace(DEFAULT_LIMITS, scratch_page_keys=40)
    async with (
        BoardHost(store, clock=clock, limits=limits) as host,
        open_board(host, BOARD, Job, agent="ann") as board,
    ):
        for number in range(100):
            board.state.notes[str(number)] = "x"
            await board.flush(DEADLINE_SECONDS)
        clock.advance(HOUR_MS // 2)
        board.state.notes["late"] = "x"
        await board.flush(DEADLINE_SECONDS)
        turn(host, clock, HOUR_MS // 2)
        await board.wait_for(lambda state: state.notes.keys() == {"late"}, DEADLINE_SECONDS)
        assert [len(each.paths) for each in await expiries(store)] == [1, 1, 20]
        turn(host, clock, HOUR_MS // 2)
        await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)


async def test_nothing_runs_out_early_when_the_clock_was_set_back() -> None:
    """What is written under a clock that is an hour slow still has its whole time when the clock is right again."""
    clock, store = ManualClock(), MemoryStore()
    async with BoardHost(store, clock=clock) as host, open_board(host, BOARD, Job, agent="ann") as board:
        board.state.target = "billing"
        await board.flush(DEADLINE_SECONDS)
        clock.advance(-HOUR_MS)
        board.state.notes["a"] = "1"
        await board.flush(DEADLINE_SECONDS)
        turn(host, clock, HOUR_MS)
        await host.open_boards()[BOARD].read(lambda _document: None)
        assert await expiries(store) == []
        turn(host, clock, HOUR_MS)
        await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)


async def test_the_writer_wakes_by_itself_when_something_runs_out() -> None:
    """Nobody needs to write for a value to go."""

    class Brief(BoardModel):
        note: Annotated[str, Scratch(ttl=timedelta(seconds=1))] = ""

    async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, Brief, agent="ann") as board:
        board.state.note = "here"
        await board.wait_for(lambda state: state.note == "here", DEADLINE_SECONDS)
        await board.flush(DEADLINE_SECONDS)
        await board.wait_for(lambda state: state.note == "", DEADLINE_SECONDS)


async def test_the_newest_time_to_live_counts_and_an_older_model_does_not_bring_back_its_own(place: Timed) -> None:
    """A model that only has another time to live joins; what was written before lives by the new one."""

    class Longer(BoardModel):
        notes: Annotated[dict[str, str], Scratch(ttl=3 * HOUR)] = {}

    class Shorter(BoardModel):
        notes: Annotated[dict[str, str], Scratch(ttl=HOUR)] = {}

    async with place.open(Shorter) as board, place.open(Longer, "bob"):
        board.state.notes["a"] = "1"
        await board.flush(DEADLINE_SECONDS)
        async with place.open(Shorter, "cid") as third:
            turn(place.host, place.clock, HOUR_MS)
            await third.commit("still there")
            assert third.snapshot().notes == {"a": "1"}
        turn(place.host, place.clock, 2 * HOUR_MS)
        await board.wait_for(lambda state: not state.notes, DEADLINE_SECONDS)
    assert len(await place.store.schemas(BOARD)) == 2


async def test_a_field_that_becomes_scratch_begins_with_what_it_holds(tmp_path: Path) -> None:
    """What stood there before counts as written by the newest entry that there was."""

    class Before(BoardModel):
        notes: dict[str, str] = {}

    class After(BoardModel):
        notes: Annotated[dict[str, str], Scratch(ttl=HOUR)] = {}

    clock = ManualClock()
    store = await SqliteStore.open(tmp_path / "boards.db")
    async with BoardHost(store, clock=clock) as host, open_board(host, BOARD, Before, agent="ann") as board:
        board.state.notes["a"] = "1"
        await board.flush(DEADLINE_SECONDS)
        clock.advance(HOUR_MS // 2)
        async with open_board(host, BOARD, After, agent="bob") as other:
            other.state.notes["b"] = "2"
            await other.flush(DEADLINE_SECONDS)
            turn(host, clock, HOUR_MS // 2)
            await other.wait_for(lambda state: state.notes == {"b": "2"}, DEADLINE_SECONDS)


Hourly = Scratch(ttl=HOUR)


class Note(BoardModel):
    text: str = ""


@pytest.mark.parametrize(
    ("annotation", "default", "reason"),
    [
        (Annotated[dict[str, Note], Hourly], {}, "into a record"),
        (Annotated[list[Note], Hourly], [], "into a record"),
        (Annotated[Counter, Hourly], ..., "stands for all"),
        (Annotated[float, Max(), Hourly], 0.0, "stands for all"),
        (Annotated[str, Strict(), Hourly], "", "stands for all"),
        (Annotated[str, Hourly], ..., "value to go back to"),
        (Annotated[str, Scratch], "", "how long"),
        (Annotated[str, Hourly, Hourly], "", "once"),
        (Annotated[str, Scratch(ttl=timedelta(milliseconds=999))], "", "time to live"),
        (Annotated[str, Scratch(ttl=60)], "", "time to live"),  # type: ignore[arg-type]
        (tuple[Annotated[str, Hourly], ...], (), "a policy of a whole field"),
    ],
)
def test_a_time_to_live_on_what_cannot_have_one_is_refused(annotation: Any, default: Any, reason: str) -> None:
    """A declaration that could lose writes, or means nothing, fails when the class is defined."""
    with pytest.raises(ModelError, match=reason) as refused:
        type(
            "Job",
            (BoardModel,),
            {"__annotations__": {"notes": annotation}, "notes": default}
            if default is not ...
            else {"__annotations__": {"notes": annotation}},
        )
    assert refused.value.data["instead"]


def test_a_scratch_field_inside_a_record_is_refused() -> None:
    """Times to live are for fields of the board itself."""

    class Inner(BoardModel):
        note: Annotated[str, Hourly] = ""

    with pytest.raises(ModelError, match="scratch"):

        class Outer(BoardModel):
            inner: dict[str, Inner] = {}


Write = tuple[int, list[str]]


def entry_of(seq: int, time_ms: int, paths: list[str]) -> Entry:
    return make_entry(
        "0" * 64, board_id=BOARD, epoch="e", seq=seq, kind="update", author="ann",
        time_ms=time_ms, paths=tuple(sorted(paths)), checkpoint="", payload=b"",
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 50), st.lists(st.sampled_from(["n", "n/a", "n/b", "n/c~1d"]), unique=True))),
    st.integers(0, 60),
    st.integers(2, 4),
)
def test_no_key_is_due_before_its_time_and_a_stored_fold_goes_on_alike(
    writes: list[Write], cut: int, keys_max: int
) -> None:
    """Whatever was written, and wherever a snapshot was made: due is at least the time to live after the last write."""
    whole = ScratchTimes()
    whole.track({"n": 10})
    stored: ScratchTimes | None = None
    last: dict[str, int] = {}
    newest = 0
    for seq, (time_ms, paths) in enumerate(writes, 1):
        newest = max(newest, time_ms)
        if seq - 1 == cut % (len(writes) + 1):
            stored = ScratchTimes.from_meta(whole.to_meta())
            stored.track({"n": 10})
        for each in (whole, stored):
            if each is not None:
                each.advance(entry_of(seq, time_ms, paths), keys_max)
        for key in ("a", "b", "c/d"):
            if "n" in paths or f"n/{key.replace('/', '~1')}" in paths:
                last[key] = newest
    assert stored is None or stored == whole
    for now in range(newest + 15):
        for due in whole.due(now, 100):
            keys = set(due.keys) | ({*last} - due.kept if due.rest else set())
            assert all(now >= last[key] + 10 for key in keys), (now, due)
    whole.forget(whole.due(newest + 10, 100))
    assert whole.due_at() is None
