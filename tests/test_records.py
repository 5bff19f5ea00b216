"""Records in ``dict[str, Model]`` fields: live access, and that replicas which work on them at once end up equal."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.layout import Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.record_creation import creation_id, creation_update, place_of_new, record_shape
from crdt_board.replica import Change
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.update_walk import first_clocks, walk
from support.agents import LiveAgent, exchange
from support.network import Network


class Step(BoardModel):
    what: str = ""
    log: Text


class Finding(BoardModel):
    title: str = ""
    severity: int = 0
    notes: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, int]
    hits: Counter
    steps: dict[str, Step]


class Claim(BoardModel):
    owner: str
    notes: Text


class Review(BoardModel):
    status: str = "new"
    findings: dict[str, Finding]
    claims: dict[str, Claim]


LAYOUT = Review.board_layout()
FULL = Finding(
    title="implicit cast",
    severity=3,
    notes=Text("née"),
    plan=["look", "fix"],
    tags={"b", "a"},
    scores={"x": 1},
    hits=Counter(4),
    steps={"s/1": Step(what="run", log=Text("ok"))},
)


def pair() -> tuple[LiveAgent, LiveAgent]:
    return LiveAgent(Review), LiveAgent(Review)


def agree(*agents: LiveAgent) -> Any:
    """Exchange everything; the state that all then have."""
    exchange(*agents)
    states = [agent.document.wire_state() for agent in agents]
    assert all(state == states[0] for state in states)
    assert len({agent.document.checksum() for agent in agents}) == 1
    return states[0]


def writes(agent: LiveAgent, change: Callable[[], object]) -> int:
    before = agent.updates()
    change()
    return agent.updates() - before


def raw(agent: LiveAgent) -> Any:
    return json.loads(str(agent.document.map("findings")))


# One agent


def test_a_handle_is_there_before_the_record() -> None:
    """Reading a record that is missing gives defaults and empty containers, and makes nothing."""
    agent = LiveAgent(Review)
    record = agent.state.findings["f1"]
    assert (record.title, record.severity, record.notes, record.hits) == ("", 0, "", 0)
    assert (record.plan, record.tags, record.scores) == ([], set(), {})
    assert (len(record.notes), list(record.steps), record.steps["s"].what) == (0, [], "")
    assert "f1" not in agent.state.findings
    assert (agent.updates(), len(agent.state.findings)) == (0, 0)


def test_a_required_scalar_that_nobody_wrote_says_so() -> None:
    """A scalar without a default raises AttributeError with its path, and InvalidValue in a snapshot."""
    agent = LiveAgent(Review)
    with pytest.raises(AttributeError, match="claims/c/owner has no value yet"):
        _ = agent.state.claims["c"].owner
    agent.state.claims["c"].notes.append("x")
    with pytest.raises(InvalidValue) as caught:
        agent.snapshot()
    assert caught.value.path == "claims/c/owner"


WRITES: list[Callable[[Any], object]] = [
    lambda record: setattr(record, "title", "x"),
    lambda record: record.notes.append("x"),
    lambda record: record.plan.append("x"),
    lambda record: record.plan.insert(0, "x"),
    lambda record: record.tags.add("x"),
    lambda record: record.scores.update(x=1),
    lambda record: record.hits.__iadd__(1),
    lambda record: setattr(record.steps["s"], "what", "x"),
    lambda record: record.steps["s"].log.append("x"),
    lambda record: setattr(record, "plan", ["x"]),
    lambda record: setattr(record, "tags", {"x"}),
    lambda record: setattr(record, "notes", "x"),
]


@pytest.mark.parametrize("write", WRITES)
def test_the_first_write_makes_the_record(write: Callable[[Any], object]) -> None:
    """Whatever is written first makes the record with all its containers, in an update of its own before it."""
    agent = LiveAgent(Review)
    assert writes(agent, lambda: write(agent.state.findings["f/1~"])) == (
        3 if agent.state.findings["f/1~"].steps else 2
    )
    assert list(agent.state.findings) == ["f/1~"]
    assert raw(agent)["f/1~"].keys() >= {"notes", "plan", "tags", "scores", "hits", "steps"}
    reader = LiveAgent(Review)
    for pending in agent.replica.pending:
        assert len(walk(pending.update, DEFAULT_LIMITS.nesting_depth_max).ends) == 1
        reader.replica.receive([pending.update], agent="a", seq=1)
    assert reader.snapshot() == agent.snapshot()


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.plan.extend([]),
        lambda record: setattr(record, "title", ""),
        lambda record: setattr(record, "tags", set()),
        lambda record: record.notes.delete(0, 5),
        lambda record: record.notes.append(""),
        lambda record: record.tags.discard("x"),
        lambda record: record.hits.__iadd__(0),
        lambda record: setattr(record, "steps", {}),
    ],
)
def test_writing_what_is_there_makes_no_record(change: Callable[[Any], object]) -> None:
    """M1: an edit that changes nothing does not open the record."""
    agent = LiveAgent(Review)
    change(agent.state.findings["f1"])
    assert (agent.updates(), len(agent.state.findings)) == (0, 0)


def test_assigning_replaces_the_whole() -> None:
    """An assigned record holds what was assigned and nothing of the one before."""
    agent = LiveAgent(Review)
    agent.state.findings["f1"].notes.append("old")
    agent.state.findings["f1"].scores["old"] = 1
    agent.state.findings["f1"] = FULL
    assert agent.snapshot().findings == {"f1": FULL}
    agent.state.findings["f1"] = Finding(title="x")
    assert agent.snapshot().findings == {"f1": Finding(title="x")}


def test_an_equal_record_is_not_written() -> None:
    """M1: assigning what a record reads as already makes no operation, as one or as a whole dict."""
    agent = LiveAgent(Review)
    agent.state.findings["f1"] = FULL
    agent.state.findings["f2"].title = "x"
    taken = agent.snapshot().findings
    assert writes(agent, lambda: agent.state.findings.update(f1=FULL, f2=Finding(title="x"))) == 0
    assert writes(agent, lambda: setattr(agent.state, "findings", taken)) == 0


def test_assigning_all_records_changes_what_differs() -> None:
    """Assigning a dict to the field adds, removes and edits, and leaves alone what is the same."""
    one, two = pair()
    one.state.findings = {"f1": FULL, "f2": Finding(title="gone")}
    agree(one, two)
    two.state.findings["f1"].notes.append(" there")
    one.state.findings = {
        "f1": FULL.model_copy(update={"severity": 9, "hits": Counter(6), "plan": ["look", "think", "fix"]}),
        "f3": Finding(),
    }
    agree(one, two)
    assert two.snapshot().findings == {
        "f1": FULL.model_copy(
            update={"severity": 9, "hits": 6, "plan": ["look", "think", "fix"], "notes": "née there"}
        ),
        "f3": Finding(),
    }


def test_records_are_a_mapping() -> None:
    """Membership, order, get, items, pop, setdefault, clear and comparison are those of a dict."""
    agent = LiveAgent(Review)
    findings = agent.state.findings
    findings.update({"b": FULL}, a=Finding(title="a"))
    assert (list(findings), len(findings), "a" in findings, 5 in findings, "\ud800" in findings) == (
        ["a", "b"], 2, True, False, False,
    )  # fmt: skip
    assert findings.get("c") is None
    assert findings.get("a").title == "a"
    assert [(key, record.title) for key, record in findings.items()] == [("a", "a"), ("b", "implicit cast")]
    assert findings == {"a": Finding(title="a"), "b": FULL}
    assert findings["b"] == FULL
    assert findings["b"] != findings["a"]
    assert findings.pop("a") == Finding(title="a")
    assert findings.pop("a", None) is None
    with pytest.raises(KeyError):
        findings.pop("a")
    with pytest.raises(KeyError):
        del findings["a"]
    assert findings.setdefault("d", Finding(title="d")).title == "d"
    assert findings.popitem() == ("b", FULL)
    findings.clear()
    assert (findings.to_python(), len(findings)) == ({}, 0)
    with pytest.raises(KeyError):
        findings.popitem()


def test_a_live_record_can_be_assigned_to_another_key() -> None:
    """Assigning a live record copies it."""
    agent = LiveAgent(Review)
    agent.state.findings["a"] = FULL
    agent.state.findings["b"] = agent.state.findings["a"]
    agent.state.findings["a"].title = "changed"
    assert agent.state.findings["b"] == FULL


@pytest.mark.parametrize(
    ("write", "path"),
    [
        (lambda state: setattr(state.findings["a/b"], "severity", "x"), "findings/a~1b/severity"),
        (lambda state: state.findings["a"].plan.append(5), "findings/a/plan/0"),
        (lambda state: state.findings["a"].scores.update(k="x"), "findings/a/scores/k"),
        (lambda state: state.findings["a"].notes.append("\ud800"), "findings/a/notes"),
        (lambda state: state.findings["a"].steps.update(s={"what": 5}), "findings/a/steps/s/what"),
        (lambda state: state.findings.update(a={"colour": "red"}), "findings/a/colour"),
        (lambda state: state.findings.update(a=Step()), "findings/a"),
        (lambda state: setattr(state, "findings", {"ok": FULL, "a": {"severity": "x"}}), "findings/a/severity"),
        (lambda state: state.findings["\ud800"].title, "findings"),
    ],
)
def test_what_does_not_fit_changes_nothing(write: Callable[[Any], object], path: str) -> None:
    """A value that does not fit is refused at the call with its path, before anything is written or opened."""
    agent = LiveAgent(Review)
    with pytest.raises(InvalidValue) as caught:
        write(agent.state)
    assert caught.value.path == path
    assert (agent.updates(), len(agent.state.findings)) == (0, 0)


def test_unknown_fields_of_a_record_name_the_nearest() -> None:
    """Attribute access works as on ``board.state``."""
    record = LiveAgent(Review).state.findings["a"]
    with pytest.raises(AttributeError, match="did you mean 'title'"):
        record.titel = "x"
    with pytest.raises(AttributeError, match="Finding has no field"):
        _ = record.colour
    with pytest.raises(TypeError, match="Counter"):
        record.hits = 5
    with pytest.raises(AttributeError):
        del record.title


def test_handles_follow_their_key() -> None:
    """A handle stays valid when its record is deleted, made again or replaced, by whomever."""
    one, two = pair()
    record, notes, steps = (one.state.findings["f"], one.state.findings["f"].notes, one.state.findings["f"].steps)
    notes.append("first")
    agree(one, two)
    two.state.findings["f"] = FULL
    agree(one, two)
    assert (record.title, notes, len(notes), steps["s/1"].log) == ("implicit cast", "née", 3, "ok")
    notes.append("!")
    del one.state.findings["f"]
    assert (record.title, notes, len(notes), list(steps)) == ("", "", 0, [])
    notes.append("again")
    record.title = "again"
    assert one.snapshot().findings == {"f": Finding(title="again", notes=Text("again"))}


def test_what_was_read_shares_nothing_with_the_board() -> None:
    """M7: a record that was handed over or read can be changed without changing the board."""
    agent = LiveAgent(Review)
    given_record = copy.deepcopy(FULL)
    agent.state.findings["a"] = given_record
    given_record.plan.append("no")
    agent.snapshot().findings["a"].plan.append("no")
    agent.state.findings.to_python()["a"].scores["no"] = 1
    assert agent.snapshot().findings["a"] == FULL


def test_a_transaction_that_fails_leaves_no_record() -> None:
    """An exception inside a transaction takes back a record that it opened, and its texts."""
    agent, other = pair()
    agent.state.findings["kept"].notes.append("kept")

    def fail() -> None:
        with agent.replica.transaction("agent"):
            agent.state.findings["f"].notes.append("no")
            agent.state.findings["kept"].notes.append("no")
            del agent.state.findings["kept"]
            agent.state.findings["kept"].notes.append("no")
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert agent.snapshot().findings == {"kept": Finding(notes=Text("kept"))}
    agent.state.findings["f"].notes.append("yes")
    agent.state.findings["kept"].notes.append("!")
    agree(agent, other)
    assert other.snapshot().findings["f"].notes == "yes"
    assert other.snapshot().findings["kept"].notes == "kept!"


# Two agents


def test_both_who_open_a_key_at_once_keep_their_work() -> None:
    """M5: each one's fields, characters, items and counts survive, on both replicas, in nested records too."""
    one, two = pair()
    for agent, name in ((one, "one"), (two, "two")):
        record = agent.state.findings["f"]
        record.notes.append(name)
        record.plan.append(name)
        record.tags.add(name)
        record.scores[name] = 1
        record.hits += 2
        record.steps["s"].log.append(name)
    one.state.findings["f"].title = "title"
    two.state.findings["f"].severity = 7
    two.state.findings["f"].steps["s"].what = "what"
    agree(one, two)
    found = one.snapshot().findings["f"]
    assert (found.title, found.severity, found.hits, found.tags) == ("title", 7, 4, {"one", "two"})
    assert found.notes in ("onetwo", "twoone")
    assert sorted(found.plan) == ["one", "two"]
    assert found.scores == {"one": 1, "two": 1}
    assert found.steps["s"].what == "what"
    assert found.steps["s"].log in ("onetwo", "twoone")


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("how", ["open", "assign"])
def test_a_key_that_was_deleted_before_merges_as_a_new_one(times: int, how: str) -> None:
    """M5: both open a key that one of them had deleted before, once or more often: both texts survive."""
    one, two = pair()
    for _ in range(times):
        if how == "open":
            two.state.findings["f"].notes.append("old")
            two.state.findings["f"].steps["s"].log.append("old")
        else:
            two.state.findings["f"] = FULL
        agree(one, two)
        del one.state.findings["f"]
        agree(one, two)
    for agent, name in ((one, "one"), (two, "two")):
        agent.state.findings["f"].notes.append(name)
        agent.state.findings["f"].steps["s"].log.append(name)
    agree(one, two)
    found = one.snapshot().findings["f"]
    assert {found.notes, found.steps["s"].log} <= {"onetwo", "twoone"}


