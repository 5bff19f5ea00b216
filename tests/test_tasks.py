"""Tasks: put once, done by one agent at a time; at both places where a board can be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from crdt_board import (
    BadRequest,
    BoardHost,
    InvalidValue,
    LimitExceeded,
    NotFound,
    TaskLost,
    TaskMismatch,
    VersionConflict,
    open_board,
)
from crdt_board.clock import ManualClock
from crdt_board.coordination.task_operations import ClaimTask, CompleteTask, FailTask, ReleaseTask, RenewTask
from crdt_board.limits import Limits
from crdt_board.store.memory import MemoryStore
from crdt_board_client import connect
from support.model import Report
from support.places import BOARD, Place, PlaceKind, has_version, place_of
from support.relay import Cut, Message, Way, is_message, pass_all, relay_to
from support.server import ServerProcess
from support.team_agent import agent_at, team_agent
from support.waiting import DEADLINE_SECONDS

TOKEN, OTHER_TOKEN = "token-of-the-first", "token-of-the-other"
HOUR_MS = 3_600_000


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture(params=["embedded", "served"])
async def address(
    request: pytest.FixtureRequest, tmp_path: Path, start_server: Callable[..., Awaitable[ServerProcess]]
) -> str:
    """Where several processes find one board: a SQLite file, or a server."""
    return str(tmp_path / "boards.db") if request.param == "embedded" else (await start_server()).url


@pytest_asyncio.fixture
async def clocked() -> AsyncIterator[tuple[ManualClock, Any]]:
    """A board whose store's time is the test's."""
    clock = ManualClock()
    async with (
        BoardHost(MemoryStore(clock=clock), clock=clock) as host,
        open_board(host, BOARD, Report, agent="ann") as ann,
    ):
        yield clock, ann


async def ask(board: Any, *operations: Any) -> Any:
    return await board._desk.ask(*operations)


async def one_claim(board: Any, *queues: str, **options: Any) -> Any:
    """Claim a task and complete it; returns its payload."""
    async with asyncio.timeout(DEADLINE_SECONDS), board.tasks.claim(*queues, **options) as task:
        return task.payload


def states(board: Any) -> dict[str, str]:
    return {task.key: task.state for task in board.tasks.all()}


async def test_a_task_is_put_claimed_and_done(place: Place) -> None:
    """Everybody sees where it is, who has it, and its result."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        put = await ann.tasks.put({"file": "a.py"}, key="extract a", queue="extract")
        assert (put.key, put.state, put.put_by, put.attempt) == ("extract a", "open", "ann", 0)
        async with bob.tasks.claim("extract") as task:
            assert (task.key, task.payload, task.attempt, task.attempts) == ("extract a", {"file": "a.py"}, 1, 3)
            assert (bob.tasks.get("extract a").state, bob.tasks.get(task).agent) == ("claimed", "bob")
            assert task.is_held
            task.result = {"lines": 3}
        assert not task.is_held
        done = await ann.tasks.wait("extract a", DEADLINE_SECONDS)
        assert (done.state, done.result, done.agent, done.error) == ("done", {"lines": 3}, "bob", None)
        with pytest.raises(TimeoutError, match="no open task"):
            await one_claim(ann, "extract", timeout=0)


