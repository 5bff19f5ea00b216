"""Places in lists of records: their order, their length, and that runs which are made at once stay together."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.item_places import first_places, is_place, places_between, run_of
from crdt_board.limits import DEFAULT_LIMITS

RUNS = [run_of(each) for each in (5, 77**7, 2**53 - 1, 36**6 + 6)]


def insert(places: list[str], gap: int, run: str, count: int = 1) -> list[str]:
    """Insert into ``places``; returned is what was inserted."""
    left = places[gap - 1] if gap else None
    right = places[gap] if gap < len(places) else None
    made = places_between(left, right, count, run)
    assert made is not None
    places[gap:gap] = made
    return made


HISTORIES = st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(RUNS), st.integers(0, 3)), max_size=25)
"""Who inserts where how many items; none means that one is deleted."""


def history(steps: list[tuple[int, str, int]]) -> list[str]:
    places: list[str] = []
    for gap, run, count in steps:
        if count:
            insert(places, gap % (len(places) + 1), run, count)
        elif places:
            del places[gap % len(places)]
    return places


@given(HISTORIES)
def test_there_is_always_a_place_between_two(steps: list[tuple[int, str, int]]) -> None:
    """Wherever and by whom something is inserted, the order of the places is that of the list, without equals."""
    places = history(steps)
    assert all(left < right for left, right in pairwise(places))
    assert all(map(is_place, places))


FORWARDS = st.lists(st.booleans(), min_size=1, max_size=4)


@given(HISTORIES, st.integers(0, 1000), st.lists(FORWARDS, min_size=2, max_size=4))
def test_runs_that_are_inserted_at_one_place_at_once_do_not_mix(
    steps: list[tuple[int, str, int]], at: int, runs: list[list[bool]]
) -> None:
    """M2: each of several replicas writes at one place, each next item behind its last one or in front of its first."""
    common = history(steps)
    gap = at % (len(common) + 1)
    owner: dict[str, int] = {}
    for number, forwards in enumerate(runs):
        mine, first, last = list(common), gap, gap
        for forward in forwards:
            (place,) = insert(mine, last if forward else first, RUNS[number])
            last += 1
            owner[place] = number
    merged = sorted([*common, *owner])
    assert len(set(merged)) == len(common) + sum(map(len, runs))
    between = merged[gap : gap + len(owner)]
    assert set(between) == set(owner)
    changes = sum(owner[left] != owner[right] for left, right in pairwise(between))
    assert changes == len(runs) - 1


@pytest.mark.parametrize("writers", [1, 2, 500])
@pytest.mark.parametrize(("count", "at_end"), [(10_000, True), (1_000, False)], ids=["appends", "in front"])
def test_places_grow_with_the_logarithm(writers: int, count: int, at_end: bool) -> None:
    """A list that grows at one of its ends has short places, also when replicas take turns or each writes only once."""
    names = [run_of(random.Random(number).getrandbits(53)) for number in range(writers)]
    end: str | None = None
    longest = 0
    for number in range(count):
        before, after = (end, None) if at_end else (None, end)
        made = places_between(before, after, 1, names[number % writers])
        assert made is not None
        assert end is None or (end < made[0]) == at_end
        (end,) = made
        longest = max(longest, len(end))
    assert longest <= 13


def test_places_stay_short_in_a_list_that_is_written_in_any_order() -> None:
    """2,000 inserts at random places give places of some tens of characters."""
    draw = random.Random(7)
    places: list[str] = []
    for _ in range(2_000):
        insert(places, draw.randint(0, len(places)), draw.choice(RUNS))
    assert max(map(len, places)) < 150


def test_no_room_is_said_and_not_made() -> None:
    """Between equal places, or in a gap that was halved too often, there is no place."""
    places = first_places(2, RUNS[0])
    assert places_between(places[0], places[0], 1, RUNS[1]) is None
    left, right = places
    halved = 0
    while made := places_between(left, right, 1, RUNS[0]):
        left, right = (made[0], right) if halved % 2 else (left, made[0])
        halved += 1
    assert halved > 150
    assert max(len(left), len(right)) <= DEFAULT_LIMITS.place_chars_max


def test_there_is_room_behind_the_last_number() -> None:
    """Where the numbers end, in a place that another client made, it goes on one level deeper."""
    greatest, least = "lzzzzzz000005lzzzzzz=", "a000000000005a000000="
    assert is_place(greatest)
    assert is_place(least)
    for run in RUNS:
        (behind,) = places_between(greatest, None, 1, run) or [""]
        (in_front,) = places_between(None, least, 1, run) or [""]
        assert in_front < least < greatest < behind


@pytest.mark.parametrize(
    "value",
    [None, 5, "", "a", "g0", "g0000005g0", "g0000005g0<", "g0000005g0==", "g0000005h0=", "g0000005g0=g0", "g0ABCDEFg0=",
     "g0000005g0=\n", ["g0000005g0="], "g0000005g0>" * 100 + "g0000005g0="],
)  # fmt: skip
def test_what_is_no_place(value: object) -> None:
    """Anything that was not made as places are is none, a text that is too long neither."""
    assert not is_place(value)
