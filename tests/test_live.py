"""What ``board.state`` does, on real replicas that exchange updates."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board.errors import InvalidValue, LimitExceeded
from crdt_board.live import snapshot_from_wire
from crdt_board.schema import BoardModel, Counter, Text
from support.agents import LiveAgent, exchange


class Status(Enum):
    OPEN = "open"
    DONE = "done"


class Source(BaseModel):
    model_config = ConfigDict(frozen=True)

    url: str
    seen: datetime


class Migration(BoardModel):
    target: str = ""
    status: Literal["PENDING", "DONE"] = "PENDING"
    severity: Annotated[int, Field(ge=0)] = 0
    phase: Status = Status.OPEN
    price: Decimal | None = None
    blob: bytes = b""
    owner: str | None = None
    dependencies: set[str]
    weights: set[int]
    findings: dict[str, Source]
    scores: dict[str, int]
    plan: list[str]
    steps: list[int]
    extra: dict[str, JsonValue]
    draft: Text
    tokens: Counter


class Needy(BoardModel):
    name: str
    age: int = 0


def writes(agent: LiveAgent, change: Callable[[], object]) -> int:
    """How many updates a change makes."""
    before = agent.updates()
    change()
    return agent.updates() - before


def test_scalars_read_as_written() -> None:
    """M6: scalars of every kind come back equal in type and value, live and in a snapshot."""
    agent = LiveAgent(Migration)
    values = {
        "target": "é😀",
        "status": "DONE",
        "severity": 2**60,
        "phase": Status.DONE,
        "price": Decimal("1.00"),
        "blob": b"\xff",
        "owner": None,
    }
    for name, value in values.items():
        setattr(agent.state, name, value)
    taken = agent.snapshot()
    for name, value in values.items():
        for read in (getattr(agent.state, name), getattr(taken, name)):
            assert read == value
            assert type(read) is type(value)


def test_unwritten_scalars_read_as_their_default() -> None:
    """A scalar that nobody wrote reads as its default; one without a default says so."""
    assert LiveAgent(Migration).state.status == "PENDING"
    agent = LiveAgent(Needy)
    with pytest.raises(AttributeError, match="name has no value yet"):
        _ = agent.state.name
    with pytest.raises(InvalidValue) as caught:
        agent.snapshot()
    assert caught.value.path == "name"


def test_an_equal_scalar_writes_nothing() -> None:
    """M1: assigning the value that a field reads as, its default included, makes no operation."""
    agent = LiveAgent(Migration)
    assert writes(agent, lambda: setattr(agent.state, "status", "PENDING")) == 0
    assert writes(agent, lambda: setattr(agent.state, "severity", 5)) == 1
    assert writes(agent, lambda: setattr(agent.state, "severity", 5)) == 0


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("severity", -1, "severity"),
        ("status", "LATE", "status"),
        ("target", "\ud800", "target"),
        ("plan", ["a", 1], "plan/1"),
        ("plan", "abc", "plan"),
        ("scores", {"a/b": "x"}, "scores/a~1b"),
        ("scores", {"\ud800": 1}, "scores"),
        ("dependencies", {1}, "dependencies/0"),
        ("draft", 5, "draft"),
        ("draft", "\udfff", "draft"),
        ("extra", {"k": [float("nan")]}, "extra/k/0"),
    ],
)
def test_invalid_values_change_nothing(name: str, value: object, path: str) -> None:
    """A value that does not fit is refused at the call with its path, before anything is written."""
    agent = LiveAgent(Migration)
    with pytest.raises(InvalidValue) as caught:
        setattr(agent.state, name, value)
    assert caught.value.path == path
    assert agent.updates() == 0


def test_unknown_fields_name_the_nearest() -> None:
    """Reading, writing and deleting what is no field raises AttributeError that helps."""
    state = LiveAgent(Migration).state
    with pytest.raises(AttributeError, match="did you mean 'status'"):
        _ = state.statsu
    with pytest.raises(AttributeError, match="did you mean 'draft'"):
        state.draf = "x"
    with pytest.raises(AttributeError):
        del state.status


TEXT_OPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "append", "apply"]),
        st.integers(-12, 12),
        st.integers(-12, 12),
        st.text(alphabet="abé日😀\u0301", max_size=5),
    ),
    max_size=15,
)


@given(TEXT_OPS)
def test_a_live_text_edits_as_python_does(operations: list[tuple[str, int, int, str]]) -> None:
    """Positions are code points and negative ones count from the end, as in a list of characters."""
    agent = LiveAgent(Migration)
    expected: list[str] = []
    for name, one, other, text in operations:
        if name == "insert":
            agent.state.draft.insert(one, text)
            expected[one:one] = text
        elif name == "delete":
            agent.state.draft.delete(one, other)
            del expected[one:other]
        elif name == "append":
            agent.state.draft.append(text)
            expected += text
        else:
            agent.state.draft = text
            expected = list(text)
        assert agent.state.draft == "".join(expected)
        assert len(agent.state.draft) == len(expected)


def test_a_live_text_reads_as_a_str() -> None:
    """It compares, formats, iterates and has str's methods."""
    draft = LiveAgent(Migration).state.draft
    draft += "Line\nZwei"
    assert draft == "Line\nZwei"
    assert draft != "x"
    assert "Zw" in draft
    assert draft[-1] == "i"
    assert draft[:2] == "Li"
    assert draft.splitlines() == ["Line", "Zwei"]
    assert f"{draft:>10}" == " Line\nZwei"
    assert draft < "M"
    assert bool(draft)
    assert "> " + draft + "!" == "> Line\nZwei!"
    assert next(iter(draft)) == "L"
    assert draft.startswith("Line")
    with pytest.raises(TypeError):
        hash(draft)


