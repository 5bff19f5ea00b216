"""Claims are kept while the store fails, and given back; at both places where a board can be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crdt_board import Unavailable
from crdt_board.coordination.effects import EffectRecord
from crdt_board.coordination.leases import LeaseRecord
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.reactions import ReactionRecord
from crdt_board.coordination.steps import StepRecord
from crdt_board.coordination.task_record import TaskRecord
from support.model import Report
from support.places import Place, PlaceKind, place_of
from support.waiting import DEADLINE_SECONDS, eventually

TTL = 6.0


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@contextlib.asynccontextmanager
async def at_work(board: Any) -> AsyncIterator[Any]:
    """Hold one claim of each kind during the block; gives the lease. At its end all were ended as they should."""
    go_on, at_it = asyncio.Event(), asyncio.Barrier(4)

    async def do(*_arguments: Any) -> str:
        await at_it.wait()
        await go_on.wait()
        return "done"

    async def react(_event: Any) -> None:
        await do()

    board.on("title", when=lambda title: title == "begun", name="react", ttl=TTL)(react)
    board.state.title = "begun"
    async with board.lease("payments", ttl=TTL) as lease, board.tasks.claim(ttl=TTL) as task:
        step = asyncio.create_task(board.step("extract", ttl=TTL).run(do))
        effect = asyncio.create_task(board.effect("open-ticket", "a", do, ttl=TTL))
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await at_it.wait()
            yield lease
            await board.commit("held", lease=lease)
            assert task.is_held
        finally:
            go_on.set()
        assert (await step, await effect) == ("done", "done")
    assert board.tasks.get("a").state == "done"
    await eventually(lambda: record_of(board, ReactionRecord).state == "done", "the reaction is done")
    assert (record_of(board, StepRecord).runs, record_of(board, ReactionRecord).runs) == (1, 1)


def record_of(board: Any, kind: type[Any]) -> Any:
    (record,) = board._desk.ledger.all(kind).values()
    return record


def ends_of(board: Any) -> list[int]:
    """When each claim runs out."""
    return [
        record_of(board, LeaseRecord).holders[0].expires_ms,
        *(record_of(board, kind).expires_ms for kind in (TaskRecord, StepRecord, EffectRecord)),
        record_of(board, ReactionRecord).until_ms,
    ]


async def all_later(board: Any, than: list[int]) -> None:
    def are_later() -> bool:
        return all(now > then for now, then in zip(ends_of(board), than, strict=True))

    await eventually(are_later, "all claims are renewed")


async def test_claims_outlast_an_outage_of_the_store(place: Place) -> None:
    """The store fails while they are to be renewed: they are afterwards, and nothing is done twice."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="a")
        async with at_work(ann) as lease:
            ends = ends_of(ann)
            place.store.break_down("append", "head", "now_ms")
            failed = place.store.calls["head"] + 3
            await eventually(lambda: place.store.calls["head"] >= failed, "the writer has tried again")
            place.store.repair()
            await all_later(ann, ends)
            assert lease.is_held


async def test_a_renewal_without_an_answer_is_made_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that cannot be reached for once ends no claim of any kind."""
    async with place.open(Report, "ann") as ann:
        await ann.tasks.put(key="a")
        async with at_work(ann) as lease:
            ends = ends_of(ann)
            link, refused = ann._session.link, set[str]()
            coordinate: Callable[..., Any] = link.coordinate

            async def refuse_once(agent: str, operations: list[Operation]) -> Any:
                if operations[0].op not in refused:
                    refused.add(operations[0].op)
                    raise Unavailable("the connection is gone")
                return await coordinate(agent, operations)

            monkeypatch.setattr(link, "coordinate", refuse_once)
            await all_later(ann, ends)
            assert lease.is_held
            assert len(refused) == 5
            monkeypatch.undo()
