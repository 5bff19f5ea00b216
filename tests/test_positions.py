"""Relative positions in texts and lists."""

from __future__ import annotations

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.errors import InvalidValue
from crdt_board.positions import check_position, index_of, position_behind, position_in_front

EDITS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 1000),
        st.integers(0, 4),
        st.sampled_from(["a", "bc", "é", "日本", "😀", "x😀é"]),
    ),
    max_size=12,
)


def edited(docs: list[pycrdt.Doc[object]], edits: list[tuple[int, int, int, str]]) -> list[pycrdt.Text]:
    """Both documents after these edits, each made in one of them, and exchanged now and then."""
    texts = [doc.get("t", type=pycrdt.Text) for doc in docs]
    for who, place, removed, inserted in edits:
        text = str(texts[who])
        start = place % (len(text) + 1)
        first = len(text[:start].encode())
        last = len(text[: start + removed].encode())
        del texts[who][first:last]
        if place % 3:
            texts[who].insert(first, inserted)
        if place % 2:
            exchange(docs)
    exchange(docs)
    return texts


def exchange(docs: list[pycrdt.Doc[object]]) -> None:
    docs[0].apply_update(docs[1].get_update(docs[0].get_state()))
    docs[1].apply_update(docs[0].get_update(docs[1].get_state()))


@given(EDITS, EDITS, st.integers(0, 1000))
def test_a_position_in_a_text_follows_its_neighbour(
    before: list[tuple[int, int, int, str]], after: list[tuple[int, int, int, str]], place: int
) -> None:
    """A position made in one replica is found beside the same character in another, whatever was edited since."""
    docs = [pycrdt.Doc(client_id=1), pycrdt.Doc(client_id=2**53 - 1)]
    texts = edited(docs, [(0, 1, 0, "aé😀z"), *before])
    encoded = str(texts[0]).encode()
    starts = [index for index, byte in enumerate(encoded) if byte & 0xC0 != 0x80]
    if not starts:
        return
    start = starts[place % len(starts)]
    stop = next((index for index in starts if index > start), len(encoded))
    front, behind = position_in_front(texts[0], start), position_behind(texts[0], stop)
    mark = "\u2603"  # three bytes, put around the character in the other replica: the position must stay at it
    assert index_of(texts[1], front, "t") == start
    assert index_of(texts[1], behind, "t") == stop
    texts[1].insert(stop, mark)
    texts[1].insert(start, mark)
    assert index_of(texts[1], front, "t") == start + 3
    assert index_of(texts[1], behind, "t") == stop + 3
    edited(docs, after)
    results = [[index_of(text, each, "t") for each in (front, behind)] for text in texts]
    assert results[0] == results[1]
    assert results[0][0] <= results[0][1] <= len(str(texts[0]).encode())


def test_a_position_at_a_removed_character_is_where_it_was() -> None:
    """When its character is gone a position is at the gap."""
    doc = pycrdt.Doc[object]()
    text = doc.get("t", type=pycrdt.Text)
    text += "aé😀z"
    front, behind = position_in_front(text, 3), position_behind(text, 7)
    del text[3:7]
    assert [index_of(text, each, "t") for each in (front, behind)] == [3, 3]


@pytest.mark.parametrize("bad", ["", "!", "AA==", "AQF0QQ==", "BQ==", "////////////////", "AAEFAA==", "AAEABw=="])
def test_what_is_no_position_is_refused(bad: str) -> None:
    """Bytes that are no position, and positions at unknown items, raise InvalidValue and never reach yrs."""
    doc = pycrdt.Doc[object](client_id=1)
    text = doc.get("t", type=pycrdt.Text)
    text += "abc"
    with pytest.raises(InvalidValue):
        check_position(text, bad, "t")


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_a_position_in_a_list_follows_its_neighbour(items: list[int], data: st.DataObject) -> None:
    """Positions in lists count items."""
    doc = pycrdt.Doc[object]()
    root = doc.get("l", type=pycrdt.Array)
    root.extend(items)
    place = data.draw(st.integers(0, len(items) - 1))
    front, behind = position_in_front(root, place), position_behind(root, place + 1)
    root.insert(0, -1)
    assert [index_of(root, each, "l") for each in (front, behind)] == [place + 1, place + 2]
