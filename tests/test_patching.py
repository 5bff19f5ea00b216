"""Patches of a commit, from what a user hands over to what they do to the writer's document."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter

from crdt_board.cell_operations import Committer
from crdt_board.checkpoints import (
    AddElement,
    Decide,
    DropKey,
    Increment,
    PatchOp,
    Propose,
    SetValue,
    SpliceRange,
)
from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.live import snapshot_from_wire
from crdt_board.patching import apply_patch, build_patch
from crdt_board.policies import Candidates, Max, Min, Strict
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.updates import EMPTY_UPDATE
from support.agents import LiveAgent, exchange
from support.snapshots import snapshot


class Job(BoardModel):
    status: str = "new"
    budget: Decimal | None = None
    owner: str
    tags: set[str]
    scores: dict[str, int]
    plan: list[str]
    draft: Text
    notes: Text
    tokens: Counter


OPERATIONS: TypeAdapter[list[PatchOp]] = TypeAdapter(list[PatchOp])


def commit(agent: LiveAgent, writer: Document, patch: Mapping[str, object] | BoardModel) -> list[PatchOp]:
    """Build a patch at an agent, send it as JSON, apply it at the writer; return the operations."""
    operations, _ = build_patch(agent.document, Job, patch)
    received = OPERATIONS.validate_json(OPERATIONS.dump_json(operations))
    writer.capture(lambda: apply_patch(writer, received))
    return operations


def writer_after(*agents: LiveAgent) -> Document:
    """A writer's document that holds everything the agents have, as they do then."""
    exchange(*agents)
    writer = Document(Job.board_layout())
    writer.apply_or_raise([agents[0].document.encode()])
    return writer


def started() -> tuple[LiveAgent, LiveAgent, Document]:
    one, two = LiveAgent(Job), LiveAgent(Job)
    one.state.owner = "ann"
    one.state.tags = {"a", "b"}
    one.state.scores = {"x": 1, "y": 2}
    one.state.plan = ["read", "write", "check"]
    one.state.draft = "The quick brown fox. Größe: 5 €."
    one.state.tokens += 10
    return one, two, writer_after(one, two)


def test_a_patch_of_everything_unchanged_is_empty() -> None:
    """M1: fields that have their value already produce no operation, defaults included."""
    one, _, writer = started()
    assert commit(one, writer, one.snapshot()) == []
    assert commit(one, writer, one.snapshot().model_dump()) == []
    assert commit(one, writer, {"status": "new", "budget": None}) == []


def test_a_patch_has_one_operation_for_each_difference() -> None:
    """Each kind of field is changed by its own operations, and only where it differs."""
    one, _, writer = started()
    operations = commit(
        one,
        writer,
        {
            "status": "done",
            "budget": "1.50",
            "tags": {"b", "c"},
            "scores": {"x": 1, "y": 5, "z": 7},
            "plan": ["read", "think", "check"],
            "tokens": 25,
        },
    )
    assert [operation for operation in operations if not isinstance(operation, SpliceRange)] == [
        SetValue(field="status", value="done"),
        SetValue(field="budget", value="1.50"),
        DropKey(field="tags", key='"a"'),
        AddElement(field="tags", value="c"),
        SetValue(field="scores", key="y", value=5),
        SetValue(field="scores", key="z", value=7),
        Increment(field="tokens", amount=15),
    ]
    assert [operation.items for operation in operations if isinstance(operation, SpliceRange)] == [("think",)]
    assert writer.wire_state() == {
        "status": "done",
        "budget": "1.50",
        "owner": "ann",
        "tags": ["b", "c"],
        "scores": {"x": 1, "y": 5, "z": 7},
        "plan": ["read", "think", "check"],
        "draft": "The quick brown fox. Größe: 5 €.",
        "tokens": 25,
    }


def test_a_required_scalar_is_written_also_when_it_is_none() -> None:
    """A field without a default has no value that it could be equal to before it was written."""

    class Bare(BoardModel):
        owner: str | None

    agent = LiveAgent(Bare)
    operations, _ = build_patch(agent.document, Bare, {"owner": None})
    assert operations == [SetValue(field="owner", value=None)]


