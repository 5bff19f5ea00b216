"""``board.state`` without a model: a plain JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NoReturn, cast

from pydantic import JsonValue

from crdt_board.cell_operations import Committer
from crdt_board.cell_writes import raise_cell, write_candidate
from crdt_board.checkpoints import SetValue
from crdt_board.document import Document
from crdt_board.fields import UNWRITTEN
from crdt_board.layout import SINGLE_KINDS, STRICT_PREFIX
from crdt_board.live.counter import LiveCounter
from crdt_board.live.editor import Editor
from crdt_board.live.mapping import is_storable
from crdt_board.operations import apply_edits
from crdt_board.patching import build_plain_patch
from crdt_board.paths import escape_path
from crdt_board.plain_fields import PlainField, plain_field
from crdt_board.wire_values import check_text, copy_wire, document_wire


class PlainState(MutableMapping[str, Any]):
    """The keys of a board. A value is JSON, read as a copy, and written whole: the last writer of a key wins.

    Where the board has a schema, its fields are keys as well, and assigning one writes the difference as the schema
    says: the smallest edits of a text or list, the elements of a set, the keys of a dict, the fields of records. A
    counter reads as a number that ``+=`` and ``-=`` change; a strict field is changed by ``board.commit`` alone.
    Containers are always there; a field that holds one value is there when it was written, since defaults are the
    model's.
    """

    __slots__ = ("_editor",)
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor) -> None:
        self._editor = editor

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(key)
        document = self._editor.document
        return LiveCounter(self._editor, key) if document.kinds.get(key) == "counter" else read_key(document, key)

    def __setitem__(self, key: str, value: Any) -> None:
        self._write({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        field = plain_field(self._editor.document, key)
        if field.kind == "strict":
            _refuse_strict(key)
        if field.kind != "scalar" or field.layout.required:
            raise TypeError(f"{key} is a {field.kind} of the board's schema, and always there; assign another value")
        with self._editor.edit():
            del self._editor.document.state_map[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and is_storable(key) and read_key(self._editor.document, key) is not UNWRITTEN

    def __iter__(self) -> Iterator[str]:
        return iter(plain_snapshot(self._editor.document))

    def __len__(self) -> int:
        return len(plain_snapshot(self._editor.document))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return self.to_python() == dict(other)
        return NotImplemented

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return self.to_python() | dict(other)

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return dict(other) | self.to_python()

    def __ior__(self, other: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> PlainState:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self.to_python())

    def update(self, *others: Any, **values: Any) -> None:
        """As ``dict.update``: all values are checked before the first is written."""
        self._write(dict(*others, **values))

    def copy(self) -> dict[str, Any]:
        """All keys with their values as a plain dict."""
        return self.to_python()

    def to_python(self) -> dict[str, Any]:
        """All keys with their values as a plain dict."""
        return cast(dict[str, Any], plain_snapshot(self._editor.document))

    def _write(self, values: dict[Any, Any]) -> None:
        editor, document = self._editor, self._editor.document
        fields = {check_text(key, "state"): plain_field(document, key) for key in values}
        changed = {key: value for key, value in values.items() if not self._is_done(fields[key], value)}
        wires = {key: fields[key].to_wire(value, escape_path(key), any_size=True) for key, value in changed.items()}
        cells = {key: wire for key, wire in wires.items() if fields[key].kind in ("max", "min", "candidates")}
        operations, _ = build_plain_patch(document, {key: wire for key, wire in wires.items() if key not in cells})
        operations += [  # written again, so that it lives on
            SetValue(field=escape_path(key), value=wire)
            for key, wire in wires.items()
            if fields[key].kind == "scalar" and fields[key].layout.ttl_ms and read_key(document, key) == wire
        ]
        cells = {key: wire for key, wire in cells.items() if read_key(document, key) != wire}
        if not operations and not cells:
            return
        with editor.edit(cast(JsonValue, wires)):
            apply_edits(document, operations, Committer(editor.agent, editor.now_ms()))
            for key, wire in cells.items():
                if fields[key].kind == "candidates":
                    write_candidate(document, key, wire, editor.agent, editor.now_ms())
                else:
                    raise_cell(document, key, wire)

    def _is_done(self, field: PlainField, value: object) -> bool:
        """Whether nothing is left to do, because ``+=`` of a counter has done it. Refuses what is not assigned."""
        if field.kind == "strict":
            _refuse_strict(field.name)
        if field.kind != "counter":
            return False
        if not isinstance(value, LiveCounter):
            raise TypeError(
                f"{field.name} is a counter: change it by += or -=, a plain number would take back what others added"
            )
        return True


def _refuse_strict(name: str) -> NoReturn:
    raise TypeError(
        f"{name} is strict: change it by commit(step, patch={{{name!r}: ...}}, expected_version=board.version), "
        "or by attempt(...)"
    )


def plain_snapshot(document: Document) -> dict[str, JsonValue]:
    """The whole board as JSON, each field of its layout and each key beside them; shares nothing with the document.

    The document keeps what is read, so that the next one costs what was changed, and the copy.
    """
    document.keep_wires()
    return {name: copy_wire(wire) for name, wire in plain_state(document.wire_state(), document).items()}


def plain_state(state: Mapping[str, JsonValue], document: Document) -> dict[str, JsonValue]:
    """A state in wire form as JSON, by the layout of ``document``: all containers, and one value of candidates."""
    fields = {name: PlainField(layout) for name, layout in document.layout.by_name.items()}
    values = {name: field.present_in(state) for name, field in fields.items()}
    values.update((name, wire) for name, wire in state.items() if name not in fields)
    return {name: wire for name, wire in values.items() if wire is not UNWRITTEN}


def read_key(document: Document, key: str) -> JsonValue:
    """What ``board.state[key]`` is, a counter as its number; `UNWRITTEN` when it is not there."""
    field = plain_field(document, key)
    if field.kind not in SINGLE_KINDS:
        wire = document.field_wire(key)
        return copy_wire(field.present_in({} if wire is None else {key: wire}))
    holder = document.state_map if field.kind == "scalar" else document.board_map
    stored = key if field.kind == "scalar" else STRICT_PREFIX + key
    return document_wire(holder[stored]) if stored in holder else cast(JsonValue, UNWRITTEN)