def test_records_in_an_assigned_record_are_opened_together() -> None:
    """M5: inside a record that was assigned, both open one new key at once and keep their work."""
    one, two = pair()
    one.state.findings["f"] = FULL
    agree(one, two)
    one.state.findings["f"].steps["n"].log.append("one")
    two.state.findings["f"].steps["n"].log.append("two")
    agree(one, two)
    assert one.snapshot().findings["f"].steps["n"].log in ("onetwo", "twoone")


def test_one_of_two_assignments_wins() -> None:
    """Of two records that are assigned to a key at once one is there as a whole."""
    one, two = pair()
    other = Finding(title="other", plan=["x"])
    one.state.findings["f"] = FULL
    two.state.findings["f"] = other
    agree(one, two)
    assert one.snapshot().findings["f"] in (FULL, other)


def test_a_deletion_wins_over_edits_of_the_record() -> None:
    """What is written into a record while another agent deletes it is gone with it."""
    one, two = pair()
    one.state.findings["f"] = FULL
    agree(one, two)
    del one.state.findings["f"]
    two.state.findings["f"].title = "late"
    two.state.findings["f"].notes.append("late")
    two.state.findings["f"].steps["s/1"].log.append("late")
    assert agree(one, two) == {}


def test_replicas_with_two_versions_of_the_model_agree() -> None:
    """Records that were made without a container get it when it is first written, and both writers' work lives."""

    class Larger(Finding):
        risks: list[str]
        remarks: Text

    class Review2(BoardModel):
        status: str = "new"
        findings: dict[str, Larger]
        claims: dict[str, Claim]

    old, one, two = LiveAgent(Review), LiveAgent(Review2), LiveAgent(Review2)
    old.state.findings["f"].notes.append("old")
    exchange(old, one, two)
    for agent, name in ((one, "one"), (two, "two")):
        agent.state.findings["f"].remarks.append(name)
        agent.state.findings["f"].risks.append(name)
    agree(one, two)
    found = one.snapshot().findings["f"]
    assert found.remarks in ("onetwo", "twoone")
    assert sorted(found.risks) == ["one", "two"]
    exchange(old, one)
    assert old.snapshot().findings == {"f": Finding(notes=Text("old"))}


