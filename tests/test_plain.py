"""Boards without a model: a plain JSON object, beside agents with models, and taken over by the first of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    Candidates,
    Counter,
    InvalidValue,
    Max,
    ModelError,
    SchemaMismatch,
    Strict,
    Text,
    VersionConflict,
    Violated,
    candidates_of,
    items_of,
    migrates,
    open_board,
)
from crdt_board.journal import verify_chain
from crdt_board.layout import FieldLayout, Layout
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from support.places import BOARD, Place, PlaceKind, has_version, level, place_of
from support.waiting import DEADLINE_SECONDS

Plain = Board[dict[str, Any]]


class Task(BoardModel):
    title: str
    notes: Text
    hours: Counter


class Job(BoardModel):
    title: str = ""
    status: Literal["OPEN", "DONE"] = "OPEN"
    plan: list[str] = []
    tags: set[str] = set()
    draft: Text
    tasks: dict[str, Task] = {}
    budget: dict[str, int] = {}
    spent: Counter
    score: Annotated[float, Max()] = 0.0
    verdict: Annotated[str, Candidates()] = "open"
    owner: Annotated[str, Strict()] = "nobody"


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def board(place: Place) -> AsyncIterator[Plain]:
    async with place.open(None) as board:
        yield board


# A plain JSON object


async def test_a_board_without_a_model_is_a_dict(board: Plain) -> None:
    """Keys are read, written, deleted and listed as in a dict; what is read is a copy."""
    state = board.state
    state["title"] = "move"
    state["plan"] = ["a", {"b": [1, None, 2.5]}]
    state.update(done=False, note="x")
    state |= {"n": 3}
    assert (state["title"], state["plan"][1], state["done"]) == ("move", {"b": [1, None, 2.5]}, False)
    assert ("title" in state, "nothing" in state, 5 in state) == (True, False, False)
    assert (len(state), sorted(state), state.get("nothing", 7)) == (5, ["done", "n", "note", "plan", "title"], 7)
    state["plan"].append("lost")
    assert len(state["plan"]) == 2
    del state["note"]
    assert state.pop("n") == 3
    assert state.setdefault("title", "other") == "move"
    assert state == {"title": "move", "plan": ["a", {"b": [1, None, 2.5]}], "done": False}
    assert board.snapshot() == dict(state)
    assert json.loads(json.dumps(board.snapshot())) == board.snapshot()
    for missing in ("note", 5, "\ud800"):
        with pytest.raises(KeyError):
            state[missing]  # type: ignore[index]
        with pytest.raises(KeyError):
            del state[missing]  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [object(), float("nan"), 2**60, {1: 2}, "\ud800", [{"deep": {1, 2}}]])
async def test_what_is_no_json_is_refused_and_nothing_written(board: Plain, value: Any) -> None:
    """A value that would not come back as it was written is refused, naming the key; an update is all or nothing."""
    with pytest.raises(InvalidValue, match=r"^bad"):
        board.state.update(good=1, bad=value)
    assert board.state == {}
    with pytest.raises(InvalidValue):
        await board.commit("x", patch={"bad": value})


async def test_plain_boards_merge_commit_and_remember(place: Place) -> None:
    """Keys merge; commits, reads, conflicts, watching, history, transactions and undo work without a model."""
    async with place.open_all(None, "ann", "bob") as (ann, bob):
        ann.state["title"], bob.state["plan"] = "move", ["a"]
        await level(ann, bob)
        assert ann.snapshot() == bob.snapshot() == {"title": "move", "plan": ["a"]}
        changes = bob.changes("odd/key~".replace("~", "~0").replace("/", "~1"))
        ann.state["odd/key~"] = 1
        await ann.flush(DEADLINE_SECONDS)
        async with asyncio.timeout(DEADLINE_SECONDS):
            change = await anext(changes)
        assert (change.agent, change.path) == ("ann", "odd~1key~0")
        made = await ann.commit("one", patch={"status": "DONE", "odd/key~": 2}, expected_version=ann.version)
        seen = await bob.wait_for(lambda state: state.get("status") == "DONE", DEADLINE_SECONDS)
        assert seen["odd/key~"] == 2
        await has_version(bob, made.version)
        with pytest.raises(VersionConflict):
            await bob.commit("late", patch={"status": "x"}, expected_version=1)
        with pytest.raises(VersionConflict, match="status changed"):
            await bob.commit("late", patch={"other": 1}, expected_version=1, reads=["status"])
        await bob.commit("fine", patch={"other": 1}, expected_version=1, reads=["title"])
        done = await bob.attempt(lambda seen: {"n": seen.get("n", 0) + 1}, step="count", reads=["n"])
        assert (await bob.at(done.version))["n"] == 1
        assert await bob.at(1) == {"title": "move", "plan": ["a"]}
        bob.enable_undo()
        with bob.transaction():
            bob.state["title"], bob.state["new"] = "other", True
        assert bob.undo()
        assert (bob.state["title"], "new" in bob.state) == ("move", False)
        with pytest.raises(InvalidValue), bob.transaction():
            _write_and_fail(bob)
        assert bob.state["title"] == "move"
        with pytest.raises(InvalidValue, match="maps keys"):
            await bob.commit("x", patch=Job())
    await place.restart()
    async with place.open(None) as board:
        assert (board.state["n"], await board.at(1)) == (1, {"title": "move", "plan": ["a"]})
    verify_chain("0" * 64, 0, await place.entries())


def _write_and_fail(board: Plain) -> None:
    board.state["title"] = "gone"
    board.state["bad"] = float("nan")


# Beside a model


async def test_a_plain_agent_writes_by_the_schema(place: Place) -> None:
    """Assigning a field writes what differs, as its kind says, so that others' edits in the same field stay."""
    async with place.open(Job, "ann") as ann, place.open(None, "bob") as bob:
        bob.state.update(title="t", plan=["a", "b"], tags=["x"], draft="one two", budget={"k": 1}, verdict="ship")
        bob.state["tasks"] = {"t": {"title": "cast", "notes": "n", "hours": 2}}
        bob.state["spent"] += 5
        bob.state["score"] = 0.5
        bob.state["beside"] = {"any": "thing"}
        await level(bob, ann)
        assert ann.snapshot() == Job(
            title="t", plan=["a", "b"], tags={"x"}, draft="one two", budget={"k": 1}, verdict="ship", spent=5,
            score=0.5, tasks={"t": Task(title="cast", notes="n", hours=2)},
        )  # fmt: skip
        assert candidates_of(ann.state.verdict).candidates[0].agent == "bob"
        ann.state.draft.insert(0, "zero ")  # at the same time
        ann.state.plan.insert(0, "first")
        ann.state.tags.add("y")
        ann.state.budget["m"] = 2
        ann.state.tasks["t"].notes.append("!")
        ann.state.spent += 1
        bob.state["draft"] = "one 2"
        bob.state["plan"] = ["a", "b", "last"]
        bob.state["tags"] = {"x", "z"}
        bob.state["budget"] = {"k": 3}
        bob.state["tasks"] = {"t": {"title": "cast it", "notes": "n", "hours": 2}}
        bob.state["score"] = 0.4
        await level(ann, bob)
        assert ann.snapshot() == Job(
            title="t", plan=["first", "a", "b", "last"], tags={"x", "y", "z"}, draft="zero one 2",
            budget={"k": 3, "m": 2}, verdict="ship", spent=6, score=0.5,
            tasks={"t": Task(title="cast it", notes="n!", hours=2)},
        )  # fmt: skip
        assert bob.state["score"] == 0.5
        assert bob.snapshot()["beside"] == {"any": "thing"}
        made = await bob.commit(
            "patch", patch={"spent": 10, "owner": "bob", "draft": "", "plan": []}, expected_version=2
        )
        assert (await ann.at(made.version)).owner == "bob"
        assert (await ann.at(made.version)).spent == 10
        assert (await bob.at(made.version))["verdict"] == "ship"
        del bob.state["beside"]
        assert set(bob.state) == {*Job.model_fields} - {"status"}
        assert len(bob.state) == len(bob.snapshot())