def test_two_whole_documents_land_both() -> None:
    """M1: two agents submit whole documents that differ in disjoint fields: both land."""
    one, two, writer = started()
    first = one.snapshot().model_copy(update={"status": "done", "tokens": 12, "plan": ["read", "write", "check", "1"]})
    second = two.snapshot().model_copy(
        update={"budget": Decimal("2.0"), "tags": {"a", "b", "2"}, "tokens": 15, "plan": ["2", "read", "write"]}
    )
    commit(one, writer, first)
    commit(two, writer, second)
    state = writer.wire_state()
    assert (state["status"], state["budget"]) == ("done", "2.0")
    assert state["tags"] == ["2", "a", "b"]
    assert state["plan"] == ["2", "read", "write", "1"]
    assert state["tokens"] == 17


def test_the_same_value_from_two_agents_is_one_value() -> None:
    """M2: two agents set one field to the same value: no error, one value."""
    one, two, writer = started()
    for agent in (one, two):
        commit(agent, writer, {"status": "done", "tags": {"a", "b", "c"}})
    assert writer.wire_state()["status"] == "done"
    assert writer.wire_state()["tags"] == ["a", "b", "c"]


def test_an_old_snapshot_keeps_what_others_changed_since() -> None:
    """A changed copy stands for its difference to its snapshot, moved onto what the replica holds now."""
    one, two, _ = started()
    old = one.snapshot()
    two.state.draft.replace("quick", "slow")
    two.state.plan.insert(0, "plan")
    two.state.scores["n"] = 1
    two.state.tags.discard("a")
    two.state.tokens += 5
    two.state.status = "busy"
    writer = writer_after(two, one)
    changed = old.model_copy(
        update={
            "draft": str(old.draft).replace("fox", "cat"),
            "plan": [*old.plan, "ship"],
            "scores": {"y": 2, "x": 9},
            "tags": {*old.tags, "z"},
            "tokens": 11,
        }
    )
    commit(one, writer, changed)
    assert writer.wire_state() == {
        "status": "busy",
        "owner": "ann",
        "tags": ["b", "z"],
        "scores": {"n": 1, "x": 9, "y": 2},
        "plan": ["plan", "read", "write", "check", "ship"],
        "draft": "The slow brown cat. Größe: 5 €.",
        "tokens": 16,
    }


def test_an_instance_without_a_snapshot_stands_for_what_was_set() -> None:
    """Fields that were not given to the constructor are left alone."""
    one, _, writer = started()
    operations = commit(one, writer, Job(owner="bob", scores={"x": 1, "y": 2}))
    assert operations == [SetValue(field="owner", value="bob")]


TEXTS = st.text(alphabet="ab é日😀", max_size=12)
LISTS = st.lists(st.sampled_from("abc"), max_size=6)


@given(TEXTS, TEXTS, LISTS, LISTS)
def test_texts_and_lists_arrive_as_wanted(old: str, new: str, items: list[str], wanted: list[str]) -> None:
    """Without others' edits the writer ends with exactly what the patch says, whatever the characters."""
    agent = LiveAgent(Job)
    agent.state.draft = old
    agent.state.plan = items
    writer = writer_after(agent)
    commit(agent, writer, {"draft": new, "plan": wanted})
    state = writer.wire_state()
    assert (state.get("draft", ""), state.get("plan", [])) == (new, wanted)
    index = writer.text_index("draft")
    assert (index.chars, index.bytes) == (len(new), len(new.encode()))


@given(TEXTS, st.integers(0, 100), st.integers(0, 100))
def test_an_insertion_follows_its_neighbour(text: str, mine: int, theirs: int) -> None:
    """What is inserted comes where it was meant, also when the writer has another edit that the agent has not."""
    agent = LiveAgent(Job)
    agent.state.draft = text
    writer = writer_after(agent)
    other = LiveAgent(Job)
    other.replica.receive([writer.encode()], agent=None, seq=None)
    here, there = mine % (len(text) + 1), theirs % (len(text) + 1)
    other.state.draft.insert(there, "<日>")
    writer.apply_or_raise([other.document.encode()])
    commit(agent, writer, {"draft": text[:here] + "[é]" + text[here:]})
    result = str(writer.text("draft"))
    assert result.replace("<日>", "") == text[:here] + "[é]" + text[here:]
    assert result.replace("[é]", "") == text[:there] + "<日>" + text[there:]