async def test_a_key_is_put_once(place: Place) -> None:
    """V4: the same key and content is the same task, however often and wherever it is; other content is a conflict."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        puts = [(ann, bob)[number % 2].tasks.put([1, {"a": None}], key="k", queue="q") for number in range(20)]
        assert len({(task.key, task.put_ms, task.put_by) for task in await asyncio.gather(*puts)}) == 1
        for other in ({"payload": [1, {"a": 0}]}, {"queue": "r"}, {"priority": 1}, {"attempts": 1}):
            with pytest.raises(TaskMismatch, match="another task k"):
                await ann.tasks.put(**{"payload": [1, {"a": None}], "key": "k", "queue": "q"} | other)
        with pytest.raises(TaskMismatch):
            await ann.tasks.put([True, {"a": None}], key="k", queue="q")
        await one_claim(bob)
        assert (await ann.tasks.put([1, {"a": None}], key="k", queue="q", delay=60)).state == "done"
        assert len({(await ann.tasks.put()).key for _ in range(3)}) == 3


async def test_claims_go_by_priority_and_then_in_order(place: Place) -> None:
    """The greatest priority first; of alike ones whichever was put first."""
    async with place.open(Report, "ann") as ann:
        for number, priority in enumerate([0, 5, -1, 5, 0]):
            await ann.tasks.put(number, queue="even" if number % 2 == 0 else "odd", priority=priority)
        assert [await one_claim(ann) for _ in range(5)] == [1, 3, 0, 4, 2]


async def test_a_claim_chooses_by_queue_and_payload(place: Place) -> None:
    """Queues by name, several at once, and keys of the payload with exactly these values."""
    async with place.open(Report, "ann") as ann:
        for number, (queue, payload) in enumerate(
            [("a", {"lang": "py", "n": 1}), ("b", {"lang": "py", "n": True}), ("c", {"lang": None}), ("c", "text")]
        ):
            await ann.tasks.put(payload, key=str(number), queue=queue)
        claims: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            (("nothing",), {}),
            ((), {"lang": "js"}),
            (("a", "b"), {"lang": "py", "n": True}),
            ((), {"lang": None}),
            (("c", "a", "c"), {}),
            (("c", "a"), {}),
        ]
        found = []
        for queues, where in claims:
            try:
                async with ann.tasks.claim(*queues, where=where, timeout=0) as task:
                    found.append(task.key)
            except TimeoutError:
                found.append("")
        assert found == ["", "", "1", "2", "0", "3"]


async def test_an_exception_fails_the_attempt_until_there_are_none_left(place: Place) -> None:
    """The error is kept, the task open again, and failed after its last attempt."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="t", attempts=2)
        for state in ("open", "failed"):
            with pytest.raises(RuntimeError):
                async with ann.tasks.claim():
                    raise RuntimeError("no \ud800 luck")
            assert (ann.tasks.get("t").state, ann.tasks.get("t").error) == (state, "RuntimeError: no ? luck")
        assert (await ann.tasks.retry("t")).attempt == 0
        async with ann.tasks.claim() as task:
            await task.fail("hopeless", retry=False)
            with pytest.raises(BadRequest, match="ended before"):
                await task.complete()
        assert (ann.tasks.get("t").state, ann.tasks.get("t").error) == ("failed", "hopeless")
        await ann.tasks.retry("t")
        await one_claim(ann)
        assert (ann.tasks.get("t").state, ann.tasks.get("t").error) == ("done", None)


async def test_a_released_or_cancelled_claim_is_no_attempt(place: Place) -> None:
    """Who gives a task back, or is told to stop, leaves it as it was."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="t")
        async with ann.tasks.claim() as task:
            await task.release()
        assert (ann.tasks.get("t").state, ann.tasks.get("t").attempt, ann.tasks.get("t").agent) == ("open", 0, None)
        begun = asyncio.Event()

        async def hang() -> None:
            async with ann.tasks.claim():
                begun.set()
                await asyncio.Event().wait()

        hanging = asyncio.create_task(hang())
        await begun.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert (ann.tasks.get("t").state, ann.tasks.get("t").attempt) == ("open", 0)
        waiting = asyncio.create_task(one_claim(ann, "other", ttl=60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await ann.tasks.put(key="u", queue="other")
        assert await one_claim(ann, "other", timeout=DEADLINE_SECONDS) is None


async def test_tasks_come_after_others(place: Place) -> None:
    """A small graph: each can be claimed when all that it comes after is done, and says what it waits for."""
    async with place.open(Report, "ann") as ann:
        plan = await ann.tasks.put(key="plan")
        left = await ann.tasks.put(key="left", after=[plan])
        right = await ann.tasks.put(key="right", after=["plan", "plan"], attempts=1)
        await ann.tasks.put(key="join", after=[left, right])
        assert states(ann) == {"plan": "open", "left": "blocked", "right": "blocked", "join": "blocked"}
        await one_claim(ann)
        assert states(ann) == {"plan": "done", "left": "open", "right": "open", "join": "blocked"}
        assert (await ann.tasks.put(key="late", after=[plan])).state == "open"
        await one_claim(ann)
        with contextlib.suppress(ValueError):
            async with ann.tasks.claim():
                raise ValueError
        assert (ann.tasks.get("right").state, ann.tasks.get("join").state) == ("failed", "blocked")
        assert ann.tasks.get("join").waiting_for == ("right",)
        assert await ann.tasks.clear() == 2
        assert states(ann) == {"right": "failed", "join": "blocked", "late": "open"}
        await ann.tasks.retry(right)
        await one_claim(ann)
        assert ann.tasks.get("join").state == "open"


async def test_unknown_tasks_and_cycles_are_refused(place: Place) -> None:
    """What a task comes after was put before it, so that there can be no cycle."""
    async with place.open(Report, "ann") as ann:
        for after in (["nowhere"], ["self"]):
            with pytest.raises(NotFound, match="there is no task"):
                await ann.tasks.put(key="self", after=after)
        for call in (ann.tasks.cancel, ann.tasks.retry, ann.tasks.wait):
            with pytest.raises(NotFound):
                await call("nowhere")
        with pytest.raises(NotFound):
            ann.tasks.get("nowhere")
        assert ann.tasks.all() == []


async def test_a_cancelled_task_is_lost_for_whoever_has_it(place: Place) -> None:
    """Its claim cannot end in anything, nothing comes after it, and it can be opened again."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        await ann.tasks.put(key="t")
        with pytest.raises(TaskLost, match="is cancelled"):  # noqa: PT012 - it is raised at the end of the block
            async with bob.tasks.claim() as task:
                assert (await ann.tasks.cancel(task)).state == "cancelled"
                with pytest.raises(TaskLost):
                    await task.fail("too late")
                with pytest.raises(TaskLost):
                    await bob.commit("too late", patch={"title": "late"}, task=task)
        assert (bob.version, bob.snapshot().title) == (0, "")
        assert (await ann.tasks.cancel("t")).state == "cancelled"
        await ann.tasks.retry("t")
        await one_claim(bob)
        assert (await ann.tasks.cancel("t")).state == "done"


