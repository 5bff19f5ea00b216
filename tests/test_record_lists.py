"""Lists of records, ``list[Model]`` fields: live access by identity, and replicas that work on them at once."""

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
from crdt_board.errors import InvalidValue, NotFound
from crdt_board.item_places import first_places
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.live.record_list import LiveRecordList, items_of
from crdt_board.replica import Change
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.update_walk import walk
from support.agents import LiveAgent, exchange
from support.network import Network


class Step(BoardModel):
    what: str = ""
    log: Text


class Section(BoardModel):
    title: str = ""
    body: Text
    tags: set[str]
    hits: Counter
    steps: list[Step]


class Finding(BoardModel):
    title: str = ""
    steps: list[Step]


class Task(BoardModel):
    owner: str


class Report(BoardModel):
    sections: list[Section]
    findings: dict[str, Finding]
    tasks: list[Task]


LAYOUT = Report.board_layout()
FULL = Section(
    title="full", body=Text("née"), tags={"b", "a"}, hits=Counter(4), steps=[Step(what="run", log=Text("ok")), Step()]
)


def titled(*titles: str) -> list[Section]:
    return [Section(title=title) for title in titles]


def having(*titles: str) -> LiveAgent:
    agent = LiveAgent(Report)
    agent.state.sections.extend(titled(*titles))
    return agent


def both_having(*titles: str) -> tuple[LiveAgent, LiveAgent]:
    one, two = having(*titles), LiveAgent(Report)
    agree(one, two)
    return one, two


def titles(agent: LiveAgent) -> str:
    return "".join(section.title for section in agent.state.sections)


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


# One agent


def test_items_hold_what_was_put_in() -> None:
    """What is appended is read back by index, by iteration and in a snapshot, with all that an item can hold."""
    agent = LiveAgent(Report)
    assert writes(agent, lambda: agent.state.sections.append(FULL)) == 1
    agent.state.sections.append({"title": "plain"})
    live = agent.state.sections
    assert (len(live), live[0].title, live[-1].title) == (2, "full", "plain")
    assert (live[0].body, live[0].hits, live[0].steps[0].log) == ("née", 4, "ok")
    assert [section.title for section in live] == ["full", "plain"]
    assert agent.snapshot().sections == [FULL, Section(title="plain")]
    reader = LiveAgent(Report)
    exchange(agent, reader)
    assert reader.snapshot() == agent.snapshot()


def test_an_item_is_edited_in_place() -> None:
    """Fields of an item are written as those of a record, one by one."""
    agent = having("a", "b")
    item = agent.state.sections[1]
    item.title = "B"
    item.body.append("text")
    item.tags.add("x")
    item.hits += 2
    item.steps.append(Step(what="s"))
    item.steps[0].log.append("done")
    expected = Section(
        title="B", body=Text("text"), tags={"x"}, hits=Counter(2), steps=[Step(what="s", log=Text("done"))]
    )
    assert agent.snapshot().sections == [Section(title="a"), expected]


def test_it_is_a_list() -> None:
    """Methods, operators and comparison are those of a list."""
    agent = having("b", "d")
    live = agent.state.sections
    live.insert(0, Section(title="a"))
    live.insert(-1, Section(title="c"))
    live.insert(99, Section(title="e"))
    assert titles(agent) == "abcde"
    assert live == titled(*"abcde")
    assert live != titled(*"abc")
    assert live[1:3] == titled(*"bc")
    assert [each.title for each in reversed(live)] == [*"edcba"]
    assert live.pop() == Section(title="e")
    assert live.pop(0) == Section(title="a")
    del live[0]
    assert titles(agent) == "cd"
    live += titled("x", "y")
    live[1:3] = titled("m")
    assert titles(agent) == "cmy"
    live[::2] = titled("1", "3")
    assert titles(agent) == "1m3"
    del live[1:]
    assert live + titled("z") == titled("1", "z")
    assert titled("z") + live == titled("z", "1")
    live.extend(titled(*"315"))
    live.sort(key=lambda section: section.title)
    assert titles(agent) == "1135"
    live.reverse()
    assert titles(agent) == "5311"
    assert (live.count(Section(title="1")), live.index(Section(title="1")), Section(title="9") in live) == (2, 2, False)
    live.remove(Section(title="1"))
    assert titles(agent) == "531"
    live.clear()
    assert (len(live), live.copy()) == (0, [])
    for wrong in (lambda: live[0], live.pop, lambda: live.__delitem__(0), lambda: live.move(0, 1)):
        with pytest.raises(IndexError, match="sections has 0 items"):
            wrong()
    with pytest.raises(ValueError, match="no such item"):
        live.remove(Section(title="9"))


