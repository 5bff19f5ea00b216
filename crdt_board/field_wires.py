"""Reading the fields of one document in wire form, and no more of them than is asked for."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.cells import CELL_KINDS, reading
from crdt_board.containers import Containers
from crdt_board.item_lists import ItemLists
from crdt_board.kept_wires import NOTHING, KeptWires
from crdt_board.layout import (
    BOARD_ROOT,
    ITEM_KEY,
    RECORD_KINDS,
    SINGLE_KINDS,
    STATE_ROOT,
    STRICT_PREFIX,
    FieldKind,
    FieldLayout,
)
from crdt_board.local_transactions import LocalTransactions
from crdt_board.paths import split_path
from crdt_board.put_cells import PutCells
from crdt_board.records import SharedType, record_wire, records_wire
from crdt_board.text_edits import TextEdits

_BY_KEY: frozenset[FieldKind] = frozenset({"dict", "records"})
"""The kinds of fields of which single keys can be read again."""


class FieldWires:
    """What the fields of one document hold.

    With ``strays``, the keys of the root map ``state`` that no field is named after count as scalar fields.

    With ``keeps``, what was read of a field is kept, and read again when it was touched. It is the reader's only to
    look at then: whoever hands it on where it may be changed hands on a copy. Inside a local transaction nothing is
    kept, since nobody tells yet what was touched.
    """

    def __init__(
        self,
        roots: Mapping[str, SharedType],
        containers: Containers,
        *,
        edits: TextEdits,
        items: ItemLists,
        cells: PutCells,
        transactions: LocalTransactions,
        strays: bool,
    ) -> None:
        self.strays = strays
        self.keeps = False
        self._kept = KeptWires()
        self._roots = roots
        self._containers = containers
        self._edits = edits
        self._items = items
        self._cells = cells
        self._transactions = transactions
        self._stray_names: list[str] | None = None  # None: not known

    def field_at(self, path: str) -> FieldLayout:
        """The layout of the field at ``path``, which may be inside a record.

        Raises:
            KeyError: there is none.
        """
        try:
            return self._containers.field_at(path)
        except KeyError:
            if self.strays and "/" not in path:
                return FieldLayout.model_construct(name=split_path(path)[0], kind="scalar")
            raise

    def record(self, path: str) -> JsonValue:
        """The record at ``path``; None when it is not there."""
        self._edits.settle()
        record = self._containers.find(path, pycrdt.Map)
        if record is None:
            return None
        return record_wire(json.loads(str(record)), self.field_at(path.rpartition("/")[0]), path, self._items.ids_at)

    def records(self, path: str) -> JsonValue:
        """All records of the field at ``path``; empty when it was not made yet."""
        self._edits.settle()
        records = self._containers.find(path, pycrdt.Map)
        content = {} if records is None else json.loads(str(records))
        return records_wire(content, self.field_at(path), path, self._items.ids_at)

    def forget(self, field: str) -> None:
        """A field was changed."""
        self._kept.forget(field)

    def forget_key(self, field: str, key: str) -> None:
        """What is under a key of a field was changed."""
        if self._kinds.get(field) in _BY_KEY:
            self._kept.forget_key(field, key)
        else:
            self._kept.forget(field)

    def forget_all(self) -> None:
        """The fields may be others now, and in other roots."""
        self._stray_names = None
        self._kept.forget_all()

    def container(self, name: str) -> JsonValue:
        """A field that has a root of its own; empty, zero or None (with cells) when it holds nothing."""
        if not self.keeps or self._transactions.is_open:
            return self._read_container(name)
        if self._kinds[name] in _BY_KEY:
            root = cast("pycrdt.Map[Any]", self._roots[name])
            self._kept.refresh(self._containers.layout.by_name[name], root, self._items.ids_at)
        return self._kept[name] if name in self._kept else self._kept.keep(name, self._read_container(name))

    def _read_container(self, name: str) -> JsonValue:
        kind = self._kinds[name]
        if kind == "text":
            self._edits.settle()
            return str(self._roots[name])
        if kind in RECORD_KINDS:
            return self.records(name)
        if kind == "list":
            return cast(JsonValue, json.loads(str(self._roots[name])))
        if kind in CELL_KINDS:
            return reading(self._containers.layout.by_name[name], self._cells.cells(name))
        content = json.loads(str(self._roots[name]))
        if kind == "set":
            return [content[key] for key in sorted(content)]
        return sum(cell for cell in content.values() if isinstance(cell, int)) if kind == "counter" else content

    def state(self, only: Collection[str] | None) -> dict[str, JsonValue]:
        """Every field that holds something; sets are lists in the order of their canonical JSON.

        ``only`` names fields to leave out all others, which are not read then.
        """
        assert not isinstance(only, str), only
        kinds = self._kinds
        names = kinds if only is None else [name for name in kinds if name in only]
        values = self._singles(only)
        state = {name: wire for name, wire in values.items() if name not in kinds}
        for name in names:
            kind = kinds[name]
            if kind in SINGLE_KINDS:
                if name in values:
                    state[name] = values[name]
            else:
                value = self.container(name)
                if is_something(value, kind) or kind == "counter":
                    state[name] = value
        return state

    def at(self, path: str) -> JsonValue:
        """What is at a path as changes name them; None when nothing is."""
        name, *keys = split_path(path)
        if keys and self._kinds.get(name) in RECORD_KINDS:
            value = self.record("/".join(path.split("/")[:2]))
            keys = keys[1:]
        else:
            value = self.state((name,)).get(name)
        for key in keys:
            value = _value_below(value, key)
        return value

    def singles(self, names: Sequence[str]) -> dict[str, JsonValue]:
        """At least those scalars, strict fields and strays that are named and hold something.

        Each is read by itself where that gives what all of them read as JSON would.
        """
        values: dict[str, JsonValue] = {}
        kinds, state, board = self._kinds, self._state_map, self._board_map
        for name in names:
            try:
                value = state[name] if kinds.get(name, "scalar") == "scalar" else board[STRICT_PREFIX + name]
            except KeyError:
                continue
            if value is None or isinstance(value, str | bool) or (isinstance(value, float) and isfinite(value)):
                values[name] = value
            else:
                return self._all_singles()
        return values

    def stray_names(self) -> list[str]:
        """The keys of ``state`` that count as fields although the layout does not name them."""
        if self._stray_names is None:
            names = self._state_map.keys() if self.strays else ()
            self._stray_names = [name for name in names if name not in self._kinds]
        return self._stray_names

    def forget_strays(self) -> None:
        """Other keys may be strays now."""
        self._stray_names = None

    def kind_of(self, name: str) -> FieldKind:
        return self._kinds.get(name, "scalar")

    @property
    def _kinds(self) -> dict[str, FieldKind]:
        return self._containers.layout.kinds

    @property
    def _state_map(self) -> pycrdt.Map[Any]:
        return cast("pycrdt.Map[Any]", self._roots[STATE_ROOT])

    @property
    def _board_map(self) -> pycrdt.Map[Any]:
        return cast("pycrdt.Map[Any]", self._roots[BOARD_ROOT])

    def _singles(self, only: Collection[str] | None) -> dict[str, JsonValue]:
        """The scalars, strict fields and strays that were written, and named if only some are."""
        if not self.keeps or self._transactions.is_open:
            return self._all_singles() if only is None else self._named_singles(only)
        singles = [name for name in (*self.stray_names(), *self._kinds) if self.kind_of(name) in SINGLE_KINDS]
        wanted = singles if only is None else [name for name in singles if name in only]
        stale = [name for name in wanted if name not in self._kept]
        if stale:
            fresh = self._all_singles() if len(stale) == len(singles) else self._named_singles(stale)
            for name in stale:
                self._kept.keep(name, fresh.get(name, NOTHING))
        return {name: wire for name in wanted if (wire := self._kept[name]) is not NOTHING}

    def _all_singles(self) -> dict[str, JsonValue]:
        """The scalars, strict fields and strays that were written."""
        scalars, strict = json.loads(str(self._state_map)), json.loads(str(self._board_map))
        kinds = self._kinds
        values: dict[str, JsonValue] = {}
        if self.strays:
            values.update((name, wire) for name, wire in scalars.items() if name not in kinds)
        for name, kind in kinds.items():
            if kind == "scalar" and name in scalars:
                values[name] = scalars[name]
            elif kind == "strict" and STRICT_PREFIX + name in strict:
                values[name] = strict[STRICT_PREFIX + name]
        return values

    def _named_singles(self, names: Collection[str]) -> dict[str, JsonValue]:
        """Those of `_all_singles` that are named, and texts, null and booleans without reading the others."""
        kinds, unnamed = self._kinds, "scalar" if self.strays else None
        singles = [name for name in names if kinds.get(name, unnamed) in SINGLE_KINDS]
        values = self.singles(singles)
        if any(type(value) is float for value in values.values()):
            values = self._all_singles()  # as JSON, which tells 5 from 5.0
        return {name: values[name] for name in singles if name in values}


def is_something(value: JsonValue, kind: FieldKind) -> bool:
    """Whether a field holds something: cells hold values that may be false or zero, containers are not empty."""
    return value is not None if kind in CELL_KINDS else bool(value)


def _value_below(value: JsonValue, key: str) -> JsonValue:
    """What a JSON value has under a key; a list of items, under an id."""
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list):
        return next((item for item in value if isinstance(item, dict) and item.get(ITEM_KEY) == key), None)
    return None
