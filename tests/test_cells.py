"""`Max`, `Min` and `Candidates` fields on replicas that exchange updates in any order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model

from crdt_board import BoardHost, Candidate, Candidates, InvalidValue, Max, Min, candidates_of, open_board
from crdt_board.cells import free_key
from crdt_board.clock import ManualClock
from crdt_board.layout import FieldLayout
from crdt_board.orders import CellOrder
from crdt_board.schema import BoardModel
from crdt_board.store.memory import MemoryStore
from support.agents import LiveAgent, exchange


class Source(BaseModel):
    model_config = ConfigDict(frozen=True)

    url: str


class Job(BoardModel):
    best: Annotated[int, Max()] = 0
    least: Annotated[int, Min()] = 100
    verdict: Annotated[str, Candidates()] = "none"
    bounded: Annotated[float, Field(ge=0, le=1), Max()] = 0.0
    source: Annotated[Source | None, Candidates()] = None
    first: Annotated[int, Min()]
    owner: Annotated[str, Candidates()]


class Small(BoardModel):
    best: Annotated[int, Max()] = 0
    least: Annotated[int, Min()] = 100
    verdict: Annotated[str, Candidates()] = "none"


class Taken(Exception):
    """Rolls a transaction back."""


def deliver(sender: LiveAgent, receiver: LiveAgent, number: int) -> None:
    """Give one of the sender's updates to the receiver: any of them, and perhaps not for the first time."""
    if sender is not receiver and sender.replica.pending:
        update = sender.replica.pending[number % len(sender.replica.pending)]
        receiver.replica.receive([update.update], agent=sender.name, seq=None)


def cells(agent: LiveAgent, field: str) -> int:
    return len(agent.document.map(field))


def foreign(agent: LiveAgent, field: str, **content: JsonValue) -> None:
    """What a client writes that does not keep to the rules."""
    with agent.document.doc.transaction():
        for key, cell in content.items():
            agent.document.map(field)[key] = cell


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "group", "rollback", "deliver", "deliver", "deliver"]),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 120),
    ),
    max_size=40,
)


def write_as(agent: LiveAgent, how: str, write: Callable[[], None]) -> bool:
    """Write on its own, in a transaction, or in one that is taken back; whether it holds."""
    if how == "write":
        write()
        return True
    try:
        with agent.replica.transaction(agent.name):
            write()
            write()
            if how == "rollback":
                raise Taken
    except Taken:
        return False
    return True


@given(STEPS)
def test_the_extremes_are_never_lost(steps: list[tuple[str, int, int, int]]) -> None:
    """Three replicas raise, lower, remove each other's cells and take back, and hear of it in any order, twice or late:
    at the end all read the greatest and the least value that was ever written."""
    agents = [LiveAgent(Small, client_id=number + 1) for number in range(3)]
    written: list[int] = []
    for how, one, other, value in steps:
        agent = agents[one]

        def write(agent: LiveAgent = agent, value: int = value) -> None:
            agent.state.best = agent.state.least = value

        if how == "deliver":
            deliver(agent, agents[other], value)
        elif write_as(agent, how, write):
            written.append(value)
            assert agent.state.best >= value >= agent.state.least
    exchange(*agents)
    exchange(*agents)
    for agent in agents:
        assert agent.state.best == agent.snapshot().best == max([0, *written])
        assert agent.state.least == agent.snapshot().least == min([100, *written])
        assert agent.document.checksum() == agents[0].document.checksum()


@given(STEPS)
def test_candidates_are_the_writes_that_no_write_has_seen(steps: list[tuple[str, int, int, int]]) -> None:
    """A write replaces what its replica saw, and nothing else, whatever is delivered when; what was taken back
    replaces nothing."""
    agents = [LiveAgent(Small, client_id=number + 1, name=f"agent-{number}") for number in range(3)]
    written: dict[str, str] = {}
    replaced: set[str] = set()
    for count, (how, one, other, number) in enumerate(steps):
        agent, value = agents[one], f"{one}-{count}"
        agent.clock.advance(number)
        if how == "deliver":
            deliver(agent, agents[other], number)
            continue
        seen = {each.value for each in agent.state.verdict.candidates}
        if write_as(agent, how, lambda agent=agent, value=value: setattr(agent.state, "verdict", value)):
            written[value] = agent.name
            replaced |= seen
            assert [each.value for each in agent.state.verdict.candidates] == [value]
        else:
            assert {each.value for each in agent.state.verdict.candidates} == seen
    exchange(*agents)
    exchange(*agents)
    expected = {value: name for value, name in written.items() if value not in replaced}
    for agent in agents:
        candidates = agent.state.verdict.candidates
        assert {each.value: each.agent for each in candidates} == expected
        assert candidates == agents[0].state.verdict.candidates
        assert agent.state.verdict.conflict is (len(expected) > 1)
        assert agent.snapshot().verdict == (candidates[0].value if candidates else "none")
        assert agent.document.checksum() == agents[0].document.checksum()


