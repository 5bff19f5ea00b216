"""Appends of many boards as one transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crdt_board.errors import BoardClosed, StoreUnavailable
from crdt_board.group_commit import GroupCommit
from crdt_board.store.contract import Append, Appended, HeadMoved
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.faults import FaultyStore
from crdt_board.testing.journals import JournalWriter, make_board

DEADLINE = 20.0


async def requests(store: Any, *boards: str) -> list[Append]:
    return [JournalWriter(await make_board(store, board)).updates(board.encode()) for board in boards]


def start(journal: GroupCommit, appends: list[Append]) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(journal.append(each)) for each in appends]


async def answers(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    async with asyncio.timeout(DEADLINE):
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_append_is_durable_on_return() -> None:
    """One that finds nobody writing is written at once, by itself."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    (request,) = await requests(store, "a")
    assert await journal.append(request) == Appended(seq=1)
    assert len(await store.entries("a", after=0, limit=10)) == 1
    await journal.close()


async def test_what_waits_while_one_is_written_becomes_one_group() -> None:
    """Appends that come while a group is being written are the next one, however many boards they are of."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append")
    first, *others = await requests(store, *"abcdefgh")
    tasks = start(journal, [first])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    tasks += start(journal, others)
    await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    gate.release()
    assert await answers(tasks) == [Appended(seq=1)] * 8
    assert store.calls["append"] == 2
    await journal.close()


async def in_company(store: FaultyStore) -> tuple[GroupCommit, list[JournalWriter]]:
    """A group commit whose last group was of several boards, and these boards."""
    journal = GroupCommit(store)
    boards = [JournalWriter(await make_board(store, board)) for board in "abc"]
    gate = store.hold("append")
    tasks = start(journal, [board.updates(b"x") for board in boards])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    gate.release()
    assert await answers(tasks) == [Appended(seq=1)] * 3
    assert store.calls["append"] == 2
    return journal, boards


async def test_those_of_one_turn_go_together_after_a_group_of_several() -> None:
    """Where several boards write, the first of a turn takes the others with it; who is alone then is written too."""
    store = FaultyStore(MemoryStore())
    journal, boards = await in_company(store)
    assert await answers(start(journal, [board.updates(b"y") for board in boards])) == [Appended(seq=2)] * 3
    assert store.calls["append"] == 3
    for seq in (3, 4):
        assert await journal.append(boards[0].updates(b"z")) == Appended(seq=seq)
    assert store.calls["append"] == 5
    await journal.close()


async def test_closing_waits_for_a_group_that_is_about_to_be_written() -> None:
    """What is in it is refused, and nothing is asked of the store after `close`."""
    store = FaultyStore(MemoryStore())
    journal, boards = await in_company(store)
    tasks = start(journal, [boards[0].updates(b"y")])
    await asyncio.sleep(0)
    await journal.close()
    calls = store.calls["append"]
    assert isinstance((await answers(tasks))[0], BoardClosed)
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.calls["append"] == calls


async def test_nobody_waits_for_more_than_one_group_of_others() -> None:
    """Whoever wrote the first group is answered though the next one hangs."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    first_gate, second_gate = store.hold("append", call=1), store.hold("append", call=2)
    one, two = await requests(store, "a", "b")
    (first,) = start(journal, [one])
    await asyncio.wait_for(first_gate.reached.wait(), DEADLINE)
    (second,) = start(journal, [two])
    await asyncio.sleep(0)
    first_gate.release()
    await asyncio.wait_for(second_gate.reached.wait(), DEADLINE)
    assert await asyncio.wait_for(first, DEADLINE) == Appended(seq=1)
    assert not second.done()
    second_gate.release()
    assert await second == Appended(seq=1)
    await journal.close()


