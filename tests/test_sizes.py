"""How large boards are, and who is told before a bound is reached."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest
import pytest_asyncio
from pydantic import Field

from crdt_board import BoardHost, BoardModel, Counter, Max, Text, open_board
from crdt_board.document import Document
from crdt_board.headroom import Headroom, LimitWarning
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.memory import MemoryStore
from support.places import BOARD, Place, place_of
from support.waiting import DEADLINE_SECONDS


class Note(BoardModel):
    text: Text


class Job(BoardModel):
    status: str = "OPEN"
    draft: Text
    plan: Annotated[list[str], Field(max_length=4)]
    tags: set[str] = set()
    notes: dict[str, Note] = {}
    spent: Counter
    best: Annotated[int, Max()] = 0


SMALL = replace(DEFAULT_LIMITS, text_chars_max=1_000, container_items_max=100)


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    async with place_of(request.param, tmp_path / "boards.db") as place:
        yield place


async def test_sizes_tell_bytes_and_items_of_each_field_and_of_what_is_stored(place: Place) -> None:
    """Each field with content has its bytes as canonical JSON and its items; the sums are those of the store."""
    async with place.open(Job) as board:
        board.state.status = "DONE"
        board.state.draft.append("héllo")
        board.state.plan.extend(["one", "two", "three"])
        board.state.tags |= {"a", "b"}
        board.state.notes["n"].text.append("x")
        board.state.spent += 3
        board.state.best = 7
        await board.commit("first")
        sizes = await board.sizes()
    entries = await place.entries()
    assert {each.name: (each.kind, each.bytes, each.items, each.maximum, each.percent) for each in sizes.fields} == {
        "status": ("scalar", 6, None, None, None),
        "draft": ("text", 8, 5, 10_000_000, 0),
        "plan": ("list", 21, 3, 4, 75),
        "tags": ("set", 9, 2, 1_000_000, 0),
        "notes": ("records", 18, 1, 1_000_000, 0),
        "spent": ("counter", 1, 1, None, None),
        "best": ("max", 1, 1, None, None),
    }
    assert sizes.state_bytes == sum(each.bytes for each in sizes.fields)
    assert (sizes.seq, sizes.version, sizes.entries, sizes.checkpoints) == (len(entries), 1, len(entries), 1)
    assert sizes.entry_bytes == sum(len(each.payload) + len(each.checkpoint) for each in entries)
    assert sizes.document_bytes > sizes.state_bytes
    assert sizes.warnings == ()


async def test_a_warning_stands_from_80_percent_until_below_70_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Agents see it on the board and are woken; the writer logs it once, however often the size wavers above 70 %."""
    limits = replace(SMALL, snapshot_every_entries=1, snapshot_time_share=1.0)
    with caplog.at_level(logging.WARNING, "crdt_board"):
        async with (
            BoardHost(MemoryStore(), limits=limits) as host,
            open_board(host, BOARD, Job, agent="ann") as ann,
            open_board(host, BOARD, Job, agent="bob") as bob,
        ):
            told = asyncio.create_task(anext(aiter(bob.changes("$warnings"))))
            ann.state.draft.append("ä" * 799)
            ann.state.plan.extend(["a", "b", "c", "d"])  # full by the model's own bound, which is no reason
            assert ann.warnings == ()
            ann.state.draft.append("ä")
            (warning,) = ann.warnings
            assert warning == LimitWarning("text_chars_max", "draft", 800, 1_000)
            assert str(warning) == "draft: 800 of 1000 (80 %) of text_chars_max"
            await ann.flush(DEADLINE_SECONDS)
            await bob.wait_for(lambda _state: bob.warnings == (warning,), DEADLINE_SECONDS)
            ann.state.status = "GOES ON"
            assert (await asyncio.wait_for(told, DEADLINE_SECONDS)).path == "$warnings"
            for _ in range(3):
                ann.state.draft.delete(700, 850)
                await ann.flush(DEADLINE_SECONDS)
                assert len(ann.warnings) == 1
                ann.state.draft.append("ä" * 150)
                await ann.flush(DEADLINE_SECONDS)
            ann.state.draft.delete(699, 850)
            assert ann.warnings == ()
    logged = [each.getMessage() for each in caplog.records if "near a limit" in each.getMessage()]
    assert len(logged) == 1, logged
    assert BOARD in logged[0]
    assert "draft" in logged[0]


async def test_a_text_in_a_record_and_many_items_are_warned_of_where_they_are() -> None:
    """A warning names the path; it goes with the record."""
    async with BoardHost(MemoryStore(), limits=SMALL) as host, open_board(host, BOARD, Job, agent="ann") as board:
        board.state.notes["n"].text.append("x" * 900)
        board.state.tags |= {str(number) for number in range(85)}
        assert [(each.path, each.percent) for each in board.warnings] == [("notes/n/text", 90), ("tags", 85)]
        del board.state.notes["n"]
        assert [each.path for each in board.warnings] == ["tags"]


async def test_an_opened_board_knows_its_warnings_at_once() -> None:
    """A new replica has them from its first moment."""
    host = BoardHost(MemoryStore(), limits=SMALL)
    async with host:
        async with open_board(host, BOARD, Job, agent="ann") as board:
            board.state.tags |= {str(number) for number in range(85)}
        async with open_board(host, BOARD, Job, agent="bob") as board:
            assert [each.path for each in board.warnings] == ["tags"]


def test_what_the_writer_measures_is_warned_of_with_the_same_rule() -> None:
    """Measures of other bounds come and go by the same percentages."""
    headroom, document = Headroom(DEFAULT_LIMITS), Document(Job.board_layout())

    def look(value: int) -> int:
        return len(headroom.look_at_all(document, [LimitWarning("violations_max", "", value, 100)]))

    assert [look(value) for value in (79, 80, 75, 81, 69, 79, 80)] == [0, 1, 0, 0, 0, 0, 1]
