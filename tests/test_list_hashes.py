"""The checksum of a list, from what its transactions changed."""

from __future__ import annotations

from typing import Any

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from crdt_board.document import Document
from crdt_board.list_hashes import STRETCH, ListHashes
from crdt_board.schema import BoardModel


class Log(BoardModel):
    log: list[JsonValue]


LAYOUT = Log.board_layout()

ITEMS = st.one_of(
    st.sampled_from([None, True, "", "ü🚢", 0, -0.0, 5, 5.0, 2.5, 1e300, 2**60, float("nan"), float("inf"), b"bytes"]),
    st.just({"b": [1.0, {"a": None}], "a": float("nan")}),
    st.just([[], {}, [2.0, "x", b"x"]]),
)

SPLICES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 3), st.lists(ITEMS, max_size=2 * STRETCH), st.booleans()), max_size=12
)


def copy_of(document: Document) -> Document:
    fresh = Document(LAYOUT)
    fresh.apply_or_raise([document.encode()])
    return fresh


def splice(items: pycrdt.Array[Any], where: float, removed: int, inserted: list[Any]) -> None:
    """``where``: from 0, the end of the list, to 1, its beginning."""
    at = round(len(items) * (1 - where**3))
    with items.doc.transaction():
        del items[at : min(at + removed, len(items))]
        for offset, item in enumerate(inserted):
            items.insert(at + offset, item)


@given(SPLICES)
def test_a_list_has_the_checksum_of_one_that_is_read_anew(splices: list[tuple[float, int, list[Any], bool]]) -> None:
    """Whatever is inserted and removed where, at once or by others, the next checksum is that of a fresh document."""
    document, other = Document(LAYOUT), Document(LAYOUT)
    for where, removed, inserted, is_remote in splices:
        document.checksum()
        writer = other if is_remote else document
        splice(writer.array("log"), where, removed, inserted)
        document.apply_or_raise([other.encode()])
        assert document.checksum() == copy_of(document).checksum()
        other.apply_or_raise([document.encode()])


@given(SPLICES)
def test_several_changes_between_two_checksums_count_as_one(
    splices: list[tuple[float, int, list[Any], bool]],
) -> None:
    """What was not asked for in between is in the next checksum all the same."""
    document = Document(LAYOUT)
    document.array("log").extend([f"item {number}" for number in range(3 * STRETCH)])
    document.checksum()
    for where, removed, inserted, _ in splices:
        splice(document.array("log"), where, removed, inserted)
    assert document.checksum() == copy_of(document).checksum()


def test_what_is_inside_an_item_is_in_the_next_checksum() -> None:
    """Shared types that a client put into a list are read with it, after each change inside of them."""
    document = Document(LAYOUT)
    document.array("log").append("first")
    document.checksum()
    document.array("log").append(pycrdt.Map({"n": 1}))
    assert document.checksum() == copy_of(document).checksum()
    document.array("log")[1]["n"] = 2
    assert document.checksum() == copy_of(document).checksum()


def test_a_list_that_grows_is_not_read_again() -> None:
    """Changes among the last items cost those; a change before them has the list read again."""
    items: list[JsonValue] = [f"item {number}" for number in range(10 * STRETCH)]
    hashes, read = ListHashes(), [list(items)]
    first = hashes.field_hash(read.pop)
    for text in ("one", "two"):
        items.append(text)
        hashes.change([{"retain": len(items) - 1}, {"insert": [text]}])
        assert hashes.field_hash(read.pop) not in (None, first)
    items[-3:-1] = []
    hashes.change([{"retain": len(items) - 1}, {"delete": 2}])
    grown = hashes.field_hash(read.pop)
    assert grown == ListHashes().field_hash(items.copy)
    hashes.change([{"delete": 1}])
    with pytest.raises(IndexError):
        hashes.field_hash(read.pop)
