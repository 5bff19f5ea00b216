"""`Strict` fields: one winner, and no other way in. With the writer in this process and at a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
import pytest_asyncio
from pydantic import ValidationError

from crdt_board import Board, BoardModel, Candidates, Change, Checkpoint, InvalidValue, Max, Strict, VersionConflict
from crdt_board.checkpoints import Decide
from crdt_board.commit_arguments import commit_request
from crdt_board.updates import EMPTY_UPDATE
from support.places import Place, PlaceKind, has_version, level, place_of
from support.waiting import DEADLINE_SECONDS


class Job(BoardModel):
    status: Annotated[Literal["PENDING", "ANALYSED", "DONE"], Strict()] = "PENDING"
    owner: Annotated[str | None, Strict()] = "nobody"
    budget: int = 0
    best: Annotated[int, Max()] = 0
    verdict: Annotated[str, Candidates()] = "none"


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


async def outcomes(*commits: asyncio.Task[Checkpoint]) -> tuple[list[Checkpoint], list[VersionConflict]]:
    done = await asyncio.gather(*commits, return_exceptions=True)
    for each in done:
        assert isinstance(each, Checkpoint | VersionConflict), each
    return (
        [each for each in done if isinstance(each, Checkpoint)],
        [each for each in done if isinstance(each, VersionConflict)],
    )


async def test_one_expected_version_has_one_winner(place: Place) -> None:
    """V1: of many agents that set a strict field at the same version one wins; the others are told who did."""
    names = [f"agent-{number}" for number in range(6)]
    async with place.open_all(Job, *names) as boards:
        tasks = [
            asyncio.create_task(board.commit("take", patch={"owner": board.agent}, expected_version=0))
            for board in boards
        ]
        won, lost = await outcomes(*tasks)
        assert len(won) == 1
        assert len(lost) == 5
        assert {conflict.author for conflict in lost} == {won[0].agent}
        for board in boards:
            await has_version(board, 1)
            assert board.state.owner == won[0].agent


@pytest.mark.parametrize("agents", [("ann", "bob"), ("ann", "ann")], ids=["two names", "one name"])
async def test_reads_of_other_fields_do_not_make_two_winners(place: Place, agents: tuple[str, str]) -> None:
    """A strict field that a commit sets counts as read, also between two processes under one agent's name."""
    async with place.open_all(Job, *agents) as boards:
        tasks = [
            asyncio.create_task(
                board.commit("take", patch={"owner": str(number)}, expected_version=0, reads=["budget"])
            )
            for number, board in enumerate(boards)
        ]
        won, lost = await outcomes(*tasks)
        assert len(won) == 1
        assert lost[0].changed == ["owner"]


async def test_other_strict_fields_do_not_conflict_with_reads(place: Place) -> None:
    """With ``reads`` two strict fields are decided independently of each other."""
    async with place.open_all(Job, "ann", "bob") as (ann, bob):
        await ann.commit("analyse", patch={"status": "ANALYSED"}, expected_version=0, reads=["status"])
        await bob.commit("take", patch={"owner": "bob"}, expected_version=0, reads=["owner"])
        await level(ann, bob)
        assert ann.snapshot() == bob.snapshot() == Job(status="ANALYSED", owner="bob")


async def test_attempt_decides_in_the_end(place: Place) -> None:
    """Agents that each move a strict field on by `attempt` take their turns, and none is lost."""

    async def take(seen: Job) -> dict[str, str]:
        return {"owner": f"{seen.owner}+"}

    async with place.open_all(Job, "ann", "bob") as boards:
        await asyncio.gather(*(board.attempt(take, step="take") for board in boards for _ in range(3)))
        await level(*boards)
        assert boards[0].state.owner == boards[1].state.owner == "nobody++++++"


async def test_assigning_is_refused_with_what_to_write(place: Place) -> None:
    """A strict field of ``board.state`` is read only, also for the value that it has."""
    async with place.open(Job) as board:
        for value in ("DONE", "PENDING"):
            with pytest.raises(TypeError, match=r"status is Strict.*expected_version=board\.version"):
                board.state.status = value
        assert (board.state.status, board.unacknowledged) == ("PENDING", 0)


async def test_a_patch_needs_an_expected_version(place: Place) -> None:
    """Without it the commit is refused, by the replica and by the writer itself; nothing is written."""
    async with place.open(Job) as board:
        for patch in ({"status": "DONE"}, Job(status="DONE"), board.snapshot().model_copy(update={"status": "DONE"})):
            with pytest.raises(InvalidValue, match="expected_version") as caught:
                await board.commit("finish", patch=patch)
            assert caught.value.path == "status"
        request = commit_request(step="finish", agent="eve", patch=(Decide(field="status", value="DONE"),))
        with pytest.raises(InvalidValue, match="expected_version"):
            await board._session.link.commit(request)
        assert (board.state.status, await board.checkpoints()) == ("PENDING", [])