@pytest.mark.parametrize(
    ("item", "to", "expected"),
    [(0, 2, "bcad"), (3, 0, "dabc"), (1, 1, "abcd"), (0, -1, "bcda"), (-1, 1, "adbc"), (2, 3, "abdc")],
)
def test_a_moved_item_is_at_the_index_afterwards(item: int, to: int, expected: str) -> None:
    """``move`` counts as the list is afterwards, takes a handle or an index, and writes one key, or nothing."""
    for by_handle in (False, True):
        agent = having(*"abcd")
        live = agent.state.sections
        moved = live[item]
        assert writes(agent, lambda live=live, what=moved if by_handle else item: live.move(what, to)) == (item != to)
        assert titles(agent) == expected
        assert live.index(moved) == to % 4


def test_a_handle_stays_on_its_item() -> None:
    """A handle means its item wherever it is, and raises NotFound once that was deleted."""
    agent = having(*"abc")
    live = agent.state.sections
    handle, body, identity = live[1], live[1].body, live.id_of(1)
    live.insert(0, Section(title="new"))
    live.move(handle, 0)
    handle.title = "B"
    assert titles(agent) == "Bnewac"
    assert (live.id_of(handle), live.by_id(identity).title, live.ids[0]) == (identity, "B", identity)
    assert handle in live
    live.remove(handle)
    assert titles(agent) == "newac"
    for use in (
        lambda: handle.title,
        lambda: setattr(handle, "title", "x"),
        lambda: handle.steps.append(Step()),
        lambda: body.append("x"),
        lambda: live.move(handle, 0),
        lambda: live.remove(handle),
        lambda: live.index(handle),
        lambda: live.append(handle),
        lambda: live.by_id(identity),
        lambda: handle == Section(),
    ):
        with pytest.raises(NotFound, match=f"sections/{identity}.*was deleted"):
            use()
    assert handle not in live
    assert str(body) == ""
    assert titles(agent) == "newac"


def test_assigning_to_an_index_changes_that_item() -> None:
    """``items[i] = model`` gives the item the content of another, field by field; it stays the same item."""
    one, two = both_having(*"ab")
    handle = two.state.sections[1]
    one.state.sections[1] = Section(title="B", body=Text("text"))
    two.state.sections.insert(0, Section(title="new"))
    handle.tags.add("two")
    agree(one, two)
    assert handle == Section(title="B", body=Text("text"), tags={"two"})
    assert writes(one, lambda: one.state.sections.__setitem__(2, handle._board_python())) == 0


def test_what_reads_the_same_is_not_written() -> None:
    """M1: assigning the list that is there, as a snapshot, as handles or written from scratch, makes no operation."""
    agent = having(*"abba")
    agent.state.sections.append(FULL)
    for same in (
        agent.snapshot().sections,
        list(agent.state.sections),
        [*titled(*"abba"), copy.deepcopy(FULL)],
        agent.state.sections,
        (section for section in agent.state.sections),
    ):
        assert writes(agent, lambda same=same: setattr(agent.state, "sections", same)) == 0


