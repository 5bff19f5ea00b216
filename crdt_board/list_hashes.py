"""The checksum of one list, which costs what was changed near its end, where logs grow, and not what is there.

It is a hash over the hashes of its stretches of `STRETCH` items, each of the canonical JSON of an array of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any

from pydantic import JsonValue

from crdt_board.canonical import SAFE_INTEGER, canonical_json

STRETCH = 16
"""A list that grows by one item has 16 to 31 read again, and the hashes of the rest: 20 kB for 10,000 items."""


class ListHashes:
    """What is known of one list: the hashes of its first stretches, and the items behind them.

    Invariant: both are those of the list as long as `forget` or `change` was called with every change of it.
    """

    def __init__(self) -> None:
        self._stretches = bytearray()
        self._first = 0
        self._items: list[JsonValue] | None = None  # None: nothing is known

    def forget(self) -> None:
        self._stretches.clear()
        self._items, self._first = None, 0

    def change(self, delta: Iterable[dict[str, Any]]) -> None:
        """The list was changed as the delta of a transaction's event says."""
        items, at = self._items, -self._first
        if items is None:
            return
        for part in delta:
            at += part.get("retain", 0)
            inserted = part.get("insert", ())
            if at < 0 or inserted == [] or not all(map(_is_as_in_json, inserted)):  # []: see `Touched.take_unreadable`
                self.forget()
                return
            items[at:at] = map(_as_in_json, inserted)
            at += len(inserted)
            del items[at : at + part.get("delete", 0)]

    def field_hash(self, read: Callable[[], list[JsonValue]]) -> str | None:
        """The hash of the list; None when it is empty. ``read`` is called when what is there is not known."""
        if self._items is None:
            self._items = read().copy()  # it is taken apart below
        items = self._items
        settled = len(items) // STRETCH * STRETCH - STRETCH  # what others insert at once may come before the last item
        if settled > 0:
            self._stretches += b"".join(_hashes(items[:settled]))
            self._first += settled
            del items[:settled]
        if not self._first and not items:
            return None
        return hashlib.sha256(self._stretches + b"".join(_hashes(items))).hexdigest()


def _hashes(items: list[JsonValue]) -> Iterator[bytes]:
    for start in range(0, len(items), STRETCH):
        yield hashlib.sha256(canonical_json(items[start : start + STRETCH])).digest()


def _is_as_in_json(value: object) -> bool:
    """Whether a value of an event, made as JSON by `_as_in_json`, is one that the list has as JSON."""
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, list):
        return all(map(_is_as_in_json, value))
    if isinstance(value, dict):
        return all(map(_is_as_in_json, value.values()))
    return value is None or isinstance(value, str | int)


def _as_in_json(value: Any) -> JsonValue:
    """Whole numbers as integers: the canonical JSON is the same, and quicker to write."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= SAFE_INTEGER:
        return int(value)
    if isinstance(value, list):
        return list(map(_as_in_json, value))
    if isinstance(value, dict):
        return {key: _as_in_json(item) for key, item in value.items()}
    return value  # type: ignore[no-any-return]
