"""Rules that edits break together, although each edit was valid: at boards embedded and served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, Self

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    Counter,
    InvalidValue,
    Text,
    Violated,
    Violation,
    items_of,
    open_board,
)
from crdt_board.document import Document
from crdt_board.journal import Entry
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from support.places import Place, PlaceKind, has_version, place_of
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS, eventually


class Step(BoardModel):
    title: str = ""
    first: int = 0
    last: int = 0
    notes: Annotated[Text, Field(max_length=20)]

    @model_validator(mode="after")
    def in_order(self) -> Self:
        if self.first > self.last:
            raise ValueError(f"{self.first} is after {self.last}")
        return self


class Sprint(BoardModel):
    start: int = 1
    end: int = 5
    note: str = ""
    plan: Annotated[list[str], Field(max_length=3)]
    draft: Annotated[Text, Field(max_length=10)]
    tags: Annotated[set[str], Field(max_length=2)]
    scores: Annotated[dict[str, int], Field(max_length=2)]
    steps: Annotated[dict[str, Step], Field(max_length=2)]
    stages: Annotated[list[Step], Field(max_length=2)]
    spent: Annotated[Counter, Field(le=100)]

    @model_validator(mode="after")
    def ends_after_start(self) -> Self:
        if self.start > self.end:
            raise ValueError("the sprint ends before it starts")
        return self


class Unruled(BoardModel):
    """The fields of a sprint, without the rule over several of them."""

    start: int = 1
    end: int = 5
    note: str = ""
    plan: Annotated[list[str], Field(max_length=3)]
    draft: Annotated[Text, Field(max_length=10)]
    tags: Annotated[set[str], Field(max_length=2)]
    scores: Annotated[dict[str, int], Field(max_length=2)]
    steps: Annotated[dict[str, Step], Field(max_length=2)]
    stages: Annotated[list[Step], Field(max_length=2)]
    spent: Annotated[Counter, Field(le=100)]


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


async def sees(board: Board[Any], *keys: str) -> tuple[Violation, ...]:
    """Wait until exactly these violations stand on a board."""
    await board.wait_for(lambda _state: [each.key for each in board.violations] == list(keys), DEADLINE_SECONDS)
    return board.violations


async def records(place: Place) -> list[Entry]:
    """The entries that change which violations are recorded, and nothing else."""
    return [entry for entry in await place.entries() if entry.kind == "update" and not entry.paths]


def break_order(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    """Two edits, neither of which breaks the rule that their state breaks together."""
    ann.state.start = 4
    bob.state.end = 2


def fill_plan(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.plan.extend(["a", "b"])
    bob.state.plan.extend(["c", "d"])


def fill_draft(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.draft.append("äääääää")
    bob.state.draft.append("öööööö")


def fill_tags(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.tags |= {"a", "b"}
    bob.state.tags |= {"b", "c"}


def fill_scores(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.scores.update(a=1, b=1)
    bob.state.scores.update(b=2, c=2)


def fill_steps(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.steps["a"].title = ann.state.steps["b"].title = "x"
    bob.state.steps["c"].title = "y"


def fill_stages(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.stages.append(Step(title="a"))
    bob.state.stages.extend([Step(title="b"), Step(title="c")])


def fill_notes(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.steps["a"].notes.append("x" * 15)
    bob.state.steps["a"].notes.append("y" * 15)


def spend(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.spent += 60
    bob.state.spent += 70


def break_step(ann: Board[Sprint], bob: Board[Sprint]) -> None:
    ann.state.steps["a/b"].last = 5
    bob.state.steps["a/b"].first = 3
    bob.state.steps["a/b"].last = 4


MERGES: list[tuple[Callable[[Board[Sprint], Board[Sprint]], None], str, str, Callable[[Any], None]]] = [
    (fill_plan, "maxItems@plan", "has 4 items, at most 3 are allowed", lambda state: state.plan.pop()),
    (
        fill_draft,
        "maxLength@draft",
        "has 13 characters, at most 10 are allowed",
        lambda state: state.draft.delete(0, 5),
    ),
    (fill_tags, "maxItems@tags", "has 3 items, at most 2 are allowed", lambda state: state.tags.discard("a")),
    (fill_scores, "maxProperties@scores", "has 3 items, at most 2 are allowed", lambda state: state.scores.pop("c")),
    (fill_steps, "maxProperties@steps", "has 3 items, at most 2 are allowed", lambda state: state.steps.pop("a")),
    (fill_stages, "maxItems@stages", "has 3 items, at most 2 are allowed", lambda state: state.stages.pop()),
    (
        fill_notes,
        "maxLength@steps/a/notes",
        "has 30 characters, at most 20 are allowed",
        lambda state: state.steps["a"].notes.apply("z"),
    ),
    (spend, "maximum@spent", "is 130, at most 100 is allowed", lambda state: state.spent.__isub__(30)),
    (break_order, "ends_after_start@", "the sprint ends before it starts", lambda state: setattr(state, "end", 9)),
]


async def test_rules_inside_items_of_a_list_are_looked_at(place: Place) -> None:
    """A size and a validator that merged edits of one item break are named by the item, and block commits."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        ann.state.stages.append(Step(title="a", last=5))
        made = await ann.commit("begin")
        await has_version(bob, made.version)
        item = items_of(ann.state.stages).id_of(0)
        ann.state.stages[0].last = 1
        bob.state.stages[0].first = 4
        ann.state.stages[0].notes.append("x" * 15)
        bob.state.stages[0].notes.append("y" * 15)
        keys = [f"in_order@stages/{item}", f"maxLength@stages/{item}/notes"]
        for board in (ann, bob):
            await board.wait_for(lambda _state, board=board: {each.key for each in board.violations} == set(keys), 15)
        with pytest.raises(Violated):
            await ann.commit("refused")
        with pytest.raises(InvalidValue):
            ann.state.stages.extend([Step(), Step()])
        ann.state.stages[0].notes.apply("short")
        ann.state.stages[0].first = 0
        await sees(bob)
        assert (await ann.commit("repaired")).version == made.version + 1