def test_replace_edits_the_quoted_text_only() -> None:
    """replace() changes the quote, and not what it has in common with the new text."""
    one, two = LiveAgent(Migration), LiveAgent(Migration)
    one.state.draft = "Intro. TODO: risks. End."
    exchange(one, two)
    one.state.draft.replace("TODO: risks", "Risks: few")
    two.state.draft.replace("Intro.", "Intro!")
    exchange(one, two)
    assert one.state.draft == two.state.draft == "Intro! Risks: few. End."


def test_a_missing_quote_shows_the_nearest_text() -> None:
    """A quote that is not there is refused, with the most similar passage."""
    state = LiveAgent(Migration).state
    state.draft = "The database has implicit casts everywhere."
    with pytest.raises(InvalidValue, match="nearest passage") as caught:
        state.draft.replace("implict casts", "explicit casts")
    assert "implicit casts" in caught.value.nearest
    with pytest.raises(InvalidValue):
        state.draft.replace("", "x")


def test_an_ambiguous_quote_needs_a_count() -> None:
    """A quote that is there twice is refused unless count says how many to replace."""
    state = LiveAgent(Migration).state
    state.draft = "a b a b a"
    with pytest.raises(InvalidValue, match="3 times"):
        state.draft.replace("a", "x")
    with pytest.raises(InvalidValue, match="not 4"):
        state.draft.replace("a", "x", count=4)
    state.draft.replace("a", "x", count=2)
    assert state.draft == "x b x b a"


def _set(target: Any, key: Any, value: Any) -> None:
    target[key] = value


def _delete(target: Any, key: Any) -> None:
    del target[key]


LIST_CHANGES: dict[str, Callable[[Any, int, int, list[int]], object]] = {
    "insert": lambda target, one, other, items: target.insert(one, other),
    "append": lambda target, one, other, items: target.append(one),
    "extend": lambda target, one, other, items: target.extend(items),
    "pop": lambda target, one, other, items: target.pop(one),
    "del": lambda target, one, other, items: _delete(target, one),
    "set": lambda target, one, other, items: _set(target, one, other),
    "slice": lambda target, one, other, items: _set(target, slice(one, other), items),
    "delslice": lambda target, one, other, items: _delete(target, slice(one, other, -1 if one % 2 else 2)),
    "sort": lambda target, one, other, items: target.sort(key=abs, reverse=one > 0),
    "reverse": lambda target, one, other, items: target.reverse(),
    "all": lambda target, one, other, items: _set(target, slice(None), items),
}
LIST_OPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(LIST_CHANGES)),
        st.integers(-6, 6),
        st.integers(-6, 6),
        st.lists(st.integers(-3, 3), max_size=3),
    ),
    max_size=15,
)