def test_what_another_client_put_in_place_of_a_record_is_replaced_by_writing() -> None:
    """A plain value under a record's key reads as no record; the next write makes one, alike for all."""
    one, two = pair()
    foreign = pycrdt.Doc[Any]()
    foreign.get("findings", type=pycrdt.Map)["f"] = "not a record"
    for agent in (one, two):
        agent.replica.receive([foreign.get_update()], agent="x", seq=None)
    with pytest.raises(InvalidValue) as caught:
        one.snapshot()
    assert caught.value.path == "findings/f"
    one.state.findings["f"].notes.append("one")
    two.state.findings["f"].notes.append("two")
    agree(one, two)
    assert one.snapshot().findings["f"].notes in ("onetwo", "twoone")


OPEN, TEXT, ASSIGN, DELETE, NESTED, UNNEST, COUNT, DELIVER = range(8)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([OPEN, TEXT, TEXT, ASSIGN, DELETE, NESTED, NESTED, UNNEST, COUNT, DELIVER, DELIVER]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from(["f", "g"]),
        st.text("aé😀", min_size=1, max_size=3),
    ),
    max_size=25,
)


def act(network: Network, action: tuple[int, int, int, str, str]) -> None:
    what, index, place, key, text = action
    state = network.agents[index].state
    record = state.findings[key]
    if what == OPEN:
        record.title = text
    elif what == TEXT:
        record.notes.insert(place, text)
    elif what == ASSIGN:
        state.findings[key] = Finding(title=text, notes=Text(text), steps={"s": Step(what=text)})
    elif what == DELETE:
        state.findings.pop(key, None)
    elif what == NESTED:
        record.steps["s"].log.append(text)
    elif what == UNNEST:
        record.steps.pop("s", None)
    elif what == COUNT:
        record.hits += place
    else:
        network.deliver(index)
    assert len(record.notes) == len(str(record.notes))


