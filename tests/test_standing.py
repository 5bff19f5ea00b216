"""What stands in one document, and the rules of models, without a board around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Self

import annotated_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationInfo, create_model, model_validator

from crdt_board.bounds import Bounds, bounds_of
from crdt_board.document import Document
from crdt_board.errors import ModelError, Violated
from crdt_board.findings import FINDINGS_MAX, MESSAGE_CHARS_MAX, PATH_CHARS_MAX, Finding, Findings, stored
from crdt_board.fold import ChangeMark, Fold
from crdt_board.layout import VIOLATION_PREFIX
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.model_rules import broken_rules, has_rules, judge, validators_of
from crdt_board.operations import apply_patch, patched
from crdt_board.patching import build_patch, state_after
from crdt_board.policies import Candidates, Max, Strict
from crdt_board.readings import unchecked
from crdt_board.schema import BoardModel, Counter, Text, fields_of
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.validity import Report, Unfolded, record_report, violated
from crdt_board.violation import Violation
from support.agents import LiveAgent
from support.snapshots import snapshot


class Part(BoardModel):
    low: int = 0
    high: int = 0
    names: Annotated[list[str], Field(max_length=1)]

    @property
    def span(self) -> int:
        return self.high - self.low

    @model_validator(mode="after")
    def ordered(self) -> Self:
        if self.span < 0:
            raise ValueError("high is below low")
        return self


class Loose(BoardModel):
    names: list[str]


class Whole(BoardModel):
    title: str = ""
    first: int = 0
    second: int = 0
    parts: Annotated[dict[str, Part], Field(max_length=2)]

    @model_validator(mode="after")
    def budget(self, info: ValidationInfo) -> Self:
        assert info.mode in ("python", "json")
        if sum(each for each in (self.first, self.second)) > 10:
            raise ValueError("the two are more than 10 together")
        return self

    @model_validator(mode="after")
    def titled(self) -> Self:
        if self.title == "bad":
            raise AssertionError("a bad title")
        return self


def document_of(model: type[BoardModel], **state: Any) -> Document:
    """A document with some scalars of the board set."""
    document = Document(model.board_layout())
    with document.local_transaction():
        document.state_map.update(state)
    return document


def report(*broken: Finding) -> Report:
    return Report(agent="ann", findings=Findings(seq=0, broken=broken))


BOUNDS: list[tuple[Any, Bounds]] = [
    (Annotated[Text, Field(max_length=8)], Bounds("text", None, 8)),
    (Annotated[list[str], Field(min_length=1, max_length=8)], Bounds("list", 1, 8)),
    (Annotated[set[str], annotated_types.Len(2, 5)], Bounds("set", 2, 5)),
    (Annotated[dict[str, int], Field(max_length=3), Field(max_length=2)], Bounds("dict", None, 2)),
    (Annotated[dict[str, Part], Field(max_length=2)], Bounds("records", None, 2)),
    (Annotated[Counter, Field(ge=0, lt=10)], Bounds("counter", 0, 9)),
    (Annotated[Counter, annotated_types.Interval(gt=1, le=4)], Bounds("counter", 2, 4)),
]


@pytest.mark.parametrize(("annotation", "bounds"), BOUNDS, ids=lambda each: str(each)[:60])
def test_bounds_are_part_of_the_layout(annotation: Any, bounds: Bounds) -> None:
    """What is written beside the type of a container can be read back from the field's JSON Schema alone."""
    model = create_model("Bounded", __base__=BoardModel, thing=(annotation, ...))
    assert fields_of(model)["thing"].bounds == bounds
    assert bounds_of(model.board_layout().by_name["thing"]) == bounds
    unbounded = create_model("Unbounded", __base__=BoardModel, thing=(annotation.__origin__, ...))
    assert bounds_of(unbounded.board_layout().by_name["thing"]) is None
    assert model.board_layout().fingerprint != unbounded.board_layout().fingerprint


def test_a_change_towards_the_bounds_is_never_refused() -> None:
    """Of changes that end beyond a bound only those are refused that lead away from it."""
    bounds = Bounds("list", 2, 4)
    refused = {(size, change) for size in range(8) for change in range(-3, 4) if bounds.change_problem(size, change)}
    assert refused == {
        (size, change)
        for size in range(8)
        for change in range(-3, 4)
        if (change > 0 and size + change > 4) or (change < 0 and size + change < 2)
    }