def apply_list_op(target: Any, operation: tuple[str, int, int, list[int]]) -> object:
    name, one, other, items = operation
    try:
        return LIST_CHANGES[name](target, one, other, items)
    except IndexError as error:
        return type(error)


@given(LIST_OPS)
def test_a_live_list_is_a_list(operations: list[tuple[str, int, int, list[int]]]) -> None:
    """Every mutation does what it does to a list."""
    agent = LiveAgent(Migration)
    expected: list[int] = []
    for operation in operations:
        assert apply_list_op(agent.state.steps, operation) == apply_list_op(expected, operation)
        assert agent.state.steps == expected
        assert list(agent.state.steps[1:]) == expected[1:]
    assert agent.snapshot().steps == expected


def test_assigning_a_container_writes_only_the_difference() -> None:
    """M1: assigning what is there already makes no operation; otherwise others' items stay."""
    one, two = LiveAgent(Migration), LiveAgent(Migration)
    one.state.plan = ["a", "b", "c"]
    one.state.dependencies = {"x", "y"}
    one.state.scores = {"k": 1, "l": 2}
    one.state.draft = "hello world"
    for name in ("plan", "dependencies", "scores", "draft"):
        taken = getattr(one.snapshot(), name)
        assert writes(one, lambda name=name, taken=taken: setattr(one.state, name, taken)) == 0
    exchange(one, two)
    one.state.plan = ["a", "c"]
    two.state.plan = ["a", "b", "new", "c"]
    one.state.dependencies = {"x"}
    two.state.dependencies = {"x", "y", "z"}
    one.state.scores = {"k": 1, "l": 3}
    two.state.scores = {"k": 7, "l": 2}
    one.state.draft = "hello brave world"
    two.state.draft = "hello world!"
    exchange(one, two)
    assert one.snapshot() == two.snapshot()
    assert one.state.plan == ["a", "new", "c"]
    assert one.state.dependencies == {"x", "z"}
    assert one.state.scores == {"k": 7, "l": 3}
    assert one.state.draft == "hello brave world!"


def test_an_add_beats_a_concurrent_discard() -> None:
    """Adding an element that is present writes it again, so that it survives a concurrent discard."""
    one, two = LiveAgent(Migration), LiveAgent(Migration)
    one.state.dependencies.add("pg")
    exchange(one, two)
    one.state.dependencies.add("pg")
    two.state.dependencies.discard("pg")
    exchange(one, two)
    assert one.state.dependencies == two.state.dependencies == {"pg"}


SET_CHANGES: dict[str, Callable[[Any, set[int]], object]] = {
    "|=": operator.ior,
    "&=": operator.iand,
    "-=": operator.isub,
    "^=": operator.ixor,
    "add": lambda target, values: [target.add(value) for value in values],
    "discard": lambda target, values: [target.discard(value) for value in values],
    "clear": lambda target, values: target.clear(),
}


@given(st.lists(st.tuples(st.sampled_from([*SET_CHANGES, "="]), st.sets(st.integers(0, 5)))))
def test_a_live_set_is_a_set(operations: list[tuple[str, set[int]]]) -> None:
    """Every mutation does what it does to a set."""
    agent = LiveAgent(Migration)
    expected: set[int] = set()
    for name, values in operations:
        if name == "=":
            agent.state.weights, expected = values, set(values)
        else:
            SET_CHANGES[name](agent.state.weights, values)
            SET_CHANGES[name](expected, values)
        assert agent.state.weights == expected
        assert agent.state.weights | {9} == expected | {9}
        assert {value for value in range(7) if value in agent.state.weights} == expected
    assert "1" not in agent.state.weights
    assert True not in agent.state.weights
    assert agent.snapshot().weights == expected


