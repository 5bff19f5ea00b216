"""Exact conversion between validated Python values and their wire form.

What would not come back as it was written is refused at the call. Knows nothing of documents and models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import annotated_types
from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema, to_jsonable_python

from crdt_board.annotations import origin_of, split_annotation, walk_annotation
from crdt_board.canonical import SAFE_INTEGER
from crdt_board.errors import InvalidValue
from crdt_board.exactness import difference, sort_sets
from crdt_board.wire_values import check_text, child_path, invalid_value, number_to_wire, printed_wire, to_wire

T = TypeVar("T")

_PLAIN_TYPES = frozenset({str, int, bool, float})
# Metadata that only refuses values and never changes them; anything else takes the full round trip.
_CHECKS = (
    annotated_types.Ge,
    annotated_types.Gt,
    annotated_types.Le,
    annotated_types.Lt,
    annotated_types.MultipleOf,
    annotated_types.MinLen,
    annotated_types.MaxLen,
)
# Configuration under which str, int, bool and float validate as pydantic does by default.
_NEUTRAL_CONFIG = frozenset({"extra", "frozen", "ser_json_bytes", "val_json_bytes", "title"})
_ERRORS_KEPT_MAX = 20

BIG_INTEGER_PATTERN = "^-?[1-9][0-9]{15,}$"
"""What integers beyond 2^53-1 look like in wire form."""


_NOT_WRITTEN = "has no value yet: it has no default and nobody has written it; write it, or give it a default"
_LEFT_OUT = "is missing in what was given; it has no default"


def from_validation_error(error: ValidationError, path: str, *, missing: str = _NOT_WRITTEN) -> InvalidValue:
    """The same refusal as pydantic's, with paths: the message has the first error, ``errors`` has more of them.

    ``missing`` says what it means that a part is not there.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [
        {"path": child_path(path, *each["loc"]), "reason": missing if each["type"] == "missing" else each["msg"]}
        for each in found[:_ERRORS_KEPT_MAX]
    ]
    return invalid_value(errors[0]["path"], errors[0]["reason"], errors=errors)


