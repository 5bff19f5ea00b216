"""Who writes what the schema does not allow is told, embedded and served, and goes on with what everybody has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from pydantic import Field

from crdt_board import Board, BoardModel, InvalidValue, Rejection, Text, WriteRejected
from crdt_board.checkpoints import SetValue
from crdt_board.rejections import Rejections
from support.places import Place, PlaceKind, level, place_of


class Plan(BoardModel):
    count: Annotated[int, Field(le=10)] = 0
    items: list[str] = []
    draft: Text


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


def write_raw(board: Board[Any], key: str, value: object) -> None:
    """What an agent with another model, or a fault in its own code, would write: nothing here validates it."""
    replica = board._session.replica
    with replica.edit(board.agent):
        replica.document.state_map[key] = value


async def test_flush_raises_what_was_taken_back_once(place: Place) -> None:
    """The refused value is named once; the rest is durable, and the replica holds what the others hold."""
    async with place.open(Plan, "ann") as ann, place.open(Plan, "bob") as bob:
        ann.state.count = 5
        write_raw(ann, "count", 11)
        ann.state.items.append("kept")
        with pytest.raises(WriteRejected) as caught:
            await ann.flush()
        assert (caught.value.path, caught.value.rule, caught.value.agent) == ("count", "maximum", "ann")
        assert "11 is greater than the maximum of 10" in str(caught.value)
        await ann.flush()
        await level(ann, bob)
        assert ann.snapshot() == bob.snapshot() == Plan(count=5, items=["kept"])
    await place.restart()
    async with place.open(Plan) as board:
        assert board.snapshot() == Plan(count=5, items=["kept"])


async def test_a_callback_is_told_instead(place: Place) -> None:
    """With ``on_rejected`` nothing is raised: each refused value is handed over, with the name of who wrote it."""
    told: list[Rejection] = []

    def note(rejection: Rejection) -> None:
        told.append(rejection)
        raise RuntimeError("the callback's own fault ends nothing")

    async with place.open(Plan, "ann", on_rejected=note) as ann:
        write_raw(ann, "count", 11)
        write_raw(ann.as_agent("carl"), "count", "many")
        await ann.flush()
        assert {(each.path, each.rule, each.agent) for each in told} == {
            ("count", "maximum", "ann"),
            ("count", "format", "carl"),
        }
        await ann.commit("done")
        assert ann.snapshot() == Plan()


async def test_a_commit_says_that_it_was_made_without_the_refused_value(place: Place) -> None:
    """What was refused before a commit keeps it from being made; what is refused with it is not in it."""
    async with place.open(Plan, "ann") as ann:
        ann.state.items.append("kept")
        write_raw(ann, "count", 11)
        with pytest.raises(WriteRejected) as caught:
            await ann.commit("first")
        assert caught.value.version == 1
        assert await ann.at(1) == Plan(items=["kept"])
        assert (await ann.commit("second")).version == 2


async def test_leaving_the_block_raises(place: Place) -> None:
    """Who never asks is told at the end; everything else is durable."""

    async def work() -> None:
        async with place.open(Plan, "ann") as ann:
            ann.state.items.append("kept")
            write_raw(ann, "count", 11)

    with pytest.raises(WriteRejected):
        await work()
    async with place.open(Plan) as board:
        assert board.snapshot() == Plan(items=["kept"])


async def test_a_patch_that_the_writer_refuses_names_its_path(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """V10: what the agent's own code did not see is refused before anything is stored."""
    async with place.open(Plan, "ann") as ann:
        monkeypatch.setattr(ann._view, "patch", lambda _patch: ([SetValue(field="count", value=11)], {"count": 11}))
        with pytest.raises(InvalidValue) as caught:
            await ann.commit("step", patch={"count": 11})
        assert caught.value.path == "count"
        monkeypatch.undo()
        assert ann.version == 0
        assert (await ann.commit("step", patch={"count": 10})).version == 1


def test_what_is_not_asked_for_does_not_grow() -> None:
    """Rejections that nobody asks for are counted beyond a bound, and not kept."""
    kept = Rejections()
    kept.take_in([Rejection(f"f/{number}", "type", "wrong", "ann") for number in range(1_000)])
    with pytest.raises(WriteRejected) as caught:
        kept.check()
    assert "999 more" in str(caught.value)
    assert len(caught.value.rejected) == 100
    kept.check()
