"""Looking back at a board: differences, edits of a path, authors of a text, integrity."""

from __future__ import annotations

import asyncio
import io
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board import (
    BadRequest,
    Board,
    BoardCorrupt,
    BoardModel,
    Counter,
    Max,
    NotFound,
    Strict,
    Text,
)
from crdt_board.exports import export_board
from crdt_board.history import BoardHistory
from crdt_board.history.differences import Hunk, text_hunks
from crdt_board.imports import import_board
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from support.places import BOARD, Place, PlaceKind, has_version, level, open_plain, place_of
from support.waiting import DEADLINE_SECONDS


class Finding(BoardModel):
    title: str = ""
    notes: Text
    tags: list[str] = []


class Migration(BoardModel):
    target: str = ""
    budget: int = 0
    status: Annotated[str, Strict()] = "OPEN"
    best: Annotated[float, Max()] = 0.0
    plan: list[str] = []
    labels: set[str] = set()
    costs: dict[str, int] = {}
    findings: dict[str, Finding] = {}
    draft: Text
    spent: Counter


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def pair(place: Place) -> AsyncIterator[list[Board[Migration]]]:
    async with place.open_all(Migration, "ann", "bob") as boards:
        yield boards


def differences(diff: Any) -> dict[str, tuple[str, Any, Any]]:
    return {each.path: (each.kind, each.before, each.after) for each in diff.differences}


async def test_a_diff_names_each_path_that_differs(pair: list[Board[Migration]]) -> None:
    """Scalars, keys, elements and fields of records are named one by one; texts and lists show what was replaced."""
    ann, _bob = pair
    state = ann.state
    state.target, state.plan, state.labels, state.costs = "pg-14", ["a", "b"], {"x", "y"}, {"cpu": 1, "disk": 2}
    state.draft.append("The plan is good.\nTwo weeks are enough.\n")
    state.findings["f1"].title = "cast"
    state.findings["f1"].notes.append("look at it")
    state.findings["f2"].title = "gone later"
    first = await ann.commit("first")
    state.target = "pg-15"
    state.plan.insert(1, "new")
    state.labels.add("z")
    state.labels.discard("x")
    del state.costs["cpu"]
    state.costs["disk"] = 3
    state.draft.replace("Two weeks", "Three months")
    state.findings["f1"].notes.replace("look at", "fix")
    del state.findings["f2"]
    state.spent += 5
    second = await ann.commit("second", patch={"status": "DONE"}, expected_version=first.version)
    diff = await ann.diff(first, second)
    assert differences(diff) == {
        "costs/cpu": ("removed", 1, None),
        "costs/disk": ("changed", 2, 3),
        "draft": ("changed", None, None),
        "findings/f1/notes": ("changed", None, None),
        "findings/f2": ("removed", {"title": "gone later"}, None),
        'labels/"x"': ("removed", "x", None),
        'labels/"z"': ("added", None, "z"),
        "plan": ("changed", None, None),
        "spent": ("changed", 0, 5),
        "status": ("added", None, "DONE"),
        "target": ("changed", "pg-14", "pg-15"),
    }
    hunks = {each.path: each.hunks for each in diff.differences if each.hunks}
    assert hunks["draft"] == (Hunk(start=18, removed="Two weeks", added="Three months", line=2),)
    assert hunks["plan"] == (Hunk(start=1, removed=[], added=["new"]),)
    assert "draft\n  @ line 2\n  - Two weeks\n  + Three months" in str(diff)
    assert 'target: "pg-14" -> "pg-15"' in str(diff)


async def test_a_diff_goes_both_ways_and_to_the_present(pair: list[Board[Migration]]) -> None:
    """From the empty board, back again, and up to what is durable but in no version yet."""
    ann, _bob = pair
    ann.state.target = "pg"
    made = await ann.commit("one")
    assert differences(await ann.diff(0, made.version)) == {"target": ("added", None, "pg")}
    assert differences(await ann.diff(made.pointer, 0))["target"] == ("removed", "pg", None)
    assert not await ann.diff(1, 1)
    ann.state.target = "mysql"
    await ann.flush(DEADLINE_SECONDS)
    assert differences(await ann.diff(1)) == {"target": ("changed", "pg", "mysql")}