async def test_what_a_plain_agent_may_not_assign_is_refused(place: Place) -> None:
    """Counters, strict fields and values that do not fit are refused where they are written, saying how; not lost."""
    async with place.open(Job, "ann"), place.open(None, "bob") as bob:
        for key, value, message in (
            ("spent", 5, r"counter: change it by \+="),
            ("owner", "bob", "strict: change it by commit"),
        ):
            with pytest.raises(TypeError, match=message):
                bob.state[key] = value
        for key, value, path in (
            ("plan", "text", "plan"),
            ("plan", ["a", 5], "plan/1"),
            ("tags", {"a": 1}, "tags"),
            ("draft", 5, "draft"),
            ("status", "MAYBE", "status"),
            ("tasks", {"t": {"nots": ""}}, "tasks/t/nots"),
            ("tasks", {"t": {"notes": "x"}}, "tasks/t/title"),
            ("budget", {"k": "x"}, "budget/k"),
            ("score", "high", "score"),
        ):
            with pytest.raises(InvalidValue) as refused:
                bob.state.update({"title": "new", key: value})
            assert refused.value.path == path
        for key in ("plan", "draft", "owner", "spent"):
            with pytest.raises((TypeError, KeyError)):
                del bob.state[key]
        with pytest.raises(InvalidValue, match="expected_version"):
            await bob.commit("x", patch={"owner": "bob"})
        assert bob.unacknowledged == 0
        assert "title" not in bob.state


