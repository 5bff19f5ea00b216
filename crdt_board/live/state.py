"""The root of ``board.state``: attribute access to the fields of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from crdt_board.fields import FieldSpec, nearest_name
from crdt_board.live.counter import LiveCounter
from crdt_board.live.editor import Editor
from crdt_board.live.mapping import LiveDict
from crdt_board.live.sequence import LiveList
from crdt_board.live.sets import LiveSet
from crdt_board.live.text import LiveText
from crdt_board.schema import BoardModel, fields_of
from crdt_board.wire_values import document_wire, same_wire

LiveField = LiveText | LiveList[Any] | LiveSet[Any] | LiveDict[Any] | LiveCounter


class LiveState:
    """Reads and writes the fields of ``model`` in an editor's document; each write takes effect at once.

    Assigning a scalar validates first and writes nothing when the field reads as that value already. Assigning a
    container makes the smallest edit that leads there. Scalars that were never written read as their default.
    """

    __slots__ = ("_board_editor", "_board_fields", "_board_live", "_board_model")

    def __init__(self, model: type[BoardModel], editor: Editor) -> None:
        fields = fields_of(model)
        self._set("_board_model", model)
        self._set("_board_editor", editor)
        self._set("_board_fields", fields)
        live = {name: _live_field(editor, field) for name, field in fields.items() if field.kind != "scalar"}
        self._set("_board_live", live)

    def __getattr__(self, name: str) -> Any:
        live = self._board_live.get(name)
        if live is not None:
            return live
        field = self._board_fields.get(name)
        if field is None:
            self._refuse_unknown(name)
        return self._read(field)

    def __setattr__(self, name: str, value: object) -> None:
        field = self._board_fields.get(name)
        if field is None:
            self._refuse_unknown(name)
        live = self._board_live.get(name)
        if live is None:
            self._write(field, value)
        elif value is not live:  # `state.plan += [...]` has done its work when it assigns the list to itself
            _assign(live, value, name)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: a board always has all fields of its model")

    def __dir__(self) -> Iterable[str]:
        return sorted(self._board_fields)

    def __repr__(self) -> str:
        return f"<live {self._board_model.__name__}: {', '.join(self._board_fields)}>"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _read(self, field: FieldSpec) -> Any:
        stored = self._board_editor.document.state_map
        if field.name in stored:
            return field.codec.decode(document_wire(stored[field.name]), field.name)
        if field.required:
            raise AttributeError(f"{field.name} has no value yet: it has no default and nobody has written it")
        return field.default()

    def _write(self, field: FieldSpec, value: object) -> None:
        wire = field.to_wire(value)
        stored = self._board_editor.document.state_map
        if field.name in stored:
            present = document_wire(stored[field.name])
        elif field.required:
            present = _NOTHING
        else:
            present = field.default_wire()
        if present is _NOTHING or not same_wire(present, wire):
            with self._board_editor.edit():
                stored[field.name] = wire

    def _refuse_unknown(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self._board_model.__name__} has no field {name!r}{nearest_name(name, self._board_fields)}"
        )


_NOTHING: Any = object()


def _live_field(editor: Editor, field: FieldSpec) -> LiveField:
    if field.kind == "text":
        return LiveText(editor, field.name)
    if field.kind == "counter":
        return LiveCounter(editor, field.name)
    if field.kind == "list":
        return LiveList(editor, field)
    return LiveSet(editor, field) if field.kind == "set" else LiveDict(editor, field)


def _assign(live: LiveField, value: Any, name: str) -> None:
    if isinstance(live, LiveCounter):
        raise TypeError(f"{name} is a Counter: change it by += or -=, a plain number would take back what others added")
    if isinstance(live, LiveText):
        live.apply(value)
    else:
        live.assign(value)