@given(st.lists(st.tuples(st.sampled_from("12"), TEXTS, LISTS, st.sets(st.sampled_from("abc"))), max_size=6))
def test_agents_and_writer_converge(rounds: list[tuple[str, str, list[str], set[str]]]) -> None:
    """Whatever is committed in whatever order, replicas that have everything are equal to the writer."""
    agents = {"1": LiveAgent(Job), "2": LiveAgent(Job)}
    writer = writer_after(*agents.values())
    for name, text, items, tags in rounds:
        commit(agents[name], writer, {"owner": name, "draft": text, "plan": items, "tags": tags})
        agents[name].replica.receive([writer.encode()], agent=None, seq=None)
    for agent in agents.values():
        agent.replica.receive([writer.encode()], agent=None, seq=None)
        assert agent.document.wire_state() == writer.wire_state()
        assert agent.document.checksum() == writer.checksum()


@pytest.mark.parametrize(
    ("patch", "path", "reason"),
    [
        ({"statsu": "x"}, "statsu", "did you mean 'status'"),
        ({"status": 5}, "status", "string"),
        ({"plan": ["a", 5]}, "plan/1", "string"),
        ({"scores": {"a": "x"}}, "scores/a", "integer"),
        ({"tokens": 2**60}, "tokens", "2\\^53"),
        ({"draft": "\ud800"}, "draft", "surrogate|string"),
        ({5: 1}, "5", "no such field"),
    ],
)
def test_bad_patches_are_refused_with_the_path(patch: Any, path: str, reason: str) -> None:
    """A patch that does not fit the model raises InvalidValue at the call."""
    with pytest.raises(InvalidValue, match=reason) as caught:
        build_patch(LiveAgent(Job).document, Job, patch)
    assert caught.value.path == path


def test_a_patch_of_another_model_is_refused() -> None:
    """An instance of another model is no patch for this one."""

    class Other(BoardModel):
        status: str = ""

    with pytest.raises(InvalidValue, match="Other"):
        build_patch(LiveAgent(Job).document, Job, Other())


def test_the_wire_form_of_a_patch_does_not_depend_on_the_board() -> None:
    """The fingerprint of a request is made of what the caller gave, the same before and after it was applied."""
    one, _, writer = started()
    patch = {"tags": {"z", "a"}, "tokens": 20, "budget": Decimal("1.0"), "draft": "x"}
    expected: dict[str, JsonValue] = {"tags": ["a", "z"], "tokens": 20, "budget": "1.0", "draft": "x"}
    assert build_patch(one.document, Job, patch)[1] == expected
    commit(one, writer, patch)
    one.replica.receive([writer.encode()], agent=None, seq=None)
    assert build_patch(one.document, Job, patch) == ([], expected)


class Poll(BoardModel):
    best: Annotated[int, Max()] = 0
    least: Annotated[Decimal, Min()]
    verdict: Annotated[str, Candidates()] = "none"
    status: Annotated[str | None, Strict()] = "open"


def polled(*names: str) -> tuple[list[LiveAgent], Document]:
    """Agents that each proposed their name as the verdict, and a writer that knows of it."""
    agents = [LiveAgent(Poll, name=name) for name in names]
    for agent in agents:
        agent.state.verdict = agent.name
    exchange(*agents)
    writer = Document(Poll.board_layout())
    writer.apply_or_raise([agents[0].document.encode()])
    return agents, writer


def poll(agent: LiveAgent, writer: Document, patch: Mapping[str, object] | BoardModel) -> list[PatchOp]:
    operations, _ = build_patch(agent.document, Poll, patch)
    received = OPERATIONS.validate_json(OPERATIONS.dump_json(operations))
    writer.capture(lambda: apply_patch(writer, received, Committer(agent.name, 5)))
    return operations


def verdicts(writer: Document) -> list[tuple[JsonValue, JsonValue]]:
    listed: Any = writer.wire_state().get("verdict", [])
    return [(each["value"], each["agent"]) for each in listed]


def test_extremes_are_patched_when_they_change_the_reading() -> None:
    """A greater value for Max and a smaller one for Min are operations; anything else is none."""
    (ann,), writer = polled("ann")
    assert poll(ann, writer, {"best": 0, "least": "9.5"}) == [SetValue(field="least", value="9.5")]
    ann.replica.receive([writer.encode()], agent=None, seq=None)
    assert poll(ann, writer, {"best": -1, "least": Decimal("9.50")}) == []
    assert poll(ann, writer, {"best": 3, "least": 8}) == [
        SetValue(field="best", value=3),
        SetValue(field="least", value="8"),
    ]
    apply_patch(writer, [SetValue(field="best", value=2), SetValue(field="least", value="8.5")])
    assert (writer.wire_state()["best"], writer.wire_state()["least"]) == (3, "8")


