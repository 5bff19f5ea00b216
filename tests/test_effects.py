"""Effects: what is done outside at most once for each key, whatever happens to who does it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    Conflict,
    EffectInDoubt,
    EffectLost,
    IdempotencyMismatch,
    InvalidValue,
    LimitExceeded,
    NotDone,
    NotFound,
    open_board,
)
from crdt_board.clock import ManualClock
from crdt_board.coordination.effects import AbandonEffect, BeginEffect, EffectRecord, FinishEffect, RenewEffect
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.faults import FaultyStore
from crdt_board_client import connect
from support.pairs import pair
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS, eventually


class Job(BoardModel):
    status: str = ""


class Ticket(BaseModel):
    number: int
    title: str = ""


class Desk:
    """An outside system that opens tickets, and counts them."""

    def __init__(self) -> None:
        self.opened = 0
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def open(self) -> Ticket:
        self.opened += 1
        return Ticket(number=self.opened)

    async def open_slowly(self) -> Ticket:
        """Opens a ticket, and answers when it is let to."""
        ticket = await self.open()
        self.reached.set()
        await self.released.wait()
        return ticket

    async def open_badly(self) -> Ticket:
        await self.open()
        raise ConnectionResetError("the answer is lost")


@contextlib.asynccontextmanager
async def embedded(clock: ManualClock | None = None) -> AsyncIterator[Board[Job]]:
    store = MemoryStore(clock=clock)
    async with BoardHost(store, clock=clock) as host, open_board(host, "job", Job, agent="ann") as board:
        yield board


async def test_fifty_calls_at_once_have_one_execution_and_fifty_equal_results(
    either_url: str | None, board_id: str
) -> None:
    """V4: with one key, while the first still runs: one execution, fifty equal results, on two replicas."""
    desk = Desk()
    async with pair(either_url, board_id, Job) as (ann, bob):
        calls = [asyncio.create_task(who.effect("open", "k", desk.open_slowly)) for who in (ann, bob) * 25]
        await desk.reached.wait()
        desk.released.set()
        assert await asyncio.gather(*calls) == [Ticket(number=1)] * 50
        assert desk.opened == 1
        assert await bob.effect("open", "k", desk.open) == Ticket(number=1)
        assert await bob.effect("open", "other", desk.open) == Ticket(number=2)


async def test_a_key_stands_for_one_request(either_url: str | None, board_id: str) -> None:
    """V4: the same key with another request is refused, while the first runs and afterwards; without one, it is not."""
    desk = Desk()
    async with pair(either_url, board_id, Job) as (ann, bob):
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly, request={"title": "one", "urgent": True}))
        await desk.reached.wait()
        with pytest.raises(IdempotencyMismatch, match="another request, made by ann"):
            await bob.effect("open", "k", desk.open, request={"title": "two"})
        desk.released.set()
        await call
        with pytest.raises(IdempotencyMismatch):
            await bob.effect("open", "k", desk.open, request={"title": "two"})
        assert await bob.effect("open", "k", desk.open, request={"urgent": True, "title": "one"}) == Ticket(number=1)
        assert await bob.effect("open", "k", desk.open) == Ticket(number=1)
        assert desk.opened == 1


async def test_the_result_is_on_disk_before_anybody_sees_it() -> None:
    """While the entry with the result is not durable, neither the caller nor who waits has it."""
    store = FaultyStore(MemoryStore())
    desk = Desk()
    async with BoardHost(store) as host, open_board(host, "job", Job, agent="ann") as ann:
        calls = [asyncio.create_task(ann.effect("open", "k", desk.open_slowly)) for _ in range(2)]
        await desk.reached.wait()
        gate = store.hold("append")
        desk.released.set()
        await gate.reached.wait()
        assert [effect.state for effect in ann.effects] == ["running"]
        assert not any(call.done() for call in calls)
        gate.release()
        assert await asyncio.gather(*calls) == [Ticket(number=1)] * 2


async def test_an_exception_leaves_the_effect_in_doubt_until_somebody_decides(
    either_url: str | None, board_id: str
) -> None:
    """It may have acted before it raised: so nobody runs it again before somebody has looked."""
    desk = Desk()
    async with pair(either_url, board_id, Job) as (ann, bob):
        with pytest.raises(ConnectionResetError):
            await ann.effect("open", "k", desk.open_badly)
        with pytest.raises(EffectInDoubt) as doubt:
            await bob.effect("open", "k", desk.open)
        assert (doubt.value.effect, doubt.value.key, doubt.value.agent) == ("open", "k", "ann")
        assert "ConnectionResetError: the answer is lost" in doubt.value.reason
        [effect] = bob.effects
        assert (effect.state, effect.since_ms) == ("in_doubt", doubt.value.since_ms)
        resolved = await bob.resolve_effect("open", "k", took_place=True, result={"number": 9})
        assert resolved is not None
        assert (resolved.resolved_by, resolved.agent) == ("bob", "ann")
        assert await ann.effect("open", "k", desk.open) == Ticket(number=9)
        assert desk.opened == 1


async def test_what_did_not_take_place_runs_again() -> None:
    """After `NotDone`, an exception that the caller counts as that, or the word of somebody who has looked."""
    desk = Desk()

    async def busy() -> Ticket:
        raise NotDone("429, try again in a minute")

    async def refused() -> Ticket:
        raise ConnectionRefusedError

    async with embedded() as ann:
        with pytest.raises(NotDone):
            await ann.effect("open", "k", busy)
        with pytest.raises(ConnectionRefusedError):
            await ann.effect("open", "k", refused, not_done=(ConnectionRefusedError, TimeoutError))
        assert ann.effects == []
        with pytest.raises(ConnectionRefusedError):
            await ann.effect("open", "k", refused)
        assert await ann.resolve_effect("open", "k", took_place=False) is None
        assert await ann.effect("open", "k", desk.open) == Ticket(number=1)


async def test_who_waits_runs_it_when_the_first_could_not() -> None:
    """A call that waits for another one's run takes over when that did not take place."""
    desk = Desk()

    async def busy() -> Ticket:
        desk.reached.set()
        await desk.released.wait()
        raise NotDone("429")

    async with embedded() as ann:
        first = asyncio.create_task(ann.effect("open", "k", busy))
        await desk.reached.wait()
        second = asyncio.create_task(ann.effect("open", "k", desk.open))
        desk.released.set()
        with pytest.raises(NotDone):
            await first
        assert await second == Ticket(number=1)


