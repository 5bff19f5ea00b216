"""Leases: one holder at a time or those that share, decided by the writer; at both places where a board can be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from pydantic import ValidationError

from crdt_board import BadRequest, BoardClosed, BoardHost, InvalidValue, LeaseHeld, LeaseLost, LimitExceeded, open_board
from crdt_board.clock import ManualClock
from crdt_board.coordination.leases import (
    HOLDERS_MAX,
    TURN_MS,
    WAIT_MS_MAX,
    WAITING_MAX,
    AcquireLease,
    BreakLease,
    LeaseRecord,
    ReleaseLease,
    RenewLease,
)
from crdt_board.store.memory import MemoryStore
from crdt_board_client import connect
from support.model import Report
from support.places import BOARD, Place, PlaceKind, has_version, place_of
from support.server import ServerProcess
from support.team_agent import team_agent
from support.waiting import DEADLINE_SECONDS, eventually

HOUR_MS = 3_600_000
TOKEN, OTHER_TOKEN = "token-of-the-first", "token-of-the-other"


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Place]:
    async with place_of("served", tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture(params=["embedded", "served"])
async def address(
    request: pytest.FixtureRequest, tmp_path: Path, start_server: Callable[..., Awaitable[ServerProcess]]
) -> str:
    """Where several processes find one board: a SQLite file, or a server."""
    return str(tmp_path / "boards.db") if request.param == "embedded" else (await start_server()).url


async def ask(board: Any, *operations: Any) -> Any:
    return await board._desk.ask(*operations)


async def gets(lease: Any) -> int:
    """Take a lease and give it back; returns its fence."""
    async with asyncio.timeout(DEADLINE_SECONDS), lease as held:
        fence: int = held.fence
        return fence


async def test_one_agent_has_a_lease_and_the_next_gets_a_greater_fence(place: Place) -> None:
    """While it is held others are refused, with who has it and until when; then it is free, and its fence has grown."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease("payments", ttl=20) as lease:
            with pytest.raises(LeaseHeld, match="held by ann for up to") as held:
                await gets(bob.lease("payments", timeout=0))
            assert (held.value.lease, held.value.agent) == ("payments", "ann")
            assert [(each.name, each.holders[0].agent) for each in bob.leases] == [("payments", "ann")]
            await gets(bob.lease("refunds"))
            assert lease.is_held
        assert not lease.is_held
        with pytest.raises(LeaseLost):
            lease.check()
        assert await gets(bob.lease("payments", timeout=0)) > lease.fence
        assert bob.leases == []


async def test_a_lease_taken_again_by_its_holder_is_the_same(place: Place) -> None:
    """V9: a request that arrives twice gives one holder and one fence, and only makes it last."""
    async with place.open(Report, "ann") as ann:
        wanted = AcquireLease(name="payments", token=TOKEN, ttl_ms=20_000)
        first, second = await ask(ann, wanted, wanted)
        (third,) = await ask(ann, wanted)
        assert first["fence"] == second["fence"] == third["fence"]
        assert third["expires_ms"] >= first["expires_ms"]
        assert len(ann.leases[0].holders) == 1
        release = ReleaseLease(name="payments", token=TOKEN)
        assert await ask(ann, release, release) == [None, None]