@pytest.mark.parametrize(("merge", "key", "message", "repair"), MERGES, ids=lambda each: getattr(each, "__name__", ""))
async def test_what_only_the_merge_breaks_is_seen_by_all_and_blocks_commits(
    place: Place,
    merge: Callable[[Board[Sprint], Board[Sprint]], None],
    key: str,
    message: str,
    repair: Callable[[Any], None],
) -> None:
    """Two agents edit at once, each validly: all agents, without the validators too, see the violation; nobody commits
    until somebody has repaired the state."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob), place.open(Unruled, "eve") as eve:
        merge(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        seen = [await sees(board, key) for board in (ann, bob, eve)]
        assert seen[0] == seen[1] == seen[2]
        assert (seen[0][0].message, seen[0][0].path) == (message, key.partition("@")[2])
        assert ann.snapshot().start == ann.state.start  # it can be read
        for board in (ann, eve):
            with pytest.raises(Violated, match=message) as refused:
                await board.commit("blocked")
            assert refused.value.code == "board_violated"
            assert [each.key for each in refused.value.violations] == [key]
        bob.state.note = "edits go on"
        await bob.flush()
        assert ann.version == 0

        repair(ann.state)
        made = await ann.commit("repaired")
        assert made.version == 1
        for board in (ann, bob, eve):
            await sees(board)
        assert (await bob.commit("next")).version == 2


async def test_a_record_that_breaks_its_models_rule_is_named(place: Place) -> None:
    """A validator of a record is checked in each record, and the violation names its place."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        ann.state.steps["a/b"].last = 5
        await ann.flush()
        await bob.wait_for(lambda state: state.steps["a/b"].last == 5, DEADLINE_SECONDS)
        ann.state.steps["a/b"].last = 2
        bob.state.steps["a/b"].first = 4
        await asyncio.gather(ann.flush(), bob.flush())
        (seen,) = await sees(ann, "in_order@steps/a~1b")
        assert (seen.path, seen.rule, seen.message) == ("steps/a~1b", "in_order", "4 is after 2")
        assert seen.fields == ("first", "last")
        assert ann.snapshot().steps["a/b"].first == ann.state.steps["a/b"].first == 4
        assert ann.state.steps.to_python()["a/b"].last == 2
        del bob.state.steps["a/b"]
        await bob.flush()
        await sees(ann)


