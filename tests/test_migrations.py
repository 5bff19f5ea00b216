"""Boards whose model changes: migrations, compatible extension, and agents of both models at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Self

import pytest
import pytest_asyncio
from pydantic import Field, JsonValue

from crdt_board import (
    BoardHost,
    BoardModel,
    Candidates,
    Counter,
    Max,
    ModelError,
    SchemaMismatch,
    Strict,
    Text,
    VersionConflict,
    migrates,
    open_board,
)
from crdt_board.journal import verify_chain
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from support.places import BOARD, Place, PlaceKind, has_version, level, place_of
from support.waiting import DEADLINE_SECONDS


class OldTask(BoardModel):
    title: str = ""
    notes: str = ""
    hours: int = 0


class Task(BoardModel):
    title: str = ""
    notes: Text
    hours: Counter


class Old(BoardModel):
    title: str = ""
    summary: str = ""
    tags: list[str] = []
    hours: dict[str, int] = {}
    tasks: dict[str, OldTask] = {}
    verdict: Annotated[str, Candidates()] = "open"
    score: Annotated[float, Max()] = 0.0
    status: Annotated[str, Strict()] = "OPEN"
    dropped: list[int] = []
    spent: Counter


class New(BoardModel):
    title: Annotated[str, Field(max_length=20)] = ""
    summary: Text
    tags: set[str] = set()
    hours: Counter
    tasks: dict[str, Task] = {}
    verdict: Annotated[str, Candidates()] = "open"
    score: Annotated[float, Max()] = 0.0
    status: Annotated[str, Strict()] = "OPEN"
    spent: Counter
    plan: list[str] = []

    @migrates(from_version=1)
    @classmethod
    def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
        old.pop("dropped", None)
        return {**old, "hours": sum(old.pop("hours", {}).values()), "plan": ["look at " + old.get("title", "")]}


class Newest(New):
    """A third version: the tags are a list again."""

    tags: list[str] = []  # type: ignore[assignment]

    @migrates(from_version=2)
    @classmethod
    def from_v2(cls, old: dict[str, Any]) -> dict[str, Any]:
        return {**old, "tags": [*old.get("tags", []), "v3"]}


class Simple(BoardModel):
    count: int = 0
    draft: Text


class Renamed(BoardModel):
    total: int = 0
    draft: Text

    @migrates(from_version=1)
    @classmethod
    def from_v1(cls, old: dict[str, JsonValue]) -> Self:
        return cls.model_validate({"total": old.get("count", 0), "draft": old.get("draft", "")})


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


async def fill(board: Any) -> None:
    board.state.title, board.state.summary = "the move", "all of it"
    board.state.tags.extend(["a", "b", "a"])
    board.state.hours.update(ann=2, bob=3)
    board.state.tasks["t"] = OldTask(title="cast", notes="careful", hours=4)
    board.state.verdict = "ship"
    board.state.score = 0.5
    board.state.dropped.append(1)
    board.state.spent += 7
    await board.commit("fill", patch={"status": "DONE"}, expected_version=board.version)


MIGRATED = New(
    title="the move",
    summary="all of it",
    tags={"a", "b"},
    hours=5,
    tasks={"t": Task(title="cast", notes="careful", hours=4)},
    verdict="ship",
    score=0.5,
    status="DONE",
    spent=7,
    plan=["look at the move"],
)


# Migrations


async def test_a_migration_runs_once_and_changes_kinds(place: Place) -> None:
    """V11: the first agent with the new model migrates the board, in one entry of its own; all kinds can change."""
    async with place.open(Old, "ann") as ann:
        await fill(ann)
    before = len(await place.entries())
    async with place.open_all(New, "bob", "eve") as (bob, eve):
        assert bob.snapshot() == MIGRATED == eve.snapshot()
        bob.state.tags.add("c")
        eve.state.summary.append("!")
        bob.state.hours += 1
        eve.state.tasks["t"].notes.append(" now")
        await level(bob, eve)
        assert bob.snapshot() == eve.snapshot()
        assert (bob.state.tags, str(bob.state.summary), bob.state.hours) == ({"a", "b", "c"}, "all of it!", 6)
    made = [entry for entry in (await place.entries())[before:] if entry.kind == "migration"]
    assert [(entry.author, "plan" in entry.paths) for entry in made] == [("bob", True)]
    assert [record.number for record in await place.store.schemas(BOARD)] == [1, 2]
    entries = await place.entries()
    verify_chain("0" * 64, 0, entries)
    await place.restart()
    async with place.open(New, "zoe") as zoe:
        assert zoe.state.tags == {"a", "b", "c"}
        assert (await zoe.commit("after")).schema_version == 2
    assert len(await place.store.schemas(BOARD)) == 2


async def test_a_chain_of_migrations_leads_to_the_newest(place: Place) -> None:
    """V11: from schema 1 both migrations run, and the board is at 3, as it is when they run one after the other."""
    async with place.open(Old, "ann", "far") as ann:
        await fill(ann)
    async with place.open(Newest, "bob", "far") as bob:
        assert bob.state.tags == ["a", "b", "a", "v3"]
        assert (await bob.commit("x")).schema_version == 3
    async with place.open(Old, "ann") as ann:
        await fill(ann)
    async with place.open(New, "bob"):
        pass
    async with place.open(Newest, "bob") as bob:
        assert bob.state.tags == ["a", "b", "v3"]
        bob.state.tags.append("c")
        assert (await bob.commit("x")).schema_version == 3
        assert (await bob.at(1)).tags == ["a", "b", "a", "v3"]
    await place.restart()
    async with place.open(Newest, "bob") as bob:
        assert bob.state.tags == ["a", "b", "v3", "c"]


async def test_a_board_begins_at_the_number_of_its_model(place: Place) -> None:
    """A board that a model with migrations begins is not taken for one of an earlier model later on."""
    async with place.open(New, "ann") as ann:
        ann.state.tags.add("a")
        assert (await ann.commit("x")).schema_version == 2
    async with place.open(Newest, "bob") as bob:
        assert bob.state.tags == ["a", "v3"]


async def test_many_new_agents_at_once_migrate_once(place: Place) -> None:
    """V11: of agents that come with the new model at once one migrates, and all join."""
    async with place.open(Simple, "ann") as ann:
        ann.state.count = 4
        await ann.flush(DEADLINE_SECONDS)
    async with contextlib.AsyncExitStack() as stack:
        opening = [stack.enter_async_context(place.open(Renamed, f"agent-{number}")) for number in range(5)]
        boards = await asyncio.gather(*opening)
        assert [board.state.total for board in boards] == [4] * 5
    assert [entry.kind for entry in await place.entries()].count("migration") == 1


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (KeyError("tags"), "from_v1 raised KeyError"),
        ({"total": "many"}, "from_v1 led to an invalid state: total"),
        ({"totals": 1}, "from_v1 led to an invalid state: totals"),
        ({"draft": {1}}, "from_v1 returned what is not JSON"),
        (None, "from_v1 returned a NoneType"),
    ],
)
async def test_a_migration_that_fails_changes_nothing(place: Place, result: Any, message: str) -> None:
    """V11: a function that raises, or leads to an invalid state, is told with model, schemas and path; nothing else."""

    class Failing(BoardModel):
        total: int = 0
        draft: Text

        @migrates(from_version=1)
        @staticmethod
        def from_v1(old: dict[str, JsonValue]) -> Any:
            old.clear()
            if isinstance(result, Exception):
                raise result
            return result

    async with place.open(Simple, "ann") as ann:
        ann.state.count = 4
        await ann.flush(DEADLINE_SECONDS)
        entries = await place.entries()
        with pytest.raises(SchemaMismatch, match=message) as failed:
            await place.open(Failing, "bob").__aenter__()
        assert "Failing did not migrate the board from schema 1 to 2" in str(failed.value)
        assert await place.entries() == entries
        assert len(await place.store.schemas(BOARD)) == 1
        ann.state.count += 1
        await ann.flush(DEADLINE_SECONDS)


async def test_a_migration_begins_again_when_others_write(place: Place) -> None:
    """An edit that becomes durable between the migration's read and its entry is not lost: the function runs again."""
    runs: list[JsonValue] = []
    async with place.open(Simple, "ann") as ann:
        ann.state.count = 1
        await ann.flush(DEADLINE_SECONDS)

        class Slow(BoardModel):
            total: int = 0
            draft: Text

            @migrates(from_version=1)
            @classmethod
            def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
                runs.append(old.get("count", 0))
                if len(runs) == 1:
                    ann.state.count = 2
                    ann._session.link.hurry()
                return {"total": old["count"]}

        if place.kind == "embedded":
            async with place.open(Slow, "bob") as bob:
                assert bob.state.total == 2
            assert runs == [1, 2]
        else:  # the edit has to cross a socket first, and so may come in time or be refused
            async with place.open(Slow, "bob") as bob:
                assert bob.state.total == runs[-1]


