"""How one declared field is resolved to its merge policy, and what is wrong with one that cannot be merged."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, MutableMapping, MutableSequence, MutableSet
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, Union, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo

from crdt_board.annotations import origin_of, walk_annotation
from crdt_board.errors import InvalidValue, ModelError
from crdt_board.exactness import same_value
from crdt_board.layout import STATE_ROOT, FieldKind
from crdt_board.merge_types import Counter, Text
from crdt_board.values import ValueCodec
from crdt_board.wire_values import check_text, child_path, element_key

CONTAINERS: dict[type, FieldKind] = {Text: "text", Counter: "counter", list: "list", set: "set", dict: "dict"}
"""Which annotation chooses which merge policy; every other annotation is a scalar."""

SUPPORTED = (
    "a scalar (str, int, float, bool, Enum, Literal, datetime, UUID, Decimal, bytes, tuple, frozenset, a frozen "
    "pydantic model, or a union of these), Text, Counter, list[T], set[T] or dict[str, T] with a scalar T"
)

_LOOKALIKES: dict[type, str] = {MutableSequence: "list", MutableSet: "set", MutableMapping: "dict"}
_Problem = tuple[str, str]  # what is wrong, and what to write instead
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

    @property
    def required(self) -> bool:
        return self.info.is_required()

    def default(self) -> Any:
        """A fresh copy of the default of a field that is not required."""
        return self.info.get_default(call_default_factory=True)

    def default_wire(self) -> JsonValue:
        """What a field that is not required reads as before it was written, in wire form."""
        return self.to_wire(self.default())

    def to_wire(self, value: object) -> JsonValue:
        """All of the field's value, validated, in wire form; a set as a list in the order of its keys.

        Raises:
            InvalidValue: it does not fit, or would not come back as written.
        """
        valid = self.whole.validate(plain_value(value), self.name)
        if self.kind == "list":
            return [self.codec.encode(item, child_path(self.name, index)) for index, item in enumerate(valid)]
        if self.kind == "set":
            return sorted((self.codec.encode(item, self.name) for item in valid), key=element_key)
        if self.kind == "dict":
            return {
                check_text(key, self.name): self.codec.encode(item, child_path(self.name, key))
                for key, item in valid.items()
            }
        if self.kind == "counter":
            return int(valid)
        return self.codec.encode(str(valid) if self.kind == "text" else valid, self.name)


def nearest_name(name: object, known: Iterable[str]) -> str:
    """``"; did you mean 'status'?"``, or nothing when no known name is near."""
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def plain_value(value: object) -> object:
    """A live container as the plain one that pydantic knows."""
    to_python = getattr(value, "to_python", None)
    return to_python() if callable(to_python) else value


def resolve_field(model: type[BaseModel], name: str, info: FieldInfo) -> FieldSpec:
    """The merge policy and the codecs of one declared field.

    Raises:
        ModelError: it cannot be merged; ``field``, ``reason`` and ``instead`` say what to change.
    """

    def refuse(reason: str, instead: str) -> NoReturn:
        raise ModelError(f"{model.__name__}.{name}: {reason}; {instead}", field=name, reason=reason, instead=instead)

    annotation = info.annotation
    kind = CONTAINERS.get(cast(type, origin_of(annotation)), "scalar")
    if not _NAME.fullmatch(name) or name == "board_layout" or (name == STATE_ROOT and kind != "scalar"):
        refuse("this name is taken by the board itself", "write another name that starts with a letter")
    if info.alias is not None or info.validation_alias is not None or info.serialization_alias is not None:
        refuse("an alias would give the field two names", "write the name under which it is stored as the field's name")
    if kind == "scalar":
        problem = _scalar_problem(annotation) or _content_problem(annotation)
    else:
        problem = _container_problem(annotation, kind, info)
    if problem is not None:
        refuse(*problem)
    spec = _spec(model, name, info, kind)
    try:
        _check_default(spec)
        spec.whole.json_schema()
    except InvalidValue as error:
        refuse(f"the default {error.reason}", "write a default that the field itself would accept as it is")
    except PydanticInvalidForJsonSchema as error:
        refuse(f"has no JSON Schema ({error})", f"write {SUPPORTED}")
    return spec


def _spec(model: type[BaseModel], name: str, info: FieldInfo, kind: FieldKind) -> FieldSpec:
    annotation: Any = info.annotation
    config = model.model_config
    if kind == "scalar":
        codec = ValueCodec[Any](Annotated[annotation, *info.metadata] if info.metadata else annotation, config)
        return FieldSpec(name, kind, codec, codec, info)
    element = {"text": str, "counter": int}.get(kind) or get_args(annotation)[-1]
    return FieldSpec(name, kind, ValueCodec(element, config), ValueCodec(annotation, config), info)


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
    if info.metadata:
        return (
            f"constraints on a whole {kind} cannot hold when edits merge",
            "write them on the elements, as in list[Annotated[str, Field(max_length=80)]]",
        )
    if not info.is_required() and info.get_default(call_default_factory=True, validated_data={}):
        return f"a {kind} starts empty, so that no two replicas fill it twice", "write no default, or an empty one"
    return None if kind in ("text", "counter") else _element_problem(get_args(annotation), kind)


def _element_problem(arguments: tuple[Any, ...], kind: FieldKind) -> _Problem | None:
    if not arguments:
        example = "dict[str, int]" if kind == "dict" else f"{kind}[str]"
        return f"a bare {kind} does not say what it holds", f"write the type of its elements, as in {example}"
    if kind == "dict" and arguments[0] is not str:
        return f"keys of a dict must be str, not {_name(arguments[0])}", f"write dict[str, {_name(arguments[1])}]"
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
            return f"records ({each.__name__} is a BoardModel) are not merged by this version", f"write {SUPPORTED}"
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
    if spec.kind != "scalar" or spec.required:
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