async def test_what_sets_no_strict_field_needs_none(place: Place) -> None:
    """M1: whole documents in which the strict fields are as they are merge without ``expected_version``."""
    async with place.open(Job) as board:
        await board.commit("finish", patch={"status": "DONE"}, expected_version=0)
        await board.commit("pay", patch=board.snapshot().model_copy(update={"budget": 5}))
        await board.commit("pay", patch={**board.snapshot().model_dump(), "budget": 6})
        assert board.snapshot() == Job(status="DONE", budget=6)


async def test_strict_fields_are_part_of_the_state(place: Place) -> None:
    """They are in snapshots, in older versions, in the list of what a checkpoint changed, and in a cold reload."""
    async with place.open(Job) as board:
        first = await board.commit("analyse", patch={"status": "ANALYSED"}, expected_version=0)
        second = await board.commit("finish", patch={"status": "DONE", "owner": None}, expected_version=1)
        assert (first.fields, second.fields) == (("status",), ("owner", "status"))
        assert first.checksum != second.checksum
        assert await board.at(1) == Job(status="ANALYSED")
        assert await board.at(2) == board.snapshot() == Job(status="DONE", owner=None)
    await place.restart()
    async with place.open(Job) as board:
        assert (board.state.status, board.state.owner, board.version) == ("DONE", None, 2)
        assert await board.at(2) == board.snapshot()


async def test_changes_and_reads_know_strict_fields(place: Place) -> None:
    """A change of one is seen under its name, and a commit that read it is refused."""
    async with place.open_all(Job, "ann", "bob") as (ann, bob):
        changes = bob.changes("status")
        await ann.commit("finish", patch={"status": "DONE"}, expected_version=0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await anext(changes) == Change("status", "ann", False, 1)
        with pytest.raises(VersionConflict) as caught:
            await bob.commit("pay", patch={"budget": 1}, expected_version=0, reads=["status"])
        assert caught.value.changed == ["status"]
        await changes.aclose()


async def test_bad_values_are_refused(place: Place) -> None:
    """A value that does not fit the model is refused with its path."""
    async with place.open(Job) as board:
        with pytest.raises(InvalidValue) as caught:
            await board.commit("finish", patch={"status": "LATER"}, expected_version=0)
        assert caught.value.path == "status"
        with pytest.raises(ValidationError):
            board.snapshot().status = "DONE"


async def test_patches_of_extremes_and_candidates_follow_their_rules(place: Place) -> None:
    """A patch raises a Max field, and replaces the candidates that its agent had seen, not those that came since."""
    async with place.open_all(Job, "ann", "bob") as (ann, bob):
        await asyncio.gather(
            ann.commit("guess", patch={"best": 5, "verdict": "ship"}),
            bob.commit("guess", patch={"best": 7, "verdict": "hold"}),
        )
        await level(ann, bob)
        for board in (ann, bob):
            assert board.state.best == 7
            assert {(each.value, each.agent) for each in board.state.verdict.candidates} == {
                ("ship", "ann"),
                ("hold", "bob"),
            }
        await ann.commit("guess", patch={"best": 6, "verdict": "wait"})
        await has_version(bob, ann.version)
        assert [each.value for each in bob.state.verdict.candidates] == ["wait"]
        assert bob.snapshot() == Job(best=7, verdict="wait")
        assert await bob.at(bob.version) == bob.snapshot()


async def test_a_refused_patch_leaves_no_cells(place: Place) -> None:
    """A commit that is refused writes no candidate and raises nothing, on no replica."""
    async with place.open_all(Job, "ann", "bob") as (ann, bob):
        await ann.commit("guess", patch={"best": 5, "verdict": "ship"})
        await has_version(bob, 1)
        before = bob._session.replica.document.state_vector()
        with pytest.raises(VersionConflict):
            await bob.commit("guess", patch={"best": 9, "verdict": "hold"}, expected_version=0)
        assert bob._session.replica.document.encode(before) == EMPTY_UPDATE
        await _same(ann, bob)
        assert ann.snapshot() == Job(best=5, verdict="ship")


async def _same(*boards: Board[Job]) -> None:
    await level(*boards)
    assert len({board._session.replica.document.checksum() for board in boards}) == 1