class Bounded(BoardModel):
    due: date = date(2026, 1, 1)
    days: dict[str, date] = {}
    plan: Annotated[list[str], Field(max_length=2)]
    draft: Annotated[Text, Field(max_length=5)]


async def test_a_plain_agent_is_refused_at_once_what_the_writer_would_take_back(place: Place) -> None:
    """Values are checked by the same rules as at the writer, forms of texts too, and the error names the rule."""
    async with place.open(Bounded, "ann"), place.open(None, "bob") as bob:
        for key, value, path, rule in (
            ("due", "soon", "due", "format"),
            ("days", {"k": "soon"}, "days/k", "format"),
            ("plan", ["a", 2], "plan/1", "type"),
            ("plan", ["a", "b", "c"], "plan", "maxItems"),
            ("draft", "too long", "draft", "maxLength"),
        ):
            with pytest.raises(InvalidValue) as refused:
                bob.state[key] = value
            assert (refused.value.path, refused.value.rule) == (path, rule)
        assert bob.unacknowledged == 0


async def test_an_agent_may_lead_a_size_back_in_steps(place: Place) -> None:
    """What is too large may be made smaller although it is too large still; a commit of that is refused as violated."""
    async with place.open(Bounded, "ann") as ann, place.open(None, "bob") as bob:
        ann.state.plan.extend(["a", "b"])
        bob.state["plan"] = ["c", "d"]
        await ann.wait_for(lambda state: len(state.plan) == 4, DEADLINE_SECONDS)
        await bob.wait_for(lambda state: len(state["plan"]) == 4, DEADLINE_SECONDS)
        assert len(ann.violations) == len(bob.violations) == 1
        bob.state["plan"] = bob.state["plan"][:3]
        await ann.wait_for(lambda state: len(state.plan) == 3, DEADLINE_SECONDS)
        for board in (ann, bob):
            with pytest.raises(Violated):
                await board.commit("swapped", patch={"plan": ["x", "y", "z"]})
            with pytest.raises(InvalidValue) as refused:
                await board.commit("more", patch={"plan": ["x", "y", "z", "w"]})
            assert (refused.value.path, refused.value.rule) == ("plan", "maxItems")
        await bob.commit("fewer", patch={"plan": ["x"]})
        assert not bob.violations


@settings(max_examples=25)
@given(
    old=st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    new=st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
    items=st.lists(st.sampled_from("xyz"), max_size=5),
    text=st.text("abé", max_size=6),
)
def test_what_is_assigned_is_read_back(old: dict[str, int], new: dict[str, int], items: list[str], text: str) -> None:
    """Whatever was there before: after an assignment by the layout a field reads as what was assigned."""

    async def run() -> None:
        async with (
            BoardHost(MemoryStore()) as host,
            open_board(host, BOARD, Job, agent="ann") as ann,
            open_board(host, BOARD, agent="bob") as bob,
        ):
            for budget in (old, new):
                tasks = {key: {"title": str(value), "notes": text, "hours": value} for key, value in budget.items()}
                bob.state.update(budget=budget, plan=items, draft=text * 2, tags=items, tasks=tasks)
                assert (bob.state["budget"], bob.state["plan"]) == (budget, items)
                assert bob.state["tasks"] == {key: _without_empty(task) for key, task in tasks.items()}
                items.reverse()
            assert (bob.state["draft"], bob.state["tags"]) == (text * 2, sorted(set(items)))
            await level(bob, ann)
            assert ann.state.budget == new

    asyncio.run(run())


def _without_empty(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if value or name == "title"}