def test_assigning_the_list_moves_edits_inserts_and_deletes() -> None:
    """Items of a snapshot and handles are known again: what others do in them meanwhile is kept."""
    one, two = both_having(*"abcd")
    taken = one.snapshot().sections
    handles = list(one.state.sections)
    a = two.state.sections[0]
    a.body.append("by two")
    two.state.sections.append(Section(title="by two"))
    one.state.sections = [
        Section(title="new"),
        taken[2],
        taken[0].model_copy(update={"title": "A", "tags": {"x"}}),
        handles[3],
    ]
    agree(one, two)
    assert [each.title for each in two.state.sections] == ["new", "c", "A", "d", "by two"]
    assert a == Section(title="A", body=Text("by two"), tags={"x"})
    assert [one.state.sections.id_of(handle) for handle in (handles[0], handles[2])] == [
        one.state.sections.ids[2],
        one.state.sections.ids[1],
    ]


def test_a_list_from_scratch_keeps_items_that_are_alike_or_in_the_same_place() -> None:
    """Without identities equal items are the same, and what is left over is edited where it stands."""
    agent = having(*"abcd")
    before = agent.state.sections.ids
    agent.state.sections = titled("d", "a", "X", "Y", "c")
    assert titles(agent) == "daXYc"
    after = agent.state.sections.ids
    assert [after[0], after[1], after[2], after[4]] == [before[3], before[0], before[1], before[2]]
    assert after[3] not in before


def test_a_new_item_beside_known_ones_is_new() -> None:
    """In a list that knows its items a model that was never read is a new item, also where one was left out."""
    agent = having(*"abc")
    a, _, c = agent.state.sections
    before = agent.state.sections.ids
    agent.state.sections = [a, Section(title="X"), c]
    assert titles(agent) == "aXc"
    assert agent.state.sections.ids[1] not in before


def test_one_item_given_twice_is_two() -> None:
    """A model that stands in a list twice is its item once, and a new item the second time."""
    agent = having("a")
    taken = agent.snapshot().sections[0]
    agent.state.sections = [taken, taken]
    assert titles(agent) == "aa"
    assert len(set(agent.state.sections.ids)) == 2
    agent.state.sections.append(agent.state.sections[0])
    agent.state.sections[0].title = "b"
    assert titles(agent) == "baa"


@pytest.mark.parametrize(
    ("write", "path"),
    [
        (lambda live: live.append(Section.model_construct(title=5)), "sections/1/title"),
        (lambda live: live.append({"title": 5}), "sections/1/title"),
        (lambda live: live.insert(0, {"steps": [{"what": "\ud800"}]}), "sections/0/steps/0/what"),
        (lambda live: live.extend([Section(), {"colour": "red"}]), "sections/2/colour"),
        (lambda live: live.extend("ab"), "sections"),
        (lambda live: live.append(Step()), "sections/1"),
        (lambda live: live.assign([Section(), {"title": 5}]), "sections/1/title"),
        (lambda live: live.__setitem__(0, {"title": 5}), "sections/0/title"),
        (lambda live: live.assign(5), "sections"),
    ],
)
def test_what_does_not_fit_changes_nothing(write: Callable[[Any], object], path: str) -> None:
    """A value that does not fit is refused at the call with its path, before anything is written."""
    agent = having("a")
    before = agent.updates()
    with pytest.raises(InvalidValue) as caught:
        write(agent.state.sections)
    assert caught.value.path == path
    assert (agent.updates() - before, titles(agent)) == (0, "a")


def test_a_required_field_that_an_item_lacks_is_named() -> None:
    """An item of another client without a required field raises where it is read, and breaks no other list."""
    agent = LiveAgent(Report)
    foreign = pycrdt.Doc[Any]()
    foreign.get("tasks", type=pycrdt.Map)["t"] = pycrdt.Map({"$place": first_places(1, "000000")[0]})
    agent.replica.receive([foreign.get_update()], agent="x", seq=None)
    with pytest.raises(InvalidValue) as caught:
        agent.snapshot()
    assert caught.value.path == "tasks/0/owner"
    with pytest.raises(AttributeError, match="tasks/t/owner has no value yet"):
        _ = agent.state.tasks[0].owner
    agent.state.tasks[0].owner = "eva"
    assert agent.snapshot().tasks == [Task(owner="eva")]