def test_only_a_greater_value_is_written() -> None:
    """A value that does not change the reading makes no update, the default included."""
    agent = LiveAgent(Job)
    for value in (0, -5):
        agent.state.best = value
    assert agent.updates() == 0
    agent.state.best = 7
    agent.state.best = 7
    agent.state.best = 6
    assert (agent.updates(), agent.state.best, type(agent.state.best)) == (1, 7, int)
    agent.state.least = 200
    assert agent.state.least == 100
    agent.state.first = 10**6
    agent.state.first = 10**7
    assert agent.state.first == 10**6


def test_an_unwritten_field_without_a_default_says_so() -> None:
    """Min without a default and Candidates without a default have no value before the first write."""
    agent = LiveAgent(Job)
    with pytest.raises(AttributeError, match="first has no value yet"):
        _ = agent.state.first
    with pytest.raises(AttributeError, match="owner has no value yet"):
        _ = agent.state.owner.value
    with pytest.raises(AttributeError, match="owner has no value yet"):
        _ = agent.state.owner.upper
    assert agent.state.owner.candidates == ()
    with pytest.raises(InvalidValue) as caught:
        agent.snapshot()
    assert {each["path"] for each in caught.value.errors} == {"first", "owner"}


def test_values_that_do_not_fit_are_refused_at_the_call() -> None:
    """Bounds and types hold as for scalars; nothing is written."""
    agent = LiveAgent(Job)
    for name, value in (("bounded", 1.5), ("best", "many"), ("verdict", 5), ("source", {"url": 1})):
        with pytest.raises(InvalidValue) as caught:
            setattr(agent.state, name, value)
        assert caught.value.path.startswith(name)
    assert agent.updates() == 0


def test_foreign_cells_that_do_not_fit_are_passed_over() -> None:
    """What another client wrote in the wrong type, out of bounds or without its parts takes no part in the reading."""
    agent = LiveAgent(Job)
    agent.state.first = 3
    agent.state.owner = "ann"
    agent.state.bounded = 0.5
    agent.state.verdict = "ship"
    foreign(agent, "best", a="9", b=None, c=True, d=[5], e=4.5, f={"value": 9})
    foreign(agent, "bounded", a=7, b=-1, c="1")
    foreign(
        agent,
        "verdict",
        a="hold",
        b={"value": "hold"},
        c={"value": 5, "agent": "eve", "when_ms": 2**52},
        d={"value": "hold", "agent": "eve", "when_ms": -1},
        e={"value": "hold", "agent": 5, "when_ms": 1},
        f={"value": "hold", "agent": "eve", "when_ms": 1e300},
    )
    taken = agent.snapshot()
    assert (taken.best, taken.bounded, taken.verdict) == (0, 0.5, "ship")
    assert (agent.state.best, agent.state.bounded) == (0, 0.5)
    assert [each.value for each in agent.state.verdict.candidates] == ["ship"]
    agent.state.best = 1
    agent.state.verdict = "hold"
    assert cells(agent, "best") == cells(agent, "verdict") == 1


def test_the_default_counts_where_others_wrote_less() -> None:
    """A foreign value below the default of a Max field does not lower it, live, in a snapshot or for a write."""
    agent = LiveAgent(Small)
    foreign(agent, "best", a=-4)
    assert agent.state.best == agent.snapshot().best == 0
    agent.state.best = -1
    assert agent.updates() == 0


