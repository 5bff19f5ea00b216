"""A field of ``board.state`` that holds records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.fields import FieldSpec, plain_value
from crdt_board.live.editor import Editor
from crdt_board.live.mapping import is_storable
from crdt_board.live.snapshots import record_from_wire
from crdt_board.schema import BoardModel
from crdt_board.wire_values import check_text, child_path


class LiveRecords(MutableMapping[str, Any]):
    """A ``dict`` of live records; the order is that of the keys.

    Indexing gives a handle whether or not the record is there; the first write through it makes the record, and merges
    when others make it at the same time. Assigning to a key replaces the record as a whole, and one of concurrent
    assignments wins. A deletion wins over what others write at the same time into the record that they still see.
    A handle stands for its key, also after the record was deleted or replaced.
    """

    __slots__ = ("_editor", "_live", "_path", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, spec: FieldSpec, path: str, live: Callable[[str], Any]) -> None:
        """``live`` gives the live record at a path."""
        self._editor = editor
        self._live = live
        self._spec = spec
        self._path = path

    def __getitem__(self, key: str) -> Any:
        """The live record of a key.

        Raises:
            InvalidValue: the key is no str, or holds a lone surrogate.
        """
        return self._live(child_path(self._path, check_text(key, self._path)))

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._remove([key])

    def __contains__(self, key: object) -> bool:
        found = self._map
        return found is not None and isinstance(key, str) and is_storable(key) and key in found

    def __iter__(self) -> Iterator[str]:
        found = self._map
        return iter(()) if found is None else iter(sorted(found.keys()))

    def __len__(self) -> int:
        found = self._map
        return 0 if found is None else len(found)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return self.to_python() == {key: plain_value(value) for key, value in other.items()}
        return NotImplemented

    def __ior__(self, other: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> LiveRecords:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return f"<live records: {', '.join(self)}>"

    def get(self, key: str, default: Any = None) -> Any:
        """The live record of a key that is there."""
        return self[key] if key in self else default  # noqa: SIM401  # it is this method that would be called

    def pop(self, key: str, *default: Any) -> Any:
        """Delete a record; returned is what it was, as a plain model."""
        if key not in self and default:
            return default[0]
        found = self._read(key)
        self._remove([key])
        return found

    def popitem(self) -> tuple[str, Any]:
        for key in self:
            return key, self.pop(key)
        raise KeyError("there are no records")

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The live record of a key, which is assigned ``default`` first when it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **values: Any) -> None:
        """Assign whole records; all are validated before the first is written, and equal ones are not written."""
        records = dict(*others, **values)
        wires = {
            key: self._spec.record_wire(record, child_path(self._path, check_text(key, self._path)))
            for key, record in records.items()
        }
        document = self._editor.document
        paths = {child_path(self._path, key): wire for key, wire in wires.items()}
        changed = {path: wire for path, wire in paths.items() if not self._is_same(document.read_record(path), wire)}
        if changed:
            if self._spec.bounds:
                document.check_change(self._path, sum(key not in self for key in wires))
            with self._editor.edit(cast(JsonValue, changed)):
                for path, wire in changed.items():
                    document.put_record(path, wire)

    def clear(self) -> None:
        self._remove(list(self))

    def copy(self) -> dict[str, Any]:
        """The records as plain models."""
        return self.to_python()

    def to_python(self) -> dict[str, Any]:
        """The records as plain models.

        Raises:
            InvalidValue: one does not fit its model, because a required field was never written, or another client
                wrote it.
        """
        return {key: self._decode(key, wire) for key, wire in sorted(self._wires().items())}

    def assign(self, values: object) -> None:
        """Make the records equal to ``values``; those that are in both are changed only where they differ."""
        records = cast(Mapping[str, Any], plain_value(values))
        target = cast(dict[str, dict[str, JsonValue]], self._spec.to_wire(records, self._path))
        present = self._wires()
        self._editor.document.check_change(self._path, len(target) - len(present))
        with self._editor.edit(cast(JsonValue, target)):
            self._drop([key for key in present if key not in target])
            for key, wire in target.items():
                if key not in present:
                    self._editor.document.put_record(child_path(self._path, key), wire)
                elif not self._is_same(present[key], wire):
                    self[key]._board_become(self._spec.codec.validate(plain_value(records[key])))

    @property
    def _map(self) -> pycrdt.Map[Any] | None:
        return self._editor.document.find(self._path, pycrdt.Map)

    def _wires(self) -> dict[str, Any]:
        return cast(dict[str, Any], self._editor.document.read_records(self._path))

    def _read(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        return self._decode(key, self._editor.document.read_record(child_path(self._path, key)))

    def _decode(self, key: str, wire: JsonValue) -> Any:
        return record_from_wire(wire, cast(type[BoardModel], self._spec.record), child_path(self._path, key))

    def _is_same(self, present: JsonValue, wire: dict[str, JsonValue]) -> bool:
        return isinstance(present, dict) and self._spec.same_record(present, wire)

    def _remove(self, keys: list[str]) -> None:
        self._editor.document.check_change(self._path, -len(keys))
        self._drop(keys)

    def _drop(self, keys: list[str]) -> None:
        if keys:
            with self._editor.edit():
                for key in keys:
                    self._editor.document.drop_key(self._path, key)