async def test_a_commit_completes_a_task_in_its_own_entry(place: Place) -> None:
    """The result is there if and only if the commit is: a refused commit leaves the task claimed."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        await ann.tasks.put(key="t")
        async with bob.tasks.claim() as task:
            await ann.commit("first", patch={"title": "by ann"})
            with pytest.raises(VersionConflict):
                await bob.commit("no", patch={"title": "no"}, expected_version=0, task=task)
            assert bob.tasks.get(task).state == "claimed"
            made = await bob.commit("yes", patch={"title": "yes"}, task=task, output={"n": 1}, idempotency_key="k")
            assert task.is_settled
        again = await bob.commit("yes", patch={"title": "yes"}, output={"n": 1}, idempotency_key="k")
        assert again == made
        await has_version(ann, made.version)
        assert (ann.tasks.get("t").state, ann.tasks.get("t").result, ann.snapshot().title) == ("done", {"n": 1}, "yes")
        entries = [entry for entry in await place.entries() if entry.seq >= made.seq]
        assert [entry.kind for entry in entries] == ["commit"]
        with pytest.raises(BadRequest, match="ended before"):
            await bob.commit("twice", task=task)


async def test_a_task_that_was_cleared_is_gone(place: Place) -> None:
    """Finished ones only, all or by key, queue, state and age; their keys can be used again."""
    async with place.open(Report, "ann") as ann:
        for key, queue in (("a", "q"), ("b", "q"), ("c", "r"), ("d", "r")):
            await ann.tasks.put(key=key, queue=queue)
        await one_claim(ann, "q")
        await one_claim(ann, "r")
        await ann.tasks.cancel("d")
        assert await ann.tasks.clear(older_than=timedelta(hours=1)) == 0
        assert await ann.tasks.clear("b", "nowhere") == 0
        assert await ann.tasks.clear(queue="q") == 1
        assert await ann.tasks.clear(states=["cancelled"]) == 1
        assert await ann.tasks.clear() == 1
        assert states(ann) == {"b": "open"}
        assert (await ann.tasks.put("other", key="a")).state == "open"


async def test_waiting_claimers_get_what_is_put_later(place: Place) -> None:
    """Whoever waits is woken by a new task, by one that is delayed, and by one that is open again."""
    async with place.open_all(Report, "ann", "bob", "cid") as (ann, bob, cid):
        waiting = [asyncio.create_task(one_claim(board, "q")) for board in (bob, cid, cid)]
        await ann.tasks.put(0, queue="q")
        await ann.tasks.put(1, queue="q", delay=0.1)
        await ask(ann, ClaimTask(token=TOKEN, ttl_ms=200, queues=("r",)))
        await ann.tasks.put(2, queue="q")
        assert sorted(await asyncio.gather(*waiting)) == [0, 1, 2]
        await ann.tasks.put(3, queue="r")
        await ask(ann, ClaimTask(token=TOKEN, ttl_ms=200, queues=("r",)))
        assert await one_claim(bob, "r") == 3
        assert ann.tasks.all(queue="r")[0].attempt == 2


async def test_work_goes_on_after_failures(place: Place) -> None:
    """The handler's value is the result, its error that of the attempt; ended when there was nothing for a while."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        for number in range(6):
            await ann.tasks.put(number, key=str(number), queue="q", attempts=2)

        async def handle(task: Any) -> Any:
            if task.payload == 3 and task.attempt == 1:
                raise RuntimeError("once")
            if task.payload == 4:
                return object()
            if task.payload == 5:
                await bob.commit("five", task=task, output="committed")
            return task.payload * 2

        assert await bob.tasks.work(handle, "q", idle=0) == 8
        tasks = {task.payload: task for task in bob.tasks.all()}
        assert [tasks[number].result for number in (0, 1, 2, 3, 5)] == [0, 2, 4, 6, "committed"]
        assert (tasks[3].attempt, tasks[4].state) == (2, "failed")
        assert "result" in (tasks[4].error or "")
        assert await bob.tasks.work(lambda task: task.payload, "q", idle=0) == 0


