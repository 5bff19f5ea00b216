"""The typed layout over one pycrdt document."""

from __future__ import annotations

import json
from typing import Any

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from crdt_board.document import Document
from crdt_board.errors import MalformedUpdate
from crdt_board.guarding import DocumentBroken, guarded
from crdt_board.layout import Layout
from crdt_board.paths import escape_path, field_of
from crdt_board.replica import Change
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.updates import EMPTY_UPDATE
from support.agents import LiveAgent


class Job(BoardModel):
    status: str = "new"
    budget: int = 0
    draft: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, JsonValue]
    spent: Counter


class LargerJob(Job):
    reviewer: str = ""
    risks: list[str]
    remarks: Text
    cost: Counter


LAYOUT = Job.board_layout()


def copy_of(document: Document, layout: Layout = LAYOUT) -> Document:
    fresh = Document(layout)
    fresh.apply_or_raise([document.encode()])
    return fresh


EDITS = st.lists(
    st.tuples(
        st.sampled_from(
            ["status", "budget", "draft", "cut", "plan", "pop", "tags", "untag", "scores", "drop", "spent"]
        ),
        st.integers(-5, 5),
        st.sampled_from(["", "a", "ü", "🚢", "b/c~"]),
    ),
    max_size=12,
)


def edit(state: Any, what: str, number: int, text: str) -> None:
    match what:
        case "status" | "draft" | "plan" | "tags":
            {
                "status": lambda: setattr(state, "status", text),
                "draft": lambda: state.draft.append(text),
                "plan": lambda: state.plan.append(text),
                "tags": lambda: state.tags.add(text),
            }[what]()
        case "budget":
            state.budget = number
        case "cut":
            state.draft.delete(0, 1)
        case "pop":
            del state.plan[:1]
        case "untag":
            state.tags.discard(text)
        case "scores":
            state.scores[text] = {"n": number, "t": [text, None]}
        case "drop":
            state.scores.pop(text, None)
        case "spent":
            state.spent += number


# Checksums


@given(EDITS)
def test_a_checksum_does_not_depend_on_how_the_content_came_about(edits: list[tuple[str, int, str]]) -> None:
    """After each edit the incremental checksum is that of a fresh document with the same content."""
    agent = LiveAgent(Job)
    for each in edits:
        edit(agent.state, *each)
        assert agent.document.checksum() == copy_of(agent.document).checksum()


@given(EDITS)
def test_a_checksum_is_of_the_wire_state(edits: list[tuple[str, int, str]]) -> None:
    """Equal content has equal checksums, and any edit that changes the content changes it."""
    agent = LiveAgent(Job)
    seen: dict[str, str] = {}
    for each in edits:
        edit(agent.state, *each)
        state = agent.document.wire_state()
        if state.get("spent") == 0:
            del state["spent"]
        content = json.dumps(state, sort_keys=True)
        assert seen.setdefault(agent.document.checksum(), content) == content
    assert len(set(seen.values())) == len(seen)


@given(EDITS, st.sets(st.sampled_from([*LAYOUT.by_name, "no such field"])))
def test_named_fields_read_as_in_the_whole_state(edits: list[tuple[str, int, str]], names: set[str]) -> None:
    """A part of the state is that part of the whole, to the letter: 5 stays 5 and does not become 5.0."""
    agent = LiveAgent(Job)
    for each in edits:
        edit(agent.state, *each)
    whole = agent.document.wire_state()
    part = {name: whole[name] for name in whole if name in names}
    assert json.dumps(agent.document.wire_state(names), sort_keys=True) == json.dumps(part, sort_keys=True)


def test_a_remote_update_renews_the_checksum() -> None:
    """What others wrote is in the next checksum, whichever field it touches."""
    agent, other = LiveAgent(Job), LiveAgent(Job)
    for each in ("status", "draft", "plan", "tags", "scores", "spent"):
        agent.document.checksum()
        edit(other.state, each, 3, "x")
        agent.document.apply_or_raise([other.document.encode(agent.document.state_vector())])
        assert agent.document.checksum() == other.document.checksum() == copy_of(other.document).checksum()