def test_a_field_that_must_hold_something_is_missing_it_at_first() -> None:
    """A container starts empty, so that a least size stands as a violation until it is reached."""
    model = create_model("Filled", __base__=BoardModel, plan=(Annotated[list[str], Field(min_length=1)], ...))
    document = Document(model.board_layout())
    (seen,) = document.standing.all(document)
    assert (seen.key, seen.message) == ("minItems@plan", "has 0 items, at least 1 are needed")
    with document.local_transaction():
        document.array("plan").append("a")
    assert document.standing.all(document) == ()


def test_only_what_was_touched_is_looked_at_again() -> None:
    """Sizes of records are kept until one of them is touched; then that one is looked at."""
    document = Document(Whole.board_layout())
    with document.local_transaction():
        document.put_record("parts/a", {"names": ["x", "y"]})
        document.put_record("parts/b", {"names": ["x", "y", "z"]})
    assert [each.key for each in document.standing.all(document)] == [
        "maxItems@parts/a/names",
        "maxItems@parts/b/names",
    ]
    looked: list[str] = []
    find = document.find

    def spy(path: str, kind: Any) -> Any:
        looked.append(path)
        return find(path, kind)

    document.find = spy  # type: ignore[method-assign]
    with document.local_transaction():
        document.state_map["title"] = "x"
    document.standing.all(document)
    assert looked == []
    with document.local_transaction():
        document.drop_key("parts", "a")
    looked.clear()
    assert [each.key for each in document.standing.all(document)] == ["maxItems@parts/b/names"]
    assert looked == ["parts", "parts"]


def test_what_is_no_violation_is_passed_over() -> None:
    """Content under the keys of violations that was not written by a board's writer hides none that was."""
    document = Document(Whole.board_layout())
    good = Violation(path="", rule="budget", message="too much", fields=("first",), agent="ann", seq=3)
    wrong: dict[str, Any] = {"a@": 5, "b@": {"path": "x"}, "c@": stored(good), "d@": {**stored(good), "extra": 1}}
    with document.local_transaction():
        for key, value in {**wrong, good.key: stored(good)}.items():
            document.board_map[VIOLATION_PREFIX + key] = value
    assert document.standing.all(document) == (good,)


def test_every_rule_is_judged_by_itself() -> None:
    """A rule that is broken hides no other one, on the board or in a record; each names the fields that it reads."""
    state: dict[str, Any] = {"title": "bad", "first": 6, "second": 6, "parts": {"a/b": {"low": 3}, "c": {}}}
    found = broken_rules(Whole, state)
    assert list(found) == ["budget@", "titled@", "ordered@parts/a~1b"]
    assert [(each.message, each.fields) for each in found.values()] == [
        ("the two are more than 10 together", ("first", "second")),
        ("a bad title", ("title",)),
        ("high is below low", ("low", "high")),
    ]
    assert [rule.name for rule in validators_of(Whole)] == ["budget", "titled"]
    assert has_rules(Whole)
    assert not has_rules(create_model("Plain", __base__=BoardModel, a=(int, 0)))


def test_a_state_that_cannot_be_read_has_no_findings() -> None:
    """Where a value does not fit or is missing, rules over several fields are neither kept nor broken."""
    model = create_model("Needed", __base__=Whole, needed=(int, ...))
    assert judge(document_of(model, first=20), model, seq=0) is None
    assert judge(document_of(model, first=20, needed="x"), model, seq=0) is None
    findings = judge(document_of(model, first=20, needed=1), model, seq=0)
    assert findings is not None
    assert [each.rule for each in findings.broken] == ["budget"]


def test_what_a_recorded_violation_was_about_may_be_gone() -> None:
    """A violation in a record that was deleted is kept by whoever knows the rule; an unknown rule is left alone."""
    document = Document(Whole.board_layout())
    gone = Violation(path="parts/a", rule="ordered", message="x", fields=("low", "high"), agent="ann", seq=1)
    with document.local_transaction():
        for each in (
            gone,
            replace(gone, rule="unknown"),
            replace(gone, path="others/a"),
            replace(gone, path="title/a"),
        ):
            document.board_map[VIOLATION_PREFIX + each.key] = stored(each)
    findings = judge(document, Whole, seq=5)
    assert findings is not None
    assert (findings.kept, findings.broken) == (("ordered@parts/a",), ())


