"""Joining adjacent edits gives the same text as making them one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crdt_board.text_splice import TextSplice


def replaced(text: bytes, start: int, stop: int, inserted: bytes) -> bytes:
    return text[:start] + inserted + text[stop:]


@given(st.data())
def test_joined_edits_are_the_edits_one_by_one(data: st.DataObject) -> None:
    """Whatever is joined, the one replacement leads to their text; what is not joined lies apart."""
    before = bytes(data.draw(st.binary(max_size=30)))
    start = data.draw(st.integers(0, len(before)))
    stop = data.draw(st.integers(start, len(before)))
    inserted = data.draw(st.binary(max_size=6))
    splice = TextSplice("draft", start, stop, inserted)
    text = replaced(before, start, stop, inserted)
    for _ in range(data.draw(st.integers(0, 12))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 5)))
        inserted = data.draw(st.binary(max_size=4))
        end = splice.start + len(splice.inserted)
        if splice.join(start, stop, inserted):
            text = replaced(text, start, stop, inserted)
        else:
            assert start > end or stop < splice.start
    assert replaced(before, splice.start, splice.start + splice.removed, bytes(splice.inserted)) == text


def test_typing_and_taking_back_leaves_nothing() -> None:
    """Characters that were typed and deleted again in one go never reach the document."""
    splice = TextSplice("draft", 5, 5, b"ab")
    assert splice.join(7, 7, b"c")
    assert splice.join(5, 8, b"")
    assert (splice.start, splice.removed, bytes(splice.inserted)) == (5, 0, b"")


def test_backspace_and_forward_delete_reach_beyond_what_was_typed() -> None:
    """Deleting over either edge of the inserted text removes more of the text as it was."""
    splice = TextSplice("draft", 5, 5, b"ab")
    assert splice.join(4, 6, b"")
    assert splice.join(4, 7, b"")
    assert (splice.start, splice.removed, bytes(splice.inserted)) == (4, 3, b"")