async def test_a_write_that_needs_a_lease_is_refused_by_the_writer(place: Place) -> None:
    """V9: a commit under a lease that was broken, that never was, or that is another one's changes nothing."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        with pytest.raises(LeaseLost):  # noqa: PT012 - it is raised at the end of the block
            async with ann.lease("payments", ttl=20) as lease:
                made = await ann.commit("paid", patch={"title": "paid"}, lease=lease)
                assert await ask(bob, BreakLease(name="payments")) != [[]]
                async with bob.lease("payments"):
                    with pytest.raises(LeaseLost, match="bob has it with fence"):
                        await ann.commit("late", patch={"title": "late"}, lease=lease)
                await ask(ann, RenewLease(name="payments", token=lease._token, ttl_ms=1_000))
        assert (ann.snapshot().title, ann.version) == ("paid", made.version)
        assert await ask(bob, BreakLease(name="payments")) == [[]]


async def test_a_lease_is_used_inside_its_block_only(place: Place) -> None:
    """Before the block there is no fence; a block cannot be entered twice."""
    async with place.open(Report, "ann") as ann:
        lease = ann.lease("payments")
        with pytest.raises(BadRequest, match="inside"):
            lease.fence
        with pytest.raises(BadRequest, match="inside"):
            await ann.commit("early", lease=lease)
        await gets(lease)
        with pytest.raises(BadRequest, match="entered before"):
            await gets(lease)


async def test_sharers_have_it_together_and_nobody_beside_them(place: Place) -> None:
    """Shared holders do not exclude each other; an exclusive one waits for all of them, and excludes them."""
    async with place.open_all(Report, "ann", "bob", "cid") as (ann, bob, cid), contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(ann.lease("index", shared=True))
        two = contextlib.AsyncExitStack()
        other = await two.enter_async_context(bob.lease("index", shared=True, timeout=0))
        assert other.fence > one.fence
        with pytest.raises(LeaseHeld):
            await gets(cid.lease("index", timeout=0))
        waiting = asyncio.create_task(gets(cid.lease("index")))
        await ann.commit("shared", lease=one)
        await two.aclose()
        with pytest.raises(LeaseHeld):
            await gets(bob.lease("index", timeout=0))
        await stack.aclose()
        assert await waiting > other.fence
        async with cid.lease("index"):
            with pytest.raises(LeaseHeld):
                await gets(ann.lease("index", shared=True, timeout=0))


async def test_waiters_are_woken_by_release_and_by_expiry(place: Place) -> None:
    """All who wait get it in turn, also after a holder that is gone."""
    async with place.open_all(Report, "ann", "bob", "cid") as (ann, bob, cid):
        async with ann.lease("payments"):
            waiting = [asyncio.create_task(gets(board.lease("payments"))) for board in (bob, cid, cid)]
            with pytest.raises(LeaseHeld):
                await gets(bob.lease("payments", timeout=0.05))
        assert len({await each for each in waiting}) == 3
        await ask(ann, AcquireLease(name="payments", token=TOKEN, ttl_ms=200))
        await gets(bob.lease("payments"))


async def in_line(board: Any, count: int, name: str = "payments") -> None:
    """Wait until so many stand in line for a lease."""
    await board.wait_for(lambda _state: [len(each.waiting) for each in board.leases if each.name == name] == [count])


async def test_it_is_handed_out_in_the_order_of_asking_by_one_entry_each(place: Place) -> None:
    """Twenty wait, each asks once and has its turn; whoever gives it back hands it to the next in the same entry."""
    order: list[int] = []

    async def take(board: Any, number: int) -> int:
        async with board.lease("payments") as lease:
            order.append(number)
            fence: int = lease.fence
            return fence

    async with place.open_all(Report, "ann", "bob", "cid") as (ann, bob, cid):
        async with ann.lease("payments"):
            waiting = []
            for number in range(20):
                waiting.append(asyncio.create_task(take((bob, cid)[number % 2], number)))
                await in_line(ann, number + 1)
            before = ann._session.replica.seq
        fences = await asyncio.gather(*waiting)
        assert order == list(range(20))
        assert fences == sorted(set(fences))
        assert len(await place.entries(after=before)) == 21
        assert ann.leases == []


async def test_who_waits_alone_is_not_starved_by_those_who_share(place: Place) -> None:
    """Whoever comes after one that waits is behind it, also to share; those who share get it together, after it."""
    async with place.open_all(Report, "ann", "bob", "cid") as (ann, bob, cid):
        async with ann.lease("index", shared=True):
            alone = asyncio.create_task(gets(bob.lease("index")))
            await in_line(ann, 1, "index")
            with pytest.raises(LeaseHeld, match="and 1 wait for it"):
                await gets(cid.lease("index", shared=True, timeout=0))
            together = asyncio.Barrier(2)

            async def share(board: Any) -> int:
                async with board.lease("index", shared=True) as lease:
                    await together.wait()
                    fence: int = lease.fence
                    return fence

            sharers = [asyncio.create_task(share(cid)), asyncio.create_task(share(cid))]
            await in_line(ann, 3, "index")
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await alone < min(await asyncio.gather(*sharers))


async def test_a_lease_that_is_broken_goes_to_the_next(place: Place) -> None:
    """Those who wait stay in line when the holder loses it."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        with pytest.raises(LeaseLost):  # noqa: PT012 - it is raised at the end of the block
            async with ann.lease("payments") as lease:
                waiting = asyncio.create_task(gets(bob.lease("payments")))
                await in_line(ann, 1)
                await ask(ann, BreakLease(name="payments"))
                assert await waiting > lease.fence
                await ask(ann, RenewLease(name="payments", token=lease._token, ttl_ms=1_000))