def test_only_so_many_violations_are_recorded() -> None:
    """A board keeps a bounded number of recorded violations, and a report names a bounded number of rules."""
    document = Document(Whole.board_layout())
    limits = replace(DEFAULT_LIMITS, violations_max=3)
    findings = tuple(Finding(path=f"parts/{number}", rule="ordered", message="x") for number in range(5))
    record_report(document, Fold("e"), report(*findings), limits=limits)
    assert len(document.standing.recorded(document)) == 3
    assert len(document.standing.all(document)) == 3
    many = {"parts": {str(number): {"low": 1} for number in range(FINDINGS_MAX + 5)}}
    with document.local_transaction():
        for key, wire in many["parts"].items():
            document.put_record(f"parts/{key}", wire)
    findings = judge(document, Whole, seq=0)
    assert findings is not None
    assert len(findings.broken) == FINDINGS_MAX
    assert not {f"{each.rule}@{each.path}" for each in findings.broken} & document.standing.recorded(document).keys()


def test_a_refusal_carries_what_stands() -> None:
    """The error names the first violation and how many there are, and gives all of them back, in order."""
    standing = [
        Violation(path="plan", rule="maxItems", message="has 4 items, at most 3 are allowed", fields=("plan",)),
        Violation(path="", rule="budget", message="too much", fields=("a", "b"), agent="ann", seq=7),
    ]
    error = violated(Fold("e"), standing)
    assert isinstance(error, Violated)
    assert error.violations == tuple(reversed(standing))
    assert "too much (budget), and 1 more" in str(error)
    assert violated(Fold("e"), []) is None


def test_validators_of_whole_input_are_refused() -> None:
    """A model validator that sees input before it is checked fails at class definition."""
    with pytest.raises(ModelError, match='write mode="after"'):

        class Before(BoardModel):
            @model_validator(mode="before")
            @classmethod
            def check(cls, value: Any) -> Any:
                return value

    with pytest.raises(ModelError, match='write mode="after"'):

        class Wrap(BoardModel):
            @model_validator(mode="wrap")
            @classmethod
            def check(cls, value: Any, handler: Any) -> Any:
                return handler(value)


class Everything(BoardModel):
    title: str = ""
    draft: Text
    plan: list[str] = []
    tags: set[str] = set()
    scores: dict[str, int] = {}
    parts: dict[str, Part] = {}
    spent: Counter
    best: Annotated[int, Max()] = 3
    verdict: Annotated[str, Candidates()] = "open"
    status: Annotated[str, Strict()] = "open"


VALUES: list[dict[str, Any]] = [
    {"title": "x", "draft": Text("abc"), "plan": ["b", "a"], "tags": {"y"}, "scores": {"a": 2, "b": 1}},
    {
        "parts": {"a": Part(high=1), "c": Part(names=["n"])},
        "spent": Counter(9),
        "best": 2,
        "verdict": "no",
        "status": "x",
    },
    {"best": 7, "title": "", "plan": []},
]


@pytest.mark.parametrize("patch", VALUES, ids=lambda each: next(iter(each)))
@pytest.mark.parametrize("kind", ["mapping", "copy", "outdated copy"])
def test_the_state_after_a_patch_is_that_of_its_operations(patch: dict[str, Any], kind: str) -> None:
    """The state that a patch leads to reads as the document does once its operations were applied, also when others
    have changed the same fields since the snapshot that it started from."""
    agent = LiveAgent(Everything)
    state, document = agent.state, agent.document
    state.title, state.best, state.verdict = "old", 5, "yes"
    state.draft.append("old text")
    state.plan.extend(["a", "b"])
    state.tags.add("z")
    state.scores["a"] = 1
    state.parts["a"].high = 4
    state.spent += 2
    handed = patch if kind == "mapping" else snapshot(document, Everything).model_copy(update=patch)
    if kind == "outdated copy":
        state.plan.append("c")
        state.spent += 1
        state.draft.insert(0, "new ")
    operations, wire = build_patch(document, Everything, handed)
    base = handed._board_base.state if isinstance(handed, BoardModel) else None
    after = state_after(document, operations, wire, base)
    assert unchecked(Everything, after) == unchecked(Everything, state_after(document, operations))
    assert unchecked(Everything, after) == unchecked(Everything, patched(document, operations).wire_state())


