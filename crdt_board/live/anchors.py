"""Places and stretches of a text that follow the characters they were set at, whoever edits around them.

Written down as ``<path of the text>@<position>``, or two positions with a ``:`` in between. A position is Yjs' relative
position in base64, or ``^`` and ``$`` for the very beginning and the very end of a text.
"""

from __future__ import annotations

import functools
from typing import Literal

import pycrdt

from crdt_board.document import Document
from crdt_board.positions import (
    check_position,
    is_stored,
    nearest_index,
    position_behind,
    position_behind_newest,
    position_in_front,
)
from crdt_board.wire_values import invalid_value

Side = Literal["after", "before"]

_BEGINNING, _END = "^", "$"
_ANCHOR_CHARS_MAX = 4_000


@functools.total_ordering
class Anchor:
    """Where a place or a quoted stretch of a text is *now*: it is worked out anew at each look.

    ``str(anchor)`` is a short text that can be stored in another field or sent to anybody;
    ``board.state.<field>.anchor_from(text)`` makes an anchor of it again, on any replica.

    A stretch holds on to its first and its last character. What is written inside becomes a part of it, what is written
    at its edges does not. When its text is deleted it shrinks, to a place where that text was when nothing is left
    (`gone`), and does not come back.
    """

    __slots__ = ("_document", "_first", "_last", "_path")

    def __init__(self, document: Document, path: str, first: str, last: str | None) -> None:
        """Use ``anchor()`` or ``anchor_from()`` of a live text."""
        self._document = document
        self._path = path
        self._first = first
        self._last = last

    @property
    def start(self) -> int:
        """The code point at which the stretch, or the place, is."""
        return self._index(self._first)

    @property
    def stop(self) -> int:
        """The code point behind the stretch; the same as `start` for a place."""
        return self.start if self._last is None else max(self.start, self._index(self._last))

    @property
    def index(self) -> int:
        """The same as `start`."""
        return self.start

    @property
    def quote(self) -> str:
        """What the stretch holds now; empty for a place."""
        return "" if self._last is None else self._document.read_text(self._path)[self.start : self.stop]

    @property
    def gone(self) -> bool:
        """Whether nothing is left of a stretch. A place is never gone."""
        return self._last is not None and self.start == self.stop

    def __str__(self) -> str:
        return f"{self._path}@{self._first}" + ("" if self._last is None else f":{self._last}")

    def __repr__(self) -> str:
        return f"<Anchor {self._path}[{self.start}:{self.stop}]>"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, Anchor) else NotImplemented

    def __lt__(self, other: Anchor) -> bool:
        return (self.start, self.stop) < (other.start, other.stop)

    def __hash__(self) -> int:
        return hash(str(self))

    def _index(self, position: str) -> int:
        text = self._document.find(self._path, pycrdt.Text)
        if text is None or position == _BEGINNING:
            return 0
        index = self._document.text_index(self._path)
        if position == _END:
            return index.chars
        if _is_nested(self._path) and not is_stored(text, position):
            return 0  # of a record that was deleted; another one is there under its key
        return index.to_char(nearest_index(text, position, self._path))


def place_at(document: Document, path: str, index: int, side: Side) -> Anchor:
    """A place beside the character after or before ``index``; ``0 <= index <= chars``.

    At the end of the text there is no character after it, and at the beginning none before: there the place is the end,
    or the beginning, for ever.
    """
    chars = document.text_index(path).chars
    text = document.find(path, pycrdt.Text)
    if side == "after":
        if text is None or index == chars:
            return Anchor(document, path, _END, None)
        return Anchor(document, path, position_in_front(text, document.text_index(path).to_byte(index)), None)
    if text is None or index == 0:
        return Anchor(document, path, _BEGINNING, None)
    return Anchor(document, path, position_behind(text, document.text_index(path).to_byte(index)), None)


def place_behind_newest(document: Document, path: str, units: int) -> Anchor:
    """The place behind what this replica inserted last, which was into this text, less its last ``units`` of UTF-16."""
    text = document.find(path, pycrdt.Text)
    assert text is not None, "an insertion into a text that is not there"
    return Anchor(document, path, position_behind_newest(text, units), None)


def stretch_of(document: Document, path: str, start: int, stop: int) -> Anchor:
    """The stretch from ``start`` to ``stop``; ``0 <= start < stop <= chars``."""
    text = document.find(path, pycrdt.Text)
    assert text is not None, "a stretch of a text that is not there"
    index = document.text_index(path)
    first = position_in_front(text, index.to_byte(start))
    return Anchor(document, path, first, position_behind(text, index.to_byte(stop)))


def anchor_from(document: Document, path: str, written: str) -> Anchor:
    """The anchor in the text at ``path`` that ``str(anchor)`` wrote.

    Raises:
        InvalidValue: it is none, is in another text, or at characters that this replica does not have (yet).
    """
    written = str(written)
    where, _, rest = written.rpartition("@")
    if not rest or len(written) > _ANCHOR_CHARS_MAX:
        raise invalid_value(path, f"{written!r:.80} is not an anchor")
    if where != path:
        raise invalid_value(path, f"the anchor is in {where!r:.80}")
    first, _, last = rest.partition(":")
    for position in (first, last) if last else (first,):
        if position not in (_BEGINNING, _END):
            _check(document, path, position)
    return Anchor(document, path, first, last or None)


def _check(document: Document, path: str, position: str) -> None:
    text = document.find(path, pycrdt.Text)
    if text is None:
        raise invalid_value(path, "the anchor is at characters that are not on this replica")
    check_position(text, position, path)


def _is_nested(path: str) -> bool:
    return "/" in path