# Old agents


async def test_an_old_agent_that_is_connected_is_stopped(place: Place) -> None:
    """V11: what it wrote before is in; after the migration every edit, flush and commit says which fields differ."""
    async with place.open(Old, "ann") as ann:
        await fill(ann)
        async with place.open(New, "bob") as bob:
            await failed(ann)
            assert isinstance(ann.failure, SchemaMismatch)
            assert (ann.failure.board_schema, ann.failure.model_schema) == (2, 1)
            assert "tags: was a list and is a set" in ann.failure.fields
            held = ann.snapshot()
            with pytest.raises(SchemaMismatch):
                ann.state.title = "late"
            with pytest.raises(SchemaMismatch):
                await ann.flush(DEADLINE_SECONDS)
            with pytest.raises(SchemaMismatch):
                await ann.commit("late")
            bob.state.title = "new"
            await bob.flush(DEADLINE_SECONDS)
            assert ann.snapshot() == held
            with pytest.raises(SchemaMismatch, match="tags"):
                await place.open(Old, "late").__aenter__()


async def failed(board: Any) -> None:
    """Wait until the board's replica was stopped by a migration."""
    with pytest.raises(SchemaMismatch):
        await board.wait_for(lambda _state: False, DEADLINE_SECONDS)


async def test_what_an_old_agent_has_not_had_acknowledged_is_refused_whole(tmp_path: Path) -> None:
    """V11: edits and commits that wait behind a migration are refused, and none of them is in the journal."""
    async with place_of("embedded", tmp_path / "boards.db") as place:
        opening = place.open(Simple, "ann")
        ann = await opening.__aenter__()
        ann.state.count = 1
        await ann.flush(DEADLINE_SECONDS)
        gate = place.store.hold("append")
        async with asyncio.TaskGroup() as tasks:
            migrating = tasks.create_task(open_and_read(place))
            await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
            ann.state.count = 2
            ann.state.draft.append("late")
            committing = asyncio.create_task(ann.commit("late"))
            await asyncio.sleep(0)
            gate.release()
        with pytest.raises(SchemaMismatch, match="count: is gone"):
            await committing
        assert migrating.result() == Renamed(total=1, draft="")
        assert [entry.kind for entry in await place.entries()] == ["update", "migration"]
        assert ann.unacknowledged > 0
        with pytest.raises(SchemaMismatch, match="2 edits are not durable"):
            await opening.__aexit__(None, None, None)


