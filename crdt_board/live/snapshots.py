"""Frozen, validated copies of a whole board."""

from __future__ import annotations

import json
from typing import TypeVar, cast

from pydantic import JsonValue, ValidationError

from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.fields import UNWRITTEN
from crdt_board.identities import identify, without_ids
from crdt_board.layout import ITEM_KEY
from crdt_board.readings import stored_wire, unchecked
from crdt_board.schema import BoardModel, fields_of
from crdt_board.values import from_validation_error

ModelT = TypeVar("ModelT", bound=BoardModel)


def snapshot(document: Document, model: type[ModelT]) -> ModelT:
    """The present state as a model; shares nothing with the document.

    Each value fits its field. Rules over a field as a whole, or over several, may be broken: see `Standing`.

    Raises:
        InvalidValue: the state does not fit the model, because another client wrote it or a required field was never
            written; ``errors`` lists the paths.
    """
    return snapshot_from_wire(document.wire_state(), model)


def snapshot_from_wire(state: dict[str, JsonValue], model: type[ModelT]) -> ModelT:
    """The same from fields in wire form. Fields that the model lacks are left out.

    Sets are lists there, counters numbers, and candidates all that there are.

    Raises:
        InvalidValue: as `snapshot`.
    """
    fields = fields_of(model)
    known = {name: state[name] for name in fields if name in state}
    values = {name: value for name in known if (value := stored_wire(fields[name], known)) is not UNWRITTEN}
    try:
        made = model.model_validate_json(json.dumps(without_ids(values, fields)))
    except ValidationError as error:
        try:
            made = unchecked(model, known)
        except InvalidValue:
            raise from_validation_error(error, "") from error
    identify(made, values, fields)
    made._board_base.state = known
    return made


def record_from_wire(wire: JsonValue, model: type[ModelT], path: str) -> ModelT:
    """The record at ``path``, as `snapshot_from_wire` gives it; an item of a list knows which one it is.

    Raises:
        InvalidValue: as `snapshot`.
    """
    fields = fields_of(model)
    try:
        made = model.model_validate_json(json.dumps(without_ids(wire, fields)))
    except ValidationError as error:
        try:
            made = unchecked(model, wire if isinstance(wire, dict) else {}, path)
        except InvalidValue:
            raise from_validation_error(error, path) from error
    if isinstance(wire, dict):
        made._board_base.item = cast(str | None, wire.get(ITEM_KEY))
        identify(made, wire, fields)
    return made