class ValueCodec(Generic[T]):
    """Validates and converts the values of one annotation.

    ``config`` is the pydantic configuration of the model that declares it; types that carry their own keep that.
    """

    def __init__(self, annotation: Any, config: ConfigDict | None = None) -> None:
        self.annotation = annotation
        self._adapter: TypeAdapter[T] = _adapter(annotation, config)
        self._validate = self._adapter.validator.validate_python
        self._validate_json = self._adapter.validator.validate_json
        self._serialize = self._adapter.serializer.to_python
        bare, metadata = split_annotation(annotation)
        neutral = config is None or config.keys() <= _NEUTRAL_CONFIG
        self._exact = _exact_types(bare) if neutral and all(map(_only_checks, metadata)) else set()
        self._as_is = self._exact if bare in _PLAIN_TYPES and not metadata else set()
        self._has_sets = any(origin_of(each) in (set, frozenset) for each in walk_annotation(annotation))
        self._members: dict[Any, JsonValue] = {}
        self._by_wire: dict[JsonValue, Any] = {}
        if neutral and not metadata and isinstance(bare, type) and issubclass(bare, Enum):
            self._learn_members(bare)

    def validate(self, value: object, path: str = "") -> T:
        """``value`` as the annotation's type, by pydantic's rules for Python values.

        Raises:
            InvalidValue: it does not fit; the caller's fault.
        """
        try:
            return cast(T, self._validate(value))
        except ValidationError as error:
            raise from_validation_error(error, path, missing=_LEFT_OUT) from error

    def encode(self, value: T, path: str = "") -> JsonValue:
        """The wire form of a validated value.

        Raises:
            InvalidValue: decoding the wire form would not give an equal value of the same type.
        """
        kind = type(value)
        if kind in self._exact:
            if kind is str:
                return check_text(value, path)
            return number_to_wire(cast("float | bool | None", value), path)
        if self._members:
            try:
                return self._members[value]
            except (KeyError, TypeError):
                pass
        return self._encode_checked(value, path)

    def to_wire(self, value: object, path: str = "") -> JsonValue:
        """Validate, then encode.

        Raises:
            InvalidValue: as `validate` and `encode`.
        """
        return self.encode(self.validate(value, path), path)

    def decode(self, wire: JsonValue, path: str = "") -> T:
        """The value of a wire form; never shares anything with it.

        Raises:
            InvalidValue: the wire form does not fit the annotation: another client wrote it.
        """
        kind = type(wire)
        if kind in self._as_is:
            return cast(T, wire)
        if kind is str and wire in self._by_wire:
            return cast(T, self._by_wire[wire])
        try:
            return cast(T, self._validate_json(json.dumps(wire)))
        except ValidationError as error:
            raise from_validation_error(error, path, missing=_LEFT_OUT) from error

    def fits_as_is(self, wires: Collection[JsonValue]) -> bool:
        """Whether each of some wire forms surely is the value that `decode` gives."""
        return self._as_is.issuperset(map(type, wires))

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the wire form."""
        return self._adapter.json_schema(mode="serialization", schema_generator=_WireSchema)

    def _encode_checked(self, value: T, path: str) -> JsonValue:
        try:
            dumped = self._serialize(value, mode="json", by_alias=True, round_trip=True, warnings="error")
            if self._has_sets:
                sort_sets(value, dumped)
        except (ValueError, RecursionError) as error:
            raise invalid_value(path, f"has no JSON form: {error}") from error
        wire = to_wire(dumped, path, big_integers_as_text=True)
        try:
            back = self.decode(printed_wire(wire), path)
        except InvalidValue as error:
            raise invalid_value(error.path, f"would not come back as written: {error.reason}") from error
        found = difference(value, back, path)
        if found is not None:
            raise invalid_value(found[0], f"would not come back as written: {found[1]}")
        return wire

    def _learn_members(self, kind: type[Enum]) -> None:
        for member in kind:
            try:
                wire = self._encode_checked(cast(T, member), "")
            except InvalidValue:
                continue
            # An IntEnum member equals its number, which is not what an Enum field holds: only plain ones are cached.
            if not isinstance(member, int | str):
                self._members[member] = wire
            if isinstance(wire, str):
                self._by_wire[wire] = member


class _WireSchema(GenerateJsonSchema):
    """The schema of the wire form where that is not what pydantic says it is.

    ``x-order`` carries bounds that JSON Schema has no keyword for, as a `CellOrder`; ``x-python-pattern`` a pattern in
    the syntax of Python, which others may not read alike.
    """

    def int_schema(self, schema: core_schema.IntSchema) -> dict[str, Any]:
        """Integers that may be large are strings then."""
        plain = super().int_schema(schema)
        low = schema.get("ge", schema.get("gt", -math.inf))
        high = schema.get("le", schema.get("lt", math.inf))
        if low >= -SAFE_INTEGER and high <= SAFE_INTEGER:
            return plain
        big = _ordered({"type": "string", "pattern": BIG_INTEGER_PATTERN}, "integer", schema)
        return {"anyOf": [plain, big]}

    def str_schema(self, schema: core_schema.StringSchema) -> dict[str, Any]:
        made = super().str_schema(schema)
        if "pattern" in made and not (isinstance(schema["pattern"], str) and self._config.regex_engine == "rust-regex"):
            made["x-python-pattern"] = made.pop("pattern")
        return made

    def bytes_schema(self, schema: core_schema.BytesSchema) -> dict[str, Any]:
        """The bounds of pydantic are in bytes, those of a schema in characters."""
        made = super().bytes_schema(schema)
        bounds = {name: made.pop(name) for name in ("minLength", "maxLength") if name in made}
        if made.get("format") == "base64url":
            made.update({name: 4 * math.ceil(count / 3) for name, count in bounds.items()})
        return made

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> dict[str, Any]:
        made = {"type": "string", "format": "decimal"}
        return made if schema.get("allow_inf_nan") else _ordered(made, "decimal", schema)

    def date_schema(self, schema: core_schema.DateSchema) -> dict[str, Any]:
        return _ordered(super().date_schema(schema), "date", schema)

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> dict[str, Any]:
        zone = schema.get("tz_constraint")
        kind = f"{zone}-datetime" if zone in ("aware", "naive") else "datetime"
        return _ordered(super().datetime_schema(schema), kind, schema)

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> dict[str, Any]:
        return _ordered(super().timedelta_schema(schema), "duration", schema)

    def json_schema(self, _schema: core_schema.JsonSchema) -> dict[str, Any]:
        """It is written as the text that it is read from."""
        return {"type": "string", "contentMediaType": "application/json"}

    def model_fields_schema(self, schema: core_schema.ModelFieldsSchema) -> dict[str, Any]:
        return super().model_fields_schema(_without_computed(schema))

    def dataclass_args_schema(self, schema: core_schema.DataclassArgsSchema) -> dict[str, Any]:
        return super().dataclass_args_schema(_without_computed(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> dict[str, Any]:
        return super().typed_dict_schema(_without_computed(schema))


def _ordered(made: dict[str, Any], kind: str, schema: Any) -> dict[str, Any]:
    """Adds the bounds of ``schema``, if it has any, to the schema of what is a string in wire form."""
    bounds = {name: schema[name] for name in ("ge", "gt", "le", "lt") if schema.get(name) is not None}
    if made["type"] != "string" or not (bounds or kind.endswith("-datetime")):
        return made
    written = {
        name: str(bound) if kind == "decimal" or (kind == "integer" and abs(bound) > SAFE_INTEGER) else bound
        for name, bound in bounds.items()
    }
    return {**made, "x-order": {"type": kind, **to_jsonable_python(written)}}


_Fields = TypeVar(
    "_Fields", core_schema.ModelFieldsSchema, core_schema.DataclassArgsSchema, core_schema.TypedDictSchema
)


def _without_computed(schema: _Fields) -> _Fields:
    """What is computed from other fields is not written."""
    return cast(_Fields, {**schema, "computed_fields": []})


def _adapter(annotation: Any, config: ConfigDict | None) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
    return TypeAdapter(annotation)


def _only_checks(metadata: Any) -> bool:
    if isinstance(metadata, FieldInfo):
        return all(map(_only_checks, metadata.metadata))
    return isinstance(metadata, _CHECKS)


def _exact_types(bare: Any) -> set[type]:
    """The value types that are known to come back as they are under this annotation."""
    if bare in _PLAIN_TYPES:
        return {bare}
    origin, arguments = get_origin(bare), get_args(bare)
    if origin is Literal and all(type(each) is str for each in arguments):
        return {str}
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        (other,) = (each for each in arguments if each is not NoneType)
        inner = _exact_types(other)
        return inner | {NoneType} if inner else inner
    return set()