def test_what_was_read_shares_nothing_with_the_board() -> None:
    """M7: a model that was put in or read can be changed without changing the board, and identity is no content."""
    agent = LiveAgent(Report)
    handed = copy.deepcopy(FULL)
    agent.state.sections.append(handed)
    handed.steps.append(Step())
    agent.snapshot().sections[0].steps.append(Step())
    agent.state.sections.to_python()[0].tags.add("no")
    assert agent.snapshot().sections[0] == FULL
    assert "$id" not in agent.snapshot().model_dump_json()


def test_a_transaction_that_fails_leaves_the_list_as_it_was() -> None:
    """An exception inside takes back inserts, moves, edits and deletions, and the list is read as it was."""
    agent, other = both_having(*"abc")
    live = agent.state.sections
    kept = live[1]

    def fail() -> None:
        with agent.replica.transaction("agent"):
            live.move(0, 2)
            live.insert(0, Section(title="no"))
            live[1].title = "no"
            del live[2]
            assert len(live) == 3
            live.append(Section(title="no"))
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert titles(agent) == "abc"
    kept.title = "B"
    live.append(Section(title="d"))
    agree(agent, other)
    assert titles(other) == "aBcd"


def test_lists_in_records_and_items() -> None:
    """Records hold lists and items hold lists; assigned whole they come back, with their items known again."""
    agent = LiveAgent(Report)
    agent.state.findings["f"] = Finding(title="x", steps=[Step(what="1"), Step(what="2")])
    agent.state.findings["f"].steps.append(Step(what="3"))
    agent.state.findings["f"].steps.move(2, 0)
    taken = agent.snapshot().findings
    assert [step.what for step in taken["f"].steps] == ["3", "1", "2"]
    ids = agent.state.findings["f"].steps.ids
    steps = [taken["f"].steps[2], taken["f"].steps[0].model_copy(update={"what": "three"})]
    agent.state.findings = {"f": taken["f"].model_copy(update={"steps": steps})}
    assert agent.state.findings["f"].steps.ids == [ids[2], ids[0]]
    assert [step.what for step in agent.state.findings["f"].steps] == ["2", "three"]
    agent.state.findings["g"] = agent.state.findings["f"]
    assert agent.state.findings["g"].steps.ids == [ids[2], ids[0]]
    agent.state.findings["f"].steps.clear()
    assert len(agent.state.findings["g"].steps) == 2


def test_items_of_says_what_it_takes() -> None:
    """``items_of`` returns the live list itself and refuses anything else."""
    agent = having("a")
    live = items_of(agent.state.sections)
    assert isinstance(live, LiveRecordList)
    assert live is agent.state.sections
    with pytest.raises(TypeError, match=r"board\.state"):
        items_of(agent.snapshot().sections)


# Two agents


def test_an_edit_lands_on_its_item_while_others_shift_the_list() -> None:
    """One edits by handle what the other shifts by inserting, deleting and moving in front of it."""
    one, two = both_having(*"abcd")
    target = one.state.sections[2]
    two.state.sections.insert(0, Section(title="new"))
    del two.state.sections[1]
    two.state.sections.move(3, 0)
    target.title = "C"
    target.body.append("text")
    agree(one, two)
    assert [(each.title, str(each.body)) for each in two.state.sections] == [
        ("d", ""), ("new", ""), ("b", ""), ("C", "text"),
    ]  # fmt: skip


def test_both_inserts_at_one_place_are_kept_and_do_not_mix() -> None:
    """Two agents insert runs at one place at once: all items are there, those of each next to each other."""
    one, two = both_having(*"ab")
    for agent, inserted in ((one, "123"), (two, "789")):
        for offset, title in enumerate(inserted):
            agent.state.sections.insert(1 + offset, Section(title=title))
    agree(one, two)
    assert titles(one) in ("a123789b", "a789123b")


