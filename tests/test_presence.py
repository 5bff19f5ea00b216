from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board.errors import InvalidValue, LimitExceeded, ProtocolError
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.presence import PresenceState, PresenceTable, decode_states, encode_states, state_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STATES = st.lists(
    st.builds(
        PresenceState,
        st.integers(0, 2**53 - 1),
        st.integers(0, 2**53 - 1),
        st.none() | st.dictionaries(st.text(), JSON, max_size=3).map(state_text),
    ),
    max_size=5,
).map(tuple)


def alive(client_id: int, clock: int, state: str = '{"a":1}') -> PresenceState:
    return PresenceState(client_id, clock, state)


def gone(client_id: int, clock: int) -> PresenceState:
    return PresenceState(client_id, clock, None)


@pytest.fixture
def table() -> PresenceTable:
    return PresenceTable(DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("state", "encoded"),
    [
        (
            PresenceState(2**32 - 1, 1, state_text({"user": "Zoë 😀", "line": "a\u2028\u0001", "n": 1.5})),
            "01ffffffff0f01307b2275736572223a225a6fc3ab20f09f9880222c226c696e65223a2261e280a85c7530303031222c226e223a312e357d",
        ),
        (
            PresenceState(2**32 - 1, 2, state_text({"lone": "\ud800x"})),
            "01ffffffff0f02127b226c6f6e65223a225c756438303078227d",
        ),
        (PresenceState(2**32 - 1, 3, None), "01ffffffff0f03046e756c6c"),
    ],
)
def test_the_encoding_is_that_of_y_protocols(state: PresenceState, encoded: str) -> None:
    """The bytes are those that y-protocols 1.0.7 writes for the same state, and are read back."""
    assert encode_states([state]).hex() == encoded
    assert decode_states(bytes.fromhex(encoded), DEFAULT_LIMITS) == (state,)


@settings(deadline=None)
@given(STATES)
def test_states_round_trip(states: tuple[PresenceState, ...]) -> None:
    """What was encoded is decoded, lone surrogates included."""
    encoded = encode_states(states)
    assert decode_states(encoded, DEFAULT_LIMITS) == states
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            decode_states(encoded[:end], DEFAULT_LIMITS)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_protocol_errors(data: bytes) -> None:
    """H1: whatever arrives is a list of states or a protocol error."""
    with contextlib.suppress(ProtocolError):
        decode_states(data, DEFAULT_LIMITS)


@pytest.mark.parametrize("text", ["", "{", "1", '"x"', "[]", "NaN", '{"a":NaN}', '{"a":Infinity}', "[" * 60_000])
def test_a_state_that_is_no_json_object_is_refused(text: str) -> None:
    """H2: what a browser could not parse is not handed on to it, and endless nesting ends in an error."""
    with pytest.raises(ProtocolError):
        decode_states(encode_states([PresenceState(1, 1, text or " ")]), DEFAULT_LIMITS)


@pytest.mark.parametrize("numbers", [(2**53, 1), (1, 2**53)])
def test_numbers_that_javascript_cannot_hold_are_refused(numbers: tuple[int, int]) -> None:
    """Client ids and clocks end at 2^53 - 1."""
    with pytest.raises(ProtocolError):
        decode_states(encode_states([alive(*numbers)]), DEFAULT_LIMITS)


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": object()}, {"a": {1, 2}}])
def test_a_state_of_ones_own_that_is_no_json_is_refused_at_the_call(value: dict[str, object]) -> None:
    """What cannot be written as JSON is the caller's fault."""
    with pytest.raises(InvalidValue):
        state_text(value)  # type: ignore[arg-type]


def test_a_newer_clock_wins_and_an_older_one_is_passed_over(table: PresenceTable) -> None:
    """States are told on once, in the order of their clocks."""
    assert table.apply([alive(1, 5)], "a") == (alive(1, 5),)
    assert table.apply([alive(1, 5), alive(1, 4), gone(1, 4)], "a") == ()
    assert table.apply([alive(1, 6, "{}")], "a") == (alive(1, 6, "{}"),)
    assert table.all_states() == (alive(1, 6, "{}"),)