async def test_a_patch_that_resolves_it_is_committed(place: Place) -> None:
    """A commit whose own patch resolves every violation is made, and they are gone for everybody at once."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        break_order(ann, bob)
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "ends_after_start@", "maxItems@plan")
        with pytest.raises(Violated) as refused:
            await ann.commit("half", patch={"end": 7})
        assert [each.rule for each in refused.value.violations] == ["maxItems"]
        made = await ann.commit("whole", patch={"end": 7, "plan": ["a"]})
        await has_version(bob, made.version)
        assert (bob.violations, bob.state.end) == ((), 7)
        ann.state.start = 8
        await ann.flush()
        await sees(bob, "ends_after_start@")
        with pytest.raises(Violated):
            await bob.commit("unrelated", patch={"note": "x"})
        assert bob.state.note == ""


async def test_a_patch_that_breaks_a_rule_is_an_invalid_value(place: Place) -> None:
    """V10: of a patch that leads to what the model does not allow the place and the rule are named; nothing is left of
    it, and it is no violation."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        ann.state.plan.extend(["a", "b"])
        await ann.flush()
        wrong: list[tuple[dict[str, Any], str, str]] = [
            ({"end": 0}, "", "ends_after_start"),
            ({"plan": ["a", "b", "c", "d"]}, "plan", "maxItems"),
            ({"draft": Text("x" * 11)}, "draft", "maxLength"),
            ({"spent": 101}, "spent", "maximum"),
            ({"steps": {"a": {"first": 0, "notes": "x" * 21}}}, "steps/a/notes", "string_too_long"),
        ]
        for patch, path, rule in wrong:
            with pytest.raises(InvalidValue) as refused:
                await ann.commit("wrong", patch=patch)
            assert refused.value.path == path
            if rule != "string_too_long":
                assert refused.value.rule == rule
        entries = await place.entries()
        assert [entry.kind for entry in entries] == ["update"]
        assert ann.violations == ()
        assert (await bob.commit("fine")).version == 1


async def test_a_patch_is_checked_on_the_state_that_it_meets(place: Place) -> None:
    """A patch that fits what its agent saw, but not what others have written since, is refused and leaves no trace."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        ann.state.plan.extend(["a", "b"])
        await ann.flush()
        await bob.wait_for(lambda state: len(state.plan) == 2, DEADLINE_SECONDS)
        seen = bob.snapshot()
        ann.state.plan.append("c")
        await ann.flush()
        with pytest.raises(InvalidValue, match="with this patch it has 4 items") as refused:
            await bob.commit("too much", patch=seen.model_copy(update={"plan": ["a", "b", "d"]}))
        assert (refused.value.path, refused.value.rule) == ("plan", "maxItems")
        await bob.wait_for(lambda state: list(state.plan) == ["a", "b", "c"], DEADLINE_SECONDS)
        assert (await bob.commit("fine", patch={"note": "x"})).version == 1
        assert bob.state.plan == ["a", "b", "c"]


async def test_ten_agents_report_once(place: Place) -> None:
    """However many agents find a rule broken, it is recorded once, and named with who found it and at which entry."""
    names = [f"agent-{number}" for number in range(10)]
    async with place.open_all(Sprint, *names) as boards:
        break_order(boards[0], boards[1])
        await asyncio.gather(*(board.flush() for board in boards))
        for board in boards:
            (seen,) = await sees(board, "ends_after_start@")
            with pytest.raises(Violated):  # behind whatever this agent has reported
                await board.commit("blocked")
        assert seen.agent in names
        assert (seen.seq is None, seen.fields) == (False, ("start", "end"))
        assert len(await records(place)) == 1
        boards[9].state.end = 9
        for board in boards:
            await sees(board)
            await board.commit("fine")
        assert len(await records(place)) == 2  # what was recorded, and that it does not stand any more


async def test_a_violation_outlives_who_found_it_and_the_process(place: Place) -> None:
    """A recorded violation is there after a restart, for agents without the model too, and blocks their commits; the
    next agent with the model clears it when it was resolved meanwhile."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        break_order(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "ends_after_start@")
    await place.restart()
    async with place.open(Unruled, "eve") as eve:
        await sees(eve, "ends_after_start@")
        with pytest.raises(Violated):
            await eve.commit("blocked")
        eve.state.end = 9
        await eve.flush()
        async with place.open(Sprint, "ann") as ann:
            await sees(ann)
            await sees(eve)
        assert (await eve.commit("fine")).version == 1