def test_of_two_moves_one_wins_and_edits_are_kept() -> None:
    """An item that both move is at one of the two places, once, with what both wrote into it."""
    one, two = both_having(*"abcd")
    for agent, to in ((one, 0), (two, 3)):
        item = agent.state.sections[1]
        agent.state.sections.move(item, to)
        item.tags.add(str(to))
        item.hits += 1
    agree(one, two)
    assert titles(one) in ("bacd", "acdb")
    moved = one.state.sections[one.snapshot().sections.index(Section(title="b", tags={"0", "3"}, hits=Counter(2)))]
    assert (moved.hits, moved.tags) == (2, {"0", "3"})


def test_a_deletion_wins_over_moves_and_edits() -> None:
    """What others do at the same time to an item that is deleted does not bring it back."""
    one, two = both_having(*"abc")
    item = two.state.sections[1]
    del one.state.sections[1]
    two.state.sections.move(item, 0)
    item.body.append("late")
    item.steps.append(Step())
    agree(one, two)
    assert titles(two) == "ac"


def test_a_list_in_a_record_that_both_open_merges() -> None:
    """M5: two agents open one new record at once and append to its list: the items of both are there."""
    one, two = LiveAgent(Report), LiveAgent(Report)
    for agent, name in ((one, "1"), (two, "2")):
        agent.state.findings["f"].steps.extend([Step(what=name), Step(what=name)])
        agent.state.findings["f"].steps[0].log.append(name)
    agree(one, two)
    assert [step.what for step in one.state.findings["f"].steps] in ([*"1122"], [*"2211"])
    del one.state.findings["f"]
    agree(one, two)
    assert len(two.state.findings["f"].steps) == 0


def test_replicas_with_two_versions_of_the_model_agree() -> None:
    """Items that were made without a list get it when it is first written to, and both writers' items live."""

    class Larger(Section):
        risks: list[Step]

    class Report2(BoardModel):
        sections: list[Larger]
        findings: dict[str, Finding]
        tasks: list[Task]

    old, one, two = having("a"), LiveAgent(Report2), LiveAgent(Report2)
    exchange(old, one, two)
    for agent, name in ((one, "1"), (two, "2")):
        agent.state.sections[0].risks.append(Step(what=name))
    agree(one, two)
    assert sorted(risk.what for risk in one.state.sections[0].risks) == ["1", "2"]
    exchange(old, one)
    assert old.snapshot().sections == titled("a")


# What other clients write


RUBBISH: dict[str, Callable[[], Any]] = {
    "a text": lambda: "no record",
    "a number": lambda: 5,
    "nothing": lambda: None,
    "a plain object": lambda: {"title": "x", "$place": "g0000005g0="},
    "a list": lambda: pycrdt.Array([1]),
    "no place": lambda: pycrdt.Map({"title": "x"}),
    "a place that is a number": lambda: pycrdt.Map({"title": "x", "$place": 5}),
    "a place that is no place": lambda: pycrdt.Map({"title": "x", "$place": "zzz"}),
    "a place that is a map": lambda: pycrdt.Map({"title": "x", "$place": pycrdt.Map({})}),
    "an endless place": lambda: pycrdt.Map({"title": "x", "$place": "g0000005g0>" * 9000 + "g0000005g0="}),
}


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_what_is_no_item_is_passed_over(rubbish: str) -> None:
    """What another client put under an id and is no map with a place is not in the list, and breaks nothing."""
    agent, other = both_having(*"ab")
    foreign = pycrdt.Doc[Any]()
    foreign.apply_update(agent.document.encode())
    root = foreign.get("sections", type=pycrdt.Map)
    with foreign.transaction():
        root["x/$place"] = RUBBISH[rubbish]()
        root["$place"] = RUBBISH[rubbish]()
        root[agent.state.sections.ids[0]]["steps"] = RUBBISH[rubbish]()
    for each in (agent, other):
        each.replica.receive([foreign.get_update()], agent="x", seq=None)
        assert titles(each) == "ab"
        assert each.snapshot().sections == titled("a", "b")
        assert len(each.state.sections[0].steps) == 0
    with pytest.raises(NotFound):
        agent.state.sections.by_id("$place")
    agent.state.sections.insert(1, Section(title="-"))
    agent.state.sections[0].steps.append(Step(what="1"))
    other.state.sections.append(Section(title="c"))
    agree(agent, other)
    assert titles(other) == "a-bc"
    assert other.state.sections[0].steps[0].what == "1"
    fresh = Document(LAYOUT)
    fresh.apply_or_raise([other.document.encode()])
    assert fresh.wire_state() == other.document.wire_state()
    assert fresh.checksum() == other.document.checksum()