def test_a_live_dict_is_a_dict() -> None:
    """Every mutation does what it does to a dict; an equal value writes nothing."""
    agent = LiveAgent(Migration)
    scores = agent.state.scores
    scores["a"] = 1
    scores.update({"b": 2}, c=3)
    scores |= {"d/é": 4}
    assert scores.setdefault("a", 9) == 1
    assert scores.pop("b") == 2
    assert scores.pop("zz", None) is None
    assert scores == {"a": 1, "c": 3, "d/é": 4}
    assert list(scores) == ["a", "c", "d/é"]
    assert len(scores) == 3
    assert writes(agent, lambda: scores.update(a=1, c=3)) == 0
    with pytest.raises(KeyError):
        _ = scores["zz"]
    with pytest.raises(KeyError):
        del scores["zz"]
    assert "\ud800" not in scores
    assert 5 not in scores
    scores.clear()
    assert agent.snapshot().scores == scores == {}


def test_a_failed_update_writes_nothing() -> None:
    """All values are validated before the first is written."""
    agent = LiveAgent(Migration)
    for change in (
        lambda: agent.state.scores.update(a=1, b="x"),
        lambda: agent.state.plan.extend(["a", 5]),
        lambda: agent.state.dependencies.update(["a", 5]),
    ):
        with pytest.raises(InvalidValue):
            change()
    assert agent.updates() == 0


def test_a_live_counter_counts_and_reads_as_an_int() -> None:
    """+= and -= change it, it computes and compares as an int, and assigning a number says how to count."""
    state = LiveAgent(Migration).state
    state.tokens += 812
    state.tokens -= 12
    tokens = state.tokens
    assert tokens == 800
    assert tokens > 799
    assert tokens + 1 == 801
    assert 1000 - tokens == 200
    assert f"{tokens:,}" == "800"
    assert int(tokens) == 800
    assert range(1000)[tokens] == 800
    assert -tokens == -800
    assert divmod(tokens, 7) == (114, 2)
    with pytest.raises(TypeError, match=r"\+="):
        state.tokens = 5
    with pytest.raises(InvalidValue, match="whole numbers"):
        state.tokens += 0.5
    with pytest.raises(InvalidValue, match="2\\^53"):
        state.tokens += 2**53
    state.tokens += 2**53 - 1 - 800
    with pytest.raises(InvalidValue, match="2\\^53"):
        state.tokens += 1


def test_ten_agents_add_under_one_dict() -> None:
    """M3: ten agents add five entries each under one dict at once: fifty entries."""
    agents = [LiveAgent(Migration) for _ in range(10)]
    now = datetime(2024, 1, 1, tzinfo=UTC)
    for number, agent in enumerate(agents):
        for entry in range(5):
            agent.state.findings[f"{number}-{entry}"] = Source(url="u", seen=now)
    exchange(*agents)
    assert [len(agent.state.findings) for agent in agents] == [50] * 10


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=100, max_size=100))
def test_a_hundred_rounds_lose_nothing(meetings: list[bool]) -> None:
    """M4: two agents append, add and count a hundred rounds, meeting now and then: nothing is lost."""
    agents = [LiveAgent(Migration), LiveAgent(Migration)]
    for number, meet in enumerate(meetings):
        for name, agent in zip("ab", agents, strict=True):
            agent.state.plan.append(f"{name}{number}")
            agent.state.dependencies.add(f"{name}{number}")
            agent.state.tokens += 1
        if meet:
            exchange(*agents)
    exchange(*agents)
    expected = {f"{name}{number}" for name in "ab" for number in range(100)}
    for agent in agents:
        taken = agent.snapshot()
        assert taken.tokens == 200
        assert taken.dependencies == expected == set(taken.plan)
        assert len(taken.plan) == 200
    assert agents[0].snapshot() == agents[1].snapshot()


def test_nothing_is_shared_with_the_board() -> None:
    """M7: what was handed over or read can be changed without changing the board."""
    agent = LiveAgent(Migration)
    handed: dict[str, Any] = {"k": [1]}
    agent.state.extra = handed
    handed["k"].append(2)
    agent.state.extra["k"].append(3)
    agent.state.extra.to_python()["k"].append(4)
    taken = agent.snapshot()
    taken.extra["k"].append(5)
    taken.plan.append("x")
    assert agent.state.extra == {"k": [1]}
    assert agent.snapshot().extra == {"k": [1]}
    assert agent.state.plan == []