async def test_a_diff_of_what_is_not_there_is_one_error(pair: list[Board[Migration]]) -> None:
    """An unknown version, or a pointer whose hash is another one's, is refused."""
    ann, _bob = pair
    made = await ann.commit("one")
    with pytest.raises(NotFound):
        await ann.diff(0, 2)
    with pytest.raises(NotFound):
        await ann.diff(f"board:{ann.id}@1#{'0' * 16}", made)
    with pytest.raises(BadRequest):
        await ann.diff("board:other@1#" + "0" * 16)


async def test_the_history_of_a_path_tells_who_when_and_in_which_step(pair: list[Board[Migration]]) -> None:
    """Each change of the path, newest first, with its agent, values and the step that it went into."""
    ann, bob = pair
    ann.state.findings["f1"].title = "one"
    ann.state.target = "elsewhere"
    first = await ann.commit("find")
    await has_version(bob, first.version)
    bob.state.findings["f1"].title = "two"
    bob.state.findings["f2"].title = "another"
    await bob.flush(DEADLINE_SECONDS)
    second = await ann.commit("check", patch={"findings": {**ann.snapshot().findings}})
    await has_version(bob, second.version)
    bob.state.findings["f1"].title = "three"
    await bob.flush(DEADLINE_SECONDS)
    edits = await ann.history("findings/f1/title")
    assert [(edit.agent, edit.version, edit.step) for edit in edits] == [
        ("bob", None, None),
        ("bob", 2, "check"),
        ("ann", 1, "find"),
    ]
    assert [(edit.differences[0].path, edit.differences[0].after) for edit in edits] == [
        ("findings/f1/title", value) for value in ("three", "two", "one")
    ]
    assert [edit.seq for edit in await ann.history("findings/f1/title", before=edits[0].seq, limit=1)] == [edits[1].seq]
    assert {edit.agent for edit in await ann.history("findings/f2")} == {"bob"}
    with pytest.raises(BadRequest, match="no field 'nothing'"):
        await ann.history("nothing/x")


async def test_the_history_of_many_changes_is_complete(place: Place) -> None:
    """More changes than one page of the journal, among others, with and without snapshots between, are all there."""
    async with place.open(Migration, "ann") as ann:
        for number in range(1_300):
            ann.state.budget = number
            if number % 7 == 0:
                ann.state.target = str(number)
            if number % 50 == 0:
                await ann.flush(DEADLINE_SECONDS)
        await ann.commit("all")
        found: list[Any] = []
        while page := await ann.history("target", before=found[-1].seq if found else None, limit=50):
            found += page
        values = [int(each.differences[0].after) for each in found]
        assert values == sorted(values, reverse=True)
        assert values[0] == 1_295
        assert found[-1].differences[0].kind == "added"


async def test_blame_names_the_agent_of_each_stretch(pair: list[Board[Migration]]) -> None:
    """Also inside what another agent wrote, beyond ASCII, in a record, and as of a version."""
    ann, bob = pair
    ann.state.draft.append("Größe 😀 matters.")
    first = await ann.commit("write")
    await has_version(bob, first.version)
    bob.state.draft.replace("😀 matters", "😀😀 counts much")
    bob.state.findings["f1"].notes.append("from bob")
    await level(bob, ann)
    stretches = await ann.blame("draft")
    assert "".join(each.text for each in stretches) == str(ann.state.draft) == "Größe 😀😀 counts much."
    assert all(each.text == ann.state.draft[each.start : each.stop] for each in stretches)
    whose = {each.text: (each.agent, each.step) for each in stretches}
    assert whose["."] == ("ann", "write")
    assert {agent for text, (agent, _) in whose.items() if "counts" in text} == {"bob"}
    assert [(each.text, each.agent) for each in await ann.blame("draft", version=1)] == [("Größe 😀 matters.", "ann")]
    assert [(each.text, each.agent) for each in await ann.blame("findings/f1/notes")] == [("from bob", "bob")]
    assert await ann.blame("draft", version=0) == []
    for path in ("target", "plan", "findings/f1", "nothing"):
        with pytest.raises(BadRequest, match="is no text"):
            await ann.blame(path)
    with pytest.raises(NotFound):
        await ann.blame("findings/f9/notes")


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab \n.", max_size=60), st.text(alphabet="ab \n.", max_size=60))
def test_hunks_turn_one_text_into_the_other(before: str, after: str) -> None:
    """Applying the hunks from the last to the first gives the new text, and they are in order."""
    result = before
    hunks = text_hunks(before, after)
    assert [hunk.start for hunk in hunks] == sorted(hunk.start for hunk in hunks)
    for hunk in reversed(hunks):
        removed, added = str(hunk.removed), str(hunk.added)
        assert result[hunk.start : hunk.start + len(removed)] == removed
        result = result[: hunk.start] + added + result[hunk.start + len(removed) :]
    assert result == after