@given(ACTIONS, st.integers(0, 2**32))
def test_replicas_converge(actions: list[tuple[int, int, int, str, str]], seed: int) -> None:
    """M9: opening, assigning, deleting, making again, offline, late, with duplicates: equal JSON."""
    network = Network(Review, 3, seed)
    for action in actions:
        act(network, action)
    states = network.settle()
    assert states[0] == states[1] == states[2]
    for agent in network.agents:
        fresh = Document(LAYOUT)
        fresh.apply_or_raise([agent.document.encode()])
        assert fresh.wire_state() == states[0]
        assert fresh.checksum() == agent.document.checksum()
    assert len({json.dumps(raw(agent), sort_keys=True) for agent in network.agents}) == 1


@given(ACTIONS, st.integers(0, 2**32))
def test_after_any_common_history_openers_merge(actions: list[tuple[int, int, int, str, str]], seed: int) -> None:
    """M5: whatever happened to a key before, three who know it all and open the key at once lose nothing."""
    network = Network(Review, 3, seed)
    for action in actions:
        act(network, action)
    network.settle()
    for key in ("f", "g"):
        network.agents[0].state.findings.pop(key, None)
    network.settle()
    for index, agent in enumerate(network.agents):
        agent.state.findings["f"].notes.append(str(index))
        agent.state.findings["f"].scores[str(index)] = index
        agent.state.findings["f"].steps["s"].log.append(str(index))
    states = network.settle()
    assert states[0] == states[1] == states[2]
    found = network.agents[0].snapshot().findings["f"]
    assert sorted(found.notes) == sorted(found.steps["s"].log) == sorted(found.scores) == ["0", "1", "2"]