async def test_another_model_does_not_clear_what_it_does_not_find(place: Place) -> None:
    """V11: an agent whose model keeps the rule otherwise leaves the record alone until something that it is about has
    changed, so that two models do not undo each other's findings for ever."""

    class Lax(Sprint):
        @model_validator(mode="after")
        def ends_after_start(self) -> Self:
            return self

    async with place.open_all(Sprint, "ann", "bob") as (ann, bob), place.open(Lax, "lax") as lax:
        break_order(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(lax, "ends_after_start@")
        lax.state.note = "something else"
        await lax.flush()
        assert lax._rules.findings().kept == ("ends_after_start@",)
        await lax._session.link.report("lax", lax._rules.findings())
        with pytest.raises(Violated):
            await lax.commit("blocked")
        await sees(ann, "ends_after_start@")
        assert len(await records(place)) == 1


async def test_a_rule_that_no_model_has_any_more_can_be_dismissed(place: Place) -> None:
    """V11: a violation of a rule that was taken out of the model blocks commits until an agent dismisses it; while an
    agent has the rule it is recorded again; a size cannot be dismissed."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        break_order(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        (seen,) = await sees(ann, "ends_after_start@")
        changes = ann.changes("$violations")
        await bob.dismiss(seen)
        await asyncio.wait_for(anext(changes), DEADLINE_SECONDS)
        (again,) = await sees(ann, "ends_after_start@")
        assert again.seq > seen.seq
    async with place.open(Unruled, "eve") as eve:
        await sees(eve, "ends_after_start@")
        await eve.dismiss(again)
        await eve.dismiss(again)
        await sees(eve)
        assert (await eve.commit("fine")).version == 1
        with pytest.raises(BadRequest, match="resolved by an edit"):
            await eve.dismiss(Violation(path="plan", rule="maxItems", message="has 4 items"))


async def test_an_agent_without_a_model_sees_and_resolves(place: Place) -> None:
    """On a board that is opened without a model the violations are the same, and edits, patches and refusals too."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob), place.open(None, "eve") as eve:
        break_order(ann, bob)
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        keys = ("ends_after_start@", "maxItems@plan")
        assert await sees(eve, *keys) == await sees(ann, *keys)
        assert eve.snapshot()["end"] == 2
        with pytest.raises(Violated) as refused:
            await eve.commit("blocked")
        assert refused.value.violations == eve.violations
        with pytest.raises(InvalidValue, match="plan"):
            eve.state["plan"] = list("abcde")
        with pytest.raises(InvalidValue) as wrong:
            await eve.commit("wrong", patch={"tags": ["a", "b", "c"]})
        assert wrong.value.path == "tags"
        eve.state["end"] = 9
        await eve.flush()
        await sees(eve, "maxItems@plan")
        made = await eve.commit("repaired", patch={"plan": ["a"]})
        await has_version(ann, made.version)
        assert ann.violations == ()


async def test_a_fork_is_merged_when_no_rule_is_broken_afterwards(place: Place) -> None:
    """What a fork and its board hold together may break a size: then the merge is refused without a trace, until one
    of the two has made room. Restoring a version is judged as any commit."""
    async with place.open(Sprint, "ann") as ann:
        ann.state.plan.append("a")
        made = await ann.commit("begin")
        await ann.fork("fork", at=made)
        async with place.open(Sprint, "bob", "fork") as bob:
            bob.state.plan.extend(["b", "c"])
            bob.state.start = 3
            await bob.commit("more")
        ann.state.plan.extend(["d"])
        ann.state.end = 2
        full = await ann.commit("other")
        with pytest.raises(Violated, match="plan: has 4 items"):
            await ann.merge_from("fork")
        assert (ann.version, list(ann.state.plan)) == (full.version, ["a", "d"])
        ann.state.plan.pop()
        merged = await ann.merge_from("fork")
        assert merged.version == full.version + 1
        (seen,) = await sees(ann, "ends_after_start@")
        assert seen.agent == "ann"
        await ann.restore(full)
        await sees(ann)
        assert (ann.state.start, ann.state.end) == (1, 2)


async def test_a_refused_commit_can_be_repeated_with_its_key(place: Place) -> None:
    """A commit that a violation refused has used up neither its idempotency key nor anything else; after the repair the
    same request is made, and repeating it gives the first result, also while another violation stands."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "maxItems@plan")
        before = len(await place.entries())
        with pytest.raises(Violated):
            await ann.commit("once", patch={"note": "mine"}, idempotency_key="k")
        assert len(await place.entries()) == before
        assert ann.state.note == bob.state.note == ""
        bob.state.plan.pop()
        await bob.flush()
        await sees(ann)
        made = await ann.commit("once", patch={"note": "mine"}, idempotency_key="k")
        break_order(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "ends_after_start@")
        assert await ann.commit("once", patch={"note": "mine"}, idempotency_key="k") == made


async def test_an_attempt_runs_on_until_its_work_repairs(place: Place) -> None:
    """`attempt` shows its work the state that breaks a rule, and runs it again while its patch does not resolve it."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "maxItems@plan")
        runs: list[int] = []

        def work(state: Sprint) -> dict[str, Any]:
            runs.append(len(state.plan))
            return {"note": "x"} if len(runs) < 3 else {"note": "x", "plan": state.plan[:3]}

        made = await ann.attempt(work, step="repair")
        assert (made.version, runs) == (1, [4, 4, 4])
        break_order(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "ends_after_start@")
        with pytest.raises(Violated):
            await ann.attempt(lambda _state: {"note": "y"}, step="never", attempts=2)


async def test_streaming_text_does_not_make_commits_fail(place: Place) -> None:
    """V2: while somebody streams into a text, commits are made, also of agents whose model has rules."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):

        async def stream() -> None:
            for number in range(40):
                bob.state.draft.apply("x" * (number % 10))
                await asyncio.sleep(0)

        streaming = asyncio.create_task(stream())
        for number in range(5):
            await ann.commit("step", patch={"start": number % 3})
        await streaming


@pytest.mark.parametrize("what", ["changes", "wait_for"])
async def test_watchers_wake(place: Place, what: str) -> None:
    """`wait_for` and `changes` wake when the violations change, also at an agent without the model."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob), place.open(Unruled, "eve") as eve:
        changes = eve.changes("$violations")
        waiting = asyncio.ensure_future(
            eve.wait_for(lambda _state: eve.violations, DEADLINE_SECONDS) if what == "wait_for" else anext(changes)
        )
        break_order(ann, bob)
        found = await asyncio.wait_for(waiting, DEADLINE_SECONDS)
        assert eve.violations
        if what == "changes":
            assert (found.path, found.local) == ("$violations", False)
        await changes.aclose()


async def test_what_an_agent_knows_to_be_too_much_is_refused_at_the_edit(place: Place) -> None:
    """An edit that takes a field beyond its size as this replica sees it raises and changes nothing; one that leads
    back is made, whatever the size."""
    async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "maxItems@plan")
        state = ann.state
        state.tags, state.scores, state.draft = {"a", "b"}, {"a": 1, "b": 2}, Text("0123456789")
        state.spent += 100
        for key in "ab":
            state.steps[key].notes.append("x" * 20)
        before = ann.snapshot()
        too_much: list[Callable[[], object]] = [
            lambda: state.plan.append("e"),
            lambda: state.plan.insert(0, "e"),
            lambda: setattr(state, "plan", list("abcde")),
            lambda: state.tags.add("c"),
            lambda: state.tags.symmetric_difference_update({"a", "c", "d"}),
            lambda: setattr(state, "tags", {"x", "y", "z"}),
            lambda: state.scores.update(c=3),
            lambda: setattr(state, "scores", {"a": 1, "b": 2, "c": 3}),
            lambda: state.draft.append("x"),
            lambda: state.draft.replace("0", "xy"),
            lambda: state.draft.apply("x" * 11),
            lambda: setattr(state.steps["c"], "title", "x"),
            lambda: state.steps["c"].notes.append("x"),
            lambda: state.steps.update(c=Step()),
            lambda: setattr(state, "steps", {"a": Step(), "b": Step(), "c": Step()}),
            lambda: state.steps["a"].notes.insert(0, "x"),
            lambda: state.spent.__iadd__(1),
        ]
        for edit in too_much:
            with pytest.raises(InvalidValue, match="with this edit it ") as refused:
                edit()
            assert refused.value.rule.startswith("max")
        assert ann.snapshot() == before
        state.plan[0] = "z"
        state.plan.pop()
        state.tags.symmetric_difference_update({"a", "c"})
        state.draft.replace("01", "x")
        state.scores.update(a=5)
        assert ann.violations == ()


