"""The lists of records of one document: which items there are, in which order, and how that is changed.

In the document a list is a map: from the id of an item to its record, which has its place under ``$place``. What is no
map there, or has no such place, is no item. Knows shared types and layouts, and no model.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Any

import pycrdt
from pydantic import JsonValue

from crdt_board.containers import Containers
from crdt_board.item_places import first_places, is_place, places_between, run_of
from crdt_board.layout import PLACE_KEY
from crdt_board.paths import split_path
from crdt_board.records import new_item

_SORT_RATHER = 8
"""When one item in so many is to be looked at again, sorting all of them is quicker."""


class ItemIndex:
    """The items of one list in their order: by place, and by id where two places are the same."""

    def __init__(self) -> None:
        self._order: list[tuple[str, str]] = []
        self._places: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, item: object) -> bool:
        return item in self._places

    @property
    def ids(self) -> list[str]:
        return [item for _, item in self._order]

    def id_at(self, index: int) -> str:
        return self._order[index][1]

    def place_of(self, item: str) -> str | None:
        """Where an item is; None when it is not in the list."""
        return self._places.get(item)

    def index_of(self, item: str) -> int:
        """The index of an item that is in the list."""
        return bisect_left(self._order, (self._places[item], item))

    def gap_behind(self, item: str | None, place: str | None = None) -> int:
        """The index before which something goes that comes behind ``item``; behind nothing is the beginning.

        ``place`` is where the item was, for when it is not there any more.
        """
        if item is None:
            return 0
        return bisect_right(self._order, (self._places.get(item, place or ""), item))

    def neighbours(self, gap: int) -> tuple[str | None, str | None]:
        """The places before and after a gap; gap ``n`` is in front of item ``n``."""
        before = self._order[gap - 1][0] if gap > 0 else None
        return before, self._order[gap][0] if gap < len(self._order) else None

    def refresh(self, holder: pycrdt.Map[Any], stale: set[str]) -> None:
        """Read the places of some items again."""
        if len(stale) * _SORT_RATHER > len(self._order):
            for item in stale:
                self._set(item, _place_in(holder, item))
            self._order = sorted((place, item) for item, place in self._places.items())
            return
        for item in stale:
            if item in self._places:
                del self._order[self.index_of(item)]
            self._set(item, _place_in(holder, item))
            if item in self._places:
                insort(self._order, (self._places[item], item))

    def _set(self, item: str, place: str | None) -> None:
        if place is None:
            self._places.pop(item, None)
        else:
            self._places[item] = place


class ItemLists:
    """What is known of the lists of a document, and the changes to them.

    Invariant: an index that `of` returns holds for the present state of the document, inside a transaction too. So
    whatever touches a path must be told to `touch`.
    """

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._known: dict[str, ItemIndex] = {}
        self._below: dict[str, set[str]] = {}
        """Under each path those of the known lists that are below it."""
        self._stale: dict[str, set[str]] = {}

    def of(self, path: str) -> ItemIndex:
        """The items of the list at ``path``. Not to be kept beyond the next change."""
        holder = self._containers.find(path, pycrdt.Map)
        if holder is None:
            return ItemIndex()
        index = self._known.get(path)
        stale = self._stale.pop(path, None)
        if index is None:
            index, stale = self._know(path), set(holder.keys())
        if stale:
            index.refresh(holder, stale)
        return index

    def ids_at(self, path: str) -> Sequence[str]:
        return self.of(path).ids

    def insert(self, path: str, gap: int, items: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Inside a transaction: put new items, by their ids, in front of the item at index ``gap``."""
        holder = self._made(path)
        field = self._containers.field_at(path)
        index = self.of(path)
        places = places_between(*index.neighbours(gap), len(items), self._run)
        if places is None:
            places = self._spread(path, holder, index.ids, gap, len(items))
        for place, (item, wire) in zip(places, items.items(), strict=True):
            holder[item] = new_item(wire, place, field, self._containers)
            self._mark(path, item)

    def move(self, path: str, item: str, gap: int) -> None:
        """Inside a transaction: move an item in front of the one that is at index ``gap`` now."""
        holder = self._made(path)
        index = self.of(path)
        present = index.index_of(item)
        if gap in (present, present + 1):
            return
        places = places_between(*index.neighbours(gap), 1, self._run)
        if places is None:
            others = [each for each in index.ids if each != item]
            places = self._spread(path, holder, others, gap - (present < gap), 1)
        holder[item][PLACE_KEY] = places[0]
        self._mark(path, item)

    def touch(self, path: str) -> None:
        """What is at ``path``, or below it, was changed."""
        for known in (path, *self._below.get(path, ())):
            self._forget(known)
        for changed in (path, path.removesuffix(f"/{PLACE_KEY}")):
            holder, _, key = changed.rpartition("/")
            if holder in self._known:
                self._mark(holder, split_path(key)[0])

    def _know(self, path: str) -> ItemIndex:
        index = self._known[path] = ItemIndex()
        for holder in _holders(path):
            self._below.setdefault(holder, set()).add(path)
        return index

    def _forget(self, path: str) -> None:
        self._stale.pop(path, None)
        if self._known.pop(path, None) is None:
            return
        for holder in _holders(path):
            self._below[holder].discard(path)
            if not self._below[holder]:
                del self._below[holder]

    @property
    def _run(self) -> str:
        return run_of(self._containers.client_id)

    def _made(self, path: str) -> pycrdt.Map[Any]:
        holder = self._containers.make(path)
        assert isinstance(holder, pycrdt.Map)
        return holder

    def _spread(self, path: str, holder: pycrdt.Map[Any], ids: Sequence[str], gap: int, count: int) -> list[str]:
        """Give all of ``ids`` new places, because there was no room for ``count`` more at ``gap``; returned are those.

        What others insert at the same time keeps its order, but comes before or behind all that is moved here.
        """
        places = first_places(len(ids) + count, self._run)
        for item, place in zip(ids, places[:gap] + places[gap + count :], strict=True):
            holder[item][PLACE_KEY] = place
            self._mark(path, item)
        return places[gap : gap + count]

    def _mark(self, path: str, item: str) -> None:
        self._stale.setdefault(path, set()).add(item)


def _holders(path: str) -> list[str]:
    """All paths above a path."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _place_in(holder: pycrdt.Map[Any], item: str) -> str | None:
    try:
        record = holder[item]
        place = record[PLACE_KEY] if isinstance(record, pycrdt.Map) else None
    except KeyError:
        return None
    return place if is_place(place) else None
