"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.errors import MalformedUpdate
from crdt_board.varint import read_varuint, write_varuint


@given(value=st.integers(0, 2**63 - 1), before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_what_is_written_is_read(value: int, before: bytes, after: bytes) -> None:
    """M8: an integer is read back from any position, together with the position after it."""
    encoded = write_varuint(value)
    assert read_varuint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32, "8080808010"), (2**53 - 1, "ffffffffffffff0f")],
)
def test_the_bytes_are_those_of_lib0(value: int, encoded: str) -> None:
    """Seven bits a byte, low ones first, the high bit set on all but the last byte, as Yjs writes them."""
    assert write_varuint(value).hex() == encoded


@given(value=st.integers(128, 2**63 - 1))
def test_a_cut_integer_is_malformed(value: int) -> None:
    """H2: data that ends inside an integer is refused, never read beyond."""
    with pytest.raises(MalformedUpdate, match="ends inside an integer"):
        read_varuint(write_varuint(value)[:-1], 0)


def test_an_endless_integer_is_malformed() -> None:
    """H2: an integer of more than 63 bits is refused after ten bytes, however long it goes on."""
    with pytest.raises(MalformedUpdate, match="more than 63 bits"):
        read_varuint(b"\xff" * 1_000_000, 0)


@pytest.mark.parametrize("value", [-1, 2**63])
def test_a_value_outside_the_range_is_a_fault_of_ours(value: int) -> None:
    """Nobody may ask for an integer that has no encoding."""
    with pytest.raises(AssertionError):
        write_varuint(value)
