"""Frozen, validated copies of a whole board."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel, JsonValue, ValidationError

from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.fields import UNWRITTEN, FieldSpec
from crdt_board.identities import field_without_ids, identify, identify_inside, without_ids
from crdt_board.layout import ITEM_KEY, RECORD_KINDS
from crdt_board.merge_types import Counter, Text
from crdt_board.model_rules import validators_of
from crdt_board.readings import stored_wire, unchecked
from crdt_board.schema import BoardModel, fields_of
from crdt_board.values import from_validation_error

ModelT = TypeVar("ModelT", bound=BoardModel)

_FIXED = frozenset(
    {str, int, float, bool, type(None), bytes, Text, Counter, Decimal, UUID, datetime, date, time, timedelta}
)
_MODELS_KEPT = 256
_CONTAINERS = frozenset({list, set, dict})


class Snapshots(Generic[ModelT]):
    """Makes one snapshot after another, of states of one board; each costs what differs from the one before.

    Invariant: snapshots have nothing in common that can be changed. Values that cannot be, and frozen records of such
    values, are shared where the next state has the same object in wire form; so these must never be changed.
    """

    def __init__(self, model: type[ModelT]) -> None:
        self._model = model
        self._made: dict[str, tuple[JsonValue, Any]] = {}
        """By field the wire form that was decoded last, and its value, if that can be shared."""
        self._by_field = _is_sum_of_its_fields(model)

    def of(self, document: Document) -> ModelT:
        """The present state of a document, which keeps its wire form from now on; shares nothing that can be changed.

        Raises:
            InvalidValue: as `snapshot_from_wire`.
        """
        document.keep_wires()
        state = document.wire_state()
        made = self._assembled(state) if self._by_field else None
        return snapshot_from_wire(state, self._model) if made is None else made

    def _assembled(self, state: dict[str, JsonValue]) -> ModelT | None:
        """None when a value does not fit."""
        values: dict[str, Any] = {}
        fields = fields_of(self._model)
        known = {name: state[name] for name in fields if name in state}
        written: set[str] = set()
        for name, field in fields.items():
            wire = stored_wire(field, known)
            if wire is not UNWRITTEN:
                written.add(name)
                try:
                    values[name] = self._value(field, wire)
                except InvalidValue:
                    return None
            elif field.required:
                return None
            else:
                values[name] = field.default()
        made = cast(ModelT, self._model.model_construct(_fields_set=written, **values))
        if validators_of(self._model):
            try:
                made = self._model.model_validate(made)
            except ValidationError:
                made = unchecked(self._model, known)
        made._board_base.state = known
        return made

    def _value(self, field: FieldSpec, wire: JsonValue) -> Any:
        last, value = self._made.get(field.name, (UNWRITTEN, None))
        if last is not wire:
            value = _decoded(field, wire)
            if not _can_be_shared(value):
                self._made.pop(field.name, None)
                return value
            self._made[field.name] = wire, value
        return value.copy() if type(value) in _CONTAINERS else value


def _is_sum_of_its_fields(model: type[BaseModel]) -> bool:
    """Whether a model validates as its fields do, one by one, and then by its own validators."""
    return not model.__pydantic_custom_init__ and model.model_config.get("revalidate_instances", "never") == "never"


def _decoded(field: FieldSpec, wire: JsonValue) -> Any:
    if field.kind == "dict" and isinstance(wire, dict) and field.codec.fits_as_is(wire.values()):
        return wire.copy()
    if field.kind == "list" and isinstance(wire, list) and field.codec.fits_as_is(wire):
        return wire.copy()
    if field.kind not in RECORD_KINDS:
        return field.whole.decode(wire, field.name)
    records = field.whole.decode(field_without_ids(wire, field), field.name)
    identify_inside(records, wire, field)
    return records


def _can_be_shared(value: Any) -> bool:
    """Whether nobody can change what a value holds; of a container, once it was copied."""
    if type(value) is dict:
        return _are_fixed(value.values())
    return _are_fixed(value if type(value) in _CONTAINERS else (value,))


def _are_fixed(values: Collection[Any]) -> bool:
    kinds = set(map(type, values))
    if kinds <= _FIXED:
        return True
    if all(issubclass(kind, Enum) or kind in _FIXED for kind in kinds):
        return True
    return all(type(value) in _FIXED or _is_fixed(value) for value in values)


def _is_fixed(value: Any) -> bool:
    if isinstance(value, Enum):
        return True
    if isinstance(value, tuple | frozenset):
        return type(value) in (tuple, frozenset) and _are_fixed(value)
    return isinstance(value, BoardModel) and _holds_fields_only(type(value)) and _are_fixed(value.__dict__.values())


@lru_cache(_MODELS_KEPT)
def _holds_fields_only(model: type[BoardModel]) -> bool:
    """Whether the instances of a model are frozen, and have nothing beside their fields that could change."""
    has_cache = any(isinstance(each, cached_property) for kind in model.__mro__ for each in vars(kind).values())
    own = model.__private_attributes__.keys() - BoardModel.__private_attributes__.keys()
    return bool(model.model_config.get("frozen")) and not own and not has_cache


def snapshot_from_wire(state: dict[str, JsonValue], model: type[ModelT]) -> ModelT:
    """A model from fields in wire form. Fields that the model lacks are left out.

    Sets are lists there, counters numbers, and candidates all that there are. Each value fits its field. Rules over a
    field as a whole, or over several, may be broken: see `Standing`.

    Raises:
        InvalidValue: the state does not fit the model, because another client wrote it or a required field was never
            written; ``errors`` lists the paths.
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
        InvalidValue: as `snapshot_from_wire`.
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