SIZED = create_model(
    "Sized",
    __base__=BoardModel,
    draft=(Annotated[Text, Field(min_length=1, max_length=4)], ...),
    plan=(Annotated[list[int], Field(min_length=1, max_length=3)], ...),
    tags=(Annotated[set[int], Field(max_length=3)], ...),
    scores=(Annotated[dict[str, int], Field(min_length=1, max_length=2)], ...),
    spent=(Annotated[Counter, Field(ge=0, le=5)], ...),
    parts=(Annotated[dict[str, Part], Field(max_length=2)], ...),
)
UNSIZED = create_model(
    "Unsized",
    __base__=BoardModel,
    draft=(Text, ...),
    plan=(list[int], ...),
    tags=(set[int], ...),
    scores=(dict[str, int], ...),
    spent=(Counter, ...),
    parts=(dict[str, Loose], ...),
)
numbers = st.integers(0, 4)
contents = st.fixed_dictionaries(
    {},
    optional={
        "draft": st.text("aä€", max_size=6),
        "plan": st.lists(numbers, max_size=5),
        "tags": st.sets(numbers, max_size=5),
        "scores": st.dictionaries(st.sampled_from("abc"), numbers),
        "spent": st.integers(-2, 8),
        "parts": st.dictionaries(st.sampled_from("abc"), st.just({"names": ["x", "y"]})),
    },
)


fitting = st.fixed_dictionaries(
    {
        "draft": st.text("aä€", min_size=1, max_size=4),
        "plan": st.lists(numbers, min_size=1, max_size=3),
        "tags": st.sets(numbers, max_size=3),
        "scores": st.dictionaries(st.sampled_from("abc"), numbers, min_size=1, max_size=2),
        "spent": st.integers(0, 5),
    }
)


@given(fitting, contents)
def test_a_patch_that_surely_fits_breaks_no_size(before: dict[str, Any], patch: dict[str, Any]) -> None:
    """Operations of which it is said without applying them that they leave all sizes within their bounds do so."""
    document, unbounded = (Document(model.board_layout()) for model in (SIZED, UNSIZED))
    operations, _ = build_patch(unbounded, UNSIZED, before)
    unbounded.capture(lambda: apply_patch(unbounded, operations))
    following, _ = build_patch(unbounded, UNSIZED, patch)
    document.apply_or_raise([unbounded.encode()])
    assert document.standing.sizes(document) == []
    if document.standing.surely_allows(document, following):
        copy = patched(document, following)
        assert copy.standing.sizes(copy) == []


def test_a_finding_can_always_be_recorded() -> None:
    """Whatever a validator says, and wherever it stands, fits in a report and can be stored; one whose code names no
    field may look at any."""

    class Odd(BoardModel):
        a: int = 0

        @model_validator(mode="after")
        def odd(self) -> Self:
            raise ValueError("x" * 1_000)

    class Holder(BoardModel):
        odds: dict[str, Odd] = {}

    (finding,) = broken_rules(Holder, {"odds": {"k/" * 2_000: {}}}).values()
    assert (finding.fields, len(finding.message), len(finding.path)) == ((), MESSAGE_CHARS_MAX, PATH_CHARS_MAX)
    document = Document(Holder.board_layout())
    record_report(document, Fold("e"), report(finding), limits=DEFAULT_LIMITS)
    (seen,) = document.standing.all(document)
    assert seen == finding.violation("ann", 0)
    assert seen.concerns({"odds"})
    assert not seen.concerns({"other"})
    findings = judge(document, Holder, seq=1)
    assert findings is not None
    assert findings.kept == (seen.key,)
    assert replace(seen, path="").concerns({"anything"})


def test_a_finding_holds_up_to_the_entries_that_it_has_seen() -> None:
    """A violation is recorded as of now when only its reporter has changed what it is about since it looked, and as of
    then when others have; with that, who finds the rule kept can tell a repair from another model."""
    finding = Finding(path="", rule="budget", message="x", fields=("first",))
    for origins, seq in ((["ann", "ann"], 9), (["bob", "ann"], 3), (["ann", "bob"], 3)):
        document, fold = document_of(Whole), Fold("e", seq=5)
        fold.marks["first"] = ChangeMark(4, origins[0], 0).moved(5, origins[1])
        fold.marks["second"] = ChangeMark(5, "eve", 0)
        told = Report(agent="ann", findings=Findings(seq=3, broken=(finding,)), origin="ann")
        before = Unfolded(4, frozenset({"second"}), frozenset({"second"}))
        record_report(document, fold, told, before=before, limits=DEFAULT_LIMITS)
        assert document.standing.all(document) == (finding.violation("ann", seq),)
        kept = Report(agent="eve", findings=Findings(seq=9, kept=("budget@",)), origin="eve")
        update = record_report(document, replace(fold, seq=9), kept, limits=DEFAULT_LIMITS)
        assert (update == EMPTY_UPDATE) == (seq == 9)
