"""What a field reads as in a state in wire form, as far as that takes the model: defaults, and what does not decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import BaseModel, JsonValue

from crdt_board.cells import beats
from crdt_board.errors import InvalidValue
from crdt_board.fields import UNWRITTEN, FieldSpec, record_fields
from crdt_board.layout import ITEM_KEY
from crdt_board.wire_values import child_path, invalid_value

ModelT = TypeVar("ModelT", bound=BaseModel)


def stored_wire(field: FieldSpec, state: Mapping[str, JsonValue]) -> JsonValue:
    """The value of a field in wire form; `UNWRITTEN` when it reads as its default, or has no value.

    The default of a `Max` or `Min` field counts as a value that was written. Of candidates it is the first that fits
    the field.
    """
    if field.name not in state:
        return cast(JsonValue, UNWRITTEN)
    value = state[field.name]
    if field.kind in ("max", "min"):
        return value if field.required or beats(field, value, field.default_wire()) else cast(JsonValue, UNWRITTEN)
    if field.kind == "candidates":
        fitting = fitting_candidates(field, value)
        return fitting[0]["value"] if fitting else cast(JsonValue, UNWRITTEN)
    return value


def present_wire(field: FieldSpec, state: Mapping[str, JsonValue]) -> JsonValue:
    """The same, with the default for what nobody wrote; `UNWRITTEN` when there is none."""
    value = stored_wire(field, state)
    return field.default_wire() if value is UNWRITTEN and not field.required else value


def fitting_candidates(field: FieldSpec, candidates: JsonValue) -> list[dict[str, JsonValue]]:
    """The candidates whose values fit the field; others were written by clients that do not keep to the model."""
    return [each for each in cast(list[dict[str, JsonValue]], candidates or []) if _fits(field, each["value"])]


def _fits(field: FieldSpec, wire: JsonValue) -> bool:
    try:
        field.codec.decode(wire, field.name)
    except InvalidValue:
        return False
    return True


def unchecked(model: type[ModelT], state: Mapping[str, JsonValue], path: str = "") -> ModelT:
    """A model from fields in wire form whose every value is checked, but no rule over a field as a whole or several.

    Raises:
        InvalidValue: a value does not fit its field, or a required one is missing; ``path`` is where the state is.
    """
    values: dict[str, Any] = {}
    written: set[str] = set()
    for name, field in record_fields(model).items():
        wire = stored_wire(field, state)
        if wire is not UNWRITTEN:
            written.add(name)
            values[name] = _unchecked_value(field, wire, child_path(path, name))
        elif field.required:
            raise invalid_value(child_path(path, name), "has no value yet: it has no default and nobody has written it")
        else:
            values[name] = field.default()
    return model.model_construct(_fields_set=written, **values)


def _unchecked_value(field: FieldSpec, wire: JsonValue, path: str) -> Any:
    if field.record is not None and field.kind == "record_list" and isinstance(wire, list):
        return [_unchecked_item(field.record, item, child_path(path, index)) for index, item in enumerate(wire)]
    if field.kind != "records" or field.record is None or not isinstance(wire, dict):
        return field.whole.decode(wire, path)
    return {key: _unchecked_record(field.record, record, child_path(path, key)) for key, record in wire.items()}


def _unchecked_item(record: type[BaseModel], wire: JsonValue, path: str) -> BaseModel:
    item = _unchecked_record(record, wire, path)
    cast(Any, item)._board_base.item = cast(dict[str, Any], wire).get(ITEM_KEY)
    return item


def _unchecked_record(record: type[BaseModel], wire: JsonValue, path: str) -> BaseModel:
    if not isinstance(wire, dict):
        raise invalid_value(path, "is no record")
    return unchecked(record, wire, path)