# The operation that opens


def test_a_creation_is_what_the_crdt_engine_would_write() -> None:
    """The bytes are those of the same client making the empty record in an empty document."""
    shape = record_shape(LAYOUT.by_name["findings"].fields)
    engine = pycrdt.Doc[Any](client_id=creation_id(["findings", "né"], shape, None))
    kinds = (pycrdt.Array, pycrdt.Map, pycrdt.Text)
    content = pycrdt.Map[Any]({name: kinds[kind]() for name, kind in shape.inside})
    engine.get("findings", type=pycrdt.Map)["né"] = content
    assert creation_update(["findings", "né"], shape) == engine.get_update()


def test_client_ids_of_creations_are_their_own_range() -> None:
    """M8: they have 53 bits with the highest set, and differ by path, shape and place."""
    shapes = [record_shape(LAYOUT.by_name[name].fields) for name in ("findings", "claims")]
    ids = {
        creation_id(parts, shape, place)
        for parts in (["a", "b"], ["a", "c"], ["a", "b", "c", "d"])
        for shape in shapes
        for place in (None, ((1, 2), 0), ((1, 2), 1), ((1, 3), 0))
    }
    assert len(ids) == 24
    assert all(2**52 <= each < 2**53 for each in ids)


def test_the_place_of_a_new_record_is_behind_the_deleted_one() -> None:
    """It is the same on all replicas that have seen the key's history, whatever else they hold."""
    one, two = pair()
    one.state.findings["f"].title = "x"
    del one.state.findings["f"]
    agree(one, two)
    two.state.status = "other"
    two.state.findings["g"].title = "y"
    places = {place_of_new(agent.document.encode(), ["findings", "f"]) for agent in (one, two)}
    assert len(places) == 1
    assert place_of_new(one.document.encode(), ["findings", "new"]) is None