async def test_a_board_with_tasks_to_do_is_not_settled(place: Place) -> None:
    """Open and claimed ones count; finished ones do not, nor one that waits for what has failed."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="t", attempts=1)
        await ann.tasks.put(key="after t", after=["t"])
        with pytest.raises(TimeoutError):
            await ann.settled(0.01)
        async with ann.tasks.claim() as task:
            with pytest.raises(TimeoutError):
                await ann.settled(0.01)
            await task.fail("no")
        await ann.settled(DEADLINE_SECONDS)


async def test_cancelled_work_gives_its_task_back(place: Place) -> None:
    """The one at hand is open at once, and no attempt was used."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="t")
        begun = asyncio.Event()

        async def hang(_task: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(ann.tasks.work(hang))
        await begun.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert (ann.tasks.get("t").state, ann.tasks.get("t").attempt) == ("open", 0)


async def test_every_request_may_reach_the_writer_twice(place: Place) -> None:
    """A claim, its renewal and each of its ends have one effect when the client sends them again."""
    async with place.open(Report, "ann") as ann:
        for key in ("a", "b", "c"):
            await ann.tasks.put(key=key)
        claim = ClaimTask(token=TOKEN, ttl_ms=20_000)
        once, twice = await ask(ann, claim, claim)
        assert once == twice
        renewal = RenewTask(name="a", token=TOKEN, ttl_ms=20_000)
        await ask(ann, renewal, renewal)
        failure = FailTask(name="a", token=TOKEN, error="no")
        assert [each["attempt"] for each in await ask(ann, failure, failure)] == [1, 1]
        await ask(ann, claim)
        completion = CompleteTask(name="a", token=TOKEN, result=1)
        once, twice = await ask(ann, completion, completion)
        assert (once["status"], once) == ("done", twice)
        await ask(ann, ClaimTask(token=OTHER_TOKEN, ttl_ms=20_000))
        release = ReleaseTask(token=OTHER_TOKEN)
        assert (await ask(ann, release, release))[1] is None
        assert states(ann) == {"a": "done", "b": "open", "c": "open"}


async def test_an_answer_that_is_lost_changes_nothing(tmp_path: Path) -> None:
    """The connection breaks in place of the answer to a claim, a completion and a commit: each takes place once."""
    async with (
        place_of("served", tmp_path / "boards.db") as place,
        relay_to(place.url) as relay,
        place.open(Report, "boss") as boss,
        connect(relay.url, BOARD, Report, agent="ann") as ann,
    ):
        for key in ("t", "u"):
            await boss.tasks.put(key=key)

        def cut_once(way: Way, message: Message) -> Message:
            if way == "down" and is_message(message, "answer"):
                relay.judge = pass_all
                raise Cut
            return message

        relay.judge = cut_once
        async with ann.tasks.claim() as task:
            assert task.key == "t"
            relay.judge = cut_once
            await task.complete(1)
        async with ann.tasks.claim() as task:
            relay.judge = cut_once
            await ann.commit("u", task=task, output=2)
        assert relay.connections == 4
        await has_version(boss, 1)
        assert [(each.state, each.attempt, each.result) for each in boss.tasks.all()] == [
            ("done", 1, 1),
            ("done", 1, 2),
        ]


async def test_operations_of_one_request_see_each_other(place: Place) -> None:
    """All or none: a task that is put, and one that becomes open, can be claimed in the same entry."""
    async with place.open(Report, "ann") as ann:
        first = await ann.tasks.put(key="first")
        await ann.tasks.put(key="second", after=[first])
        await ask(ann, ClaimTask(token=TOKEN, ttl_ms=20_000))
        claim = ClaimTask(token=OTHER_TOKEN, ttl_ms=20_000)
        done, claimed = await ask(ann, CompleteTask(name="first", token=TOKEN), claim)
        assert (done["status"], claimed["name"]) == ("done", "second")
        with pytest.raises(TaskLost):
            await ask(ann, CompleteTask(name="second", token=OTHER_TOKEN), CompleteTask(name="second", token=TOKEN))
        assert ann.tasks.get("second").state == "claimed"


async def test_a_fork_begins_with_open_tasks(place: Place) -> None:
    """What is claimed on the board is open on its fork, and what is done there stays there."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="t")
        async with ann.tasks.claim():
            await ann.commit("begin")
            await ann.fork("job-884-fork")
            async with place.open(Report, "bob", "job-884-fork") as bob:
                assert (bob.tasks.get("t").state, bob.tasks.get("t").attempt) == ("open", 0)
                await one_claim(bob)
                await bob.tasks.put(key="of the fork")
                await bob.commit("done")
            await ann.merge_from("job-884-fork")
            assert states(ann) == {"t": "claimed"}


async def test_what_is_no_task_is_refused_at_the_call(place: Place) -> None:
    """Arguments are checked where they are given, with the name of what is wrong."""
    async with place.open(Report, "ann") as ann:
        refused: list[tuple[dict[str, Any], type[Exception]]] = [
            ({"key": ""}, InvalidValue),
            ({"key": "a\nb"}, LimitExceeded),
            ({"queue": "x" * 201}, LimitExceeded),
            ({"payload": object()}, InvalidValue),
            ({"payload": float("nan")}, InvalidValue),
            ({"payload": "x" * 70_000}, LimitExceeded),
            ({"priority": 1.5}, InvalidValue),
            ({"attempts": 0}, InvalidValue),
            ({"delay": -1}, InvalidValue),
            ({"after": "plan"}, BadRequest),
            ({"after": ["x"] * 101}, LimitExceeded),
        ]
        for arguments, error in refused:
            with pytest.raises(error):
                await ann.tasks.put(**arguments)
        with pytest.raises(InvalidValue, match="ttl"):
            ann.tasks.claim(ttl=0)
        for where in ({"a": object()}, {1: 2}, {"\ud800": 1}, ["a"], "a"):
            with pytest.raises(InvalidValue, match="where"):
                ann.tasks.claim(where=cast(Any, where))
        for states in (["finished"], "done", ["open"]):
            with pytest.raises(InvalidValue, match="states"):
                await ann.tasks.clear(states=cast(Any, states))
        with pytest.raises(InvalidValue, match="states: has 'finished'"):
            ann.tasks.all(cast(Any, "finished"))
        await ann.tasks.put(key="t", attempts=1)
        with pytest.raises(LimitExceeded):
            async with ann.tasks.claim() as task:
                await task.complete("x" * 70_000)
        assert ann.tasks.get("t").state == "failed"


async def test_a_board_has_a_bound_of_tasks() -> None:
    """Beyond it a task is refused, and clearing makes room."""
    async with (
        BoardHost(MemoryStore(), limits=Limits(records_max=3)) as host,
        open_board(host, BOARD, Report, agent="ann") as ann,
    ):
        for number in range(3):
            await ann.tasks.put(number)
        with pytest.raises(LimitExceeded, match="remove what is finished"):
            await ann.tasks.put(3)
        await one_claim(ann)
        await ann.tasks.clear()
        await ann.tasks.put(3)


async def test_a_claim_that_runs_out_is_an_attempt_and_lost(clocked: tuple[ManualClock, Any]) -> None:
    """The task is open again, then failed after the last one; a stale claimer can end it in no way."""
    clock, ann = clocked
    await ann.tasks.put(key="t", attempts=2)
    for token, state in ((TOKEN, "open"), (OTHER_TOKEN, "failed")):
        await ask(ann, ClaimTask(token=token, ttl_ms=10_000))
        clock.advance(9_999)
        await ask(ann, RenewTask(name="t", token=token, ttl_ms=10_000))
        clock.advance(10_000)
        for operation in (
            RenewTask(name="t", token=token, ttl_ms=10_000),
            CompleteTask(name="t", token=token),
            FailTask(name="t", token=token, error="late"),
        ):
            with pytest.raises(TaskLost):
                await ask(ann, operation)
        assert await ask(ann, ReleaseTask(token=token)) == [None]
        assert (ann.tasks.get("t").state, ann.tasks.get("t").error) == (state, "the claim ran out")


async def test_a_delay_ends_on_the_stores_clock(clocked: tuple[ManualClock, Any]) -> None:
    """A delayed task, or a failed attempt that is to be made later, is open when its time has come."""
    clock, ann = clocked
    await ann.tasks.put(key="t", delay=60)
    assert ann.tasks.get("t").state == "delayed"
    clock.advance(60_000)
    async with ann.tasks.claim(timeout=0) as task:
        await task.fail("later", delay=60)
    assert ann.tasks.get("t").state == "delayed"
    clock.advance(59_999)
    with pytest.raises(TimeoutError):
        await one_claim(ann, timeout=0)
    clock.advance(1)
    await one_claim(ann, timeout=0)


async def test_a_clock_set_back_prolongs_no_claim(clocked: tuple[ManualClock, Any]) -> None:
    """An hour back: a claim that nobody renews ends after its ttl, not after an hour."""
    clock, ann = clocked
    await ann.tasks.put(key="t")
    await ask(ann, ClaimTask(token=TOKEN, ttl_ms=10_000))
    clock.advance(-HOUR_MS)
    await ask(ann, RenewTask(name="t", token=TOKEN, ttl_ms=10_000))
    clock.advance(-HOUR_MS)
    await ann.tasks.put(key="u", queue="r")
    clock.advance(10_000)
    async with ann.tasks.claim("default", timeout=0) as task:
        assert task.key == "t"


PROCESSES, AGENTS, TASKS, IDLE_SECONDS = 4, 16, 100, 2.0


async def test_sixteen_agents_do_a_hundred_tasks_once_each(address: str) -> None:
    """V6: in four processes; a fifth is killed with a task in its hands, which is back within its lease and a second.

    Each task is done in a commit of its own, and noted in it: none is missing, and none is there twice.
    """
    async with agent_at(address, BOARD, "boss") as boss, contextlib.AsyncExitStack() as stack:
        doomed, *workers = [
            await stack.enter_async_context(team_agent(address, BOARD, f"process-{number}"))
            for number in range(PROCESSES + 1)
        ]
        keys = [f"task-{number:03}" for number in range(TASKS)]
        for key in keys:
            await boss.tasks.put(key=key, queue="work")
        dropped = await doomed.ask("claim_and_hang", "work", 1.0)
        back = asyncio.create_task(_leaves(boss, dropped, "claimed"))
        await doomed.kill()
        killed_at = asyncio.get_running_loop().time()
        assert (
            await back - killed_at < 1.0 + 1.0
        )  # before the others begin, who may keep a small machine busy for longer
        done = await asyncio.gather(*(each.ask("work", "work", AGENTS // PROCESSES, IDLE_SECONDS) for each in workers))
        assert sorted(key for some in done for key in some) == keys
        assert {task.key: task.attempt for task in boss.tasks.all() if task.attempt > 1} == {dropped: 2}
        made = await boss.checkpoints(limit=1_000)
        assert sorted(each.step for each in made) == keys
        assert (await boss.at(len(keys))).sources == set(keys)


async def _leaves(board: Any, key: str, state: str) -> float:
    """Wait until a task is not in this state any more; returns when, on the loop's clock."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for _ in board.changes("$team"):
            if board.tasks.get(key).state != state:
                break
    return asyncio.get_running_loop().time()


async def test_a_claimer_that_stood_still_cannot_commit(address: str) -> None:
    """A process stalls beyond its claim, another one does the task; the first wakes up and is refused."""
    async with (
        agent_at(address, BOARD, "boss") as boss,
        team_agent(address, BOARD, "ann") as ann,
    ):
        await boss.tasks.put(key="t", queue="work")
        assert await ann.ask("claim_and_hang", "work", 1.0) == "t"
        ann.pause()
        try:
            await one_claim(boss, "work")
        finally:
            ann.resume()
        assert await ann.ask("let_go") == "task_lost"
        assert (boss.tasks.get("t").agent, boss.tasks.get("t").attempt) == ("boss", 2)