@pytest.mark.parametrize(
    "json_schema",
    [
        {"type": 5},
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/nope"},
        {"pattern": "("},
    ],
)
async def test_a_layout_whose_json_schema_is_none_harms_nobody(json_schema: dict[str, Any]) -> None:
    """H3: a layout of a peer that cannot be checked against is refused as soon as it would be; nothing is fetched."""
    layout = Layout(title="Odd", fields=(FieldLayout(name="title", kind="scalar", json_schema=json_schema),))
    async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, agent="ann") as ann:
        ann.state["title"] = "x"
        await ann.flush(DEADLINE_SECONDS)
        async with host.board(BOARD) as engine:
            with pytest.raises(ModelError, match="its JSON Schema cannot be used"):
                await engine.join(layout, agent="odd")
        ann.state["title"] = "y"
        await ann.flush(DEADLINE_SECONDS)


# Any model can read it later


PLAIN = {
    "title": "move",
    "plan": ["a", "b"],
    "tags": ["x", "y"],
    "draft": "words",
    "tasks": {"t": {"title": "cast", "notes": "n", "hours": 2}},
    "budget": {"k": 1},
    "spent": 7,
    "score": 0.5,
    "verdict": "ship",
    "owner": "ann",
    "beside": [1],
}
TAKEN_OVER = Job(
    title="move",
    plan=["a", "b"],
    tags={"x", "y"},
    draft="words",
    tasks={"t": Task(title="cast", notes="n", hours=2)},
    budget={"k": 1},
    spent=7,
    score=0.5,
    verdict="ship",
    owner="ann",
)


async def test_a_model_reads_a_plain_board_later(place: Place) -> None:
    """The first model takes over what was written under its names, in one entry; other keys and agents stay."""
    async with place.open(None, "ann") as ann:
        ann.state.update(PLAIN)
        await ann.commit("plain")
        async with place.open_all(Job, "bob", "eve") as (bob, eve):
            assert bob.snapshot() == TAKEN_OVER == eve.snapshot()
            assert await bob.at(1) == TAKEN_OVER
            bob.state.plan.append("c")
            await bob.flush(DEADLINE_SECONDS)
            await ann.wait_for(lambda state: state["plan"] == ["a", "b", "c"], DEADLINE_SECONDS)
            ann.state["plan"] = ["a", "c"]
            bob.state.plan.append("d")
            ann.state["spent"] += 1
            ann.state["beside"] = [2]
            await level(ann, bob, eve)
            assert (bob.state.plan, bob.state.spent, ann.state["beside"]) == (["a", "c", "d"], 8, [2])
    kinds = [(entry.kind, entry.author) for entry in await place.entries()]
    assert [kind for kind in kinds if kind[0] == "migration"] == [("migration", "bob")]
    verify_chain("0" * 64, 0, await place.entries())
    await place.restart()
    async with place.open(None, "ann") as ann:
        assert ann.snapshot() == {**PLAIN, "plan": ["a", "c", "d"], "spent": 8, "beside": [2]} | {
            "tasks": {"t": {"title": "cast", "notes": "n", "hours": 2}}
        }
        assert await ann.at(1) == PLAIN


async def test_a_model_that_does_not_fit_a_plain_board_changes_nothing(place: Place) -> None:
    """What does not fit is refused naming each field and why; the board and its agents go on."""

    class Narrow(BoardModel):
        title: Annotated[str, Field(max_length=3)] = ""
        plan: dict[str, str] = {}
        draft: Text

    async with place.open(None, "ann") as ann:
        ann.state.update(PLAIN)
        await ann.flush(DEADLINE_SECONDS)
        entries = await place.entries()
        with pytest.raises(SchemaMismatch, match="does not fit Narrow") as refused:
            await place.open(Narrow, "bob").__aenter__()
        assert sorted(sentence.partition(":")[0] for sentence in refused.value.fields) == ["plan", "title"]
        assert await place.entries() == entries
        assert await place.store.schemas(BOARD) == []
        ann.state["title"] = "two"
        await ann.flush(DEADLINE_SECONDS)


async def test_an_extension_takes_over_its_new_fields(place: Place) -> None:
    """A key beside the model that a later model declares is taken over when that one joins."""

    class Wider(Job):
        beside: list[int] = []

    async with place.open(Job, "ann") as ann, place.open(None, "bob") as bob:
        bob.state["beside"] = [1, 2]
        await bob.flush(DEADLINE_SECONDS)
        async with place.open(Wider, "eve") as eve:
            assert eve.state.beside == [1, 2]
            ann.state.title = "on"
            eve.state.beside.append(3)
            await level(eve, ann)
            await bob.wait_for(lambda state: state["beside"] == [1, 2, 3], DEADLINE_SECONDS)


