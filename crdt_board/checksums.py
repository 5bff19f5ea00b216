"""The checksum of one document, which costs the fields that changed: a hash over the hashes of its fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.containers import Containers
from crdt_board.field_wires import FieldWires, is_something
from crdt_board.item_lists import ItemLists
from crdt_board.layout import SINGLE_KINDS
from crdt_board.list_hashes import ListHashes
from crdt_board.record_hashes import RecordHashes, digest
from crdt_board.records import DeepEvent, SharedType
from crdt_board.text_edits import TextEdits


class Checksums:
    """The hashes of fields, records and stretches of lists that are known.

    Invariant: none is older than the last change of what it is of, as long as its owner calls `forget`, and for a
    record `forget_record`, for a list `change_list`, with every change.
    """

    def __init__(
        self,
        roots: Mapping[str, SharedType],
        containers: Containers,
        *,
        wires: FieldWires,
        edits: TextEdits,
        items: ItemLists,
    ) -> None:
        self._roots = roots
        self._containers = containers
        self._wires = wires
        self._edits = edits
        self._items = items
        self._hashes: dict[str, str | None] = {}
        self._records: defaultdict[str, RecordHashes] = defaultdict(RecordHashes)
        self._lists: dict[str, ListHashes] = {}

    def forget(self, field: str) -> None:
        self._hashes.pop(field, None)

    def forget_record(self, field: str, key: str) -> None:
        self._records[field].forget(key)

    def change_list(self, field: str, events: Sequence[DeepEvent]) -> None:
        known = self._lists.get(field)
        if known is None:  # so that replicas, of which nobody asks a checksum, do not work out what was changed
            return
        for event in events:
            if event.path:
                known.forget()
            else:
                known.change(event.delta)

    def forget_all(self) -> None:
        self._hashes.clear()
        self._records.clear()
        self._lists.clear()

    def checksum(self) -> str:
        """Fields that were added to the layout and never written do not change it."""
        present: dict[str, JsonValue] = {name: each for name, each in self._fresh().items() if each is not None}
        return digest(present)

    def written_fields(self) -> tuple[str, ...]:
        """The names of the fields that hold something, in alphabetical order; costs as much as `checksum`."""
        return tuple(sorted(name for name, each in self._fresh().items() if each is not None))

    def _fresh(self) -> dict[str, str | None]:
        wires, kinds = self._wires, self._containers.layout.kinds
        stale = [name for name in (*kinds, *wires.stray_names()) if name not in self._hashes]
        if stale:
            values = wires.singles([name for name in stale if wires.kind_of(name) in SINGLE_KINDS])
            for name in stale:
                self._hashes[name] = self._field_hash(name, values)
        return self._hashes

    def _field_hash(self, name: str, values: dict[str, JsonValue]) -> str | None:
        kind = self._wires.kind_of(name)
        if kind in SINGLE_KINDS:
            return digest(values[name]) if name in values else None
        if kind == "records":
            self._edits.settle()
            records = cast("pycrdt.Map[Any]", self._roots[name])
            return self._records[name].field_hash(records, self._containers.layout.by_name[name], self._items.ids_at)
        if kind == "list":
            known = self._lists.setdefault(name, ListHashes())
            return known.field_hash(lambda: cast("list[JsonValue]", self._wires.container(name)))
        value = self._wires.container(name)
        return digest(value) if is_something(value, kind) else None