async def test_cancelling_a_running_call_leaves_it_in_doubt_at_once() -> None:
    """Nobody has to wait for the claim to run out."""
    desk = Desk()
    async with embedded() as ann:
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly, ttl=3600))
        await desk.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(EffectInDoubt):
            await ann.effect("open", "k", desk.open)


async def test_a_holder_that_stood_still_puts_the_effect_in_doubt_and_ends_that_when_it_wakes() -> None:
    """After its time others are told of the doubt; the result that it brings at last is recorded all the same."""
    clock, desk = ManualClock(), Desk()
    async with embedded(clock) as ann:
        bob = ann.as_agent("bob")
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly))
        await desk.reached.wait()
        clock.advance(30_000)
        with pytest.raises(EffectInDoubt, match="nothing was heard of its agent"):
            await bob.effect("open", "k", desk.open)
        desk.released.set()
        assert await call == await bob.effect("open", "k", desk.open) == Ticket(number=1)


async def test_a_holder_that_was_given_up_is_told_so() -> None:
    """When somebody said meanwhile that it did not take place, its result is refused, and the other one stays."""
    clock, desk = ManualClock(), Desk()
    async with embedded(clock) as ann:
        bob = ann.as_agent("bob")
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly))
        await desk.reached.wait()
        clock.advance(30_000)
        with pytest.raises(EffectInDoubt):
            await bob.effect("open", "k", desk.open)
        await bob.resolve_effect("open", "k", took_place=False)
        assert await bob.effect("open", "k", lambda: Ticket(number=5).model_dump()) == {"number": 5, "title": ""}
        desk.released.set()
        assert await call == Ticket(number=5)  # the recorded one, as for everybody
        await _lost(ann, bob, clock)


async def _lost(ann: Board[Job], bob: Board[Job], clock: ManualClock) -> None:
    desk = Desk()
    call = asyncio.create_task(ann.effect("close", "k", desk.open_slowly))
    await desk.reached.wait()
    clock.advance(30_000)
    with pytest.raises(EffectInDoubt):
        await bob.effect("close", "k", desk.open)
    await bob.resolve_effect("close", "k", took_place=False)
    desk.released.set()
    with pytest.raises(EffectLost):
        await call