async def test_an_edit_on_its_way_while_the_first_model_joins_is_taken_over(tmp_path: Path) -> None:
    """What an agent writes before it hears of the schema is brought to its field, if it fits."""
    async with place_of("embedded", tmp_path / "boards.db") as place, place.open(None, "ann") as ann:
        ann.state["plan"] = ["a"]
        await ann.flush(DEADLINE_SECONDS)
        gate = place.store.hold("append")
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(place.open(Job, "bob").__aenter__())
            await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
            ann.state["plan"] = ["a", "b"]
            ann.state["draft"] = ["no text"]
            gate.release()
        bob = joining.result()
        await bob.wait_for(lambda state: state.plan == ["a", "b"], DEADLINE_SECONDS)
        assert ann.state["plan"] == ["a", "b"]
        assert str(bob.state.draft) == ""
        await bob.close()


async def test_an_edit_in_another_process_is_taken_over(tmp_path: Path) -> None:
    """Also when the agent's own process hears of the schema only as it appends the edit."""
    path = tmp_path / "boards.db"
    store = FaultyStore(await SqliteStore.open(path))
    async with BoardHost(await SqliteStore.open(path)) as one, BoardHost(store) as two:
        async with open_board(two, BOARD, agent="ann") as ann:
            ann.state["plan"] = ["a"]
            await ann.flush(DEADLINE_SECONDS)
            gate = store.hold("append")
            ann.state["plan"] = ["a", "b"]
            await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
            async with open_board(one, BOARD, Job, agent="bob") as bob:
                assert bob.state.plan == ["a"]
                gate.release()
                await bob.wait_for(lambda state: state.plan == ["a", "b"], DEADLINE_SECONDS)
            await ann.wait_for(lambda state: "draft" in state and state["plan"] == ["a", "b"], DEADLINE_SECONDS)
            made = await ann.commit("x")
            assert (await ann.at(made.version))["plan"] == ["a", "b"]
        assert len(await one.store.schemas(BOARD)) == 1


async def test_a_migration_reaches_plain_agents(place: Place) -> None:
    """An agent without a model follows a migration to other kinds, and goes on writing by the new schema."""

    class Later(BoardModel):
        title: str = ""
        plan: set[str] = set()

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
            return {"title": old.get("title", ""), "plan": old.get("plan", [])}

    async with place.open(None, "ann") as ann:
        ann.enable_undo()
        changes = ann.changes("plan")
        async with place.open(Job, "bob") as bob:
            bob.state.plan.extend(["a", "b"])
            await bob.commit("old")
        async with place.open(Later, "eve") as eve:
            await ann.wait_for(lambda state: "draft" not in state and state["plan"] == ["a", "b"], DEADLINE_SECONDS)
            async with asyncio.timeout(DEADLINE_SECONDS):
                while (change := await anext(changes)).agent != "eve":
                    pass
            assert (change.path, change.local) == ('plan/"a"', False)
            ann.state["plan"] = ["b", "c"]
            await level(ann, eve)
            assert eve.state.plan == {"b", "c"}
            assert ann.undo()
            await level(ann, eve)
            assert eve.state.plan == {"a", "b"}
            assert (await ann.at(1))["plan"] == ["a", "b"]


async def test_edits_of_a_migrated_field_on_their_way_are_told_lost(tmp_path: Path) -> None:
    """An agent without a model whose edits were made to a field of another kind is stopped; none of them is written."""

    class Later(BoardModel):
        title: str = ""
        plan: set[str] = set()

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
            return {"title": old.get("title", ""), "plan": old.get("plan", [])}

    async with place_of("embedded", tmp_path / "boards.db") as place:
        async with place.open(Job, "bob") as bob:
            bob.state.plan.append("a")
        opening = place.open(None, "ann")
        ann = await opening.__aenter__()
        gate = place.store.hold("append")
        later = place.open(Later, "eve")  # kept: a block that nobody holds any more is closed
        async with asyncio.TaskGroup() as tasks:
            joining = tasks.create_task(later.__aenter__())
            await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
            ann.state["plan"] = ["a", "late"]
            gate.release()
        eve = joining.result()
        with pytest.raises(SchemaMismatch, match="plan: was a list and is a set"):
            await ann.flush(DEADLINE_SECONDS)
        await eve.commit("after")
        assert eve.state.plan == {"a"}
        assert [entry.kind for entry in await place.entries()] == ["update", "migration", "commit"]
        with pytest.raises(SchemaMismatch, match="1 edits are not durable"):
            await opening.__aexit__(None, None, None)
        await later.__aexit__(None, None, None)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["append", "head", "schemas", "entries", "snapshots"])