async def open_and_read(place: Place) -> Renamed:
    async with place.open(Renamed, "bob") as bob:
        return bob.snapshot()  # type: ignore[no-any-return]


async def test_what_was_acknowledged_before_a_migration_is_in(place: Place) -> None:
    """V11: an old agent writes while the board is migrated; what it was told is durable is there, and nothing later."""
    acknowledged, runs = 0, 0

    class Counted(Renamed):
        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, JsonValue]) -> Self:
            nonlocal runs
            runs += 1
            return cls.model_validate({"total": old.get("count", 0)})

    opening = place.open(Simple, "ann")
    ann = await opening.__aenter__()

    async def write() -> None:
        nonlocal acknowledged
        with contextlib.suppress(SchemaMismatch):
            while runs < 3:  # then the migration has been disturbed enough
                ann.state.count += 1
                await ann.flush(DEADLINE_SECONDS)
                acknowledged += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        async with place.open(Counted, "bob") as bob:
            await failed(ann)
            await bob.commit("after")
            assert acknowledged <= bob.state.total <= acknowledged + 1  # the last answer may have been on its way
    with contextlib.suppress(SchemaMismatch):
        await opening.__aexit__(None, None, None)
    await place.restart()
    async with place.open(Counted, "eve") as eve:
        assert acknowledged <= eve.state.total <= acknowledged + 1


async def test_a_migration_that_only_adds_leaves_old_agents_be(place: Place) -> None:
    """A migration to a model that the old one may stand beside fills the new field; agents of both go on."""

    class Wider(Simple):
        words: int = 0

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
            return {**old, "words": len(old.get("draft", "").split())}

    async with place.open(Simple, "ann") as ann:
        ann.state.draft.append("two words")
        await ann.flush(DEADLINE_SECONDS)
        async with place.open(Wider, "bob") as bob:
            assert bob.state.words == 2
            ann.state.draft.append(" more")
            await level(ann, bob)
            assert str(bob.state.draft) == "two words more"


# Compatible extension


class Extended(Simple):
    extra: str = ""
    risks: list[str] = []
    tasks: dict[str, Task] = {}