def test_past_replicas_leave_no_cells() -> None:
    """A thousand replicas that raise and propose one after the other leave one cell for each field."""
    document = b"\x00\x00"
    for number in range(1000):
        agent = LiveAgent(Small, client_id=number + 1)
        agent.replica.receive([document], agent=None, seq=None)
        agent.state.best = number + 1
        with agent.replica.transaction("agent"):
            agent.state.verdict = str(number)
        document = agent.document.encode()
    assert (cells(agent, "best"), cells(agent, "verdict")) == (1, 1)
    assert (agent.state.best, agent.state.verdict.value) == (1000, "999")


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))])
ORDERED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bool, st.booleans()),
    (int, st.integers(-(2**70), 2**70)),
    (float, st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, places=3)),
    (str, st.text(max_size=4)),
    (date, st.dates()),
    (AwareDatetime, st.datetimes(timezones=ZONES).map(lambda moment: moment.replace(fold=0))),
    (timedelta, st.timedeltas(timedelta(days=-400), timedelta(days=400))),
]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=lambda each: getattr(each, "__name__", "values"))
def test_every_ordered_type_has_its_own_order(kind: Any, values: st.SearchStrategy[Any]) -> None:
    """Values are compared as what they are, not as what is stored for them, with the model and without."""
    model = create_model("Model", __base__=BoardModel, high=(Annotated[kind, Max()], ...))

    @given(st.lists(values, min_size=1, max_size=6))
    def check(written: list[Any]) -> None:
        agents = [LiveAgent(model) for _ in written]
        for agent, value in zip(agents, written, strict=True):
            agent.state.high = value
        exchange(*agents)
        for agent in agents:
            assert agent.state.high == max(written)
            assert agent.snapshot().high == max(written)
            assert type(agent.state.high) is type(written[0])

    check()


def test_a_datetime_without_a_zone_counts_as_utc() -> None:
    """Datetimes with and without a zone have one order."""
    model = create_model("Model", __base__=BoardModel, last=(Annotated[datetime, Max()], NOON.replace(tzinfo=None)))
    agent = LiveAgent(model)
    agent.state.last = NOON + timedelta(hours=2)
    agent.state.last = (NOON + timedelta(hours=1)).replace(tzinfo=None)
    assert agent.state.last == NOON + timedelta(hours=2)
    later = (NOON + timedelta(hours=3)).replace(tzinfo=None)
    agent.state.last = later
    assert agent.state.last == later


def two_candidates() -> tuple[LiveAgent, LiveAgent]:
    """Ann proposed one verdict, Bob a later one, neither knowing of the other's."""
    ann, bob = LiveAgent(Small, client_id=1, name="ann"), LiveAgent(Small, client_id=2, name="bob")
    ann.state.verdict = "ship"
    bob.clock.advance(1500)
    bob.state.verdict = "hold"
    exchange(ann, bob)
    return ann, bob


def test_concurrent_values_are_candidates_until_one_is_chosen() -> None:
    """Each has its value, agent and time, newest first; the newest is the value; choosing one removes the others."""
    ann, bob = two_candidates()
    start = datetime.fromtimestamp(1_700_000_000, UTC)
    expected = (Candidate("hold", "bob", start + timedelta(seconds=1.5)), Candidate("ship", "ann", start))
    for agent in (ann, bob):
        assert agent.state.verdict.candidates == expected
        assert agent.state.verdict.conflict
        assert agent.state.verdict.value == agent.snapshot().verdict == "hold"
    ann.state.verdict.choose(expected[1])
    exchange(ann, bob)
    for agent in (ann, bob):
        assert not agent.state.verdict.conflict
        assert [(each.value, each.agent) for each in agent.state.verdict.candidates] == [("ship", "ann")]
    with pytest.raises(InvalidValue, match="assign it"):
        bob.state.verdict.choose("hold")
    bob.state.verdict.choose("ship")
    assert bob.state.verdict.candidates[0].agent == "bob"


def test_at_equal_times_the_greater_client_id_is_first() -> None:
    """The order of candidates is the same on every replica, also when clocks agree."""
    agents = [LiveAgent(Small, client_id=number, name=str(number)) for number in (9, 100, 20)]
    for agent in agents:
        agent.state.verdict = f"v{agent.name}"
    exchange(*agents)
    for agent in agents:
        assert [each.agent for each in agent.state.verdict.candidates] == ["100", "20", "9"]


def test_one_value_of_two_agents_is_no_conflict() -> None:
    """Two agents who agree are two candidates and no conflict; who repeats what is its own writes nothing."""
    ann, bob = LiveAgent(Small, name="ann"), LiveAgent(Small, name="bob")
    ann.state.verdict = "ship"
    bob.state.verdict = "ship"
    ann.state.verdict = "ship"
    assert ann.updates() == 1
    exchange(ann, bob)
    assert len(ann.state.verdict.candidates) == 2
    assert not ann.state.verdict.conflict
    bob.state.verdict = "ship"
    assert [each.agent for each in bob.state.verdict.candidates] == ["bob"]