async def test_who_waits_no_longer_is_not_in_line(place: Place) -> None:
    """After its timeout, and after it was cancelled."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob), ann.lease("payments"):
        with pytest.raises(LeaseHeld):
            await gets(bob.lease("payments", timeout=0.05))
        await in_line(ann, 0)
        waiting = asyncio.create_task(gets(bob.lease("payments")))
        await in_line(ann, 1)
        waiting.cancel()
        await in_line(ann, 0)


async def test_a_line_that_is_full_is_waited_for(place: Place) -> None:
    """Nobody is refused for that: who finds it full stands in line when there is room."""
    name, tokens = "payments", [f"token-of-number-{number}" for number in range(WAITING_MAX)]
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease(name):
            for token in tokens:
                await ask(ann, AcquireLease(name=name, token=token, ttl_ms=1_000, wait_ms=WAIT_MS_MAX))
            waiting = asyncio.create_task(gets(bob.lease(name)))
            await in_line(ann, WAITING_MAX)
            assert await ask(bob, AcquireLease(name=name, token=OTHER_TOKEN, ttl_ms=1_000, wait_ms=1_000)) == [None]
            assert len(ann.leases[0].waiting) == WAITING_MAX
            for token in tokens:
                await ask(ann, ReleaseLease(name=name, token=token))
            await in_line(ann, 1)
        await waiting


async def test_a_claim_that_waited_long_asks_whether_it_has_the_lease(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is handed over for a short time, and has its own ttl before the block begins."""
    monkeypatch.setattr("crdt_board.team.leases._SURE_SECONDS", 0.0)
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease("payments"):
            holding = contextlib.AsyncExitStack()
            waiting = asyncio.create_task(holding.enter_async_context(bob.lease("payments", ttl=60)))
            await in_line(ann, 1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            lease = await waiting
        assert [each.ttl_ms for each in bob.leases[0].holders] == [60_000]
        await bob.commit("held", lease=lease)
        await holding.aclose()


async def test_a_claim_that_was_handed_over_is_kept_however_long_its_ttl_is(place: Place) -> None:
    """It has it for a turn only: so it is renewed within that, not when a part of its ttl is over."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob), contextlib.AsyncExitStack() as holding:
        async with ann.lease("payments"):
            waiting = asyncio.create_task(holding.enter_async_context(bob.lease("payments", ttl=3600)))
            await in_line(ann, 1)
        async with asyncio.timeout(DEADLINE_SECONDS):
            lease = await waiting
        await eventually(
            lambda: [each.ttl_ms for each in bob.leases[0].holders] == [HOUR_MS], "it is held for its own ttl"
        )
        assert lease.is_held


@pytest.mark.parametrize("between", [" ", "\n", "\x00", "é"])
def test_a_token_that_would_not_fit_into_a_line_is_none(between: str) -> None:
    """What stands in line is read again by every replica: nobody can write there what is no place in it."""
    with pytest.raises(ValidationError):
        AcquireLease(name="payments", token=f"{TOKEN}{between}1", ttl_ms=1_000, wait_ms=1_000)


@pytest.mark.parametrize("line", ["no place", f"{TOKEN} soon 0 ann", f"{TOKEN} 1 0 ann\n{TOKEN}"])
def test_a_lease_with_a_line_that_cannot_be_read_is_no_record(line: str) -> None:
    """So it is passed over where it is read, and not only when somebody asks who stands in line."""
    with pytest.raises(ValidationError):
        LeaseRecord(name="payments", line=line)


async def test_a_cancelled_claim_leaves_nothing(place: Place) -> None:
    """Whoever is cancelled while it waits, or just when it gets the lease, does not have it."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease("payments"):
            waiting = asyncio.create_task(gets(bob.lease("payments", ttl=60)))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        asking = asyncio.create_task(gets(bob.lease("payments", ttl=60)))
        for _ in range(3):
            await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        await gets(ann.lease("payments", timeout=DEADLINE_SECONDS))
        await eventually(lambda: not bob.leases, "nobody has it")


async def test_a_fork_begins_with_free_leases(place: Place) -> None:
    """Nobody is at work on a fork yet, and what a fork holds does not come back with its merge."""
    async with place.open(Report, "ann") as ann, ann.lease("payments") as lease:
        await ann.commit("begin", lease=lease)
        await ann.fork("job-884-fork")
        async with place.open(Report, "bob", "job-884-fork") as bob:
            assert bob.leases == []
            async with bob.lease("payments", timeout=0) as other:
                assert other.fence > lease.fence
                await bob.commit("in the fork", patch={"title": "forked"})
                await ann.merge_from("job-884-fork")
        assert [each.agent for each in ann.leases[0].holders] == ["ann"]
        await ann.commit("merged", lease=lease)


@pytest.mark.parametrize("name", ["a/b:c~d", "lease:lease", "Zahlung – 支払い 🔒", "'; DROP TABLE x;--", "x" * 200])
async def test_any_printable_name_is_one(place: Place, name: str) -> None:
    """H4: names are never taken for anything else."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob), ann.lease(name) as lease:
        await ann.commit("named", lease=lease)
        with pytest.raises(LeaseHeld):
            await gets(bob.lease(name, timeout=0))
        await gets(bob.lease(name[:-1] or "y", timeout=0))


async def test_what_is_no_lease_is_refused_at_the_call(place: Place) -> None:
    """Names and times are checked where they are given, and by the writer too."""
    async with place.open(Report, "ann") as ann:
        with pytest.raises(InvalidValue, match="lease is empty"):
            ann.lease("")
        for name in ("a\nb", "\x00", "x" * 201, 5):
            with pytest.raises(LimitExceeded):
                ann.lease(name)
        for ttl in (0, 0.01, 10**6, float("nan"), "30", True):
            with pytest.raises(InvalidValue):
                ann.lease("payments", ttl=ttl)
        with pytest.raises(InvalidValue, match="shared"):
            ann.lease("payments", shared=cast(Any, "yes"))
        with pytest.raises(ValueError, match="printed"):
            AcquireLease(name="a\nb", token=TOKEN, ttl_ms=1_000)


async def test_leases_leave_no_records_behind(place: Place) -> None:
    """A thousand names that were held once take no room on the board, and fences grow all the same."""
    async with place.open(Report, "ann") as ann:
        fences = []
        for number in range(10):
            pairs = [
                (
                    AcquireLease(name=f"file-{number}-{each}", token=TOKEN, ttl_ms=1_000),
                    ReleaseLease(name=f"file-{number}-{each}", token=TOKEN),
                )
                for each in range(50)
            ]
            answers = await ask(ann, *(operation for pair in pairs for operation in pair))
            fences += [holder["fence"] for holder in answers[::2]]
        assert fences == sorted(set(fences))
        assert len(ann._desk.ledger) == 1


async def test_a_holder_that_stood_still_is_refused_by_its_fence(address: str) -> None:
    """A process stalls beyond its lease, another takes over and commits; the first wakes up and cannot commit."""
    async with team_agent(address, BOARD, "ann") as ann, team_agent(address, BOARD, "bob") as bob:
        first = await ann.ask("hold", "payments", 3.0)
        assert await ann.ask("commit_held", "by ann") == 1
        ann.pause()
        try:
            assert await bob.ask("hold", "payments", 20.0) > first
            assert await bob.ask("commit_held", "by bob") == 2
        finally:
            ann.resume()
        assert await ann.ask("commit_held", "late") == "lease_lost"
        assert await ann.ask("let_go") == "lease_lost"
        assert await bob.ask("commit_held", "again") == 3
        assert await bob.ask("let_go") is None


async def test_two_processes_hold_one_lease_in_turn(address: str) -> None:
    """A killed holder's lease is free after its ttl, and nobody has it before."""
    async with team_agent(address, BOARD, "ann") as ann, team_agent(address, BOARD, "bob") as bob:
        fence = await ann.ask("hold", "payments", 3.0)
        waiting = asyncio.create_task(bob.ask("hold", "payments", 1.0))
        assert await ann.ask("commit_held", "by ann") == 1
        await ann.kill()
        assert await waiting > fence
        assert await bob.ask("commit_held", "by bob") == 2


async def test_a_killed_waiter_holds_the_others_up_for_a_short_time_only(address: str) -> None:
    """Its turn comes after its end: whoever is behind it gets the lease nevertheless."""
    async with contextlib.AsyncExitStack() as stack:
        ann, bob, cid = [await stack.enter_async_context(team_agent(address, BOARD, name)) for name in "abc"]
        fence = await ann.ask("hold", "payments", 60.0)
        gone = asyncio.create_task(bob.ask("hold", "payments", 60.0))
        await ann.ask("line", "payments", 1)
        waiting = asyncio.create_task(cid.ask("hold", "payments", 60.0))
        await ann.ask("line", "payments", 2)
        await bob.kill()
        with contextlib.suppress(Exception):
            await gone
        assert await ann.ask("let_go") is None
        async with asyncio.timeout(TURN_MS / 1000 + DEADLINE_SECONDS):
            assert await waiting == fence + 2
        assert await cid.ask("commit_held", "by cid") == 1


@pytest.mark.parametrize("ends", ["closed", "cancelled", "failed"])
async def test_who_waits_on_a_board_that_is_closed_leaves_the_line(place: Place, ends: str) -> None:
    """The next gets the lease at once, not after the turn of who is gone, however its board came to be closed."""
    async with place.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease("payments"):
            gone = asyncio.create_task(wait_in_line(place, ends))
            await in_line(ann, 1)
            waiting = asyncio.create_task(gets(bob.lease("payments")))
            await in_line(ann, 2)
            if ends == "cancelled":
                gone.cancel()
            await ann.commit("others are in line")
            with contextlib.suppress(asyncio.CancelledError, ValueError):
                await gone
            await in_line(ann, 1)
            lease = next(iter(ann.leases))
            assert [each.agent for each in lease.waiting] == ["bob"]
        await waiting


async def wait_in_line(place: Place, ends: str) -> None:
    """Open a board and wait for a lease on it until the board is closed in one way or the other."""
    async with place.open(Report, "cid") as cid:
        waiting = asyncio.create_task(gets(cid.lease("payments")))
        try:
            await has_version(cid, 1)
            if ends == "failed":
                raise ValueError
        finally:
            if ends != "closed":
                waiting.cancel()
    with pytest.raises((BoardClosed, asyncio.CancelledError)):
        await waiting


async def test_a_claim_makes_a_client_hurry_back(served: Place) -> None:
    """Held or waited for: while the server is gone, a client knows how soon it must be back; others need not hurry."""
    async with served.open_all(Report, "ann", "bob") as (ann, bob):
        async with ann.lease("payments", ttl=10):
            assert 0 < ann._session.shortest_claim_seconds <= 10
            waiting = asyncio.create_task(gets(bob.lease("payments", ttl=60)))
            await in_line(bob, 1)
            assert bob._session.shortest_claim_seconds == TURN_MS / 1000
        await waiting
        assert ann._session.shortest_claim_seconds is None
        assert bob._session.shortest_claim_seconds is None


async def test_a_holder_is_back_in_time_after_a_long_restart(served: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that have grown in a long outage cost no claim; those of clients without one grow further."""
    pauses: dict[str, list[float]] = {"ann": [], "bob": []}
    sleep = asyncio.sleep

    async def fast(seconds: float) -> None:
        """The pauses of the links pass at once, and are noted."""
        task = asyncio.current_task()
        assert task is not None
        if task in links:
            pauses[links[task]].append(seconds)
        await sleep(0.001 if task in links else seconds)

    async with served.open_all(Report, "ann", "bob") as (ann, bob), ann.lease("payments", ttl=10) as lease:
        links = {board._session.link._task: board.agent for board in (ann, bob)}
        monkeypatch.setattr(asyncio, "sleep", fast)
        await served.stop()
        await eventually(lambda: all(len(each) > 20 for each in pauses.values()), "many tries")
        await served.start()
        await ann.commit("back", lease=lease)
        await has_version(bob, 1)
    assert max(pauses["ann"]) <= 1.0
    assert max(pauses["bob"]) > 1.0


async def test_a_holder_goes_on_over_a_restart_of_the_server(server: ServerProcess) -> None:
    """The server is killed while a lease is held and started again: it is held still, and renewed."""
    async with (
        connect(server.url, BOARD, Report, agent="ann") as ann,
        connect(server.url, BOARD, Report, agent="bob") as bob,
        ann.lease("payments", ttl=60) as lease,
    ):
        await server.kill9()
        renewal = asyncio.create_task(ask(ann, RenewLease(name="payments", token=lease._token, ttl_ms=10_000)))
        await server.start()
        assert (await renewal)[0]["fence"] == lease.fence
        with pytest.raises(LeaseHeld):
            await gets(bob.lease("payments", timeout=0))
        made = await ann.commit("after", lease=lease)
        await has_version(bob, made.version)
        assert lease.is_held


@contextlib.asynccontextmanager
async def clocked() -> AsyncIterator[tuple[ManualClock, BoardHost]]:
    clock = ManualClock()
    async with BoardHost(MemoryStore(clock=clock), clock=clock) as host:
        yield clock, host


async def test_time_is_the_stores_and_stands_in_the_decision() -> None:
    """A lease that has run out on the store's clock is lost for every decision from then on."""
    async with clocked() as (clock, host), open_board(host, BOARD, Report, agent="ann") as ann:
        await ask(ann, AcquireLease(name="payments", token=TOKEN, ttl_ms=10_000))
        clock.advance(9_999)
        (kept,) = await ask(ann, RenewLease(name="payments", token=TOKEN, ttl_ms=10_000))
        clock.advance(10_000)
        with pytest.raises(LeaseLost):
            await ask(ann, RenewLease(name="payments", token=TOKEN, ttl_ms=10_000))
        (other,) = await ask(ann, AcquireLease(name="payments", token=OTHER_TOKEN, ttl_ms=10_000))
        assert other["fence"] > kept["fence"]


async def test_a_clock_set_back_prolongs_no_lease() -> None:
    """An hour back: who holds it goes on holding it, and one who is gone loses it after its ttl, not after an hour."""
    async with clocked() as (clock, host), open_board(host, BOARD, Report, agent="ann") as ann:
        await ask(ann, AcquireLease(name="payments", token=TOKEN, ttl_ms=10_000))
        clock.advance(-HOUR_MS)
        with pytest.raises(LeaseHeld):
            await gets(ann.lease("payments", timeout=0))
        (kept,) = await ask(ann, RenewLease(name="payments", token=TOKEN, ttl_ms=10_000))
        assert kept["expires_ms"] == clock.now_ms() + 10_000
        await ask(ann, AcquireLease(name="gone", token=OTHER_TOKEN, ttl_ms=10_000))
        clock.advance(-HOUR_MS)
        await gets(ann.lease("something else"))
        clock.advance(10_000)
        await gets(ann.lease("gone", timeout=0))


async def test_who_does_not_come_has_the_lease_for_a_short_time_and_no_place_for_ever() -> None:
    """A turn is five seconds, a place in line is kept while it is asked for."""
    async with clocked() as (clock, host), open_board(host, BOARD, Report, agent="ann") as ann:
        hold = {"name": "payments", "ttl_ms": 3 * WAIT_MS_MAX}
        await ask(ann, AcquireLease(token=TOKEN, **hold))
        for number in range(3):
            await ask(ann, AcquireLease(token=f"token-of-number-{number}", wait_ms=WAIT_MS_MAX, **hold))
        clock.advance(WAIT_MS_MAX - 1)
        for number in range(2):
            await ask(ann, AcquireLease(token=f"token-of-number-{number}", wait_ms=WAIT_MS_MAX, **hold))
        clock.advance(1)
        await ask(ann, ReleaseLease(name="payments", token=TOKEN))
        (lease,) = ann.leases
        assert [each.token for each in (*lease.holders, *lease.waiting)] == ["token-of-number-0", "token-of-number-1"]
        clock.advance(TURN_MS)
        await ask(ann)
        (lease,) = ann.leases
        assert [each.token for each in (*lease.holders, *lease.waiting)] == ["token-of-number-1"]
        clock.advance(-HOUR_MS)
        await ask(ann)
        assert ann.leases[0].holders[0].expires_ms == clock.now_ms() + TURN_MS
        clock.advance(TURN_MS)
        await ask(ann)
        assert ann.leases == []


async def test_so_many_share_a_lease_and_the_next_waits_in_line() -> None:
    """Whoever comes then has it when one of them has given it back."""
    async with clocked() as (_, host), open_board(host, BOARD, Report, agent="ann") as ann:
        tokens = [f"token-of-number-{number}" for number in range(HOLDERS_MAX + 1)]
        claims = [AcquireLease(name="index", token=each, ttl_ms=9_000, shared=True, wait_ms=9_000) for each in tokens]
        answers = [*await ask(ann, *claims[:-1]), *await ask(ann, claims[-1])]
        assert (answers[-2] is None, answers[-1]) == (False, None)
        await ask(ann, ReleaseLease(name="index", token=tokens[0]))
        (lease,) = ann.leases
        assert ([each.token for each in lease.holders], lease.waiting) == (tokens[1:], ())


async def test_a_place_in_line_stays_what_it_was_asked_for() -> None:
    """Who asks again as one that shares is still one that does not: nobody stands in line who could have the lease."""
    async with clocked() as (clock, host), open_board(host, BOARD, Report, agent="ann") as ann:
        await ask(ann, AcquireLease(name="index", token=TOKEN, ttl_ms=9_000, shared=True))
        waits = {"name": "index", "token": OTHER_TOKEN, "ttl_ms": 9_000, "wait_ms": 9_000}
        await ask(ann, AcquireLease(**waits))
        clock.advance(1_000)
        await ask(ann, AcquireLease(**waits, shared=True))
        (waiter,) = ann.leases[0].waiting
        assert (waiter.shared, waiter.expires_ms) == (False, clock.now_ms() + 9_000)


async def test_what_is_printed_of_a_lease_has_no_token() -> None:
    """Neither of who has it nor of who waits: with one, its claim can be ended."""
    async with clocked() as (_, host), open_board(host, BOARD, Report, agent="ann") as ann:
        for token in (TOKEN, OTHER_TOKEN):
            await ask(ann, AcquireLease(name="payments", token=token, ttl_ms=9_000, wait_ms=9_000))
        assert "token" not in repr(ann.leases)
