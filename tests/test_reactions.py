"""Reactions: what agents do when something becomes true, once; and waiting until nobody has anything to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from pydantic import AfterValidator, JsonValue

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    Change,
    Conflict,
    InvalidValue,
    NotFound,
    Text,
    Unavailable,
    open_board,
)
from crdt_board.clock import ManualClock
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.reactions import ClaimReaction, ReactionRecord, record_name
from crdt_board.limits import Limits
from crdt_board.store.memory import MemoryStore
from crdt_board.team.places import Pattern
from crdt_board.team.reactions import Event
from support.places import Place, PlaceKind, place_of
from support.waiting import DEADLINE_SECONDS, eventually


class Finding(BoardModel):
    severity: int = 0
    handled: bool = False
    notes: Text


class Review(BoardModel):
    findings: dict[str, Finding] = {}
    items: list[Finding] = []
    names: set[str] = set()
    status: str = ""
    rounds: int = 0
    log: list[str] = []
    draft: Text


def even(score: int) -> int:
    if score % 2:
        raise ValueError("is odd")
    return score


class Scores(BoardModel):
    scores: dict[str, int] = {}


class EvenScores(BoardModel):
    scores: dict[str, Annotated[int, AfterValidator(even)]] = {}


HOUR_MS = 3_600_000


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def team(place: Place) -> AsyncIterator[list[Board[Review]]]:
    async with place.open_all(Review, "ann", "bob", "cid") as boards:
        yield boards


def record_of(board: Board[Review], reaction: str, path: str) -> ReactionRecord | None:
    return board._desk.ledger.get(ReactionRecord, record_name(reaction, path))


async def test_of_several_agents_one_runs_a_reaction_and_once(team: list[Board[Review]]) -> None:
    runs: list[str] = []

    def register(board: Board[Review]) -> None:
        @board.on("findings/*", when=lambda finding: finding.severity >= 8 and not finding.handled)
        async def escalate(event: Event) -> None:
            runs.append(str(event.key))
            await asyncio.sleep(0)
            event.value.handled = True
            board.state.log.append(f"{event.key} {event.value.severity}")

    register(team[0])
    register(team[1])
    for number in range(20):
        team[2].state.findings[f"f{number}"].severity = number % 10
    await team[2].settled(DEADLINE_SECONDS)
    assert sorted(runs) == ["f18", "f19", "f8", "f9"]
    assert sorted(team[2].snapshot().log) == ["f18 8", "f19 9", "f8 8", "f9 9"]


async def test_a_reaction_runs_again_when_its_condition_has_ceased_to_hold_meanwhile(
    team: list[Board[Review]],
) -> None:
    ann, bob, _ = team

    @ann.on("status", when=lambda status: status == "READY")
    def ship(_event: Event) -> dict[str, object]:
        return {"rounds": ann.state.rounds + 1}

    for round_number in (1, 2):
        bob.state.status = "READY"
        await bob.settled(DEADLINE_SECONDS)
        assert bob.state.rounds == round_number
        bob.state.draft.append("unrelated")
        await bob.settled(DEADLINE_SECONDS)
        assert bob.state.rounds == round_number
        bob.state.status = "WORKING"
        await bob.settled(DEADLINE_SECONDS)


async def test_what_became_true_while_nobody_was_there_is_run_by_whoever_comes_first(place: Place) -> None:
    async with place.open(Review, agent="early") as board:
        board.state.findings["f1"].severity = 9
    runs: list[str] = []
    for agent in ("late", "later"):
        async with place.open(Review, agent=agent) as board:

            @board.on("findings/*", when=lambda finding: finding.severity >= 8, name="escalate")
            def react(event: Event, agent: str = agent) -> None:
                runs.append(f"{agent} {event.path}")

            await board.settled(DEADLINE_SECONDS)
    assert runs == ["late findings/f1"]


async def test_a_reaction_that_failed_is_listed_and_run_again_by_hand(team: list[Board[Review]]) -> None:
    """With all its attempts; one that is done, running or unknown is refused; who lists it need not have it."""
    ann, bob, _ = team
    outcomes = [ValueError("no such service"), ValueError("still none"), None]

    @ann.on("findings/*", attempts=1)
    def escalate(_event: Event) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    bob.state.findings["f1"].severity = 9
    for told in ("ValueError: no such service", "ValueError: still none"):
        await bob.settled(DEADLINE_SECONDS)
        (failed,) = bob.reactions
        assert (failed.reaction, failed.path, failed.state, failed.error) == ("escalate", "findings/f1", "failed", told)
        armed = await bob.retry_reaction("escalate", "findings/f1")
        assert (armed.state, armed.attempts, armed.runs, armed.error) == ("armed", 0, 0, "")
    await bob.settled(DEADLINE_SECONDS)
    assert [(each.state, each.runs) for each in bob.reactions] == [("done", 1)]
    assert outcomes == []
    with pytest.raises(Conflict, match="escalate at findings/f1 is done"):
        await bob.retry_reaction("escalate", "findings/f1")
    with pytest.raises(NotFound, match="escalate has not run at findings/f2"):
        await bob.retry_reaction("escalate", "findings/f2")


async def test_a_reaction_that_runs_is_not_run_a_second_time_by_hand(team: list[Board[Review]]) -> None:
    ann, bob, _ = team
    begun, go_on = asyncio.Event(), asyncio.Event()

    @ann.on("status")
    async def slow(_event: Event) -> None:
        begun.set()
        await go_on.wait()

    bob.state.status = "READY"
    async with asyncio.timeout(DEADLINE_SECONDS):
        await begun.wait()
    with pytest.raises(Conflict, match="slow at status is being run by ann"):
        await bob.retry_reaction("slow", "status")
    go_on.set()
    await bob.settled(DEADLINE_SECONDS)


async def test_a_patch_that_a_reaction_returns_is_there_with_its_being_done_or_not_at_all(
    team: list[Board[Review]],
) -> None:
    ann, bob, _ = team

    @ann.on("findings/*")
    def describe(event: Event) -> dict[str, object]:
        return {"log": [*ann.state.log, f"saw {event.key}"]}

    bob.state.findings["f1"].severity = 1
    await bob.settled(DEADLINE_SECONDS)
    (made,) = await bob.checkpoints()
    assert (made.step, made.agent, made.fields) == ("describe", "ann", ("findings", "log"))
    entry = (await bob._session.link.state_at(made.version)).checkpoint.seq
    record = record_of(bob, "describe", "findings/f1")
    assert record is not None
    assert (record.state, record.runs) == ("done", 1)
    assert entry == made.seq


async def test_a_reaction_that_raises_is_tried_again_and_then_left(
    team: list[Board[Review]], caplog: pytest.LogCaptureFixture
) -> None:
    ann, bob, _ = team
    tried: list[int] = []

    @ann.on("status", attempts=2)
    def fails(_event: Event) -> None:
        tried.append(1)
        raise ValueError("no such service")

    bob.state.status = "READY"
    await bob.settled(DEADLINE_SECONDS)
    assert len(tried) == 2
    record = record_of(bob, "fails", "status")
    assert record is not None
    assert (record.state, record.error) == ("failed", "ValueError: no such service")
    assert "no such service" in caplog.text
    assert "(attempt 2 of 2)" in caplog.text
    assert "crdt_board/team" not in caplog.text


async def test_reactions_that_set_off_each_other_are_bounded(team: list[Board[Review]]) -> None:
    ann, bob, cid = team

    @ann.on("status", when=lambda status: status == "PING", runs=3)
    def ping(_event: Event) -> dict[str, object]:
        return {"status": "PONG", "rounds": ann.state.rounds + 1}

    @bob.on("status", when=lambda status: status == "PONG")
    def pong(_event: Event) -> dict[str, object]:
        return {"status": "PING"}

    cid.state.status = "PING"
    await cid.settled(DEADLINE_SECONDS)
    assert cid.state.rounds == 3


async def test_the_most_urgent_reaction_runs_first(place: Place) -> None:
    order: list[str] = []
    async with place.open(Review, agent="ann") as board:
        board.state.findings["b"].severity = 1
        board.state.findings["a"].severity = 1
        board.state.status = "READY"

        @board.on("findings/*")
        def later(event: Event) -> None:
            order.append(str(event.key))

        @board.on("status", priority=5)
        def first(_event: Event) -> None:
            order.append("status")

        await board.settled(DEADLINE_SECONDS)
    assert order == ["status", "a", "b"]


async def test_the_claim_of_an_agent_that_leaves_is_taken_over_at_once(place: Place) -> None:
    started, runs = asyncio.Event(), list[str]()

    async def stuck(_event: Event) -> None:
        started.set()
        await asyncio.Event().wait()

    async with place.open(Review, agent="bob") as bob:
        async with place.open(Review, agent="ann") as ann:
            ann.on("status", name="ship", ttl=3600)(stuck)
            bob.state.status = "READY"
            async with asyncio.timeout(DEADLINE_SECONDS):
                await started.wait()

        @bob.on("status")
        def ship(event: Event) -> None:
            runs.append(event.path)

        await bob.settled(DEADLINE_SECONDS)
    assert runs == ["status"]


async def test_a_run_that_was_taken_over_commits_nothing(
    team: list[Board[Review]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first wakes up after its time, and its patch is refused with its claim."""
    ann, bob, _ = team
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def nothing_gets_through(_agent: str, _operations: Sequence[Operation]) -> list[JsonValue]:
        raise Unavailable("this process stands still")

    @ann.on("status", ttl=0.2)
    async def ship(_event: Event) -> dict[str, object]:
        waiting.set()
        await go_on.wait()
        return {"log": ["ann shipped"]}

    bob.state.status = "READY"
    async with asyncio.timeout(DEADLINE_SECONDS):
        await waiting.wait()
        monkeypatch.setattr(ann._session.link, "coordinate", nothing_gets_through)
        done = asyncio.Event()

        @bob.on("status", name="ship")
        def ship_too(_event: Event) -> dict[str, object]:
            done.set()
            return {"log": ["bob shipped"]}

        await done.wait()
    await bob.flush()
    monkeypatch.undo()
    go_on.set()
    await bob.settled(DEADLINE_SECONDS)
    assert bob.snapshot().log == ["bob shipped"]