def test_fields_that_were_added_to_the_layout_do_not_change_the_checksum() -> None:
    """A larger layout gives the same checksum as long as nobody writes the new fields."""
    agent = LiveAgent(Job)
    for each in ("status", "draft", "plan", "tags", "scores", "spent"):
        edit(agent.state, each, 3, "x")
    before = agent.document.checksum()
    assert copy_of(agent.document, LargerJob.board_layout()).checksum() == before
    agent.document.declare(LargerJob.board_layout())
    assert agent.document.checksum() == before
    agent.document.capture(lambda: agent.document.text("remarks").insert(0, "new"))
    assert agent.document.checksum() != before


def test_content_from_before_a_field_was_declared_is_there_afterwards() -> None:
    """Updates for fields that the layout does not name yet are kept, and read once it does."""
    larger = LiveAgent(LargerJob)
    larger.state.reviewer = "eva"
    larger.state.risks.append("late")
    document = copy_of(larger.document)
    assert document.wire_state() == {"spent": 0}
    document.declare(LargerJob.board_layout())
    assert document.wire_state() == larger.document.wire_state()
    assert document.checksum() == larger.document.checksum()


# Applying


def test_news_are_what_was_not_known() -> None:
    """``news_in`` applies an update and returns only what was new in it, enough for another replica to follow."""
    agent, follower = LiveAgent(Job), Document(LAYOUT)
    agent.state.draft.append("x" * 1000)
    document = copy_of(agent.document)
    follower.apply_or_raise([agent.document.encode()])
    agent.state.draft.delete(0, 999)
    agent.state.budget = 5
    everything = agent.document.encode()
    news = document.news_in(everything)
    follower.apply_or_raise([news])
    assert len(news) < 60
    assert follower.wire_state() == document.wire_state() == agent.document.wire_state()
    assert document.news_in(everything) == EMPTY_UPDATE


def test_news_in_garbage_are_refused() -> None:
    """Bytes that are no update raise and change nothing."""
    document = Document(LAYOUT)
    with pytest.raises(MalformedUpdate):
        document.news_in(b"\x01\x01garbage")
    assert document.state_vector() == b"\x00"


def test_each_update_of_a_batch_is_judged_by_itself() -> None:
    """A malformed update among others is named, and the others are applied."""
    agent = LiveAgent(Job)
    agent.state.budget = 1
    agent.state.status = "x"
    first, second = (item.update for item in agent.replica.pending)
    document = Document(LAYOUT)
    answers = document.apply([first, b"\x01\x01garbage", second])
    assert [type(answer) for answer in answers] == [type(None), MalformedUpdate, type(None)]
    assert document.wire_state() == agent.document.wire_state()


def test_capture_returns_the_update_of_a_change() -> None:
    """``capture`` runs a change in one transaction and returns its update; the empty one when nothing changed."""
    document, other = Document(LAYOUT), Document(LAYOUT)

    def change() -> None:
        document.text("draft").insert(0, "x")
        document.state_map["budget"] = 2.0

    other.apply_or_raise([document.capture(change)])
    assert other.wire_state() == document.wire_state() == {"budget": 2, "draft": "x", "spent": 0}
    assert document.capture(lambda: None) == EMPTY_UPDATE


def test_a_state_vector_that_is_none_is_refused() -> None:
    """``encode`` since garbage is one clear error."""
    with pytest.raises(MalformedUpdate, match="state vector"):
        Document(LAYOUT).encode(b"\xff\xff")


def test_a_panic_is_told_apart_from_an_error() -> None:
    """A panic of yrs becomes DocumentBroken; any other exception passes as it is."""
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(DocumentBroken, match="inside"), guarded():
        raise panic("inside")
    with pytest.raises(LookupError), guarded():
        raise LookupError


# Reading


