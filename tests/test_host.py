"""The open boards of a process: loaded once, closed when idle, one's failure kept from the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

import crdt_board.chores
from crdt_board import BoardClosed, BoardCorrupt, BoardHost, InvalidBoardId, StoreUnavailable, open_board
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.journal import GENESIS_HASH, verify_chain
from crdt_board.store.contract import SnapshotRecord
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.testing.faults import FaultyStore
from support.model import Report
from support.waiting import DEADLINE_SECONDS, eventually

LAYOUT = Report.board_layout()


class Shared(MemoryStore):
    """A store that outlives the hosts that use it, as a file does."""

    async def close(self) -> None:
        pass


async def write(engine: Engine, text: str) -> Receipt:
    document = Document(LAYOUT)
    update = document.capture(lambda: document.text("draft").insert(0, text))
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(Submission(updates=[update], author="ann", source=None, written=told.set_result))
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await told


async def text_of(engine: Engine) -> str:
    await engine.join(LAYOUT)
    return await engine.read(lambda document: str(document.text("draft")))


async def made_before(store: Any, *boards: str) -> None:
    """Boards that exist, with their own name as content."""
    async with BoardHost(store) as host:
        for board_id in boards:
            async with host.board(board_id) as engine:
                await engine.join(LAYOUT)
                assert (await write(engine, board_id)).seq == 1


# Loading


async def test_a_board_is_read_once_however_many_wait() -> None:
    """D2: twenty users during a slow load: it is read once, all get the same engine, and nobody sees an empty board."""
    shared = Shared()
    await made_before(shared, "job")
    store = FaultyStore(shared)
    gate = store.hold("head", when="after")
    async with BoardHost(store) as host:
        waiting = [asyncio.create_task(host.acquire("job")) for _ in range(20)]
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        assert host.open_boards() == {}
        gate.release()
        engines = await asyncio.gather(*waiting)
        assert len({id(engine) for engine in engines}) == 1
        assert [store.calls[method] for method in ("head", "schemas", "snapshots", "entries")] == [1, 1, 1, 1]
        assert await text_of(engines[0]) == "job"


@pytest.mark.parametrize("method", ["head", "schemas", "snapshots", "entries"])
async def test_a_load_that_fails_is_told_to_all_and_tried_again(method: str) -> None:
    """D2: the store raises on load: all who wait get the error, nothing is stored, the next one tries again."""
    shared = Shared()
    await made_before(shared, "job")
    before = [await shared.head("job"), await shared.entries("job", after=0, limit=10), await shared.schemas("job")]
    store = FaultyStore(shared)
    gate = store.hold("head")
    store.fail(method)
    async with BoardHost(store) as host:
        waiting = [asyncio.create_task(host.acquire("job")) for _ in range(20)]
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        gate.release()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 20
        assert host.open_boards() == {}
        writes = ("create", "append", "add_schema", "save_snapshot")
        assert [store.calls[name] for name in writes] == [0, 0, 0, 0]
        async with host.board("job") as engine:
            assert await text_of(engine) == "job"
    after = [await shared.head("job"), await shared.entries("job", after=0, limit=10), await shared.schemas("job")]
    assert after == before


async def test_a_board_that_is_new_and_cannot_be_made_is_made_later() -> None:
    """D2: when making a new board fails, nobody goes on with one that is not stored."""
    store = FaultyStore(MemoryStore())
    store.fail("create")
    async with BoardHost(store) as host:
        with pytest.raises(StoreUnavailable):
            await host.acquire("job")
        assert await store.boards() == []
        async with host.board("job") as engine:
            assert engine.seq == 0
        assert [head.board_id for head in await store.boards()] == ["job"]


async def test_two_who_open_a_new_board_at_once_share_it() -> None:
    """W12: two users of a new board in the same moment are both answered, with one board."""
    async with BoardHost(MemoryStore()) as host:
        one, two = await asyncio.gather(host.acquire("new"), host.acquire("new"))
        assert one is two
        assert one.epoch


async def test_a_bad_board_id_is_refused_before_the_store_is_asked() -> None:
    """H4: an id outside the alphabet never reaches the store."""
    store = FaultyStore(MemoryStore())
    async with BoardHost(store) as host:
        for board_id in ("", "../x", "a/b", "\x00", "a%"):
            with pytest.raises(InvalidBoardId):
                await host.acquire(board_id)
        assert store.calls["head"] == 0


async def test_cancelling_one_who_waits_does_not_disturb_the_others() -> None:
    """Of three who wait for a load one gives up; the others get the board, which stays until both have gone."""
    store = FaultyStore(MemoryStore())
    gate = store.hold("head")
    async with BoardHost(store) as host:
        first, second, third = (asyncio.create_task(host.acquire("job")) for _ in range(3))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        gate.release()
        engine = await second
        assert await third is engine
        host.release(engine)
        assert (await write(engine, "x")).seq == 1
        host.release(engine)
        await eventually(lambda: not engine.is_open, "the board is closed")


async def test_a_board_that_everybody_gave_up_is_closed() -> None:
    """When the only one who waits gives up, the board does not stay open, and can be opened again."""
    store = FaultyStore(MemoryStore())
    gate = store.hold("head")
    async with BoardHost(store) as host:
        waiting = asyncio.create_task(host.acquire("job"))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        gate.release()
        await eventually(lambda: not host._slots, "nothing is open")
        async with host.board("job") as engine:
            assert (await write(engine, "x")).seq == 1


# Closing


async def test_a_board_closes_when_the_last_user_leaves() -> None:
    """Two users share an engine; it closes after the second one left, and the next one gets a new engine."""
    async with BoardHost(MemoryStore()) as host:
        async with host.board("job") as engine:
            async with host.board("job") as same:
                assert same is engine
            assert engine.is_open
        await eventually(lambda: not engine.is_open, "the board is closed")
        async with host.board("job") as other:
            assert other is not engine


async def test_an_idle_board_stays_open_for_who_comes_back_in_time() -> None:
    """With a pause before closing, a user who comes back meanwhile finds the same engine, without a load."""
    store = FaultyStore(MemoryStore())
    async with BoardHost(store, idle_seconds=DEADLINE_SECONDS) as host:
        async with host.board("job") as engine:
            pass
        async with host.board("job") as same:
            assert same is engine
        assert store.calls["head"] == 1
        assert list(host.open_boards()) == ["job"]


async def test_leaving_and_rejoining_while_boards_close_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """D4: a thousand times leave, rejoin and edit while closing takes 0-50 ms: every acknowledged edit is reloaded."""
    monkeypatch.setattr(crdt_board.chores, "_CLOSING_SNAPSHOT_ENTRIES", 1)
    seeded = random.Random(4)
    boards, rounds = [f"job-{number}" for number in range(16)], 50
    users = [
        (board_id, agent) for number, board_id in enumerate(boards) for agent in ("ann", "bob")[: 1 + (number < 4)]
    ]
    closings = 0

    class Slow(Shared):
        async def save_snapshot(self, snapshot: SnapshotRecord, *, drop: Sequence[int] = ()) -> None:
            nonlocal closings
            closings += 1
            await asyncio.sleep(seeded.uniform(0, 0.05))
            await super().save_snapshot(snapshot, drop=drop)

    async def come_and_go(host: BoardHost, board_id: str, agent: str) -> set[str]:
        acknowledged = set()
        for number in range(rounds):
            async with open_board(host, board_id, Report, agent=agent) as board:
                assert acknowledged <= board.snapshot().sources
                board.state.sources.add(f"{agent} {number}")
                if seeded.random() < 0.5:
                    await board.flush(DEADLINE_SECONDS)
            acknowledged.add(f"{agent} {number}")
            for _ in range(seeded.randrange(10)):
                await asyncio.sleep(0)  # now and then the board begins to close
        return acknowledged

    store = Slow()
    async with BoardHost(store) as host:
        made = await asyncio.gather(*(come_and_go(host, *user) for user in users))
    assert closings > 300
    async with BoardHost(store) as host:
        for board_id in boards:
            acknowledged = [edits for (of, _), edits in zip(users, made, strict=True) if of == board_id]
            async with open_board(host, board_id, Report, agent="reader") as board:
                assert board.snapshot().sources == set().union(*acknowledged)
            verify_chain(GENESIS_HASH, 0, await store.entries(board_id, after=0, limit=10_000))


async def test_who_comes_while_a_board_closes_waits_for_it() -> None:
    """A user who comes during closing gets a new engine, which was loaded after the old one had stored everything."""
    shared = Shared()
    store = FaultyStore(shared)
    async with BoardHost(store) as host:
        engine = await host.acquire("job")
        gate = store.hold("append", when="after")
        writing = asyncio.create_task(write(engine, "late"))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        host.release(engine)
        await eventually(lambda: not engine.is_open, "the board is closing")
        coming = asyncio.create_task(host.acquire("job"))
        await asyncio.sleep(0)
        loads = store.calls["head"]
        gate.release()
        assert (await writing).seq == 1
        other = await asyncio.wait_for(coming, DEADLINE_SECONDS)
        assert other is not engine
        assert store.calls["head"] == loads + 1
        assert await text_of(other) == "late"


async def test_releasing_an_engine_of_the_past_changes_nothing() -> None:
    """Giving back an engine that was replaced does not close the present one."""
    async with BoardHost(MemoryStore()) as host:
        async with host.board("job") as old:
            pass
        await eventually(lambda: not host._slots, "the board is closed")
        async with host.board("job") as engine:
            host.release(old)
            await asyncio.sleep(0)
            assert (await write(engine, "x")).seq == 1


async def test_closing_the_host_stores_what_is_queued() -> None:
    """D5: ``close`` with users and queued edits makes them durable, then ends every board; idempotent."""
    shared = Shared()
    store = FaultyStore(shared)
    host = BoardHost(store)
    engines = [await host.acquire(board_id) for board_id in ("a", "b")]
    gate = store.hold("append")
    writing = [asyncio.create_task(write(engine, "queued")) for engine in engines]
    await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
    closing = asyncio.create_task(host.close())
    await asyncio.sleep(0)
    gate.release()
    await asyncio.wait_for(closing, DEADLINE_SECONDS)
    assert [(await one).seq for one in writing] == [1, 1]
    for engine in engines:
        with pytest.raises(BoardClosed):
            await write(engine, "late")
        host.release(engine)
    with pytest.raises(BoardClosed):
        await host.acquire("a")
    await host.close()
    assert store.calls["close"] >= 1
    for board_id in ("a", "b"):
        assert len(await shared.entries(board_id, after=0, limit=10)) == 1


async def test_closing_the_host_during_a_load() -> None:
    """Who waits for a load while the host closes is answered, and nothing is left behind."""
    store = FaultyStore(MemoryStore())
    gate = store.hold("head")
    host = BoardHost(store)
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(host.acquire("job"))
    await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
    closing = asyncio.create_task(host.close())
    await asyncio.sleep(0)
    gate.release()
    await asyncio.wait_for(closing, DEADLINE_SECONDS)
    (result,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(result, Engine | BoardClosed)
    assert not asyncio.all_tasks() - before


# One among others


async def test_a_board_that_cannot_be_loaded_leaves_the_others_going() -> None:
    """W9: a corrupt board is reported each time it is asked for, and its neighbours are written as before."""
    shared = Shared()
    await made_before(shared, "bad", "good")
    entries_of = shared.entries

    async def damaged(board_id: str, *, after: int, limit: int) -> Sequence[Any]:
        return [] if board_id == "bad" else await entries_of(board_id, after=after, limit=limit)

    shared.entries = damaged  # type: ignore[method-assign,assignment]
    async with BoardHost(shared) as host, host.board("good") as good:
        for _ in range(2):
            with pytest.raises(BoardCorrupt, match="bad"):
                await host.acquire("bad")
            assert (await write(good, "x")).error is None
        assert list(host.open_boards()) == ["good"]


async def test_a_board_that_stops_leaves_the_others_going_and_recovers() -> None:
    """W9: a board whose rows are gone stops and tells its users; the others go on, and it can be opened anew."""
    store = MemoryStore()
    async with BoardHost(store) as host, host.board("good") as good:
        bad = await host.acquire("bad")
        assert (await write(bad, "x")).seq == 1
        del store._database.boards["bad"]
        receipt = await write(bad, "y")
        assert isinstance(receipt.error, BoardCorrupt)
        assert not bad.is_open
        assert (await write(good, "z")).error is None
        async with host.board("bad") as anew:
            assert anew is not bad
            assert anew.seq == 0
        host.release(bad)


async def test_a_store_that_fails_holds_up_nobody_for_ever() -> None:
    """W9: after an outage every board writes what it had queued, each once."""
    shared = Shared()
    store = FaultyStore(shared)
    async with BoardHost(store) as host:
        engines = [await host.acquire(f"job-{number}") for number in range(5)]
        store.break_down("append")
        writing = [asyncio.create_task(write(engine, "x")) for engine in engines]
        await eventually(lambda: all(engine.failure for engine in engines), "all boards report the outage")
        store.repair()
        assert [(await one).seq for one in writing] == [1] * 5
        assert [engine.failure for engine in engines] == [None] * 5


async def test_other_processes_edits_are_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process appends to an open board is read without being asked for, also after a failed watch."""
    monkeypatch.setattr("crdt_board.host._WATCH_RETRY_SECONDS", 0.0)
    shared = MemoryStore()
    store = FaultyStore(shared)
    store.fail("wait_for_others")
    async with (
        BoardHost(store) as host,
        BoardHost(shared.peer()) as elsewhere,
        host.board("job") as here,
        elsewhere.board("job") as there,
    ):
        assert (await write(there, "far")).seq == 1
        await eventually(lambda: here.seq == 1, "the entry is here")
        assert await text_of(here) == "far"