def test_a_patch_replaces_the_candidates_that_its_agent_had_seen() -> None:
    """The others stay, also those that earlier commits made which the agent did not know of."""
    (ann, bob), writer = polled("ann", "bob")
    assert poll(ann, writer, {"verdict": ann.state.verdict.value}) == []
    poll(ann, writer, {"verdict": "ship"})
    assert verdicts(writer) == [("ship", "ann")]
    poll(bob, writer, {"verdict": "hold"})
    assert sorted(verdicts(writer)) == [("hold", "bob"), ("ship", "ann")]
    ann.replica.receive([writer.encode()], agent=None, seq=None)
    poll(bob, writer, {"verdict": "wait"})
    poll(ann, writer, {"verdict": "go"})
    assert sorted(verdicts(writer)) == [("go", "ann"), ("wait", "bob")]
    assert len(writer.map("verdict")) == 2


def test_a_copy_of_a_snapshot_replaces_the_candidates_that_were_in_it() -> None:
    """What came after the snapshot that was copied is not replaced, although the replica holds it by now."""
    (ann, bob), writer = polled("ann", "bob")
    old = snapshot_from_wire({**ann.document.wire_state(), "least": "1"}, Poll)
    poll(bob, writer, {"verdict": "later"})
    ann.replica.receive([writer.encode()], agent=None, seq=None)
    poll(ann, writer, old.model_copy(update={"verdict": "mine"}))
    assert sorted(verdicts(writer)) == [("later", "bob"), ("mine", "ann")]


def test_strict_fields_are_decided() -> None:
    """A strict field that differs is a `Decide`, which only the writer applies, in the root map of the board."""
    (ann,), writer = polled("ann")
    assert poll(ann, writer, {"status": "open"}) == []
    assert poll(ann, writer, {"status": None}) == [Decide(field="status", value=None)]
    assert writer.board_map["field:status"] is None
    assert writer.wire_state()["status"] is None


@pytest.mark.parametrize(
    "bad",
    [
        SetValue(field="status", value="x"),
        SetValue(field="verdict", value="x"),
        SetValue(field="best", value="x"),
        SetValue(field="best", value=1.5),
        SetValue(field="best", key="k", value=1),
        SetValue(field="least", value=5),
        Decide(field="best", value=1),
        Decide(field="status", value=float("nan")),
        Propose(field="status", value="x"),
        Propose(field="verdict", value="\ud800"),
        Increment(field="best", amount=1),
        DropKey(field="verdict", key="1"),
    ],
)
def test_operations_that_do_not_fit_a_policy_change_nothing(bad: PatchOp) -> None:
    """Each policy takes its own operation only, with a value that it can hold."""
    _, writer = polled("ann")

    def change() -> None:
        with pytest.raises(InvalidValue):
            apply_patch(writer, [SetValue(field="best", value=5), bad])

    assert writer.capture(change) == EMPTY_UPDATE


@pytest.mark.parametrize("bad", [Decide(field="status", value="x"), Propose(field="status", value="x")])
def test_operations_of_policies_do_not_fit_other_fields(bad: PatchOp) -> None:
    """Neither sets a plain scalar."""
    _, _, writer = started()
    with pytest.raises(InvalidValue, match="does not fit"):
        apply_patch(writer, [bad])


class Step(BoardModel):
    log: Text


class Part(BoardModel):
    owner: str = ""
    size: int = 0
    tags: set[str]
    plan: list[str]
    notes: Text
    hits: Counter
    steps: dict[str, Step]


class Whole(BoardModel):
    parts: dict[str, Part]


PART = Part(owner="ann", tags={"a"}, plan=["x", "z"], notes=Text("Größe 5"), hits=Counter(1), steps={"s": Step()})


def with_parts(**parts: Part) -> tuple[LiveAgent, LiveAgent, Document]:
    one, two = LiveAgent(Whole), LiveAgent(Whole)
    one.state.parts = parts
    exchange(one, two)
    writer = Document(Whole.board_layout())
    writer.apply_or_raise([one.document.encode()])
    return one, two, writer


def commit_parts(agent: LiveAgent, writer: Document, parts: Mapping[str, object]) -> list[PatchOp]:
    operations, _ = build_patch(agent.document, Whole, {"parts": parts})
    received = OPERATIONS.validate_json(OPERATIONS.dump_json(operations))
    writer.capture(lambda: apply_patch(writer, received))
    return operations


