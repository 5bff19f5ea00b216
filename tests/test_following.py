"""Following a board: every change that was missed, in order, each handled once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from crdt_board import BadRequest, Board, BoardModel, CursorMoved, Text, open_board
from crdt_board.coordination.cursors import CursorRecord, DropCursor
from crdt_board.history import News, Retention
from crdt_board.team.following import Follower
from support.cancelling import is_cancelled_at
from support.places import Place, PlaceKind, place_of
from support.waiting import DEADLINE_SECONDS


class Job(BoardModel):
    findings: dict[str, str] = {}
    status: str = ""
    seen: list[str] = []
    draft: Text


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def pair(place: Place) -> AsyncIterator[list[Board[Job]]]:
    async with place.open_all(Job, "ann", "bob") as boards:
        yield boards


async def take(follower: Follower, count: int) -> list[News]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [await anext(follower) for _ in range(count)]


async def add(board: Board[Job], *keys: str) -> None:
    for key in keys:
        board.state.findings[key] = "found"
        await board.flush(DEADLINE_SECONDS)


def keys_of(news: list[News]) -> list[str]:
    return [path.removeprefix("findings/") for each in news for path in each.paths]


async def test_what_was_written_before_anybody_followed_and_while_nobody_did_comes_in_order(
    pair: list[Board[Job]],
) -> None:
    ann, bob = pair
    await add(ann, "a", "b")
    async with bob.follow("reviewer", "findings") as follower:
        assert keys_of(await take(follower, 2)) == ["a", "b"]
    await add(ann, "c", "d")
    async with bob.follow("reviewer", "findings") as follower:
        # "b" was delivered, and the block was left before it was known to be handled.
        assert keys_of(await take(follower, 3)) == ["b", "c", "d"]
        waiting = asyncio.create_task(take(follower, 1))
        await add(ann, "e")
        assert keys_of(await waiting) == ["e"]


async def test_a_commit_and_the_move_of_the_cursor_are_one(pair: list[Board[Job]]) -> None:
    ann, bob = pair
    await add(ann, "a", "b", "c")
    async with bob.follow("reviewer", "findings") as follower:
        for key in ("a", "b"):
            (news,) = await take(follower, 1)
            assert keys_of([news]) == [key]
            made = await follower.commit("review", patch={"seen": [*bob.state.seen, key]}, confidence=0.5)
            assert (made.step, made.confidence) == ("review", 0.5)
            record = bob._desk.ledger.get(CursorRecord, "reviewer")
            assert record is not None
            assert record.seq == news.seq
        with pytest.raises(BadRequest):
            await follower.commit("again")
    async with bob.follow("reviewer", "findings") as follower:
        assert keys_of(await take(follower, 1)) == ["c"]
    assert ann.snapshot().seen == ["a", "b"]


async def test_an_item_whose_handling_raised_comes_again(pair: list[Board[Job]]) -> None:
    ann, bob = pair
    await add(ann, "a")

    async def fail() -> None:
        async with bob.follow("reviewer") as follower:
            await take(follower, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with bob.follow("reviewer") as follower:
        assert keys_of(await take(follower, 1)) == ["a"]


async def test_own_changes_are_left_out_unless_they_are_asked_for(pair: list[Board[Job]]) -> None:
    ann, bob = pair
    await add(bob, "own")
    await add(ann, "hers")
    async with bob.follow("reviewer") as follower:
        assert keys_of(await take(follower, 1)) == ["hers"]
    async with bob.follow("all", own=True) as follower:
        assert keys_of(await take(follower, 2)) == ["own", "hers"]


async def test_a_new_follower_may_begin_now(pair: list[Board[Job]]) -> None:
    ann, bob = pair
    await add(ann, "old")
    await bob.wait_for(lambda state: "old" in state.findings, DEADLINE_SECONDS)
    async with bob.follow("late", start="now") as follower:
        await add(ann, "new")
        assert keys_of(await take(follower, 1)) == ["new"]


async def test_a_commit_that_changed_nothing_is_news_only_for_those_who_follow_everything(
    pair: list[Board[Job]],
) -> None:
    ann, bob = pair
    await ann.commit("thought", output={"idea": 1})
    await add(ann, "a")
    async with bob.follow("all") as follower:
        first, second = await take(follower, 2)
        assert (first.step, first.version, first.paths) == ("thought", 1, ())
        assert second.step is None
    async with bob.follow("some", "findings") as follower:
        assert keys_of(await take(follower, 1)) == ["a"]


async def test_of_two_who_follow_under_one_name_one_waits_until_the_other_leaves(pair: list[Board[Job]]) -> None:
    ann, bob = pair
    await add(ann, "a", "b")
    second = ann.follow("reviewer", "findings", own=True)
    async with bob.follow("reviewer", "findings") as first:
        entering = asyncio.create_task(second.__aenter__())
        await take(first, 1)
        await first.commit("review")
        assert not entering.done()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await entering
    assert keys_of(await take(second, 1)) == ["b"]
    await second.__aexit__(None, None, None)


async def test_a_follower_that_lost_its_place_commits_nothing(pair: list[Board[Job]]) -> None:
    """It stood still for longer than its time; meanwhile another has handled the same."""
    ann, bob = pair
    await add(ann, "a")
    follower = await bob.follow("reviewer", "findings", ttl=0.2).__aenter__()
    await take(follower, 1)
    await stand_still(follower)
    async with asyncio.timeout(DEADLINE_SECONDS), ann.follow("reviewer", "findings", own=True) as other:
        await anext(other)
        await other.commit("review", patch={"seen": ["ann"]})
        with pytest.raises(Exception, match="not held any more"):
            await follower.commit("review", patch={"seen": ["bob"]})
    assert ann.snapshot().seen == ["ann"]
    await follower.__aexit__(ValueError, ValueError(), None)


async def stand_still(follower: Follower) -> None:
    """Renew no more, as if this process stood still."""
    assert follower._lease is not None
    assert follower._lease._keeping is not None
    await follower._lease._keeping.end()


async def test_a_follower_that_lost_its_place_between_two_items_leaves_them_to_who_has_it(
    pair: list[Board[Job]],
) -> None:
    """It does not move the cursor under the other, and gives nothing more of the page that it had read; afterwards it
    goes on behind what the other has handled."""
    ann, bob = pair
    await add(ann, "a", "b", "c")
    follower = await bob.follow("reviewer", "findings", ttl=0.2).__aenter__()
    assert keys_of(await take(follower, 1)) == ["a"]
    await follower.commit("review")
    await stand_still(follower)
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with ann.follow("reviewer", "findings", own=True) as other:
            assert keys_of(await take(other, 1)) == ["b"]
            waiting = asyncio.create_task(take(follower, 1))
            await bob._desk.ask(
                DropCursor(name="none")
            )  # what bob asks for from here on is decided after what the follower has asked for
            await other.commit("review", patch={"seen": ["b"]})
            assert not waiting.done()
        assert keys_of(await waiting) == ["c"]
    await follower.__aexit__(None, None, None)


async def test_a_follower_that_handled_what_another_one_has_handled_is_told(pair: list[Board[Job]]) -> None:
    """It has done the item and not moved the cursor; who has its place by then is not disturbed by it."""
    ann, bob = pair
    await add(ann, "a", "b")
    follower = await bob.follow("reviewer", "findings", ttl=0.2).__aenter__()
    await take(follower, 1)
    await stand_still(follower)
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with ann.follow("reviewer", "findings", own=True) as other:
            assert keys_of(await take(other, 1)) == ["a"]
            waiting = asyncio.create_task(take(follower, 1))
            await bob._desk.ask(DropCursor(name="none"))
            await other.commit("review", patch={"seen": ["a"]})
        with pytest.raises(CursorMoved):
            await waiting
        assert keys_of(await take(follower, 1)) == ["b"]
    await follower.__aexit__(None, None, None)


async def test_a_follower_whose_renewal_was_answered_late_does_not_wait_for_itself(pair: list[Board[Job]]) -> None:
    """It could not know any more that it had its place, begins anew, and the writer holds its old claim still."""
    ann, bob = pair
    await add(ann, "a")
    async with bob.follow("reviewer", "findings", ttl=300) as follower:
        assert keys_of(await take(follower, 1)) == ["a"]
        assert follower._lease is not None
        assert follower._lease._keeping is not None
        follower._lease._keeping._until = 0.0
        await add(ann, "b")
        assert keys_of(await take(follower, 1)) == ["b"]
        await follower.commit("review")


async def test_a_follower_that_is_cancelled_anywhere_leaves_its_place(pair: list[Board[Job]]) -> None:
    """Wherever it waits, on its way in too, the next one under its name need not wait for it."""
    ann, bob = pair

    async def follow(name: str) -> None:
        async with ann.follow(name, start="now", own=True, ttl=3600) as follower:
            await add(ann, name)
            await anext(follower)
            await follower.commit("handled")

    for place in count(1):
        name = f"reviewer-{place}"
        is_cancelled = await is_cancelled_at(place, follow(name))
        async with asyncio.timeout(DEADLINE_SECONDS), bob.follow(name, start="now"):
            pass
        if not is_cancelled:
            break
    assert place > 3


async def test_what_was_compacted_away_is_told_as_one_item(tmp_path: Path) -> None:
    file = tmp_path / "boards.db"
    async with open_board(file, "job", Job, agent="ann") as ann:
        await add(ann, "a", "b")
        await ann.commit("done")
        await ann._session.link._engine.history.compact(Retention(keep_versions=1))  # type: ignore[attr-defined]
        await add(ann, "c")
        async with open_board(file, "job", Job, agent="bob") as bob, bob.follow("late", "findings") as follower:
            first, second = await take(follower, 2)
            assert first.squashed
            assert keys_of([second]) == ["c"]


async def test_a_board_is_settled_when_its_followers_have_handled_everything(pair: list[Board[Job]]) -> None:
    ann, bob = pair

    async def review() -> None:
        async with bob.follow("reviewer", "findings") as follower:
            async for news in follower:
                await follower.commit("review", patch={"seen": [*bob.state.seen, *keys_of([news])]})

    reviewing = asyncio.create_task(review())
    ann.state.findings.update({"a": "x", "b": "y"})
    await ann.flush()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not any(presence.reacts for presence in ann.agents):
            await asyncio.sleep(0.01)
    await ann.settled(DEADLINE_SECONDS)
    assert sorted(ann.snapshot().seen) == ["a", "b"]
    reviewing.cancel()
    await asyncio.wait([reviewing])


async def test_wrong_arguments_are_refused_at_the_call(place: Place) -> None:
    async with place.open(Job, agent="ann") as board:
        with pytest.raises(BadRequest):
            board.follow("reviewer", "nothing")
        with pytest.raises(BadRequest):
            board.follow("reviewer", start="yesterday")  # type: ignore[arg-type]
        with pytest.raises(BadRequest):
            board.follow("")