def test_the_state_in_wire_form() -> None:
    """Fields that hold something, whole numbers as ints, sets in the order of their keys, counters always."""
    agent = LiveAgent(Job)
    assert agent.document.wire_state() == {"spent": 0}
    agent.state.budget = 3
    agent.state.draft.append("ü")
    agent.state.tags.update(["b", "a"])
    agent.state.scores["k"] = {"n": 1, "f": 0.5, "t": None}
    agent.state.spent -= 2
    state = agent.document.wire_state()
    assert state == {
        "budget": 3,
        "draft": "ü",
        "tags": ["a", "b"],
        "scores": {"k": {"n": 1, "f": 0.5, "t": None}},
        "spent": -2,
    }
    assert type(state["budget"]) is int


def test_the_layout_is_what_other_clients_find() -> None:
    """Scalars are keys of the root map ``state``; every other field is a root with its own name."""
    agent = LiveAgent(Job)
    agent.state.status = "x"
    agent.state.draft.append("text")
    agent.state.plan.append("one")
    agent.state.tags.add("t")
    stock = pycrdt.Doc[Any]()
    stock.apply_update(agent.document.encode())
    assert stock.get("state", type=pycrdt.Map).to_py() == {"status": "x"}
    assert str(stock.get("draft", type=pycrdt.Text)) == "text"
    assert stock.get("plan", type=pycrdt.Array).to_py() == ["one"]
    assert list(stock.get("tags", type=pycrdt.Map).to_py().values()) == ["t"]


# Touched paths


def test_touched_paths_name_what_changed() -> None:
    """A key of a dict or set has a path of its own; a text, list or counter is touched as a whole."""
    agent, document = LiveAgent(Job), Document(LAYOUT)
    for what, paths in {
        "status": ("status",),
        "draft": ("draft",),
        "plan": ("plan",),
        "tags": ('tags/"b~1c~0"',),
        "scores": ("scores/b~1c~0",),
        "spent": ("spent",),
        "drop": ("scores/b~1c~0",),
    }.items():
        edit(agent.state, what, 3, "b/c~")
        document.apply_or_raise([agent.replica.pending[-1].update])
        assert document.take_touched() == paths
    assert document.take_touched() == ()


def test_a_remote_update_touches_the_paths_that_its_author_touched() -> None:
    """Author and receiver of an update name the same paths, in alphabetical order, until they are taken."""
    agent, other = LiveAgent(Job), Document(LAYOUT)
    told: list[Change] = []
    agent.replica.watchers.append(told.extend)
    with agent.edit():
        agent.state.scores["b"] = 1
        agent.state.scores["a"] = 1
        agent.state.budget = 5
        agent.state.draft.append("x")
    other.apply_or_raise(item.update for item in agent.replica.pending)
    assert other.take_touched() == ("budget", "draft", "scores/a", "scores/b")
    assert [change.path for change in told] == ["budget", "draft", "scores/a", "scores/b"]
    assert other.take_touched() == ()


def test_a_change_inside_a_nested_value_touches_its_key() -> None:
    """A shared type that another client put under a key belongs to that key."""
    document = Document(LAYOUT)
    document.capture(lambda: document.map("scores").__setitem__("k", pycrdt.Map({"n": 1})))
    document.take_touched()
    document.capture(lambda: document.map("scores")["k"].__setitem__("n", 2))
    assert document.take_touched() == ("scores/k",)


@pytest.mark.parametrize(("key", "escaped"), [("a", "a"), ("a/b", "a~1b"), ("~", "~0"), ("~1/", "~01~1"), ("", "")])
def test_keys_are_escaped_in_paths(key: str, escaped: str) -> None:
    """``/`` and ``~`` in keys are written as in JSON Pointer, so that the field can be told from the path."""
    assert escape_path(key) == escaped
    assert field_of(f"scores/{escaped}") == "scores"


@pytest.mark.parametrize("value", [None, True, "x", "é😀", 5, 0.0, -2.5, 1e300, 2**60, [1.0, {"a": None}], {"b": 2}])
def test_a_scalar_is_read_by_itself_as_with_all_others(value: Any) -> None:
    """Whatever a client puts there, the next checksum is that of a document which reads everything."""
    document = Document(LAYOUT)
    document.checksum()
    with document.doc.transaction():
        document.state_map["status"] = value
    assert document.checksum() == copy_of(document).checksum()
    assert document.checksum() != Document(LAYOUT).checksum()
