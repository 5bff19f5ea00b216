"""Cells that are written at the end of a transaction, when it cannot be taken back any more.

Taking back would write the cells of other replicas, and could win over what these write meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.records import SharedType


class PutCells:
    """What was put into the fields with cells of one document, and is read as if it stood there."""

    def __init__(self, roots: Mapping[str, SharedType]) -> None:
        self._roots = roots
        self._put: dict[str, dict[str, JsonValue]] = {}

    def cells(self, field: str) -> dict[str, JsonValue]:
        """The cells of a field, those that were put included."""
        content: dict[str, JsonValue] = json.loads(str(self._roots[field]))
        for key, wire in self._put.get(field, {}).items():
            if wire is None:
                content.pop(key, None)
            else:
                content[key] = wire
        return content

    def put(self, field: str, key: str, wire: JsonValue, replaced: Iterable[str]) -> None:
        """Put a cell in place of others, which are not read any more from now on."""
        self._put.setdefault(field, {}).update({**dict.fromkeys(replaced), key: wire})

    def write(self) -> None:
        """Inside a transaction: make what was put lasting."""
        for field, cells in self._put.items():
            content = cast("pycrdt.Map[Any]", self._roots[field])
            for key, wire in cells.items():
                if wire is not None:
                    content[key] = wire
                elif key in content:
                    del content[key]
        self._put.clear()

    def forget(self) -> list[str]:
        """As if nothing had been put; returns the fields where something was."""
        fields = list(self._put)
        self._put.clear()
        return fields