async def test_a_long_call_keeps_its_claim() -> None:
    """The claim is renewed while the call runs, however short its ttl."""
    desk = Desk()
    async with embedded() as ann:
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly, ttl=0.3))
        await desk.reached.wait()
        begun = ann.effects[0]
        await eventually(lambda: ann.effects[0].expires_ms >= begun.expires_ms + 600, "it was renewed several times")
        assert ann.effects[0].state == "running"
        desk.released.set()
        assert await call == Ticket(number=1)


async def test_who_waits_for_a_dead_agent_is_told_when_its_time_is_over() -> None:
    """V4 after a crash: the claim of a process that is gone runs out by itself, and waiting calls hear of the doubt."""
    desk, database = Desk(), MemoryStore()
    async with (
        BoardHost(database.peer()) as host,
        BoardHost(database.peer()) as other,
        open_board(host, "job", Job, agent="bob") as bob,
        open_board(other, "job", Job, agent="ann") as ann,
    ):
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly, ttl=0.3))
        await desk.reached.wait()
        await eventually(lambda: bob.effects, "bob sees it")
        waiting = asyncio.create_task(bob.effect("open", "k", desk.open))
        await ann.close()  # no more renewals get through
        with pytest.raises(EffectInDoubt):
            await waiting
        call.cancel()
        await asyncio.wait([call])
    assert desk.opened == 1


@pytest.mark.parametrize(
    ("result", "refusal"), [(object(), InvalidValue), (2**60, InvalidValue), ("x" * 70_000, LimitExceeded)]
)
async def test_a_result_that_cannot_be_recorded_leaves_it_in_doubt(result: Any, refusal: type[Exception]) -> None:
    """It took place, so it must not run again, although its result is not known to others."""

    async def call() -> Any:
        return result

    async with embedded() as ann:
        with pytest.raises(refusal):
            await ann.effect("open", "k", call)
        with pytest.raises(EffectInDoubt, match=r"took place, and its result|bytes, .* are allowed"):
            await ann.effect("open", "k", call)


async def test_a_result_without_annotation_is_json_of_its_own() -> None:
    """Every caller gets the same value, and what one does to it does not reach the others."""
    async with embedded() as ann:
        first = await ann.effect("open", "k", lambda: {"a": [1.0, (2, None)]})
        assert first == {"a": [1, [2, None]]}
        first["a"].append("spoiled")
        assert await ann.effect("open", "k", dict) == {"a": [1, [2, None]]}


async def test_a_plain_function_does_not_hold_up_the_loop() -> None:
    """It runs in a thread, while the claim is renewed; one that raises StopIteration ends too."""
    released = threading.Event()

    def blocking() -> str:
        assert released.wait(10)
        return threading.current_thread().name

    async with embedded() as ann:
        call = asyncio.create_task(ann.effect("open", "k", blocking))
        await eventually(lambda: ann.effects, "it has begun")
        released.set()
        assert await call != threading.current_thread().name
        with pytest.raises(RuntimeError, match="StopIteration"):
            await ann.effect("open", "empty", lambda: next(iter(())))


async def test_resolving_says_what_is_wrong() -> None:
    """Only what is in doubt can be resolved; who comes second hears what was decided first."""
    desk = Desk()
    async with embedded() as ann:
        with pytest.raises(NotFound):
            await ann.resolve_effect("open", "k", took_place=True)
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly))
        await desk.reached.wait()
        with pytest.raises(Conflict, match="is being run by ann"):
            await ann.resolve_effect("open", "k", took_place=True)
        desk.released.set()
        await call
        with pytest.raises(Conflict, match="took place: so said ann"):
            await ann.resolve_effect("open", "k", took_place=False)
        with pytest.raises(BadRequest, match="has no result"):
            await ann.resolve_effect("open", "k", took_place=False, result=1)
        second = await ann.resolve_effect("open", "k", took_place=True, result={"number": 7})
        assert second is not None
        assert second.result == {"number": 1, "title": ""}


async def test_names_and_keys_are_checked() -> None:
    """A name has no slash, a key is printable, and without a step there is no key of itself."""
    desk = Desk()
    async with embedded() as ann:
        with pytest.raises(InvalidValue, match="slash"):
            await ann.effect("open/ticket", "k", desk.open)
        with pytest.raises(LimitExceeded, match="key must be"):
            await ann.effect("open", "k" * 201, desk.open)
        with pytest.raises(BadRequest, match="needs a key"):
            await ann.effect("open", None, desk.open)
        assert await ann.effect("open", "a/b", desk.open) == Ticket(number=1)
        assert [(effect.effect, effect.effect_key) for effect in ann.effects] == [("open", "a/b")]