def test_foreign_values_are_read_by_the_rules_of_the_field() -> None:
    """Floats, big integers and wrong types that another client wrote are read as the field has them, or refused."""
    agent = LiveAgent(Migration)
    with agent.document.doc.transaction():
        agent.document.state_map["severity"] = 5.0
        agent.document.array("steps").extend([1.0, 2])
        agent.document.map("scores")["k"] = "no"
    assert agent.state.severity == 5
    assert type(agent.state.severity) is int
    assert agent.state.steps == [1, 2]
    with pytest.raises(InvalidValue) as caught:
        _ = agent.state.scores["k"]
    assert caught.value.path == "scores/k"
    with pytest.raises(InvalidValue) as caught:
        agent.snapshot()
    assert caught.value.path == "scores/k"
    agent.document.map("tokens")["7"] = "many"
    with pytest.raises(InvalidValue) as caught:
        int(agent.state.tokens)
    assert caught.value.path == "tokens/7"


def test_snapshots_ignore_fields_of_newer_models() -> None:
    """A model that lacks a field of the board reads the rest."""
    assert snapshot_from_wire({"name": "n", "later": [1]}, Needy) == Needy(name="n")


def test_snapshots_are_equal_when_their_fields_are() -> None:
    """What a snapshot was made from takes no part in comparing it, and copies keep working."""
    taken = snapshot_from_wire({"name": "n"}, Needy)
    assert taken == Needy(name="n") == copy.deepcopy(taken) == taken.model_copy()
    assert hash(taken) == hash(Needy(name="n"))


LARGE = "ü" * 1000


@pytest.mark.parametrize(
    "write",
    [
        lambda state: setattr(state, "target", LARGE),
        lambda state: setattr(state, "draft", LARGE),
        lambda state: setattr(state, "scores", {LARGE: 1}),
        lambda state: operator.setitem(state.scores, LARGE, 1),
        lambda state: setattr(state, "dependencies", {LARGE}),
        lambda state: setattr(state, "plan", ["a", LARGE]),
        lambda state: state.draft.append(LARGE),
        lambda state: state.draft.insert(0, LARGE),
        lambda state: state.draft.replace("a a a", LARGE),
        lambda state: state.draft.replace("a", "ü" * 400, count=3),
        lambda state: state.draft.apply(LARGE),
        lambda state: state.extra.update({"a": {"b": [LARGE]}}),
        lambda state: operator.setitem(state.extra, "kept", LARGE),
        lambda state: state.extra.setdefault("a", LARGE),
        lambda state: state.plan.append(LARGE),
        lambda state: state.plan.extend([LARGE]),
        lambda state: state.plan.insert(0, LARGE),
        lambda state: operator.setitem(state.plan, 0, LARGE),
        lambda state: operator.setitem(state.plan, slice(0, 1), [LARGE]),
        lambda state: state.dependencies.add(LARGE),
        lambda state: state.dependencies.update({LARGE}),
        lambda state: state.dependencies.symmetric_difference_update({LARGE}),
    ],
)
def test_a_write_that_is_too_large_changes_nothing(write: Callable[[Any], object]) -> None:
    """A write of more than an update may have is refused, taken back, and owed to nobody."""
    agent, other = LiveAgent(Migration), LiveAgent(Migration)
    agent.replica.update_bytes_max = 1000
    agent.state.draft.append("a a a")
    agent.state.plan.append("kept")
    agent.state.extra["kept"] = "kept"
    before = agent.snapshot()
    with pytest.raises(LimitExceeded):
        write(agent.state)
    assert agent.snapshot() == before
    assert sum(len(item.update) for item in agent.replica.pending) < 1000
    agent.state.draft.append("!")
    other.replica.receive([item.update for item in agent.replica.pending], agent="ann", seq=1)
    assert other.snapshot() == agent.snapshot()