async def test_a_board_is_not_settled_while_a_reaction_runs(team: list[Board[Review]]) -> None:
    ann, bob, _ = team
    started, go_on = asyncio.Event(), asyncio.Event()

    @ann.on("status")
    async def slow(_event: Event) -> None:
        started.set()
        await go_on.wait()

    bob.state.status = "READY"
    async with asyncio.timeout(DEADLINE_SECONDS):
        await started.wait()
    with pytest.raises(TimeoutError):
        await bob.settled(0.2)
    go_on.set()
    await bob.settled(DEADLINE_SECONDS)


async def test_records_and_items_of_lists_are_reacted_to_by_key(place: Place) -> None:
    seen: list[str] = []
    async with place.open(Review, agent="ann") as board:

        @board.on("items/*", when=lambda item: item.severity > 3)
        def high(event: Event) -> None:
            seen.append(f"item {event.value.severity}")

        @board.on("findings/*/notes")
        def noted(event: Event) -> None:
            seen.append(f"{event.key}: {event.value}")

        board.state.items.append(Finding(severity=2, notes=""))
        board.state.items.append(Finding(severity=5, notes=""))
        board.state.findings["f/1"].notes.append("look")
        await board.settled(DEADLINE_SECONDS)
    assert sorted(seen) == ["f~11/notes: look", "item 5"]


