"""Code points and bytes of one text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crdt_board.text_index import TextIndex

PIECES = st.one_of(
    st.text(alphabet="ab\n", max_size=20),
    st.text(max_size=20),
    st.sampled_from(["", "é", "e\u0301", "😀", "👩‍👩‍👧", "a" * 3000, "é" * 1500, "😀" + "x" * 1500]),
)
EDITS = st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 2**32), PIECES), max_size=30)


def assert_right(index: TextIndex, text: str) -> None:
    encoded = text.encode()
    assert (index.chars, index.bytes) == (len(text), len(encoded))
    step = max(1, len(text) // 50)
    for char in [*range(0, len(text), step), len(text)]:
        byte = len(text[:char].encode())
        assert index.to_byte(char) == byte
        assert index.to_char(byte) == char


@given(PIECES, EDITS)
def test_every_edit_keeps_every_position(text: str, edits: list[tuple[int, int, str]]) -> None:
    """After any local edits the index answers as if it had been made from the text."""
    index = TextIndex(text)
    for one, other, inserted in edits:
        start, stop = sorted((one % (len(text) + 1), other % (len(text) + 1)))
        index.replace(start, stop, inserted)
        text = text[:start] + inserted + text[stop:]
        assert_right(index, text)


@given(st.lists(st.sampled_from("ab é😀"), max_size=300))
def test_typing_one_character_at_a_time(typed: list[str]) -> None:
    """A text that is typed at its end is indexed as one that was there at once."""
    index = TextIndex()
    for position, character in enumerate(typed):
        index.replace(position, position, character)
    assert_right(index, "".join(typed))


def test_byte_inside_a_character_belongs_to_it() -> None:
    """A byte in the middle of a code point gives that code point."""
    index = TextIndex("a😀b")
    assert [index.to_char(byte) for byte in range(7)] == [0, 1, 1, 1, 1, 2, 3]


def test_scattered_wide_characters_do_not_make_a_chunk_each() -> None:
    """A text with an accent every hundred characters, typed in order, has few chunks."""
    index = TextIndex()
    for position in range(50_000):
        index.replace(position, position, "é" if position % 100 == 0 else "e")
    assert len(index._chunks) < 250