@pytest.mark.parametrize("first", ["old", "new"])
async def test_old_and_new_agents_write_at_once(place: Place, first: str) -> None:
    """V11: whoever came first, agents of both models work on; the old replica keeps what it does not know."""
    order = [(Simple, "old"), (Extended, "new")] if first == "old" else [(Extended, "new"), (Simple, "old")]
    async with contextlib.AsyncExitStack() as stack:
        boards = {name: await stack.enter_async_context(place.open(model, name)) for model, name in order}
        old, new = boards["old"], boards["new"]
        new.state.extra, old.state.count = "kept", 3
        new.state.risks.append("late")
        new.state.tasks["t"].notes.append("n")
        old.state.draft.append("o")
        new.state.draft.append("n")
        await level(old, new)
        made = await old.commit("old", patch={"count": 4})
        await has_version(new, made.version)
        assert new.snapshot() == Extended(
            count=4, draft=str(old.state.draft), extra="kept", risks=["late"], tasks={"t": Task(notes="n")}
        )
        assert (await new.at(made.version)).extra == "kept"
        assert (await old.at(made.version)).count == 4
    await place.restart()
    async with place.open(Simple, "old") as old, place.open(Extended, "new") as new:
        assert (old.state.count, new.state.extra) == (4, "kept")


# History


async def test_versions_before_a_migration_stay_readable(place: Place) -> None:
    """V11: an agent with the new model reads an old version as its migrations make it; an old chain still verifies."""
    async with place.open(Old, "ann") as ann:
        await fill(ann)
        ann.state.tags.append("z")
        await ann.commit("second")
    async with place.open(New, "bob") as bob:
        assert await bob.at(1) == MIGRATED
        assert (await bob.at(2)).tags == {"a", "b", "z"}
        entries = len(await place.entries())
        bob.state.tags.clear()
        await bob.commit("third")
        assert (await bob.at(2)).tags == {"a", "b", "z"}
        assert (await bob.at(3)).tags == set()
        assert len(await place.entries()) == entries + 2


async def test_a_version_that_the_model_cannot_read_says_so(place: Place) -> None:
    """V11: without a migration from its schema, a version that does not fit is refused naming both schemas."""

    class Third(BoardModel):
        count: dict[str, int] = {}

        @migrates(from_version=2)
        @classmethod
        def from_v2(cls, old: dict[str, Any]) -> dict[str, Any]:
            return {"count": {"all": old.get("total", 0)}}

    async with place.open(Simple, "ann") as ann:
        ann.state.count = 5
        await ann.commit("one")
    async with place.open(Renamed, "bob") as bob:
        await bob.commit("two")
    async with place.open(Third, "eve") as eve:
        assert (await eve.at(2)).count == {"all": 5}
        with pytest.raises(SchemaMismatch, match="schema 1 of the board, and Third uses schema 3: count") as refused:
            await eve.at(1)
        assert (refused.value.board_schema, refused.value.model_schema) == (1, 3)


async def test_what_agents_without_a_model_keep_beside_the_fields_survives_a_migration(place: Place) -> None:
    """V11: keys that no schema names are passed on by a migration without harm, also in history, and stay."""

    class Passing(BoardModel):
        total: int = 0
        draft: Text

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
            total = old.pop("count", 0)
            return {**old, "total": total}

    async with place.open(Simple, "ann") as ann, place.open(None, "script") as script:
        ann.state.count = 5
        script.state["source"] = "wiki"
        await ann.flush()
        await script.flush()
        await script.commit("one")
    async with place.open(Passing, "bob") as bob, place.open(None, "script") as script:
        assert bob.snapshot() == Passing(total=5, draft="") == await bob.at(1)
        assert script.snapshot()["source"] == "wiki"


async def test_a_field_that_a_migration_forgets_to_drop_is_named(place: Place) -> None:
    """V11: a field of the old schema that is passed on, and that the new model lacks, is an error of the migration."""

    class Forgetful(BoardModel):
        total: int = 0
        draft: Text

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
            return old

    async with place.open(Simple, "ann") as ann:
        ann.state.count = 5
        await ann.flush()
    with pytest.raises(SchemaMismatch, match="count"):
        await place.open(Forgetful, "bob").__aenter__()


# Processes and crashes


