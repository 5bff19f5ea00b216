"""How near a board is to the bounds beyond which edits are refused, so that somebody hears of it before.

What is told is told once: a warning stands from 80 % of a bound until it is below 70 % of it again. The bounds that a
model gives a field itself are no reason for a warning: a list of three is there to be filled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pycrdt

from crdt_board.document import Document
from crdt_board.layout import FieldKind
from crdt_board.limits import Limits
from crdt_board.records import shared_class

WARNINGS = "$warnings"
"""The path under which `Board.changes` tells that the warnings are others than before."""

COUNTED_KINDS: frozenset[FieldKind] = frozenset({"list", "set", "dict", "records", "record_list"})
"""The kinds of fields whose items are bounded."""

_WARNED_PERCENT = 80
_CALM_PERCENT = 70
_LOOK_CHANGES = 100
"""Measuring takes as long as a small edit does; the largest bounds are many edits away from 80 % of them."""
_PATHS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LimitWarning:
    """``value`` is at least 80 % of ``maximum``, beyond which edits are refused.

    ``limit`` is the bound's name in `Limits`, ``path`` the field that it is about, empty for the board as a whole.
    """

    limit: str
    path: str
    value: int
    maximum: int

    @property
    def percent(self) -> int:
        return percent_of(self.value, self.maximum)

    @property
    def is_near(self) -> bool:
        return self.percent >= _WARNED_PERCENT

    def __str__(self) -> str:
        what = f"{self.path}: " if self.path else ""
        return f"{what}{self.value} of {self.maximum} ({self.percent} %) of {self.limit}"


def percent_of(value: int, maximum: int) -> int:
    """How many per cent of ``maximum`` are used, rounded down."""
    return value * 100 // maximum if maximum else 100


class Headroom:
    """The warnings of one document, which is handed to each call."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._standing: dict[tuple[str, str], LimitWarning] = {}
        self._touched: set[str] = set()
        self._changes = 0
        self._moved = False
        self._texts: dict[str, tuple[int, int]] = {}
        """Of long texts their bytes and characters when they were counted last."""

    def touch(self, paths: Sequence[str]) -> bool:
        """Note what was changed; True when enough was that it is time to `look`."""
        self._changes += 1
        if len(self._touched) < _PATHS_MAX:
            self._touched.update(paths)
        else:
            self._touched.update(path.partition("/")[0] for path in paths)
        return self._changes >= _LOOK_CHANGES

    def look(self, document: Document, others: Iterable[LimitWarning] = ()) -> tuple[LimitWarning, ...]:
        """Measure what was touched since the last look, and take in measures of ``others``; return what is new."""
        deep = len(self._touched) <= _PATHS_MAX
        places = {place for path in self._touched for place in self._places(document, path, deep=deep)}
        self._touched.clear()
        self._changes = 0
        measured = [each for place in places if (each := self._measure(document, place)) is not None]
        new: list[LimitWarning] = []
        for each in (*measured, *others):
            key = (each.limit, each.path)
            if each.percent < (_CALM_PERCENT if key in self._standing else _WARNED_PERCENT):
                self._moved |= self._standing.pop(key, None) is not None
                continue
            if key not in self._standing:
                new.append(each)
                self._moved = True
            self._standing[key] = each
        return tuple(new)

    def look_at_all(self, document: Document, others: Iterable[LimitWarning] = ()) -> tuple[LimitWarning, ...]:
        """The same for all fields of the board itself."""
        self._touched.update(document.kinds)
        return self.look(document, others)

    def take_moved(self) -> bool:
        """Whether other warnings stand than at the last call."""
        moved, self._moved = self._moved, False
        return moved

    @property
    def warnings(self) -> tuple[LimitWarning, ...]:
        """What stands, as of the last look, in the order of paths."""
        return tuple(sorted(self._standing.values(), key=lambda each: (each.path, each.limit)))

    def _places(self, document: Document, path: str, *, deep: bool) -> Iterator[str]:
        """The fields on the way to a path, with ``deep`` those of a record at the path, and those below it that are
        warned of, since it may be gone."""
        parts = path.split("/")
        for end in range(1, len(parts) + 1, 2):
            yield "/".join(parts[:end])
        if deep and len(parts) % 2 == 0 and parts[0] in document.kinds:
            yield from (f"{path}/{field.name}" for field in document.field_at("/".join(parts[:-1])).fields)
        for _, place in self._standing:
            if place.startswith(f"{path}/"):
                yield place

    def _measure(self, document: Document, place: str) -> LimitWarning | None:
        if not place:
            return None
        try:
            kind = document.field_at(place).kind
        except KeyError:
            return None
        if kind == "text":
            most = self._limits.text_chars_max
            return LimitWarning("text_chars_max", place, self._chars(document, place, most), most)
        if kind not in COUNTED_KINDS:
            return None
        shared: type[Any] = shared_class(kind)
        content = document.find(place, shared)
        most = self._limits.container_items_max
        return LimitWarning("container_items_max", place, 0 if content is None else len(content), most)

    def _chars(self, document: Document, place: str, most: int) -> int:
        """The characters of a text; of a short one no fewer. Counting those of 10 MB takes some 10 ms."""
        text = document.find(place, pycrdt.Text)
        size = 0 if text is None else len(text)
        if percent_of(size, most) < _CALM_PERCENT:
            self._texts.pop(place, None)
            return size
        counted, chars = self._texts.get(place, (0, 0))
        guess = chars + size - counted
        if not counted or abs(size - counted) * 100 >= most or percent_of(guess, most) != percent_of(chars, most):
            chars = len(str(text))
            self._texts[place] = (size, chars)
        return chars