async def test_a_condition_that_raises_counts_as_false(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    async with place.open(Review, agent="ann") as board:

        @board.on("status", when=lambda status: status.nothing)
        def never(_event: Event) -> None:
            raise AssertionError("it ran")

        board.state.status = "READY"
        await board.settled(DEADLINE_SECONDS)
    assert "the condition of reaction never failed at status" in caplog.text


async def test_what_an_agent_cannot_read_at_one_place_ends_none_of_its_reactions(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with place.open(EvenScores, agent="ann") as ann, place.open(Scores, agent="bob") as bob:
        seen: list[str] = []

        @ann.on("scores/*")
        def note(event: Event) -> None:
            seen.append(f"{event.key} {event.value}")

        bob.state.scores["x"] = 3  # which only the validator of ann's model refuses
        bob.state.scores["y"] = 4
        await bob.settled(DEADLINE_SECONDS)
    assert seen == ["y 4"]
    assert "scores/x" in caplog.text


async def test_an_exception_whose_text_is_no_unicode_is_tried_again_like_others(
    team: list[Board[Review]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "crdt_board.team.reactions")  # such a text in a report ends a worker of xdist
    ann, bob, _ = team

    @ann.on("status", attempts=1)
    def fails(_event: Event) -> None:
        raise ValueError("file \udcff is missing")

    bob.state.status = "READY"
    await bob.settled(DEADLINE_SECONDS)
    record = record_of(bob, "fails", "status")
    assert record is not None
    assert (record.state, record.error) == ("failed", "ValueError: file ? is missing")


async def test_what_the_writer_refuses_once_ends_no_reactions(caplog: pytest.LogCaptureFixture) -> None:
    """A board without room for another record refuses claims until something was removed."""
    async with (
        BoardHost(MemoryStore(), limits=Limits(records_max=1)) as host,
        open_board(host, "job-1", Review, agent="ann") as ann,
    ):
        await ann.tasks.put(key="one")
        ran = asyncio.Event()

        @ann.on("status")
        def react(_event: Event) -> None:
            ran.set()

        ann.state.status = "READY"
        await eventually(lambda: "the reactions of ann pause" in caplog.text, "the claim was refused")
        await ann.tasks.cancel("one")
        await ann.tasks.clear()
        await asyncio.wait_for(ran.wait(), DEADLINE_SECONDS)


async def test_a_clock_that_is_set_back_prolongs_no_run_of_a_reaction() -> None:
    clock = ManualClock()
    async with (
        BoardHost(MemoryStore(clock=clock), clock=clock) as host,
        open_board(host, "job-1", Review, agent="ann") as ann,
    ):

        async def claims(token: str) -> Any:
            claim = ClaimReaction(name="look", path="status", token=token, ttl_ms=30_000, attempts_max=3, runs_max=10)
            return (await ann._desk.ask(claim))[0]

        assert await claims("token-of-the-first")
        clock.advance(-HOUR_MS)
        assert not await claims("token-of-the-other")
        clock.advance(30_000)
        assert await claims("token-of-the-other")


async def test_the_record_of_a_reaction_goes_with_its_place(team: list[Board[Review]]) -> None:
    """Keys that come and go leave nothing behind; one that comes back is reacted to again."""
    ann, bob, _ = team
    runs: list[str] = []

    @ann.on("findings/*")
    def see(event: Event) -> None:
        runs.append(event.path)

    for count in (1, 2):
        bob.state.findings["f1"].severity = 1
        await bob.settled(DEADLINE_SECONDS)
        assert len(runs) == count
        assert record_of(bob, "see", "findings/f1") is not None
        del bob.state.findings["f1"]
        await bob.settled(DEADLINE_SECONDS)
        assert record_of(bob, "see", "findings/f1") is None


async def test_wrong_reactions_are_refused_where_they_are_registered(place: Place) -> None:
    async with place.open(Review, agent="ann") as board:
        for path in ("", "*", "nothing", "findings/f1/*", "/findings", 7):
            with pytest.raises(BadRequest):
                board.on(path)  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="no keys"):
            board.on("status/*")(lambda _event: None)
        with pytest.raises(InvalidValue):
            board.on("status", attempts=0)
        with pytest.raises(BadRequest, match="has no @"):
            board.on("status", name="ann@home")(lambda _event: None)
        board.on("status", name="twice")(lambda _event: None)
        with pytest.raises(BadRequest, match="twice"):
            board.on("draft", name="twice")(lambda _event: None)


async def test_changes_of_a_board_do_not_tell_of_its_records_unless_asked(team: list[Board[Review]]) -> None:
    ann, bob, _ = team
    everything, records = bob.changes(), bob.changes("$team/lease:payments")

    async def first(changes: AsyncIterator[Change]) -> str:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return (await anext(changes)).path

    async with ann.lease("payments"):
        assert await first(records) == "$team/lease:payments"
    ann.state.status = "READY"
    assert await first(everything) == "status"


@pytest.mark.parametrize(
    ("pattern", "path", "place"),
    [
        ("findings/*", "findings/f1/severity", "findings/f1"),
        ("findings/*", "findings", "findings/*"),
        ("findings/*/notes", "findings/f1", "findings/f1/notes"),
        ("findings/*/notes", "findings/f1/severity", None),
        ("findings/f1", "findings/f2", None),
        ("draft", "draft", "draft"),
        ("draft", "drafts", None),
    ],
)
def test_a_pattern_knows_which_of_its_places_a_change_concerns(pattern: str, path: str, place: str | None) -> None:
    assert Pattern(pattern).touched(path) == place