async def test_another_process_learns_of_a_migration_in_time(tmp_path: Path) -> None:
    """V11: what was admitted in another process under the old schema does not slip through after catching up."""
    path = tmp_path / "boards.db"
    store = FaultyStore(await SqliteStore.open(path))
    async with BoardHost(await SqliteStore.open(path)) as one, BoardHost(store) as two:
        opening = open_board(two, BOARD, Simple, agent="ann")
        ann = await opening.__aenter__()
        ann.state.count = 1
        await ann.flush(DEADLINE_SECONDS)
        gate = store.hold("append")
        ann.state.count = 2
        ann.state.draft.append("late")
        await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
        async with open_board(one, BOARD, Renamed, agent="bob") as bob:
            gate.release()
            await failed(ann)
            with pytest.raises(SchemaMismatch, match="count: is gone"):
                await ann.flush(DEADLINE_SECONDS)
            made = await bob.commit("after")
            assert await bob.at(made.version) == Renamed(total=1, draft="")
        with pytest.raises(SchemaMismatch):
            await opening.__aexit__(None, None, None)
        entries = await one.store.entries(BOARD, after=0, limit=100)
        verify_chain("0" * 64, 0, entries)
        assert [entry.kind for entry in entries] == ["update", "migration", "commit"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["append", "head", "schemas", "entries", "snapshots"])
async def test_a_store_that_fails_on_the_way_loses_and_repeats_nothing(method: str, when: Any) -> None:
    """V11, D1: whatever call fails while a board is migrated, it is migrated once, with its schema, or not at all."""

    class Shared(MemoryStore):
        async def close(self) -> None:
            pass

    store = FaultyStore(Shared())
    async with BoardHost(store) as host, open_board(host, BOARD, Old, agent="ann") as ann:
        await fill(ann)
    async with BoardHost(store) as host, open_board(host, BOARD, agent="watcher") as watcher:
        store.fail("append", when=when)
        if method != "append":
            store.fail(method, when=when)
        async with open_board(host, BOARD, New, agent="bob") as bob:
            assert bob.snapshot() == MIGRATED
            await bob.flush(DEADLINE_SECONDS)
            assert watcher.snapshot()["tags"] == ["a", "b"]
    entries = await store.entries(BOARD, after=0, limit=100)
    assert [entry.kind for entry in entries].count("migration") == 1
    assert len(await store.schemas(BOARD)) == 2
    async with BoardHost(store) as host, open_board(host, BOARD, New, agent="bob") as bob:
        assert bob.snapshot() == MIGRATED


async def test_a_busy_board_is_not_migrated_for_ever() -> None:
    """When others write all the while, the agent that migrates is told so after a bounded number of attempts."""
    async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, Simple, agent="ann") as ann:

        class Unlucky(BoardModel):
            total: int = 0
            draft: Text

            @migrates(from_version=1)
            @classmethod
            def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
                ann.state.count += 1
                ann._session.link.hurry()
                return {}

        with pytest.raises(VersionConflict, match="while the board was being migrated"):
            await open_board(host, BOARD, Unlucky, agent="bob").__aenter__()
        assert ann.failure is None


# Declarations


def test_a_migration_is_declared_as_a_class_method() -> None:
    """What cannot be a migration is refused when the class is defined."""
    with pytest.raises(ModelError, match="0 is not the number"):
        migrates(from_version=0)
    with pytest.raises(ModelError, match="write @classmethod"):

        class Plain(BoardModel):
            @migrates(from_version=1)
            def from_v1(self) -> None: ...

    with pytest.raises(ModelError, match="plain function"):

        class Waiting(BoardModel):
            @migrates(from_version=1)
            @classmethod
            async def from_v1(cls, old: dict[str, JsonValue]) -> None: ...

    with pytest.raises(ModelError, match="from_v1 migrates from 1 too"):

        class Twice(BoardModel):
            @migrates(from_version=1)
            @classmethod
            def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
                return old

            @migrates(from_version=1)
            @staticmethod
            def again(old: dict[str, JsonValue]) -> dict[str, JsonValue]:
                return old


class Switch(BoardModel):
    state: bool = False


class NamedSwitch(BoardModel):
    state: str = ""


class LongSwitch(BoardModel):
    state: Annotated[str, Field(pattern=f"^({'x' * 400})?$")] = ""


async def test_a_type_that_differs_is_told_on_both_sides() -> None:
    """Who joins with another type of a field reads both schemas of it, as long as they are short."""
    async with BoardHost(MemoryStore()) as host:
        async with open_board(host, BOARD, Switch, agent="ann"):
            pass
        told = r'state: has the JSON Schema \{"type": "boolean"\} on the board and \{"type": "string"\} in the model'
        with pytest.raises(SchemaMismatch, match=told):
            async with open_board(host, BOARD, NamedSwitch, agent="bob"):
                pass
        with pytest.raises(SchemaMismatch, match="state: has another JSON Schema on the board than in the model"):
            async with open_board(host, BOARD, LongSwitch, agent="bob"):
                pass
