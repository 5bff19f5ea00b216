"""The root of ``board.state``: attribute access to the fields of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, cast

import pycrdt

from crdt_board.containers import item_gone
from crdt_board.fields import UNWRITTEN, VALUE_KINDS, FieldSpec, nearest_name, plain_value
from crdt_board.live.cells import LiveCandidates, read_value, refuse_strict, write_extreme
from crdt_board.live.counter import LiveCounter
from crdt_board.live.editor import Editor
from crdt_board.live.mapping import LiveDict
from crdt_board.live.record_list import LiveRecordList
from crdt_board.live.records import LiveRecords
from crdt_board.live.sequence import LiveList
from crdt_board.live.sets import LiveSet
from crdt_board.live.snapshots import record_from_wire
from crdt_board.live.text import LiveText
from crdt_board.paths import split_path
from crdt_board.schema import BoardModel, fields_of
from crdt_board.wire_values import document_wire, same_wire

LiveField = (
    LiveText
    | LiveList[Any]
    | LiveSet[Any]
    | LiveDict[Any]
    | LiveCounter
    | LiveRecords
    | LiveRecordList[Any]
    | LiveCandidates[Any]
)


class LiveState:
    """Reads and writes the fields of ``model`` in an editor's document; each write takes effect at once.

    Assigning a scalar validates first and writes nothing when the field reads as that value already. Assigning a
    container makes the smallest edit that leads there. Scalars that were never written read as their default.

    ``path`` is empty for the board itself, else where the record is that this stands for.
    """

    __slots__ = ("_board_editor", "_board_fields", "_board_live", "_board_model", "_board_path")

    def __init__(self, model: type[BoardModel], editor: Editor, path: str = "") -> None:
        fields = fields_of(model)
        self._set("_board_path", path)
        self._set("_board_model", model)
        self._set("_board_editor", editor)
        self._set("_board_fields", fields)
        self._set("_board_live", {})

    def __getattr__(self, name: str) -> Any:
        live = self._board_live.get(name)
        if live is not None:
            return live
        field = self._board_fields.get(name)
        if field is None:
            self._refuse_unknown(name)
        if field.kind in VALUE_KINDS and field.kind != "candidates":
            return self._read(field)
        live = self._board_live[name] = _live_field(self._board_editor, field, self._path_of(field))
        return live

    def __setattr__(self, name: str, value: object) -> None:
        field = self._board_fields.get(name)
        if field is None:
            self._refuse_unknown(name)
        if field.kind in ("max", "min"):
            write_extreme(self._board_editor, field, value)
        elif field.kind == "strict":
            refuse_strict(field)
        elif field.kind == "scalar":
            self._write(field, value)
        elif value is not (live := getattr(self, name)):  # `state.plan += [...]` has done its work by then
            _assign(live, value, self._path_of(field))

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: all fields of a {self._board_model.__name__} are always there")

    def __dir__(self) -> Iterable[str]:
        return sorted(self._board_fields)

    def __repr__(self) -> str:
        return f"<live {self._board_model.__name__}: {', '.join(self._board_fields)}>"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _path_of(self, field: FieldSpec) -> str:
        return f"{self._board_path}/{field.name}" if self._board_path else field.name

    def _scalars(self) -> Any:
        """The map that holds the scalars, for reading."""
        document = self._board_editor.document
        if not self._board_path:
            return document.state_map
        found = document.find(self._board_path, pycrdt.Map)
        return {} if found is None else found

    def _made_scalars(self) -> Any:
        document = self._board_editor.document
        return document.make(self._board_path) if self._board_path else document.state_map

    def _read(self, field: FieldSpec) -> Any:
        if field.kind != "scalar":
            present = read_value(self._board_editor, field)
        else:
            stored = self._scalars()
            present = document_wire(stored[field.name]) if field.name in stored else _NOTHING
        if present is not _NOTHING:
            return field.codec.decode(present, self._path_of(field))
        if field.required:
            path = self._path_of(field)
            raise AttributeError(f"{path} has no value yet: it has no default and nobody has written it")
        return field.default()

    def _write(self, field: FieldSpec, value: object) -> None:
        wire = field.to_wire(value, self._path_of(field))
        stored = self._scalars()
        if field.name in stored:
            present = document_wire(stored[field.name])
        elif field.required:
            present = _NOTHING
        else:
            present = field.default_wire()
        if field.ttl_ms or present is _NOTHING or not same_wire(present, wire):
            with self._board_editor.edit(wire):
                self._made_scalars()[field.name] = wire

    def _refuse_unknown(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{self._board_model.__name__} has no field {name!r}{nearest_name(name, self._board_fields)}"
        )


class LiveRecord(LiveState):
    """A record of a ``dict[str, Model]`` field, by its key, whether it is there or not.

    Reading what is not there gives defaults and empty containers; the first write makes the record.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LiveRecord | BoardModel):
            return bool(self._board_python() == plain_value(other))
        return NotImplemented

    def _board_python(self) -> BoardModel:
        """The record as a plain model.

        Raises:
            InvalidValue: a required field has no value, or another client wrote one that does not fit.
        """
        wire = self._board_editor.document.read_record(self._board_path) or {}
        return record_from_wire(wire, cast(type[BoardModel], self._board_model), self._board_path)

    def _board_become(self, record: BoardModel) -> None:
        """Make the record equal to ``record``, which has been validated, by changing only what differs."""
        for name, field in self._board_fields.items():
            if field.kind == "counter":
                live = getattr(self, name)
                live += getattr(record, name) - live
            else:
                setattr(self, name, getattr(record, name))


class LiveItem(LiveRecord):
    """An item of a ``list[Model]`` field: that very item, wherever in the list others have put it meanwhile.

    Raises:
        NotFound: at every use, once the item was deleted.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        self._check()
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: object) -> None:
        self._check()
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<live {self._board_model.__name__} {self._board_path}>"

    def _board_python(self) -> BoardModel:
        self._check()
        made = super()._board_python()
        made._board_base.item = self._board_place()[1]
        return made

    def _board_place(self) -> tuple[str, str]:
        """The path of the list that it is in, and its id."""
        holder, _, item = self._board_path.rpartition("/")
        return holder, split_path(item)[0]

    def _check(self) -> None:
        holder, item = self._board_place()
        if item not in self._board_editor.document.items(holder):
            raise item_gone(self._board_path)


_NOTHING: Any = UNWRITTEN


def _live_field(editor: Editor, field: FieldSpec, path: str) -> LiveField:
    if field.kind == "text":
        return LiveText(editor, path)
    if field.kind == "counter":
        return LiveCounter(editor, path)
    if field.kind == "list":
        return LiveList(editor, field, path)
    if field.kind == "candidates":
        return LiveCandidates(editor, field)
    if field.record:
        return _live_records(editor, field, path, cast(type[BoardModel], field.record))
    return LiveSet(editor, field, path) if field.kind == "set" else LiveDict(editor, field, path)


def _live_records(
    editor: Editor, field: FieldSpec, path: str, model: type[BoardModel]
) -> LiveRecords | LiveRecordList[Any]:
    if field.kind == "records":
        return LiveRecords(editor, field, path, lambda record: LiveRecord(model, editor, record))
    return LiveRecordList(editor, field, path, lambda item: LiveItem(model, editor, item))


def _assign(live: LiveField, value: Any, name: str) -> None:
    if isinstance(live, LiveCounter):
        raise TypeError(f"{name} is a Counter: change it by += or -=, a plain number would take back what others added")
    if isinstance(live, LiveText):
        live.apply(value)
    else:
        live.assign(value)