def test_an_item_is_there_while_it_has_a_place() -> None:
    """Another client that takes the place of an item away, or gives one, takes it out of the list or puts it in."""
    agent = having(*"ab")
    foreign = pycrdt.Doc[Any]()
    foreign.apply_update(agent.document.encode())
    item = foreign.get("sections", type=pycrdt.Map)[agent.state.sections.ids[0]]
    handle, place = agent.state.sections[0], item["$place"]
    for written, expected in ((None, "b"), (place, "ab"), (f"{place[:-1]}>{place}", "ab")):
        item["$place"] = written
        agent.replica.receive([foreign.get_update()], agent="x", seq=None)
        assert titles(agent) == expected
        assert (handle in agent.state.sections) == ("a" in expected)


@pytest.mark.parametrize("gap", range(4))
def test_items_at_one_place_get_room_between_them(gap: int) -> None:
    """Where another client gave several items one place their ids order them, and inserting between them works."""
    agent, other = LiveAgent(Report), LiveAgent(Report)
    foreign = pycrdt.Doc[Any]()
    root = foreign.get("sections", type=pycrdt.Map)
    with foreign.transaction():
        for title in "cab":
            root[title] = pycrdt.Map({"title": title, "$place": first_places(1, "zzzzzz")[0]})
    agent.replica.receive([foreign.get_update()], agent="x", seq=None)
    assert titles(agent) == "abc"
    agent.state.sections.insert(gap, Section(title="-"))
    expected = "abc"[:gap] + "-" + "abc"[gap:]
    assert titles(agent) == expected
    agent.state.sections.move(gap, 3)
    agree(agent, other)
    assert titles(other) == "abc-"


@pytest.mark.parametrize("item", range(4))
@pytest.mark.parametrize("to", range(4))
def test_items_at_one_place_can_be_moved(item: int, to: int) -> None:
    """Where several items have one place, one that is moved is where it was moved to."""
    agent = LiveAgent(Report)
    foreign = pycrdt.Doc[Any]()
    root = foreign.get("sections", type=pycrdt.Map)
    with foreign.transaction():
        for title in "abcd":
            root[title] = pycrdt.Map({"title": title, "$place": first_places(1, "zzzzzz")[0]})
    agent.replica.receive([foreign.get_update()], agent="x", seq=None)
    agent.state.sections.move(item, to)
    plain = [*"abcd"]
    plain.insert(to, plain.pop(item))
    assert titles(agent) == "".join(plain)


def test_a_gap_can_be_halved_without_end() -> None:
    """Where places would become too long the list gets new ones: the order stays, edits and handles too."""
    agent, other = both_having("first", "last")
    live, plain = agent.state.sections, ["first", "last"]
    handle = live[0]
    for number in range(400):
        gap = 1 + number // 2
        live.insert(gap, Section(title=str(number)))
        plain.insert(gap, str(number))
    other.state.sections[1].title = "LAST"
    agree(agent, other)
    assert [section.title for section in other.state.sections] == [*plain[:-1], "LAST"]
    assert live.index(handle) == 0
    places = [item["$place"] for item in json.loads(str(agent.document.map("sections"))).values()]
    assert max(map(len, places)) <= DEFAULT_LIMITS.place_chars_max


# Any history