# Paths


def test_touched_paths_go_into_records() -> None:
    """A change inside a record names it, its field, and the key in a dict, set or nested record."""
    agent, document = LiveAgent(Review), Document(LAYOUT)
    cases: dict[str, Callable[[Any], object]] = {
        "findings/f~1": lambda state: state.findings.update({"f/": FULL}),
        "findings/f~1/title": lambda state: setattr(state.findings["f/"], "title", "t"),
        "findings/f~1/notes": lambda state: state.findings["f/"].notes.append("t"),
        "findings/f~1/plan": lambda state: state.findings["f/"].plan.append("t"),
        'findings/f~1/tags/"t"': lambda state: state.findings["f/"].tags.add("t"),
        "findings/f~1/scores/k": lambda state: state.findings["f/"].scores.update(k=1),
        "findings/f~1/hits": lambda state: state.findings["f/"].hits.__iadd__(1),
        "findings/f~1/steps/s~11/log": lambda state: state.findings["f/"].steps["s/1"].log.append("t"),
    }
    for path, change in cases.items():
        change(agent.state)
        document.apply_or_raise([agent.replica.pending[-1].update])
        assert document.take_touched() == (path,)


def test_watchers_are_told_of_the_paths() -> None:
    """The author's own watchers hear the same paths."""
    agent = LiveAgent(Review)
    told: list[Change] = []
    agent.replica.watchers.append(told.extend)
    agent.state.findings["f"].title = "x"
    agent.state.findings["f"].title = "y"
    assert [change.path for change in told] == ["findings/f", "findings/f/title"]


@given(st.data())
def test_texts_in_records_edit_as_python_does(data: st.DataObject) -> None:
    """Positions are code points also in nested texts, with several edited and records replaced in one transaction."""
    agent = LiveAgent(Review)
    plain = {"f": "", "g": ""}
    for _ in range(data.draw(st.integers(1, 4))):
        with agent.replica.transaction("agent"):
            for _ in range(data.draw(st.integers(0, 6))):
                key = data.draw(st.sampled_from(["f", "g"]))
                notes, old = agent.state.findings[key].notes, plain[key]
                what = data.draw(st.sampled_from(["insert", "insert", "delete", "drop", "assign"]))
                start = data.draw(st.integers(0, len(old)))
                inserted = data.draw(st.text("aé漢😀", max_size=3))
                if what == "insert":
                    notes.insert(start, inserted)
                    plain[key] = old[:start] + inserted + old[start:]
                elif what == "delete":
                    stop = data.draw(st.integers(start, len(old)))
                    notes.delete(start, stop)
                    plain[key] = old[:start] + old[stop:]
                elif what == "drop":
                    agent.state.findings.pop(key, None)
                    plain[key] = ""
                else:
                    agent.state.findings[key] = Finding(notes=Text(inserted))
                    plain[key] = inserted
                assert len(notes) == len(plain[key])
        assert {key: str(agent.state.findings[key].notes) for key in plain} == plain
    other = LiveAgent(Review)
    exchange(agent, other)
    assert {key: str(other.state.findings[key].notes) for key in plain} == plain