async def test_each_board_gets_its_own_answer() -> None:
    """A board whose head has moved does not hinder the others of its group."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append")
    first, stale, good = await requests(store, "a", "b", "c")
    tasks = start(journal, [first])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    await store.inner.append(await requests(store, "b"))
    tasks += start(journal, [stale, good])
    await asyncio.sleep(0)
    gate.release()
    _, moved, appended = await answers(tasks)
    assert isinstance(moved, HeadMoved)
    assert appended == Appended(seq=1)
    await journal.close()


async def test_a_failure_is_told_to_its_whole_group_and_to_no_other() -> None:
    """When the store fails, all of that group hear it, and the next group is written."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append", call=1)
    store.fail("append", call=2)
    one, two, three = await requests(store, "a", "b", "c")
    tasks = start(journal, [one])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    tasks += start(journal, [two, three])
    await asyncio.sleep(0)
    gate.release()
    first, second, third = await answers(tasks)
    assert first == Appended(seq=1)
    assert isinstance(second, StoreUnavailable)
    assert isinstance(third, StoreUnavailable)
    assert await journal.append(two) == Appended(seq=1)
    await journal.close()


async def test_an_unforeseen_failure_leaves_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in the store itself is raised to its group, is logged, and the next append works."""
    store = MemoryStore()
    journal = GroupCommit(store)
    (request,) = await requests(store, "a")

    async def broken(_requests: object) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(store, "append", broken)
        with pytest.raises(ZeroDivisionError):
            await journal.append(request)
    assert "unforeseen" in caplog.text
    assert await journal.append(request) == Appended(seq=1)
    await journal.close()


async def test_cancelling_the_one_that_writes_is_heard_by_its_group_only() -> None:
    """A writer that is cancelled leaves the others with StoreUnavailable, and nothing that nobody asks for."""
    loop, forgotten = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: forgotten.append(context))
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append")
    one, two = await requests(store, "a", "b")
    (writing,) = start(journal, [one])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    (waiting,) = start(journal, [two])
    await asyncio.sleep(0)
    writing.cancel()
    cancelled, answer = await answers([writing, waiting])
    assert isinstance(cancelled, asyncio.CancelledError)
    assert answer == Appended(seq=1)
    await journal.close()
    del writing, cancelled
    assert forgotten == []


async def test_cancelling_one_that_waits_does_not_disturb_the_others() -> None:
    """Who waits in a group may be cancelled; the group is written all the same."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append")
    one, two, three = await requests(store, "a", "b", "c")
    tasks = start(journal, [one])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    given_up, kept = start(journal, [two, three])
    await asyncio.sleep(0)
    given_up.cancel()
    gate.release()
    assert await answers([*tasks, kept]) == [Appended(seq=1)] * 2
    await journal.close()


async def test_closing_lets_the_group_finish_and_refuses_the_rest() -> None:
    """``close`` waits for the group that is being written; what had not begun is refused, and later appends too."""
    store = FaultyStore(MemoryStore())
    journal = GroupCommit(store)
    gate = store.hold("append")
    one, two = await requests(store, "a", "b")
    (first,) = start(journal, [one])
    await asyncio.wait_for(gate.reached.wait(), DEADLINE)
    (second,) = start(journal, [two])
    await asyncio.sleep(0)
    closing = asyncio.create_task(journal.close())
    with pytest.raises(BoardClosed):
        await second
    await asyncio.sleep(0)
    assert not closing.done()
    gate.release()
    await asyncio.wait_for(closing, DEADLINE)
    assert await first == Appended(seq=1)
    with pytest.raises(BoardClosed):
        await journal.append(two)
    await journal.close()


async def test_a_task_that_is_cancelled_before_it_runs_leaves_nobody_waiting() -> None:
    """As at the end of an event loop, which cancels all: what waits is written, and closing ends."""
    store = FaultyStore(MemoryStore())
    journal, boards = await in_company(store)
    (append,) = start(journal, [boards[0].updates(b"y")])
    await asyncio.sleep(0)
    (task,) = [each for each in asyncio.all_tasks() if each.get_name() == "group-commit"]
    task.cancel()
    assert await answers([append]) == [Appended(seq=2)]
    async with asyncio.timeout(DEADLINE):
        await journal.close()