INSERT, PREPEND, MOVE, TITLE, COUNT, NESTED, DELETE, ASSIGN, OPENED, DELIVER = range(10)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [INSERT, INSERT, INSERT, PREPEND, MOVE, MOVE, TITLE, COUNT, COUNT, NESTED, DELETE, ASSIGN, OPENED, DELIVER]
        ),
        st.integers(0, 2),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=30,
)


class Ledger:
    """What the agents did, to compare with what comes of it."""

    def __init__(self) -> None:
        self.inserted: dict[str, int] = {}
        self.deleted: set[str] = set()
        self.opened = 0

    def check(self, agent: LiveAgent) -> None:
        """Every item that nobody deleted is there once, with everything that was counted in it."""
        live = agent.state.sections
        assert sorted(live.ids) == sorted(self.inserted.keys() - self.deleted)
        assert {each: live.by_id(each).hits for each in live.ids} == {each: self.inserted[each] for each in live.ids}
        assert len(agent.state.findings["f"].steps) == self.opened


def act(network: Network, ledger: Ledger, action: tuple[int, int, int, int]) -> None:
    what, index, first, second = action
    state = network.agents[index].state
    live = state.sections
    before = live.ids
    if what in (INSERT, PREPEND):
        gap = first % (len(live) + 1) if what == INSERT else 0
        live.insert(gap, Section(title=str(second)))
        ledger.inserted[live.id_of(gap)] = 0
        assert live.ids == [*before[:gap], live.id_of(gap), *before[gap:]]
    elif what == OPENED:
        state.findings["f"].steps.insert(first, Step(what=str(second)))
        ledger.opened += 1
    elif what == DELIVER:
        network.deliver(index)
    elif before:
        change(live, ledger, (what, first % len(before), second % len(before)))


def change(live: Any, ledger: Ledger, action: tuple[int, int, int]) -> None:
    what, first, second = action
    before = live.ids
    item = live[first]
    if what == MOVE:
        live.move(item, second)
        assert live.id_of(second) == before[first]
    elif what == TITLE:
        item.title = str(second)
    elif what == COUNT:
        item.hits += 1
        ledger.inserted[before[first]] += 1
    elif what == NESTED:
        item.steps.insert(second, Step(what=str(second)))
    elif what == DELETE:
        ledger.deleted.add(before[first])
        live.remove(item)
    else:
        kept = live.to_python()[first:][::-1]
        ledger.deleted.update(before[:first])
        live.assign(kept)
        assert live.ids == before[first:][::-1]


@given(ACTIONS, st.integers(0, 2**32))
def test_replicas_converge_and_no_item_is_lost(actions: list[tuple[int, int, int, int]], seed: int) -> None:
    """M9: whatever three replicas do, offline, late and with duplicates, they end equal, with every edit of
    what is left.

    The order that each index keeps is that of a document which is read anew.
    """
    network, ledger = Network(Report, 3, seed), Ledger()
    for action in actions:
        act(network, ledger, action)
    states = network.settle()
    assert states[0] == states[1] == states[2]
    for agent in network.agents:
        ledger.check(agent)
        fresh = Document(LAYOUT)
        fresh.apply_or_raise([agent.document.encode()])
        assert fresh.wire_state() == states[0]
        assert fresh.checksum() == agent.document.checksum()
    raw = [json.loads(str(agent.document.map("sections"))) for agent in network.agents]
    assert raw[0] == raw[1] == raw[2]


