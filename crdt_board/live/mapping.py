"""A dict field of ``board.state``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.fields import FieldSpec
from crdt_board.live.editor import Editor
from crdt_board.wire_values import check_text, child_path, document_wire, same_wire

T = TypeVar("T")


class LiveDict(MutableMapping[str, T]):
    """A ``dict`` in which each key is written on its own; the order is that of the keys.

    What is read is a copy: changing it does not reach the board. Setting a key to the value that it has writes
    nothing, but for a scratch field, in which it lets the key live on.
    """

    __slots__ = ("_editor", "_path", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, spec: FieldSpec, path: str | None = None) -> None:
        """``path`` is where a container in a record is; elsewhere it is the field's name."""
        self._editor = editor
        self._spec = spec
        self._path = spec.name if path is None else path

    def __getitem__(self, key: str) -> T:
        if key not in self:
            raise KeyError(key)
        return self._decode(key, document_wire(self._map[key]))

    def __setitem__(self, key: str, value: T) -> None:
        self._write({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._editor.document.check_change(self._path, -1)
        with self._editor.edit():
            del self._map[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and is_storable(key) and key in self._map

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._map.keys()))

    def __len__(self) -> int:
        return len(self._map)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return self.to_python() == dict(other)
        return NotImplemented

    def __or__(self, other: Mapping[str, T]) -> dict[str, T]:
        return self.to_python() | dict(other)

    def __ror__(self, other: Mapping[str, T]) -> dict[str, T]:
        return dict(other) | self.to_python()

    def __ior__(self, other: Mapping[str, T] | Iterable[tuple[str, T]]) -> LiveDict[T]:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self.to_python())

    def update(self, *others: Any, **values: Any) -> None:
        """As ``dict.update``: all values are validated before the first is written."""
        self._write(dict(*others, **values))

    def clear(self) -> None:
        self.assign({})

    def copy(self) -> dict[str, T]:
        """The items as a plain dict."""
        return self.to_python()

    def to_python(self) -> dict[str, T]:
        """The items as a plain dict."""
        content = json.loads(str(self._map))
        return {key: self._decode(key, content[key]) for key in sorted(content)}

    def assign(self, values: object) -> None:
        """Make the dict equal to ``values``; items that are the same in both are not touched."""
        target = cast(dict[str, JsonValue], self._spec.to_wire(values, self._path))
        self._editor.document.check_change(self._path, len(target) - len(self))
        changed = self._changed(target)
        with self._editor.edit(changed):
            for key in set(self._map.keys()) - target.keys():
                del self._map[key]
            self._write_wires(changed)

    @property
    def _map(self) -> Any:
        found = self._editor.document.find(self._path, pycrdt.Map)
        return {} if found is None else found

    def _decode(self, key: str, wire: JsonValue) -> T:
        return cast(T, self._spec.codec.decode(wire, child_path(self._path, key)))

    def _write(self, values: dict[Any, Any]) -> None:
        wires = {
            check_text(key, self._path): self._spec.codec.to_wire(value, child_path(self._path, str(key)))
            for key, value in values.items()
        }
        if self._spec.bounds:
            content = self._map
            self._editor.document.check_change(self._path, sum(key not in content for key in wires))
        changed = wires if self._spec.ttl_ms else self._changed(wires)
        if changed:
            with self._editor.edit(changed):
                self._write_wires(changed)

    def _changed(self, wires: dict[str, JsonValue]) -> dict[str, JsonValue]:
        content = self._map
        return {
            key: wire
            for key, wire in wires.items()
            if key not in content or not same_wire(document_wire(content[key]), wire)
        }

    def _write_wires(self, wires: dict[str, JsonValue]) -> None:
        if wires:
            content = cast("pycrdt.Map[Any]", self._editor.document.make(self._path))
            for key, wire in wires.items():
                content[key] = wire


def is_storable(key: str) -> bool:
    """Whether a document can have this key: yrs panics on lone surrogates."""
    return key.isascii() or key == key.encode(errors="ignore").decode()