def parts_of(writer: Document) -> dict[str, Part]:
    return snapshot(writer, Whole).parts


def test_records_that_did_not_change_produce_no_operation() -> None:
    """M1: a patch with the records that are there already is empty, whether they were assigned or opened."""
    one, _, writer = with_parts(a=PART)
    one.state.parts["b"].size = 3
    writer.apply_or_raise([one.document.encode()])
    assert commit_parts(one, writer, {"a": PART, "b": Part(size=3)}) == []
    assert build_patch(one.document, Whole, one.snapshot()) == ([], {})


def test_a_patch_goes_into_records() -> None:
    """New records are assigned, missing ones dropped, and of others only what differs is written."""
    one, _, writer = with_parts(**{"a/": PART, "b": PART})
    changed = PART.model_copy(update={
        "size": 2, "tags": {"b"}, "plan": ["x", "y", "z"], "notes": Text("Größe 25"), "hits": Counter(5),
        "steps": {"s": Step(log=Text("l")), "t": Step()},
    })  # fmt: skip
    operations = commit_parts(one, writer, {"a/": changed, "c": Part(size=1)})
    assert [operation for operation in operations if not isinstance(operation, SpliceRange)] == [
        DropKey(field="parts", key="b"),
        SetValue(field="parts/a~1/size", value=2),
        DropKey(field="parts/a~1/tags", key='"a"'),
        AddElement(field="parts/a~1/tags", value="b"),
        Increment(field="parts/a~1/hits", amount=4),
        SetValue(field="parts/a~1/steps", key="t", value={"log": ""}),
        SetValue(
            field="parts",
            key="c",
            value={"owner": "", "size": 1, "tags": [], "plan": [], "notes": "", "hits": 0, "steps": {}},
        ),
    ]
    assert parts_of(writer) == {"a/": changed, "c": Part(size=1)}


def test_two_writes_of_all_records_both_land() -> None:
    """M1: two agents submit the whole dict, each with another field of one record changed: both changes are there."""
    one, two, writer = with_parts(a=PART)
    commit_parts(one, writer, {"a": PART.model_copy(update={"size": 9, "notes": Text("Größe: 5")})})
    commit_parts(two, writer, {"a": PART.model_copy(update={"owner": "bob", "notes": Text("Größe 5 m")})})
    assert parts_of(writer) == {"a": PART.model_copy(update={"size": 9, "owner": "bob", "notes": Text("Größe: 5 m")})}


def test_a_changed_copy_of_a_snapshot_leaves_others_records_alone() -> None:
    """A copy stands for its difference: records and fields that others changed meanwhile stay."""
    one, two, writer = with_parts(a=PART, b=PART)
    taken = one.snapshot()
    two.state.parts["a"].owner = "bob"
    two.state.parts["a"].hits += 5
    two.state.parts["new"].size = 1
    del two.state.parts["b"]
    exchange(one, two)
    writer.apply_or_raise([two.document.encode()])
    changed = {key: part.model_copy(update={"size": 7}) for key, part in taken.parts.items()}
    operations, _ = build_patch(one.document, Whole, taken.model_copy(update={"parts": changed}))
    assert operations == [SetValue(field="parts/a/size", value=7)]
    writer.capture(lambda: apply_patch(writer, operations))
    assert parts_of(writer) == {
        "a": PART.model_copy(update={"size": 7, "owner": "bob", "hits": 6}),
        "new": Part(size=1),
    }


@pytest.mark.parametrize("again", [None, Part(owner="eva", notes=Text("other"), plan=["other"])])
def test_a_patch_of_a_record_that_was_deleted_does_nothing(again: Part | None) -> None:
    """Operations inside a record that others deleted or replaced meanwhile do not raise; deletions win."""
    one, two, writer = with_parts(a=PART)
    if again is None:
        del two.state.parts["a"]
    else:
        two.state.parts["a"] = again
    writer.apply_or_raise([two.document.encode()])
    commit_parts(
        one,
        writer,
        {"a": PART.model_copy(update={"notes": Text("Größe 6"), "plan": ["x"], "steps": {"s": Step(log=Text("l"))}})},
    )
    found = parts_of(writer)
    assert found == ({} if again is None else {"a": again})


