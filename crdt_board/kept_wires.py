"""The fields of one document in wire form as they were read last, of which only what was touched is read again."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import pycrdt
from pydantic import JsonValue

from crdt_board.layout import FieldLayout
from crdt_board.records import IdsAt, record_wire
from crdt_board.wire_values import child_path

NOTHING: Any = object()
"""Stands for a scalar that nobody wrote."""

_SINGLY_AT_MOST = 8
"""One of so many keys, or fewer, are read by themselves; more are read faster with all others, as one JSON."""


class KeptWires:
    """What was read of fields, by their names.

    Invariant: what `get` returns is what the field holds now, as long as its owner calls `forget` with every change.
    Nothing that it returned is ever changed: a field that was touched has another object.
    """

    def __init__(self) -> None:
        self._wires: dict[str, JsonValue] = {}
        self._stale: dict[str, set[str]] = {}
        """Of some of them the keys that were touched."""

    def __contains__(self, field: str) -> bool:
        return field in self._wires and field not in self._stale

    def __getitem__(self, field: str) -> JsonValue:
        return self._wires[field]

    def keep(self, field: str, wire: JsonValue) -> JsonValue:
        self._stale.pop(field, None)
        self._wires[field] = wire
        return wire

    def forget(self, field: str) -> None:
        self._stale.pop(field, None)
        self._wires.pop(field, None)

    def forget_key(self, field: str, key: str) -> None:
        """Only what is under a key of a dict, or one record, was touched."""
        if field in self._wires:
            self._stale.setdefault(field, set()).add(key)

    def forget_all(self) -> None:
        self._stale.clear()
        self._wires.clear()

    def refresh(self, field: FieldLayout, content: pycrdt.Map[Any], ids_at: IdsAt) -> None:
        """Read the keys of a dict or of records again that were touched; forget all of it if they cannot be read by
        themselves."""
        stale, wire = self._stale.pop(field.name, None), self._wires.get(field.name)
        if stale is None:
            return
        if not isinstance(wire, dict) or len(stale) * _SINGLY_AT_MOST > len(wire):
            self.forget(field.name)
            return
        fresh = wire.copy()
        for key in stale:
            try:
                value = content[key]
            except KeyError:
                fresh.pop(key, None)
                continue
            if field.kind == "records" and isinstance(value, pycrdt.Map):
                path = child_path(field.name, key)
                fresh[key] = record_wire(json.loads(str(value)), field, path, ids_at)
            elif field.kind == "dict" and reads_alone(value):
                fresh[key] = value
            else:
                self.forget(field.name)
                return
        self._wires[field.name] = fresh


def reads_alone(value: object) -> bool:
    """Whether a value that pycrdt returned is the one that stands in the JSON of all of them: whole numbers are not."""
    if isinstance(value, float):
        return isfinite(value) and not value.is_integer()
    return value is None or isinstance(value, str | bool)