def test_a_candidates_field_reads_and_computes_as_its_value() -> None:
    """It compares, prints, counts and has the methods of the value, and is written by assigning a value."""

    class Guess(BoardModel):
        words: Annotated[str, Candidates()] = "a b"
        days: Annotated[int, Candidates()] = 4

    state = LiveAgent(Guess).state
    assert state.words == "a b" != state.days
    assert (str(state.words), repr(state.words), f"{state.words:>4}", len(state.words)) == ("a b", "'a b'", " a b", 3)
    assert state.words.split() == ["a", "b"]
    assert "a" in state.words
    assert (state.days + 1, 10 - state.days, state.days * state.days, state.days > 3, int(state.days)) == (
        5,
        6,
        16,
        True,
        4,
    )
    assert [*range(9)][state.days] == 4
    state.days += 1
    state.words = state.words
    assert (state.days, type(state.days.value)) == (5, int)
    assert candidates_of(state.days).candidates[0].value == 5
    with pytest.raises(TypeError, match="not a int"):
        candidates_of(5)
    with pytest.raises(AttributeError, match="nothing"):
        _ = state.words.nothing


def test_models_may_be_candidates() -> None:
    """A frozen model is a value like any other."""
    agent = LiveAgent(Job)
    agent.state.source = Source(url="u")
    agent.state.first = 1
    agent.state.owner = "ann"
    assert agent.state.source == Source(url="u")
    assert agent.snapshot().source == Source(url="u")
    agent.state.source = None
    assert agent.state.source.value is None
    assert agent.snapshot().source is None


def test_a_change_of_a_cell_touches_the_field() -> None:
    """Paths name the field, not the cells that a user does not know of."""
    agent = LiveAgent(Small)
    agent.document.take_touched()
    agent.state.best = 4
    agent.document.take_touched()
    seen: list[str] = []
    agent.replica.watchers.append(lambda changes: seen.extend(change.path for change in changes))
    agent.state.best = 5
    agent.state.verdict = "ship"
    assert seen == ["best", "verdict"]


async def test_candidates_are_dated_by_the_clock_of_the_host() -> None:
    """Time is that of the clock which the host was given, for edits and for patches."""
    clock = ManualClock()
    async with BoardHost(MemoryStore(), clock=clock) as host, open_board(host, "b", Small, agent="ann") as board:
        start = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
        board.state.verdict = "ship"
        assert candidates_of(board.state.verdict).candidates == (Candidate("ship", "ann", start),)
        clock.advance(5000)
        await board.commit("decide", patch={"verdict": "hold"})
        expected = (Candidate("hold", "ann", start + timedelta(seconds=5)),)
        assert candidates_of(board.state.verdict).candidates == expected


async def test_undo_leaves_cells_alone() -> None:
    """What was raised or proposed is not taken back by an undo, which would write under the keys of others."""
    async with open_board(":memory:", "b", Small, agent="ann") as board:
        board.enable_undo()
        board.state.best = 5
        board.state.verdict = "ship"
        assert board.undo() is False
        assert (board.state.best, board.state.verdict) == (5, "ship")


def test_a_key_for_the_writer_is_the_smallest_that_is_free() -> None:
    """Keys of candidates that were replaced are used again."""
    assert free_key(7, []) == "7"
    assert free_key(7, ["7", "9"]) == "7.1"
    assert free_key(7, ["7", "7.1", "7.3"]) == "7.2"


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "max"},
        {"kind": "scalar", "order": {"type": "integer"}},
        {"kind": "max", "order": {"type": "size"}},
        {"kind": "max", "order": {"type": "integer", "ge": "a"}},
        {"kind": "max", "order": {"type": "integer", "max_length": 4}},
        {"kind": "min", "order": {"type": "datetime", "le": 5}},
    ],
)
def test_a_layout_without_a_sound_order_is_refused(content: dict[str, Any]) -> None:
    """A layout from another process cannot leave the writer without a way to compare."""
    with pytest.raises(ValidationError):
        FieldLayout.model_validate({"name": "f", **content})


def test_bounds_are_part_of_the_order() -> None:
    """The layout carries the bounds, so that a reader without the model passes over what breaks them."""
    order = CellOrder(type="decimal", gt="0", le="9.5")
    assert [order.key(wire) for wire in ("0", "9.50", "9.51", 3)] == [None, Decimal("9.5"), None, None]
    text = CellOrder(type="text", min_length=2, max_length=3)
    assert [text.key(wire) for wire in ("a", "ab", "abcd")] == [None, "ab", None]