async def test_a_store_that_fails_while_a_board_is_taken_over(call: str, when: Any) -> None:
    """D1: whatever call fails, what was written is taken over once, and nothing is lost."""

    class Shared(MemoryStore):
        async def close(self) -> None:
            pass

    store = FaultyStore(Shared())
    async with BoardHost(store) as host, open_board(host, BOARD, agent="ann") as ann:
        ann.state.update(PLAIN)
        await ann.flush(DEADLINE_SECONDS)
        store.fail("append", when=when)
        if call != "append":
            store.fail(call, when=when)
        async with open_board(host, BOARD, Job, agent="bob") as bob:
            assert bob.snapshot() == TAKEN_OVER
    kinds = [entry.kind for entry in await store.entries(BOARD, after=0, limit=100)]
    assert (kinds.count("migration"), len(await store.schemas(BOARD))) == (1, 1)


async def test_a_model_must_be_a_class_and_fields_are_named(place: Place) -> None:
    """Without a model any key may be read for a conflict; what is no name is refused."""
    async with place.open(None) as board:
        with pytest.raises(InvalidValue):
            await board.commit("x", reads=["\ud800"])
        with pytest.raises(BadRequest, match="list of field names"):
            await board.commit("x", reads="title")


class Chapter(BoardModel):
    title: str = ""
    body: Text


class Book(BoardModel):
    chapters: list[Chapter]


async def test_lists_of_records_without_a_model() -> None:
    """Items are objects with their ids; a list that is written back is moved, edited and extended item by item."""
    async with (
        BoardHost(MemoryStore()) as host,
        open_board(host, "book", Book, agent="ann") as ann,
        open_board(host, "book", agent="bob") as bob,
    ):
        ann.state.chapters.extend([Chapter(title="a"), Chapter(title="b", body=Text("text"))])
        await level(ann, bob)
        chapter = ann.state.chapters[1]
        first, second = bob.state["chapters"]
        assert (second["title"], second["body"], second["$id"]) == ("b", "text", items_of(ann.state.chapters).id_of(1))
        bob.state["chapters"] = [{**second, "title": "B"}, first, {"title": "c"}]
        chapter.body.append("!")
        await level(ann, bob)
        assert ann.snapshot().chapters == [
            Chapter(title="B", body=Text("text!")), Chapter(title="a"), Chapter(title="c"),
        ]  # fmt: skip
        assert chapter.title == "B"
        await bob.commit("cut", patch={"chapters": [{"$id": second["$id"], "body": "short"}]})
        await level(ann, bob)
        assert ann.snapshot().chapters == [Chapter(body=Text("short"))]
        for wrong in ([{"colour": "red"}], [{"$id": 5}], [5], {"a": {}}, [{"title": 5}]):
            with pytest.raises(InvalidValue):
                bob.state["chapters"] = wrong


class NumberedChapter(BoardModel):
    title: str = ""
    number: int
    body: Text


class NumberedBook(BoardModel):
    chapters: list[NumberedChapter]

    @migrates(from_version=1)
    @classmethod
    def number_them(cls, old: dict[str, Any]) -> dict[str, Any]:
        chapters = [{**each, "number": index} for index, each in enumerate(old["chapters"], 1)]
        return {"chapters": [*chapters, {"title": "new", "number": 0}]}


async def test_items_keep_their_ids_in_a_migration() -> None:
    """A migration is given the items with their ids, and those that it passes on stay the same items."""
    async with BoardHost(MemoryStore()) as host:
        async with open_board(host, "book", Book, agent="ann") as ann:
            ann.state.chapters.extend([Chapter(title="a", body=Text("text")), Chapter(title="b")])
            ids = items_of(ann.state.chapters).ids
            await ann.commit("first")
        async with open_board(host, "book", NumberedBook, agent="bob") as bob:
            assert bob.snapshot().chapters == [
                NumberedChapter(title="a", number=1, body=Text("text")),
                NumberedChapter(title="b", number=2),
                NumberedChapter(title="new", number=0),
            ]
            assert items_of(bob.state.chapters).ids[:2] == ids
            assert (await bob.at(1)).chapters == bob.snapshot().chapters  # history is migrated as it is read