def test_a_text_that_a_record_lacks_is_made_by_a_patch() -> None:
    """A record of another client that has no text yet gets it."""
    one, _, writer = with_parts()
    foreign = pycrdt.Doc[Any]()
    foreign.get("parts", type=pycrdt.Map)["a"] = pycrdt.Map({"size": 1.0})
    for document in (one.document, writer):
        document.apply_or_raise([foreign.get_update()])
    commit_parts(one, writer, {"a": PART.model_copy(update={"size": 1})})
    assert parts_of(writer) == {"a": PART.model_copy(update={"size": 1})}


@pytest.mark.parametrize(
    "bad",
    [
        [SetValue(field="parts", value={})],
        [SetValue(field="parts/a", value={})],
        [SetValue(field="parts/a/nope", value=1)],
        [SetValue(field="parts/a/size/x", value=1)],
        [SetValue(field="parts/a/steps/s/nope", value=1)],
        [SetValue(field="nope/a/size", value=1)],
        [SetValue(field="parts/\ud800/size", value=1)],
        [SetValue(field="parts", key="n", value={"colour": "red"})],
        [SetValue(field="parts", key="n", value="x")],
        [SetValue(field="parts", key="n", value={"notes": 5})],
        [SetValue(field="parts", key="n", value={"hits": "x"})],
        [SetValue(field="parts", key="n", value={"plan": {}})],
        [SetValue(field="parts", key="n", value={"steps": {"s": {"log": []}}})],
        [SetValue(field="parts", key="n", value={"size": 2**60})],
        [Increment(field="parts/a/hits", amount=2**53)],
        [SpliceRange(field="parts/a/steps/s/log", items=("x",))],
        [SpliceRange(field="parts/a/notes", start="AQ==", text="x")],
        [SetValue(field="parts", key="a", value={}), Increment(field="parts/a/hits", amount=1)],
        [DropKey(field="parts/a/steps", key="s"), SpliceRange(field="parts/a/steps/s/log", text="x")],
    ],
)
def test_bad_operations_on_records_change_nothing(bad: list[PatchOp]) -> None:
    """An operation that does not fit the layout of a record refuses the whole patch before anything is written."""
    _, _, writer = with_parts(a=PART)

    def change() -> None:
        with pytest.raises(InvalidValue):
            apply_patch(writer, [SetValue(field="parts/a/size", value=9), *bad])

    assert writer.capture(change) == EMPTY_UPDATE


UNKNOWN_ITEM = base64.b64encode(b"\x00\x07\x09\x00").decode()


@pytest.mark.parametrize(
    "bad",
    [
        SetValue(field="nope", value=1),
        SetValue(field="plan", value=["a"]),
        SetValue(field="status", key="k", value="x"),
        SetValue(field="scores", value=1),
        SetValue(field="status", value=2**60),
        SetValue(field="status", value=float("nan")),
        SetValue(field="scores", key="\ud800", value=1),
        DropKey(field="status", key="k"),
        AddElement(field="scores", value="k"),
        AddElement(field="tags", value="\ud800"),
        Increment(field="status", amount=1),
        Increment(field="tokens", amount=2**53),
        SpliceRange(field="tags", text="x"),
        SpliceRange(field="draft", items=("x",)),
        SpliceRange(field="draft", text="\ud800"),
        SpliceRange(field="plan", text="x"),
        SpliceRange(field="draft", start=UNKNOWN_ITEM, text="x"),
        SpliceRange(field="plan", stop="AQ==", items=("x",)),
    ],
)
def test_bad_operations_change_nothing(bad: PatchOp) -> None:
    """One operation that does not fit refuses the whole patch before anything is written."""
    _, _, writer = started()
    good = SetValue(field="status", value="done")

    def change() -> None:
        with pytest.raises(InvalidValue):
            apply_patch(writer, [good, bad])

    assert writer.capture(change) == EMPTY_UPDATE


def test_a_counter_is_incremented_once_by_a_patch() -> None:
    """Two increments of one counter in a patch are refused, so that their sum cannot pass the bound halfway."""
    _, _, writer = started()
    with pytest.raises(InvalidValue, match="twice"):
        apply_patch(writer, [Increment(field="tokens", amount=1)] * 2)


def test_a_patch_counts_in_the_cell_of_the_writer() -> None:
    """The writer adds to its own cell, never to one of a replica."""
    one, _, writer = started()
    commit(one, writer, {"tokens": 15})
    assert writer.map("tokens")[str(writer.client_id)] == 5