def test_the_updates_of_a_replica_begin_where_it_says() -> None:
    """A local update is of one client, also when it opens a record; where it begins is told from its bytes."""
    agent = LiveAgent(Review)
    agent.state.status = "x"
    agent.state.findings["f"].title = "y"
    opened = creation_id(["findings", "f"], record_shape(LAYOUT.by_name["findings"].fields), None)
    own = agent.document.client_id
    assert [first_clocks(each.update) for each in agent.replica.pending] == [{own: 0}, {opened: 0}, {own: 1}]
    del agent.state.findings["f"]
    assert first_clocks(agent.replica.pending[-1].update) == {}


def test_the_deepest_records_can_be_written() -> None:
    """What is written into records as deep as a model may have them passes the check of its nesting."""
    made: type[BoardModel] = Step
    for _ in range(30):
        made = create_model("Level", __base__=BoardModel, inside=(dict[str, made], ...))  # type: ignore[valid-type]
    board = create_model("Deep", __base__=BoardModel, inside=(dict[str, made], ...))  # type: ignore[valid-type]
    one, two = LiveAgent(board), LiveAgent(board)
    for agent, text in ((one, "one"), (two, "two")):
        record = agent.state.inside["0"]
        for level in range(1, 31):
            record = record.inside[str(level)]
        record.log.append(text)
        for pending in agent.replica.pending:
            walk(pending.update, DEFAULT_LIMITS.nesting_depth_max)
    agree(one, two)
    walk(one.document.encode(), DEFAULT_LIMITS.nesting_depth_max)
    assert record.log in ("onetwo", "twoone")


# Checksums


def test_a_checksum_counts_each_record_as_it_is_now() -> None:
    """A record that is changed, removed, made again or put there by another client is in the next checksum."""
    one, two = pair()
    foreign: pycrdt.Doc[Any] = pycrdt.Doc()
    changes: list[Callable[[], object]] = [
        lambda: one.state.findings["f"].notes.append("x"),
        lambda: setattr(one.state.findings["g"], "title", "x"),
        lambda: one.state.findings["g"].steps["s"].log.append("deep"),
        lambda: two.state.findings["g"].steps["s"].log.append("theirs"),
        lambda: one.state.findings.pop("f"),
        lambda: setattr(two.state.findings["f"], "title", "again"),
        lambda: foreign.get("findings", type=pycrdt.Map).update({"f": "no record", "h": [1, {"a": None}]}),
        lambda: two.state.findings.__setitem__("f", FULL),
        two.state.findings.clear,
    ]
    seen: set[str] = set()
    for change in changes:
        change()
        exchange(one, two)
        for agent in (one, two):
            agent.replica.receive([foreign.get_update()], agent="x", seq=None)
            foreign.apply_update(agent.document.encode())
            fresh = Document(LAYOUT)
            fresh.apply_or_raise([agent.document.encode()])
            assert agent.document.checksum() == fresh.checksum()
        seen.add(one.document.checksum())
    assert len(seen) == len(changes)


def test_a_checksum_knows_records_after_another_layout_was_declared() -> None:
    """What was kept of records under one layout is not used under the next, also where that lacks their field."""
    agent, other = pair()
    agent.state.findings["f"].title = agent.state.findings["untouched"].title = "x"
    findings = LAYOUT.by_name["findings"]
    smaller = findings.model_copy(update={"fields": findings.fields[1:]})  # without the title
    layouts = [LAYOUT, Layout(title="R", fields=(smaller,)), Layout(title="R", fields=()), LAYOUT]
    for number, layout in enumerate(layouts):
        agent.document.checksum()
        agent.document.declare(layout)
        other.state.findings["f"].severity = number + 1
        exchange(agent, other)
        fresh = Document(layout)
        fresh.apply_or_raise([agent.document.encode()])
        assert agent.document.checksum() == fresh.checksum()
