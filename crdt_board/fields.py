"""How one declared field is resolved to its merge policy, and what is wrong with one that cannot be merged."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, MutableSet
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, Union, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation
from pydantic.fields import FieldInfo

from crdt_board.annotations import origin_of, walk_annotation
from crdt_board.bounds import Bounds, declared_bounds
from crdt_board.errors import InvalidValue, ModelError
from crdt_board.exactness import same_value
from crdt_board.layout import ITEM_KEY, RECORD_KINDS, STATE_ROOT, FieldKind
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.merge_types import Counter, Text
from crdt_board.orders import CellOrder
from crdt_board.policies import (
    order_of,
    plain_metadata,
    policy_of,
    policy_problem,
    scratch_problem,
    time_problem,
    ttl_ms_of,
)
from crdt_board.values import ValueCodec
from crdt_board.wire_values import check_text, child_path, element_key, invalid_value, same_wire

CONTAINERS: dict[type, FieldKind] = {Text: "text", Counter: "counter", list: "list", set: "set", dict: "dict"}
"""Which annotation chooses which merge policy; every other annotation is a scalar."""

_OF_RECORDS: dict[FieldKind, FieldKind] = {"dict": "records", "list": "record_list"}
"""What a container becomes when it holds records."""

VALUE_KINDS: frozenset[FieldKind] = frozenset({"scalar", "max", "min", "candidates", "strict"})
"""The kinds of fields that hold one value, which is written whole."""

SUPPORTED = (
    "a scalar (str, int, float, bool, Enum, Literal, datetime, UUID, Decimal, bytes, tuple, frozenset, a frozen "
    "pydantic model, or a union of these), Text, Counter, list[T], set[T] or dict[str, T] with a scalar T, or "
    "dict[str, M] or list[M] with a BoardModel M"
)

_IN_RECORDS: frozenset[FieldKind] = frozenset({"scalar", "text", "list", "set", "dict", "counter", *RECORD_KINDS})
_RECORD_LEVELS_MAX = (DEFAULT_LIMITS.nesting_depth_max - 1) // 2
"""Each level is two shared types, the record and the map of those in it; what a container holds is one more."""

_LOOKALIKES: dict[type, str] = {MutableSequence: "list", MutableSet: "set", MutableMapping: "dict"}
_Problem = tuple[str, str]  # what is wrong, and what to write instead
UNWRITTEN: Any = object()
"""Stands for the value of a field that nobody wrote."""
_TAKEN = frozenset({"board_layout", "board_migrations"})
_NAME = re.compile(r"[^\W_]\w*")


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """One resolved field. ``codec`` converts a scalar's value, or one element (a dict's value) of a container."""

    name: str
    kind: FieldKind
    codec: ValueCodec[Any]
    whole: ValueCodec[Any]
    """Validates all of the field's value at once; the same as ``codec`` for scalars."""
    info: FieldInfo
    record: type[BaseModel] | None = None
    """The class of the records, for the kinds ``records`` and ``record_list``."""
    order: CellOrder | None = None
    """How values compare, for the kinds ``max`` and ``min``."""
    bounds: Bounds | None = None
    """How large a container may be."""
    ttl_ms: int | None = None
    """How long what is written stays; None for ever."""

    @property
    def required(self) -> bool:
        return self.info.is_required()

    def default(self) -> Any:
        """A fresh copy of the default of a field that is not required."""
        return self.info.get_default(call_default_factory=True)

    def default_wire(self) -> JsonValue:
        """What a field that is not required reads as before it was written, in wire form."""
        return self.to_wire(self.default())

    def to_wire(self, value: object, path: str | None = None) -> JsonValue:
        """All of the field's value, validated, in wire form; a set as a list in the order of its keys.

        Items of a list of records that were read from a board have their ids, each id once. ``path`` is where the value
        is, when that is not the field's name.

        Raises:
            InvalidValue: it does not fit, or would not come back as written.
        """
        path = self.name if path is None else path
        return self.wire_of(self.valid(value, path), path)

    def valid(self, value: object, path: str) -> Any:
        """All of the field's value as its own type, with plain values in place of live ones.

        Raises:
            InvalidValue: it does not fit.
        """
        value = plain_value(value)
        if self.kind == "records" and isinstance(value, dict):
            value = {key: plain_value(record) for key, record in value.items()}
        elif (
            self.kind == "record_list" and isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        ):
            value = [plain_value(record) for record in value]
        return self.whole.validate(value, path)

    def wire_of(self, valid: Any, path: str) -> JsonValue:
        """What `valid` returned, in wire form.

        Raises:
            InvalidValue: it would not come back as written.
        """
        if self.kind == "list":
            return [self.codec.encode(item, child_path(path, index)) for index, item in enumerate(valid)]
        if self.kind == "record_list":
            return self._items_wire(valid, path)
        if self.kind == "set":
            return sorted((self.codec.encode(item, path) for item in valid), key=element_key)
        if self.kind in ("dict", "records"):
            encode = self.record_wire if self.record else self.codec.encode
            return {check_text(key, path): encode(item, child_path(path, key)) for key, item in valid.items()}
        if self.kind == "counter":
            return int(valid)
        return self.codec.encode(str(valid) if self.kind == "text" else valid, path)

    def _items_wire(self, items: list[Any], path: str) -> JsonValue:
        wires: list[JsonValue] = []
        ids: set[str] = set()
        for index, item in enumerate(items):
            wire = self.record_wire(item, child_path(path, index))
            known: str | None = item._board_base.item
            if known is not None and known not in ids:
                ids.add(known)
                wire = {ITEM_KEY: known, **wire}
            wires.append(wire)
        return wires

    def record_wire(self, record: object, path: str) -> dict[str, JsonValue]:
        """One record of a field with records, validated, with all of its fields in wire form.

        Raises:
            InvalidValue: as `to_wire`.
        """
        valid = self.codec.validate(plain_value(record), path)
        if type(valid) is not self.record:
            raise invalid_value(path, f"is a {type(valid).__name__}, not a {_name(self.record)}")
        return {name: spec.to_wire(getattr(valid, name), child_path(path, name)) for name, spec in self.inside.items()}

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the wire form; of records only what holds them, each of their fields has its own."""
        holder: dict[str, Any] = {"type": "object" if self.kind == "records" else "array"}
        schema = holder if self.record else self.whole.json_schema()
        return {**schema, **self.bounds.json_schema} if self.bounds else schema

    def stored_in(self, state: Mapping[str, JsonValue]) -> JsonValue:
        """The field's value in a state or record, in which those that were never written may be missing.

        Without a value and a default it is an object that equals no value.
        """
        if self.name in state:
            return state[self.name]
        return UNWRITTEN if self.required else self.default_wire()

    def same(self, one: JsonValue, other: JsonValue) -> bool:
        """Whether two values of the field in wire form read alike."""
        if self.kind == "records" and isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self.same_record(each, other[key]) for key, each in one.items())
        if self.kind == "record_list" and isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self.same_record, one, other))
        return same_wire(one, other)

    def same_record(self, one: JsonValue, other: JsonValue) -> bool:
        """Whether two records in wire form read alike, whatever their ids are."""
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return same_wire(one, other)
        return all(spec.same(spec.stored_in(one), spec.stored_in(other)) for spec in self.inside.values())

    @property
    def inside(self) -> dict[str, FieldSpec]:
        """The fields of each record of a field with records, in order of declaration."""
        assert self.record is not None
        return record_fields(self.record)


def nearest_name(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'status'?"``, or nothing when no known name is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def plain_value(value: object) -> object:
    """A live container or record as the plain one that pydantic knows."""
    to_python = getattr(value, "_board_python", None) or getattr(value, "to_python", None)
    return to_python() if callable(to_python) else value


def record_fields(record: type[BaseModel]) -> dict[str, FieldSpec]:
    """The resolved fields of a `BoardModel`, in order of declaration."""
    board_model = cast(Any, record)
    board_model.board_layout()
    return cast(dict[str, FieldSpec], board_model.__board_fields__)


def resolve_field(model: type[BaseModel], name: str, info: FieldInfo) -> FieldSpec:
    """The merge policy and the codecs of one declared field.

    Raises:
        ModelError: it cannot be merged; ``field``, ``reason`` and ``instead`` say what to change.
    """

    def refuse(reason: str, instead: str) -> NoReturn:
        raise ModelError(f"{model.__name__}.{name}: {reason}; {instead}", field=name, reason=reason, instead=instead)

    annotation = info.annotation
    problem = policy_problem(info)
    if problem is not None:
        refuse(*problem)
    kind = policy_of(info) or CONTAINERS.get(cast(type, origin_of(annotation)), "scalar")
    if kind in _OF_RECORDS and _record_class(annotation) is not None:
        kind = _OF_RECORDS[kind]
    problem = scratch_problem(info, kind)
    if problem is not None:
        refuse(*problem)
    if not _NAME.fullmatch(name) or name in _TAKEN or (name == STATE_ROOT and kind != "scalar"):
        refuse("this name is taken by the board itself", "write another name that starts with a letter")
    if info.alias is not None or info.validation_alias is not None or info.serialization_alias is not None:
        refuse("an alias would give the field two names", "write the name under which it is stored as the field's name")
    if kind in VALUE_KINDS:
        problem = _scalar_problem(annotation) or _content_problem(annotation)
    else:
        problem = _container_problem(annotation, kind, info) or _records_problem(model, annotation)
    if problem is not None:
        refuse(*problem)
    try:
        spec = _spec(model, name, info, kind)
    except InvalidValue as error:
        refuse(f"the bound {error.path} {error.reason}", "write a bound that the field itself would accept")
    problem = time_problem(spec.order, model.model_config) if spec.order is not None else None
    if problem is not None:
        refuse(*problem)
    try:
        _check_default(spec)
        spec.json_schema()
    except InvalidValue as error:
        refuse(f"the default {error.reason}", "write a default that the field itself would accept as it is")
    except PydanticInvalidForJsonSchema as error:
        refuse(f"has no JSON Schema ({error})", f"write {SUPPORTED}")
    return spec


def _spec(model: type[BaseModel], name: str, info: FieldInfo, kind: FieldKind) -> FieldSpec:
    annotation: Any = info.annotation
    config = model.model_config
    if kind in VALUE_KINDS:
        metadata = plain_metadata(info)
        codec = ValueCodec[Any](Annotated[annotation, *metadata] if metadata else annotation, config)
        order = order_of(info, ValueCodec[Any](annotation, config)) if kind in ("max", "min") else None
        return FieldSpec(name, kind, codec, codec, info, order=order, ttl_ms=ttl_ms_of(info))
    element = {"text": str, "counter": int}.get(kind) or get_args(annotation)[-1]
    record = _record_class(annotation) if kind in RECORD_KINDS else None
    constraints = plain_metadata(info)
    bounds = declared_bounds(kind, constraints) if constraints else None
    codec, whole = ValueCodec[Any](element, config), ValueCodec[Any](annotation, config)
    return FieldSpec(name, kind, codec, whole, info, record, bounds=bounds, ttl_ms=ttl_ms_of(info))


def _record_class(annotation: Any) -> type[BaseModel] | None:
    """What the records of a ``dict[str, Model]`` or ``list[Model]`` are, or None when it holds no records."""
    element = (get_args(annotation) or (None,))[-1]
    is_record = origin_of(annotation) in (dict, list) and isinstance(element, type) and hasattr(element, "board_layout")
    return cast(type[BaseModel], element) if is_record else None


def _records_problem(model: type[BaseModel], annotation: Any) -> _Problem | None:
    record = _record_class(annotation)
    if record is None:
        return None
    if any(each is model for each in walk_annotation(annotation)):
        return (
            f"a {_name(record)} would hold a {model.__name__} again, without end",
            "write the key or the id of the other record, in a field of type str",
        )
    try:
        inside = record_fields(record)
    except PydanticUndefinedAnnotation as error:
        return f"{_name(record)} names {error.name}, which is not defined yet", "write that class above this one"
    for spec in inside.values():
        if spec.kind not in _IN_RECORDS or spec.ttl_ms:
            what = "scratch" if spec.ttl_ms else spec.kind
            return f"{_name(record)}.{spec.name} is a {what}, which only a board itself can have", "write it there"
    if _record_levels(record) > _RECORD_LEVELS_MAX:
        return f"records are nested more than {_RECORD_LEVELS_MAX} levels deep", "write the inner ones beside it"
    return None


def _record_levels(record: type[BaseModel]) -> int:
    return 1 + max((_record_levels(spec.record) for spec in record_fields(record).values() if spec.record), default=0)


def _scalar_problem(annotation: Any) -> _Problem | None:
    origin = origin_of(annotation)
    if origin in (Union, UnionType):
        return _union_problem(get_args(annotation))
    if not isinstance(origin, type) or issubclass(origin, str | bytes | tuple | frozenset):
        return None
    for container in (list, set, dict):
        if issubclass(origin, container):
            return f"{_name(origin)} would come back as a {container.__name__}", f"write {container.__name__}[…]"
    for lookalike, instead in _LOOKALIKES.items():
        if issubclass(lookalike, origin) and origin is not object:
            return f"{_name(origin)} does not say how writes combine", f"write {instead}[…] or tuple[…]"
    return None


def _union_problem(members: tuple[Any, ...]) -> _Problem | None:
    for each in members:
        if origin_of(each) in CONTAINERS:
            hint = ": it is empty when nothing is there" if NoneType in members else ""
            return f"{_name(each)} in a union cannot be merged", f"write {_name(each)} alone{hint}"
    return None


def _container_problem(annotation: Any, kind: FieldKind, info: FieldInfo) -> _Problem | None:
    constraints = plain_metadata(info)
    if constraints and declared_bounds(kind, constraints) is None:
        allowed = "ge, gt, le and lt with an int" if kind == "counter" else "min_length and max_length"
        return (
            f"of constraints on a whole {kind} only its size can be checked where edits merge",
            f"write {allowed}, and others on the elements, as in list[Annotated[str, Field(max_length=80)]]",
        )
    if not info.is_required() and info.get_default(call_default_factory=True, validated_data={}):
        return f"a {kind} starts empty, so that no two replicas fill it twice", "write no default, or an empty one"
    return None if kind in ("text", "counter") else _element_problem(get_args(annotation), kind)


def _element_problem(arguments: tuple[Any, ...], kind: FieldKind) -> _Problem | None:
    if not arguments:
        example = "dict[str, int]" if kind == "dict" else f"{kind}[str]"
        return f"a bare {kind} does not say what it holds", f"write the type of its elements, as in {example}"
    if kind in ("dict", "records") and arguments[0] is not str:
        return f"keys of a dict must be str, not {_name(arguments[0])}", f"write dict[str, {_name(arguments[1])}]"
    if kind in RECORD_KINDS:
        return None
    element = arguments[-1]
    if origin_of(element) in (list, set, dict):
        return (
            f"changes inside {_name(element)} within a {kind} would not reach the board",
            "write tuple[…], frozenset[…], a frozen pydantic model or pydantic.JsonValue, which are replaced whole",
        )
    return _content_problem(element) or (_hash_problem(element) if kind == "set" else None)


def _content_problem(annotation: Any) -> _Problem | None:
    """What may not stand inside a value that is replaced whole."""
    for each in walk_annotation(annotation):
        if not isinstance(each, type) or get_origin(each) is not None:
            continue
        if hasattr(each, "board_layout"):
            return (
                f"records ({each.__name__} is a BoardModel) merge only as the values of a dict or the items of a list",
                f"write dict[str, {each.__name__}] or list[{each.__name__}], "
                "or a frozen pydantic BaseModel for what is replaced whole",
            )
        if issubclass(each, Text | Counter):
            return f"{each.__name__} must be a field of its own", f"write {'str' if issubclass(each, Text) else 'int'}"
        if not _is_frozen(each):
            return (
                f"{each.__name__} can be changed in place, which would not reach the board",
                f"write frozen=True on {each.__name__}",
            )
    return None


def _is_frozen(kind: type) -> bool:
    if issubclass(kind, BaseModel):
        return bool(kind.model_config.get("frozen"))
    if dataclasses.is_dataclass(kind):
        return bool(cast(Any, kind).__dataclass_params__.frozen)
    return True


def _hash_problem(element: Any) -> _Problem | None:
    for each in walk_annotation(element):
        origin = origin_of(each)
        if isinstance(origin, type) and issubclass(origin, list | set | dict):
            return f"{_name(each)} cannot be in a set, because it has no hash", "write tuple[…] or frozenset[…]"
    return None


def _check_default(spec: FieldSpec) -> None:
    if spec.kind not in VALUE_KINDS or spec.required:
        return
    if spec.info.default_factory is not None:
        raise InvalidValue("", reason="of a factory would be another one in each replica", path=spec.name)
    default = spec.default()
    if not same_value(default, spec.codec.validate(default, spec.name)):
        raise InvalidValue("", reason=f"{default!r} is not of the field's own type", path=spec.name)
    spec.codec.encode(default, spec.name)


def _name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
