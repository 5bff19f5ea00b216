"""A text field of ``board.state``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NoReturn

from rapidfuzz import fuzz

from crdt_board.diffs import Splice, middle_splice, splices
from crdt_board.fields import plain_value
from crdt_board.live.anchors import Anchor, Side, anchor_from, place_at, stretch_of
from crdt_board.live.editor import Editor
from crdt_board.live.streams import EditStream
from crdt_board.wire_values import check_text, invalid_value

_NEAREST_CHARS_MAX = 20_000
"""How much of a long text is searched for the passage that a wrong quote may have meant."""
_WORD_CHARS_MAX = 30


class LiveText:
    """Reads as a ``str`` of this moment, with all its methods except `replace`, and edits the board's text.

    Positions are code points. Anything read is a copy.
    """

    __slots__ = ("_editor", "_field")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, field: str) -> None:
        """``field`` is the field's name, or the path of a text in a record."""
        self._editor = editor
        self._field = field

    def insert(self, index: int, text: str) -> None:
        """Insert ``text`` before ``index``; beyond either end it goes to that end.

        Raises:
            InvalidValue: ``text`` is no str, or holds a lone surrogate; or there would be more than the field may have.
        """
        if not (type(text) is str and text.isascii()):
            check_text(text, self._field)
        with self._editor.edit(text):
            document = self._editor.document
            chars = document.text_index(self._field).chars
            if index > chars:
                index = chars
            elif index < 0:
                index = max(0, index + chars)
            if text:
                document.check_change(self._field, len(text))
                document.edit_text(self._field, index, index, text)

    def append(self, text: str) -> None:
        """Insert ``text`` at the end.

        Raises:
            InvalidValue: as `insert`.
        """
        with self._editor.edit(text):
            self.insert(self._editor.document.text_index(self._field).chars, text)

    def delete(self, start: int, stop: int) -> None:
        """Remove the slice ``[start:stop]``."""
        with self._editor.edit():
            document = self._editor.document
            chars = document.text_index(self._field).chars
            if not 0 <= start <= stop <= chars:
                start, stop, _ = slice(start, stop).indices(chars)
            if start < stop:
                document.check_change(self._field, start - stop)
                document.edit_text(self._field, start, stop, "")

    def replace(self, old: str, new: str, count: int | None = None) -> None:
        """Replace the quoted ``old`` by ``new``: its only occurrence, or the first ``count`` ones.

        What both have in common at their beginning and end is not touched.

        Raises:
            InvalidValue: ``old`` is empty or not there (``nearest`` holds the most similar passage), is there more
                than once and no ``count`` is given, or less often than ``count``.
        """
        check_text(new, self._field)
        places = self._find(check_text(old, self._field), count)
        self._editor.document.check_change(self._field, len(places) * (len(new) - len(old)))
        with self._editor.edit([new] * len(places)):
            middle = middle_splice(old, new)
            if middle is not None:
                for place in reversed(places):
                    self._splice(Splice(place + middle.start, place + middle.stop, middle.new))

    def apply(self, new_text: str) -> None:
        """Make the text equal to ``new_text`` with the smallest edit, so that others' edits elsewhere survive.

        Raises:
            InvalidValue: as `insert`.
        """
        new_text = check_text(plain_value(new_text), self._field)
        self._editor.document.check_change(self._field, len(new_text) - len(self))
        with self._editor.edit(new_text):
            for edit in reversed(splices(str(self), new_text)):
                self._splice(edit)

    def anchor(self, at: int | str, stop: int | None = None, *, side: Side = "after") -> Anchor:
        """A mark that follows its text: the quoted stretch ``at``, the slice ``[at:stop]``, or the place ``at``.

        ``side`` says beside which character a place stays: the one after it, or the one before it.

        Raises:
            InvalidValue: the quote is not there once (as `replace`), or the slice is empty.
        """
        document = self._editor.document
        if isinstance(at, str):
            place = self._find(check_text(at, self._field), None)[0]
            return stretch_of(document, self._field, place, place + len(at))
        if stop is None:
            index, _, _ = slice(at, None).indices(document.text_index(self._field).chars)
            return place_at(document, self._field, index, side)
        start, stop, _ = slice(at, stop).indices(document.text_index(self._field).chars)
        if start >= stop:
            raise invalid_value(self._field, "an empty stretch cannot be anchored; anchor(index) marks a place")
        return stretch_of(document, self._field, start, stop)

    def anchor_from(self, written: str) -> Anchor:
        """The anchor that ``str(anchor)`` wrote, here or on another replica.

        Raises:
            InvalidValue: it is none, is in another text, or at characters that have not arrived here.
        """
        return anchor_from(self._editor.document, self._field, written)

    def edit_stream(self, index: int | None = None) -> EditStream:
        """Write here piece by piece, at ``index`` or at the end, while others edit: see `EditStream`.

        Call it in a coroutine: ``async with board.state.draft.edit_stream() as stream``.
        """
        chars = self._editor.document.text_index(self._field).chars
        start = chars if index is None else slice(index, None).indices(chars)[0]
        return EditStream(self._editor, self._field, start, asyncio.get_running_loop().call_soon)

    def to_python(self) -> str:
        """The text as a plain ``str``."""
        return self._editor.document.read_text(self._field)

    def __str__(self) -> str:
        return self.to_python()

    def __repr__(self) -> str:
        return repr(self.to_python())

    def __len__(self) -> int:
        return self._editor.document.text_index(self._field).chars

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_python())

    def __contains__(self, part: str) -> bool:
        return str(part) in self.to_python()

    def __getitem__(self, index: int | slice) -> str:
        return self.to_python()[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.to_python(), name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str | LiveText):
            return self.to_python() == str(other)
        return NotImplemented

    def __lt__(self, other: str) -> bool:
        return self.to_python() < str(other)

    def __le__(self, other: str) -> bool:
        return self.to_python() <= str(other)

    def __gt__(self, other: str) -> bool:
        return self.to_python() > str(other)

    def __ge__(self, other: str) -> bool:
        return self.to_python() >= str(other)

    def __add__(self, other: str) -> str:
        return self.to_python() + str(other)

    def __radd__(self, other: str) -> str:
        return str(other) + self.to_python()

    def __mul__(self, times: int) -> str:
        return self.to_python() * times

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return str.__mod__(self.to_python(), values)

    def __format__(self, spec: str) -> str:
        return format(self.to_python(), spec)

    def __iadd__(self, text: str) -> LiveText:
        self.append(text)
        return self

    def _splice(self, edit: Splice[str]) -> None:
        self._editor.document.edit_text(self._field, edit.start, edit.stop, edit.new)

    def _find(self, old: str, count: int | None) -> list[int]:
        if not old:
            raise invalid_value(self._field, "the quoted text is empty; use insert() or append()")
        text = self.to_python()
        places: list[int] = []
        place = text.find(old)
        while place >= 0:
            places.append(place)
            place = text.find(old, place + len(old))
        if not places:
            self._refuse_missing(old, text)
        if count is None and len(places) > 1:
            raise invalid_value(
                self._field,
                f"{_quoted(old)} is there {len(places)} times; quote more of its surroundings, or give count",
                places=places[:20],
            )
        if count is not None and not 1 <= count <= len(places):
            raise invalid_value(self._field, f"{_quoted(old)} is there {len(places)} times, not {count}")
        return places[:count]

    def _refuse_missing(self, old: str, text: str) -> NoReturn:
        found = fuzz.partial_ratio_alignment(old, text[:_NEAREST_CHARS_MAX], score_cutoff=50)
        nearest = _whole_words(text, found.dest_start, found.dest_end) if found is not None else ""
        hint = f"; the nearest passage is {_quoted(nearest)}" if nearest else ""
        raise invalid_value(self._field, f"{_quoted(old)} is not there{hint}", nearest=nearest)


def _whole_words(text: str, start: int, stop: int) -> str:
    """The passage, extended to the words that it begins and ends in."""
    first, last = max(0, start - _WORD_CHARS_MAX), min(len(text), stop + _WORD_CHARS_MAX)
    while start > first and not text[start - 1].isspace():
        start -= 1
    while stop < last and not text[stop].isspace():
        stop += 1
    return text[start:stop]


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")
