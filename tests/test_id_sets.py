"""Sets of ids."""

from __future__ import annotations

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.errors import MalformedUpdate
from crdt_board.id_sets import cut_ranges, decode_ids, encode_ids

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda pairs: [(start, start + length) for start, length in pairs]
)


@given(st.dictionaries(st.integers(1, 2**52), RANGES, max_size=3))
def test_they_come_back_as_yrs_reads_them(ids: dict[int, list[tuple[int, int]]]) -> None:
    """Decoding gives what was encoded, and yrs takes it for the same bytes but for the order of clients."""
    encoded = encode_ids(ids)
    assert decode_ids(encoded) == ids
    assert decode_ids(pycrdt.IdSet.decode(encoded).encode()) == ids


@given(RANGES, st.sets(st.integers(0, 60)).map(sorted))
def test_cut_ranges_hold_the_same_clocks_and_cross_no_border(ranges: list[tuple[int, int]], borders: list[int]) -> None:
    """Nothing is added, left out or empty, and a border is only ever where a range begins or ends."""
    pieces = cut_ranges(ranges, borders)
    assert [clock for pair in pieces for clock in range(*pair)] == [clock for pair in ranges for clock in range(*pair)]
    assert all(start < stop for start, stop in pieces)
    assert not any(start < border < stop for start, stop in pieces for border in borders)


def test_what_is_no_set_of_ids_is_refused() -> None:
    """MalformedUpdate, whatever the bytes announce."""
    for encoded in (b"", b"\x01", b"\x01\x01\x05\x00\x01", b"\xff\xff\xff\x7f"):
        with pytest.raises(MalformedUpdate):
            decode_ids(encoded)
