"""A set field of ``board.state``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any, TypeVar, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.errors import InvalidValue
from crdt_board.exactness import same_value
from crdt_board.fields import FieldSpec
from crdt_board.live.editor import Editor
from crdt_board.wire_values import element_key

T = TypeVar("T")


class LiveSet(MutableSet[T]):
    """A ``set`` in which an add wins over a discard that another agent makes at the same time.

    For that, `add` (and ``update`` and ``|=``) of an element that is present writes it again; `assign` does not.
    """

    __slots__ = ("_editor", "_path", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, spec: FieldSpec, path: str | None = None) -> None:
        """``path`` is where a container in a record is; elsewhere it is the field's name."""
        self._editor = editor
        self._spec = spec
        self._path = spec.name if path is None else path

    @classmethod
    def _from_iterable(cls, values: Iterable[T]) -> set[T]:  # type: ignore[override]  # results of `|` are plain
        return set(values)

    def __contains__(self, value: object) -> bool:
        key = self._key(value)
        return key is not None and key in self._map

    def __iter__(self) -> Iterator[T]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._map)

    def __repr__(self) -> str:
        return repr(self.to_python())

    def add(self, value: T) -> None:
        self.update([value])

    def discard(self, value: T) -> None:
        self.difference_update([value])

    def update(self, *others: Iterable[T]) -> None:
        wires = self._wires(value for other in others for value in other)
        if self._spec.bounds:
            content = self._map
            self._editor.document.check_change(self._path, sum(key not in content for key in wires))
        self._write(wires)

    def difference_update(self, *others: Iterable[T]) -> None:
        self._remove({key for other in others for value in list(other) if (key := self._key(value)) is not None})

    def intersection_update(self, *others: Iterable[T]) -> None:
        kept = set(self._map.keys())
        for other in others:
            kept &= {key for value in list(other) if (key := self._key(value)) is not None}
        self._remove(set(self._map.keys()) - kept)

    def symmetric_difference_update(self, other: Iterable[T]) -> None:
        values = set(other)
        common = self.intersection(values)
        self._editor.document.check_change(self._path, len(values) - 2 * len(common))
        with self._editor.edit([self._spec.codec.to_wire(value, self._path) for value in values - common]):
            self._drop({key for value in common if (key := self._key(value)) is not None})
            self._write(self._wires(values - common))

    def clear(self) -> None:
        self._remove(set(self._map.keys()))

    def copy(self) -> set[T]:
        """The elements as a plain set."""
        return self.to_python()

    def union(self, *others: Iterable[T]) -> set[T]:
        return self.to_python().union(*others)

    def intersection(self, *others: Iterable[T]) -> set[T]:
        return self.to_python().intersection(*others)

    def difference(self, *others: Iterable[T]) -> set[T]:
        return self.to_python().difference(*others)

    def symmetric_difference(self, other: Iterable[T]) -> set[T]:
        return self.to_python().symmetric_difference(other)

    def issubset(self, other: Iterable[T]) -> bool:
        return self.to_python().issubset(other)

    def issuperset(self, other: Iterable[T]) -> bool:
        return self.to_python().issuperset(other)

    def __ior__(self, other: Iterable[T]) -> LiveSet[T]:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __iand__(self, other: Iterable[T]) -> LiveSet[T]:  # type: ignore[misc]
        self.intersection_update(other)
        return self

    def __isub__(self, other: Iterable[T]) -> LiveSet[T]:  # type: ignore[misc]
        self.difference_update(other)
        return self

    def __ixor__(self, other: Iterable[T]) -> LiveSet[T]:  # type: ignore[override,misc]
        self.symmetric_difference_update(other)
        return self

    def to_python(self) -> set[T]:
        """The elements as a plain set."""
        return set(self._values())

    def assign(self, values: object) -> None:
        """Make the set equal to ``values``; elements that are in both are not touched."""
        target = {element_key(wire): wire for wire in cast(list[JsonValue], self._spec.to_wire(values, self._path))}
        present = set(self._map.keys())
        added = {key: target[key] for key in target.keys() - present}
        self._editor.document.check_change(self._path, len(target) - len(present))
        with self._editor.edit(added):
            self._drop(present - target.keys())
            self._write(added)

    @property
    def _map(self) -> Any:
        found = self._editor.document.find(self._path, pycrdt.Map)
        return {} if found is None else found

    def _wires(self, values: Iterable[object]) -> dict[str, JsonValue]:
        wires = [self._spec.codec.to_wire(value, self._path) for value in values]
        return {element_key(wire): wire for wire in wires}

    def _write(self, wires: dict[str, JsonValue]) -> None:
        if wires:
            with self._editor.edit(wires):
                content = cast("pycrdt.Map[Any]", self._editor.document.make(self._path))
                for key, wire in wires.items():
                    content[key] = wire

    def _values(self) -> list[T]:
        content = json.loads(str(self._map))
        return [self._spec.codec.decode(content[key], self._path) for key in sorted(content)]

    def _key(self, value: object) -> str | None:
        """The key of a value, or None when the set cannot hold it."""
        try:
            valid = self._spec.codec.validate(value, self._path)
            if not same_value(value, valid):
                return None
            return element_key(self._spec.codec.encode(valid, self._path))
        except InvalidValue:
            return None

    def _remove(self, keys: Iterable[str]) -> None:
        present = [key for key in keys if key in self._map]
        self._editor.document.check_change(self._path, -len(present))
        self._drop(present)

    def _drop(self, keys: Iterable[str]) -> None:
        present = [key for key in keys if key in self._map]
        if present:
            with self._editor.edit():
                for key in present:
                    del self._map[key]