@pytest.mark.parametrize("clock", [5, 6])
def test_a_removal_counts_at_the_same_clock_or_a_later_one(table: PresenceTable, clock: int) -> None:
    """y-protocols accepts null at an equal clock while the state is there, and only once."""
    table.apply([alive(1, 5)], "a")
    assert table.apply([gone(1, clock), gone(1, clock)], "a") == (gone(1, clock),)
    assert table.all_states() == ()
    assert table.apply([alive(1, clock)], "a") == ()
    assert table.apply([alive(1, clock + 1)], "a") == (alive(1, clock + 1),)


def test_another_owner_cannot_speak_for_a_client_that_is_there(table: PresenceTable) -> None:
    """H5: neither a change nor a removal by another connection counts, and both are no fault."""
    table.apply([alive(1, 5)], "a")
    assert table.apply([alive(1, 6), gone(1, 7), alive(2, 1)], "b") == (alive(2, 1),)
    assert set(table.all_states()) == {alive(1, 5), alive(2, 1)}


def test_a_dropped_owner_is_removed_everywhere(table: PresenceTable) -> None:
    """W2: all its states go, at their last clock, and no one else's; a second time there is nothing left."""
    table.apply([alive(1, 5), alive(2, 7)], "a")
    table.apply([alive(3, 1)], "b")
    assert table.drop_owner("a") == (gone(1, 5), gone(2, 7))
    assert table.drop_owner("a") == ()
    assert table.all_states() == (alive(3, 1),)


def test_an_echo_does_not_bring_a_dropped_client_back(table: PresenceTable) -> None:
    """Stock clients send on what they heard: the last state of a client that is gone stays gone."""
    table.apply([alive(1, 5)], "a")
    table.drop_owner("a")
    assert table.apply([alive(1, 5)], "b") == ()
    assert table.all_states() == ()


def test_a_client_that_comes_back_counts_from_its_next_clock(table: PresenceTable) -> None:
    """The removal took the last clock, so that the next change of the client is news to all."""
    table.apply([alive(1, 5)], "a")
    table.drop_owner("a")
    assert table.apply([alive(1, 6)], "c") == (alive(1, 6),)
    assert table.drop_owner("c") == (gone(1, 6),)


def test_a_removal_of_an_unknown_client_is_not_kept(table: PresenceTable) -> None:
    """What was never there cannot go, and takes no room."""
    assert table.apply([gone(client, 1) for client in range(100)], "a") == ()


def test_one_owner_speaks_for_a_bounded_number_of_clients() -> None:
    """Invented client ids end at the limit; ids that went make room."""
    table = PresenceTable(replace(DEFAULT_LIMITS, presence_states_max=2))
    table.apply([alive(1, 1), alive(2, 1)], "a")
    with pytest.raises(LimitExceeded) as caught:
        table.apply([alive(3, 1)], "a")
    assert caught.value.limit == "presence_states_max"
    table.apply([gone(1, 2), alive(3, 1)], "a")
    assert {state.client_id for state in table.all_states()} == {2, 3}


def test_the_clients_that_are_gone_longest_are_forgotten_first() -> None:
    """The table has a greatest size; those who are there are never forgotten."""
    table = PresenceTable(replace(DEFAULT_LIMITS, presence_clients_max=3))
    table.apply([alive(1, 1), alive(2, 1), alive(3, 1)], "a")
    table.apply([gone(2, 1), gone(1, 1), alive(4, 1)], "a")
    assert table.apply([alive(1, 1)], "b") == ()
    assert table.apply([alive(2, 1)], "b") == (alive(2, 1),)
    with pytest.raises(LimitExceeded):
        table.apply([alive(5, 1)], "b")
    assert {state.client_id for state in table.all_states()} == {2, 3, 4}


@settings(deadline=None)
@given(st.lists(st.tuples(STATES, st.integers(0, 2)), max_size=20))
def test_what_is_told_adds_up_to_what_is_there(rounds: list[tuple[tuple[PresenceState, ...], int]]) -> None:
    """A peer that applies every told change by y-protocols' rule holds what a late joiner is told."""
    table = PresenceTable(DEFAULT_LIMITS)
    peer: dict[int, PresenceState] = {}
    for states, owner in rounds:
        told = table.apply([replace(state, client_id=state.client_id % 3) for state in states], owner)
        for state in told + (table.drop_owner(owner) if owner == 2 else ()):
            known = peer.get(state.client_id)
            assert known is None or known.clock < state.clock or (known.clock == state.clock and state.state is None)
            peer[state.client_id] = state
    assert set(table.all_states()) == {state for state in peer.values() if state.state is not None}
