"""What a field reads as in a state in wire form, as far as that takes the model: defaults, and what does not decode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from crdt_board.cells import beats
from crdt_board.errors import InvalidValue
from crdt_board.fields import UNWRITTEN, FieldSpec


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