async def test_a_fork_knows_what_was_done_before_it_and_its_merge_tells_what_it_did() -> None:
    """What runs when a board is forked is in doubt there; what the fork did is done on the board after the merge."""
    desk = Desk()
    async with BoardHost(MemoryStore()) as host, open_board(host, "job", Job, agent="ann") as ann:
        await ann.effect("open", "before", desk.open)
        call = asyncio.create_task(ann.effect("open", "running", desk.open_slowly))
        await desk.reached.wait()
        await ann.commit("start")
        await ann.fork("trial")
        desk.released.set()
        await call
        async with open_board(host, "trial", Job, agent="bob") as bob:
            assert await bob.effect("open", "before", desk.open) == Ticket(number=1)
            with pytest.raises(EffectInDoubt, match="was forked"):
                await bob.effect("open", "running", desk.open)
            await bob.effect("open", "after", desk.open)
            await bob.commit("done")
        assert [effect.effect_key for effect in ann.effects] == ["before", "running"]
        await ann.merge_from("trial")
        assert await ann.effect("open", "after", desk.open) == Ticket(number=3)
        assert await ann.effect("open", "running", desk.open) == Ticket(number=2)
    assert desk.opened == 3


async def test_a_call_outlives_its_server(server: ServerProcess) -> None:
    """The server is killed while the call runs: its result is recorded when the next server is there."""
    desk = Desk()
    async with connect(server.url, "job", Job, agent="ann") as ann:
        call = asyncio.create_task(ann.effect("open", "k", desk.open_slowly))
        await desk.reached.wait()
        await server.kill9()
        desk.released.set()
        await server.start()
        assert await call == Ticket(number=1)
        assert await ann.effect("open", "k", desk.open) == Ticket(number=1)


async def test_processes_that_share_a_database_do_each_effect_once() -> None:
    """V4 over processes: two writers of one board decide in the journal's order, and one of them runs each call."""
    desk, database = Desk(), MemoryStore()
    async with (
        BoardHost(database.peer()) as host,
        BoardHost(database.peer()) as other,
        open_board(host, "job", Job, agent="ann") as ann,
        open_board(other, "job", Job, agent="bob") as bob,
    ):
        for number in range(10):
            calls = (who.effect("open", f"k{number}", desk.open) for who in (ann, bob, bob, ann))
            assert await asyncio.gather(*calls) == [Ticket(number=number + 1)] * 4
    assert desk.opened == 10


async def test_an_operation_that_arrives_twice_changes_nothing_the_second_time() -> None:
    """The client sends a request again after a broken connection: so each may reach the writer twice."""
    async with embedded() as ann:
        begin, renew, finish, abandon = _operations("t" * 24)
        ask: Callable[..., Awaitable[Any]] = ann._desk.ask_one
        first = EffectRecord.model_validate(await ask(begin))
        assert EffectRecord.model_validate(await ask(begin)).token == first.token
        assert await ask(renew) is await ask(renew) is None
        assert await ask(finish) == await ask(finish) == {"number": 1}
        assert await ask(abandon) is None
        assert [effect.state for effect in ann.effects] == ["done"]


def _operations(token: str) -> tuple[Any, ...]:
    which = {"name": "open", "key": "k", "token": token}
    return (
        BeginEffect(**which, ttl_ms=1000),
        RenewEffect(**which, ttl_ms=1000),
        FinishEffect(**which, result={"number": 1}),
        AbandonEffect(**which, in_doubt="lost"),
    )


async def test_an_effect_is_no_part_of_itself() -> None:
    """That would wait for its own end for ever, in a thread too; other effects may be inside one."""
    async with embedded() as board:

        async def outer() -> int:
            inner: int = await board.effect("inner", "k", lambda: 1)
            await board.effect("between", "k", again)
            return inner

        def again() -> Awaitable[Any]:
            return board.effect("outer", "k", outer)

        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(BadRequest, match="part of itself"):
                await board.effect("outer", "k", outer)
        assert {each.name: each.state for each in board.effects} == {
            "inner/k": "done",
            "between/k": "in_doubt",
            "outer/k": "in_doubt",
        }
