"""A list field of ``board.state``."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableSequence
from typing import Any, TypeVar, cast, overload

import pycrdt
from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.diffs import splices
from crdt_board.fields import FieldSpec
from crdt_board.live.editor import Editor
from crdt_board.wire_values import child_path, document_wire, invalid_value, same_wire

T = TypeVar("T")


class LiveList(MutableSequence[T]):
    """A ``list`` whose one-item changes are one-item operations, so that others' items stay.

    What is read is a copy: changing it does not reach the board. Every value is validated before anything is written.
    """

    __slots__ = ("_editor", "_path", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, spec: FieldSpec, path: str | None = None) -> None:
        """``path`` is where a container in a record is; elsewhere it is the field's name."""
        self._editor = editor
        self._spec = spec
        self._path = spec.name if path is None else path

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._decode(wire, place) for place, wire in list(enumerate(self._wires()))[index]]
        place = self._place(index)
        return self._decode(document_wire(self._array[place]), place)

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            wires = self._wires()
            wires[index] = self._encode_all(value)
            self._become(wires)
            return
        place = self._place(index)
        wire = self._encode(value, place)
        if not same_wire(document_wire(self._array[place]), wire):
            with self._editor.edit(wire):
                self._array[place] = wire

    def __delitem__(self, index: int | slice) -> None:
        places = sorted(range(len(self))[index]) if isinstance(index, slice) else [self._place(index)]
        self._editor.document.check_change(self._path, -len(places))
        with self._editor.edit():
            for place in reversed(places):
                del self._array[place]

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[T]:
        return iter(self.to_python())

    def __reversed__(self) -> Iterator[T]:
        return reversed(self.to_python())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | LiveList):
            return self.to_python() == list(other)
        return NotImplemented

    def __add__(self, other: Iterable[T]) -> list[T]:
        return self.to_python() + list(other)

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return list(other) + self.to_python()

    def __iadd__(self, values: Iterable[T]) -> LiveList[T]:
        self.extend(values)
        return self

    def __repr__(self) -> str:
        return repr(self.to_python())

    def insert(self, index: int, value: T) -> None:
        length = len(self)
        place = max(0, index + length) if index < 0 else min(index, length)
        wire = self._encode(value, place)
        self._editor.document.check_change(self._path, 1)
        with self._editor.edit(wire):
            self._made().insert(place, wire)

    def append(self, value: T) -> None:
        self.extend([value])

    def extend(self, values: Iterable[T]) -> None:
        wires = self._encode_all(values)
        if wires:
            self._editor.document.check_change(self._path, len(wires))
            with self._editor.edit(wires):
                self._made().extend(wires)

    def clear(self) -> None:
        del self[:]

    def copy(self) -> list[T]:
        """The items as a plain list."""
        return self.to_python()

    def reverse(self) -> None:
        self._become(self._wires()[::-1])

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """As ``list.sort``; only items that change places are written."""
        wires, values = self._wires(), self.to_python()
        rank = key or _itself
        order = sorted(range(len(values)), key=lambda place: rank(values[place]), reverse=reverse)
        self._become([wires[place] for place in order])

    def to_python(self) -> list[T]:
        """The items as a plain list."""
        return [self._decode(wire, place) for place, wire in enumerate(self._wires())]

    def assign(self, values: object) -> None:
        """Make the list equal to ``values`` with the smallest edit."""
        self._become(cast(list[JsonValue], self._spec.to_wire(values, self._path)))

    @property
    def _array(self) -> Any:
        found = self._editor.document.find(self._path, pycrdt.Array)
        return [] if found is None else found

    def _made(self) -> Any:
        return self._editor.document.make(self._path)

    def _wires(self) -> list[JsonValue]:
        return cast(list[JsonValue], json.loads(str(self._array)))

    def _become(self, target: list[JsonValue]) -> None:
        old, new = ([canonical_json(wire) for wire in side] for side in (self._wires(), target))
        self._editor.document.check_change(self._path, len(new) - len(old))
        with self._editor.edit(target):
            for edit in reversed(splices(cast(list[Hashable], old), cast(list[Hashable], new))):
                array = self._made()
                del array[edit.start : edit.stop]
                array[edit.start : edit.start] = [json.loads(cast(bytes, key)) for key in edit.new]

    def _place(self, index: int) -> int:
        length = len(self)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            raise IndexError(f"{self._path} has {length} items, no index {index}")
        return place

    def _encode(self, value: object, place: int) -> JsonValue:
        return self._spec.codec.to_wire(value, child_path(self._path, place))

    def _encode_all(self, values: Iterable[object]) -> list[JsonValue]:
        if isinstance(values, str | bytes):
            raise invalid_value(self._path, f"takes items, not the parts of a {type(values).__name__}")
        return [self._encode(value, place) for place, value in enumerate(values)]

    def _decode(self, wire: JsonValue, place: int) -> T:
        return cast(T, self._spec.codec.decode(wire, child_path(self._path, place)))


def _itself(value: Any) -> Any:
    return value