async def test_a_sound_board_verifies(pair: list[Board[Migration]]) -> None:
    """Every entry, checkpoint and snapshot is counted, and nothing is wrong."""
    ann, bob = pair
    for number in range(5):
        ann.state.budget = number
        bob.state.draft.append("x")
        await bob.flush(DEADLINE_SECONDS)
        await ann.commit(f"step {number}")
    found = await bob.verify()
    assert found.ok, str(found)
    assert (found.checkpoints, found.good_version) == (5, 5)
    assert found.entries >= 10
    assert "are intact" in str(found)


async def _written(file: Path) -> None:
    """A board of five versions with a snapshot."""
    async with place_of("embedded", file) as place, place.open(Migration, "ann") as ann:
        for number in range(5):
            for _ in range(20):
                ann.state.budget += 1
                ann.state.draft.append("some words ")
                await ann.flush(DEADLINE_SECONDS)
            await ann.commit(f"step {number}")


_DAMAGE = {
    "payload of an entry": (
        "UPDATE entries SET payload = zeroblob(length(payload)) WHERE place = (SELECT min(place) + 29 FROM entries)",
        ("entry", 30, 1),
    ),
    "author of an entry": (
        "UPDATE entries SET author = 'eve' WHERE place = (SELECT min(place) + 49 FROM entries)",
        ("entry", 50, 2),
    ),
    "missing entry": ("DELETE FROM entries WHERE place = (SELECT min(place) + 59 FROM entries)", ("entry", 60, 2)),
    "snapshot": ("UPDATE snapshots SET data = zeroblob(length(data))", ("snapshot", None, 5)),
    "head": ("UPDATE boards SET hash = zeroblob(32)", ("head", None, 5)),
    "listed checkpoint": ("DELETE FROM checkpoints WHERE version = 3", ("checkpoint", 3, 5)),
    "schema": ("UPDATE schemas SET document = '{}'", ("schema", 1, 0)),
    "schema number": ("UPDATE schemas SET number = number + 1", ("schema", 1, 0)),
    "schema number below": ("UPDATE schemas SET number = number - 1", ("schema", 1, 0)),
    "schema fingerprint": ("UPDATE schemas SET fingerprint = 'x'", ("schema", 1, 5)),
}


@pytest.mark.parametrize("what", _DAMAGE)
async def test_damage_is_named(tmp_path: Path, what: str) -> None:
    """D8: whichever stored record was altered, the first bad one is named, and the newest good version is offered."""
    file = tmp_path / "boards.db"
    await _written(file)
    statement, (record, number, good) = _DAMAGE[what]
    with sqlite3.connect(file) as connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()
    store = await SqliteStore.open(file)
    try:
        found = await (await BoardHistory.open(store, "job-884")).verify()
    finally:
        await store.close()
    assert not found.ok
    assert found.problems[0].record == record
    assert number is None or found.problems[0].number == number
    assert found.good_version == good


@pytest.mark.parametrize("by", [-1, 1])
async def test_a_board_whose_schemas_have_a_gap_is_reported(tmp_path: Path, by: int) -> None:
    """D8: it is neither joined under the numbers that are there, nor waited for."""
    file = tmp_path / "boards.db"
    await _written(file)
    with sqlite3.connect(file) as connection:
        assert connection.execute("UPDATE schemas SET number = number + ?", (by,)).rowcount > 0
    connection.close()
    async with place_of("embedded", file) as place, asyncio.timeout(DEADLINE_SECONDS):
        with pytest.raises(BoardCorrupt, match="schema 1 is missing"):
            async with place.open(Migration, "bob"):
                pass


async def test_a_board_with_keys_that_no_model_knows_verifies(place: Place, tmp_path: Path) -> None:
    """Values that were written without a model are part of every state, also in an export."""
    async with open_plain(place, "ann") as ann:
        ann.state["a"] = {"b": [1, None, 2.5]}
        await ann.commit("plain", patch={"c": "x"})
        assert (await ann.verify()).ok
    async with place.open(Migration, "bob") as bob:
        bob.state.target = "pg"
        await bob.commit("typed")
        assert (await bob.verify()).ok
    file = io.BytesIO()
    await export_board(place.store, BOARD, file, artifacts=None)
    file.seek(0)
    assert (await import_board(MemoryStore(), file)).head.version == 2