async def test_a_fault_of_the_store_loses_no_report(place: Place) -> None:
    """A violation whose record the store fails to write, or writes without an answer, is recorded once it answers."""
    for moment in ("before", "after"):
        async with place.open_all(Sprint, "ann", "bob") as (ann, bob):
            ann.state.start, ann.state.end = 1, 5
            await ann.flush()
            await sees(bob)
            break_order(ann, bob)
            await asyncio.gather(ann.flush(), bob.flush())
            assert ann.violations == ()
            place.store.break_down("append", when=moment)
            calls = place.store.calls["append"]
            await eventually(lambda before=calls: place.store.calls["append"] > before, "a failure")
            place.store.repair()
            await sees(ann, "ends_after_start@")
            await sees(bob, "ends_after_start@")
            ann.state.end = 9
            await sees(bob)


async def test_a_validator_that_fails_disturbs_nobody(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A validator that raises what validators do not raise is logged; its agent's edits and others' commits go on."""

    class Faulty(Sprint):
        @model_validator(mode="after")
        def divides(self) -> Self:
            assert 1 // self.start, "never zero"
            return self

    async with place.open(Faulty, "faulty") as faulty, place.open(Unruled, "eve") as eve:
        faulty.state.start = 0
        await faulty.flush()
        await eventually(lambda: "validator failed" in caplog.text, "it is logged")
        faulty.state.start = 1
        await faulty.flush()
        assert (await eve.commit("fine")).version == 1
        assert (await faulty.commit("fine")).version == 2


async def test_an_older_model_is_told_by_the_refusal(place: Place) -> None:
    """V11: an agent whose model lacks the field that is too large cannot see that, but the refusal of its commit names
    it."""

    class Older(BoardModel):
        note: str = ""

    async with place.open_all(Sprint, "ann", "bob") as (ann, bob), place.open(Older, "old") as old:
        fill_plan(ann, bob)
        await asyncio.gather(ann.flush(), bob.flush())
        await sees(ann, "maxItems@plan")
        with pytest.raises(Violated, match="plan: has 4 items") as refused:
            await old.commit("blocked")
        assert refused.value.violations == ann.violations


async def test_of_two_processes_the_slower_commit_meets_what_the_faster_wrote(tmp_path: Path) -> None:
    """A commit that loses the race to another process is checked again on the state that it meets, and leaves no trace
    when its patch does not fit there."""
    async with (
        BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as here,
        BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as there,
        open_board(here, "b", Sprint, agent="ann") as ann,
    ):
        ann.state.plan.append("a")
        await ann.flush()
        async with open_board(there, "b", Sprint, agent="bob") as bob:
            ann.state.plan.extend(["b", "c"])
            await ann.flush()
            with pytest.raises(InvalidValue, match="with this patch it has 4 items"):
                await bob.commit("late", patch={"plan": ["a", "x"]})
            assert (await bob.commit("fine", patch={"note": "x"})).version == 1
            assert bob.state.plan == ["a", "b", "c"]


OPS: dict[str, Callable[[Any, int], object]] = {
    "append": lambda state, number: state.plan.append(str(number)),
    "pop": lambda state, _number: state.plan.pop(),
    "write": lambda state, number: state.draft.insert(0, "ä" * number),
    "cut": lambda state, number: state.draft.delete(0, number),
    "tag": lambda state, number: state.tags.add(str(number)),
    "untag": lambda state, number: state.tags.discard(str(number)),
    "score": lambda state, number: state.scores.update({str(number): number}),
    "step": lambda state, number: setattr(state.steps[str(number)], "title", "x"),
    "note": lambda state, number: state.steps["1"].notes.append("n" * 4 * number),
    "drop": lambda state, number: state.steps.pop(str(number), None),
    "spend": lambda state, number: state.spent.__iadd__(30 * number - 60),
    "start": lambda state, number: setattr(state, "start", number),
    "end": lambda state, number: setattr(state, "end", number),
}


def expected(state: Sprint) -> list[str]:
    """What a state breaks, worked out from its plain values."""
    found = [
        ("", "ends_after_start", state.start > state.end),
        ("draft", "maxLength", len(state.draft) > 10),
        ("plan", "maxItems", len(state.plan) > 3),
        ("scores", "maxProperties", len(state.scores) > 2),
        ("spent", "maximum", state.spent > 100),
        ("steps", "maxProperties", len(state.steps) > 2),
        *((f"steps/{key}/notes", "maxLength", len(step.notes) > 20) for key, step in sorted(state.steps.items())),
        ("tags", "maxItems", len(state.tags) > 2),
    ]
    return [f"{rule}@{path}" for path, rule, broken in found if broken]


edits = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(OPS)), st.integers(0, 5)), max_size=25)


@settings(max_examples=60, deadline=None)
@given(st.lists(edits, min_size=1, max_size=2))
def test_replicas_agree_on_what_stands_and_commits_follow_it(rounds: list[list[tuple[int, str, int]]]) -> None:
    """After any concurrent edits all replicas see the same violations, those of their state, and a commit is made
    exactly when there are none."""

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            host = await stack.enter_async_context(BoardHost(MemoryStore()))
            names = ("ann", "bob", "eve")
            boards = [await stack.enter_async_context(open_board(host, "b", Sprint, agent=each)) for each in names]
            for operations in rounds:
                for who, name, number in operations:
                    with contextlib.suppress(InvalidValue, IndexError):
                        OPS[name](boards[who].state, number)
                for board in boards:
                    await board.flush()
                state = boards[0].snapshot()
                for board in boards:
                    assert board.snapshot() == state
                    await sees(board, *expected(state))
                    copy = Document(Sprint.board_layout())
                    copy.apply_or_raise([board._session.replica.document.encode()])
                    assert copy.standing.all(copy) == board.violations
                if expected(state):
                    with pytest.raises(Violated) as refused:
                        await boards[1].commit("try")
                    assert [each.key for each in refused.value.violations] == expected(state)
                else:
                    await boards[1].commit("try")

    asyncio.run(run())


async def test_kill_while_reports_are_under_way(server: ServerProcess, board_id: str) -> None:
    """D1: a server that is killed when a rule was just broken has the violation afterwards: what was recorded is
    durable, and what was not is reported again."""
    async with (
        connect(server.url, board_id, Sprint, agent="ann") as ann,
        connect(server.url, board_id, Sprint, agent="bob") as bob,
    ):
        break_order(ann, bob)
        await asyncio.gather(ann.flush(DEADLINE_SECONDS), bob.flush(DEADLINE_SECONDS))
        await server.kill9()
        await server.start()
        await sees(ann, "ends_after_start@")
        await server.kill9()
        await server.start()
        async with connect(server.url, board_id, Unruled, agent="eve") as eve:
            (seen,) = await sees(eve, "ends_after_start@")
            assert seen.agent in ("ann", "bob")
            with pytest.raises(Violated):
                await eve.commit("blocked", timeout=DEADLINE_SECONDS)
            ann.state.end = 9
            await sees(eve)
            assert (await eve.commit("fine", timeout=DEADLINE_SECONDS)).version == 1