@given(st.data())
def test_lists_of_records_behave_as_lists(data: st.DataObject) -> None:
    """Any sequence of list methods, in transactions and without, does to the live list what it does to a plain one."""
    agent, plain = LiveAgent(Report), list[str]()
    live = agent.state.sections
    for number in range(data.draw(st.integers(1, 12))):
        index = data.draw(st.integers(-4, 6))
        bounds = slice(*data.draw(st.tuples(*[st.none() | st.integers(-4, 6)] * 2)))
        news = [f"{number}.{each}" for each in range(data.draw(st.integers(0, 3)))]
        models = titled(*news)
        what = data.draw(st.sampled_from(["insert", "extend", "slice", "delete", "pop", "sort", "reverse", "assign"]))
        with agent.replica.transaction("agent"):
            if what == "insert":
                live.insert(index, Section(title=str(number)))
                plain.insert(index, str(number))
            elif what == "extend":
                live.extend(models)
                plain.extend(news)
            elif what == "slice":
                live[bounds] = models
                plain[bounds] = news
            elif what == "delete":
                del live[bounds]
                del plain[bounds]
            elif what == "pop" and plain:
                assert live.pop(index % len(plain)).title == plain.pop(index % len(plain))
            elif what == "sort":
                live.sort(key=lambda section: section.title[::-1])
                plain.sort(key=lambda title: title[::-1])
            elif what == "reverse":
                live.reverse()
                plain.reverse()
            else:
                agent.state.sections = [*live[bounds], *models]
                plain[:] = [*plain[bounds], *news]
            assert [section.title for section in live] == plain
    other = LiveAgent(Report)
    exchange(agent, other)
    assert [section.title for section in other.snapshot().sections] == plain


@pytest.mark.parametrize(("count", "at_end"), [(10_000, True), (1_000, False)], ids=["append", "insert in front"])
def test_places_in_a_list_that_grows_at_an_end_stay_short(count: int, at_end: bool) -> None:
    """Places of 10,000 items that were appended, and of 1,000 that were put in front, have at most 13 characters."""
    agent = LiveAgent(Report)
    live = agent.state.tasks
    for number in range(count):
        live.insert(len(live) if at_end else 0, Task(owner=str(number)))
    numbers = [str(number) for number in range(count)]
    assert [task.owner for task in agent.snapshot().tasks] == (numbers if at_end else numbers[::-1])
    places = [item["$place"] for item in json.loads(str(agent.document.map("tasks"))).values()]
    assert max(map(len, places)) <= 13


def test_the_deepest_lists_can_be_written() -> None:
    """What is written into lists as deep as a model may have them passes the check of its nesting."""
    made: type[BoardModel] = Step
    for _ in range(30):
        made = create_model("Level", __base__=BoardModel, inside=(list[made], ...))  # type: ignore[valid-type]
    board = create_model("Deep", __base__=BoardModel, inside=(list[made], ...))  # type: ignore[valid-type]
    one, two = LiveAgent(board), LiveAgent(board)
    items = one.state.inside
    for _ in range(31):
        items.append({})
        inner = items[0]
        items = getattr(inner, "inside", None)
    inner.log.append("deep")
    agree(one, two)
    walk(two.document.encode(), DEFAULT_LIMITS.nesting_depth_max)
    assert '"log":"deep"' in two.snapshot().model_dump_json()


# Paths


def test_touched_paths_name_the_item() -> None:
    """A change in an item names it by its id, with the field; a move names the place."""
    agent, document = having(*"ab"), Document(LAYOUT)
    exchange(agent, LiveAgent(Report))
    document.apply_or_raise([agent.document.encode()])
    document.take_touched()
    told: list[Change] = []
    agent.replica.watchers.append(told.extend)
    live = agent.state.sections
    there = f"sections/{live.id_of(0)}"
    cases: list[tuple[str, Callable[[], object]]] = [
        (f"{there}/title", lambda: setattr(live[0], "title", "A")),
        (f"{there}/body", lambda: live[0].body.append("x")),
        (f"{there}/$place", lambda: live.move(0, 1)),
        (f"{there}/steps/*", lambda: live[1].steps.append(Step())),
        (f"{there}/steps/*/what", lambda: setattr(live[1].steps[0], "what", "x")),
        (there, lambda: live.remove(live[1])),
    ]
    for path, write in cases:
        write()
        document.apply_or_raise([agent.replica.pending[-1].update])
        (touched,) = document.take_touched()
        (change,) = told
        told.clear()
        assert touched == change.path
        step = touched.split("/")[3] if "*" in path else ""
        assert touched == path.replace("*", step)
