"""What is written beside a field's type: `Max`, `Min`, `Candidates` and `Strict` say how its writes combine, and
`Scratch` how long they stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from crdt_board.layout import RECORD_KINDS, SCRATCH_KINDS, TTL_MS_MAX, TTL_MS_MIN, FieldKind
from crdt_board.orders import ORDERED_TYPES, CellOrder
from crdt_board.values import ValueCodec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Max:
    """``Annotated[float, Max()]``: the greatest value that anybody wrote; the default is the first of them."""


@dataclass(frozen=True, slots=True)
class Min:
    """``Annotated[float, Min()]``: the least value that anybody wrote; the default is the first of them."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """``Annotated[str, Candidates()]``: values written at the same time are all kept until one is chosen."""


@dataclass(frozen=True, slots=True)
class Strict:
    """``Annotated[str, Strict()]``: changed by ``commit(patch=…, expected_version=…)`` only.

    Not pydantic's ``Strict``, which is about conversion and says nothing of who may write.
    """


@dataclass(frozen=True, slots=True)
class Scratch:
    """``Annotated[dict[str, str], Scratch(ttl=timedelta(hours=1))]``: what is written is removed after ``ttl``.

    Of a ``dict`` or ``set`` each key by itself, ``ttl`` after it was last written; a scalar, ``Text`` or ``list`` as a
    whole, ``ttl`` after anything in it was written.
    """

    ttl: timedelta


@dataclass(frozen=True, slots=True)
class Candidate(Generic[T]):
    """One of several values that were written at the same time: what, by whom, and when by the writer's clock."""

    value: T
    agent: str
    when: datetime


POLICIES: dict[type, FieldKind] = {Max: "max", Min: "min", Candidates: "candidates", Strict: "strict"}

Problem = tuple[str, str]
"""What is wrong, and what to write instead."""

_BOUNDS: dict[type, str] = {
    annotated_types.Ge: "ge",
    annotated_types.Gt: "gt",
    annotated_types.Le: "le",
    annotated_types.Lt: "lt",
    annotated_types.MinLen: "min_length",
    annotated_types.MaxLen: "max_length",
}
_CONTAINERS = {list: "tuple[…]", set: "frozenset[…]", dict: "a frozen pydantic model, or dict[str, T] without a policy"}
_TIMES = frozenset({"datetime", "aware-datetime", "naive-datetime", "date", "duration"})


def policy_of(info: FieldInfo) -> FieldKind | None:
    """The merge policy that is written beside the field's type; the first one, when there are several."""
    return next((POLICIES[type(each)] for each in info.metadata if type(each) in POLICIES), None)


def plain_metadata(info: FieldInfo) -> list[Any]:
    """What is written beside the field's type apart from its policy and time to live."""
    return [each for each in info.metadata if type(each) not in POLICIES and not isinstance(each, Scratch)]


def ttl_ms_of(info: FieldInfo) -> int | None:
    """How long what is written into the field stays; None for ever."""
    return next((each.ttl // timedelta(milliseconds=1) for each in info.metadata if isinstance(each, Scratch)), None)


def scratch_problem(info: FieldInfo, kind: FieldKind) -> Problem | None:
    """What is wrong with a time to live, or with the field that it is written on."""
    scratch: list[Any] = [each for each in info.metadata if isinstance(each, Scratch)]
    example = "Scratch(ttl=timedelta(hours=1))"
    if Scratch in info.metadata or len(scratch) > 1:
        return "Scratch says once how long what is written stays", f"write one {example}"
    if not scratch:
        return None
    problem = _kind_problem(info, kind)
    if problem is not None:
        return problem
    ttl, least, most = scratch[0].ttl, timedelta(milliseconds=TTL_MS_MIN), timedelta(milliseconds=TTL_MS_MAX)
    if isinstance(ttl, timedelta) and least <= ttl <= most:
        return None
    return f"{ttl!r} is no time to live", f"write a timedelta of a second to {most.days} days, as in {example}"


def _kind_problem(info: FieldInfo, kind: FieldKind) -> Problem | None:
    if kind in RECORD_KINDS:
        return (
            "what is written into a record while it is removed would be lost with it",
            "write dict[str, T] with a scalar or a frozen pydantic model, which are written whole",
        )
    if kind not in SCRATCH_KINDS:
        return f"a {kind} stands for all that was ever written", "write Scratch on another field"
    if kind == "scalar" and info.is_required():
        return "a scratch field needs a value to go back to", "write a default"
    return None


def policy_problem(info: FieldInfo) -> Problem | None:
    """What is wrong with how a policy is written, or with what it is written on."""
    for each in info.metadata:
        if isinstance(each, type) and each in POLICIES:
            return f"{each.__name__} is written without its parentheses", f"write {each.__name__}()"
    inner = next(_nested_policies(info.annotation), None)
    if inner is not None:
        name = type(inner).__name__
        return (
            f"{name}() stands inside the type, and is a policy of a whole field",
            f"write it on the field, as in Annotated[float, {name}()]",
        )
    names = [type(each).__name__ for each in info.metadata if type(each) in POLICIES]
    if len(names) > 1:
        return f"{' and '.join(names)} cannot both decide", f"write one of them, as in Annotated[float, {names[0]}()]"
    return _type_problem(info, names[0]) if names else None


def _type_problem(info: FieldInfo, policy: str) -> Problem | None:
    annotation = info.annotation
    origin: Any = get_origin(annotation) or annotation
    if isinstance(origin, type) and origin.__module__ == "crdt_board.merge_types":
        return f"a {origin.__name__} merges by itself, without {policy}", f"write {origin.__name__} alone"
    if policy in ("Max", "Min"):
        return _order_problem(info, policy)
    if origin in _CONTAINERS:
        return f"{policy} replaces a value whole, and a {origin.__name__} is changed in place", (
            f"write {_CONTAINERS[origin]}"
        )
    return None


def _order_problem(info: FieldInfo, policy: str) -> Problem | None:
    if info.annotation not in ORDERED_TYPES:
        return (
            f"{policy} needs values of which one is always the greater, which {_name(info.annotation)} does not say",
            "write bool, int, float, Decimal, str, date, datetime or timedelta",
        )
    for each in plain_metadata(info):
        if type(each) not in _BOUNDS:
            return (
                f"{_name(type(each))} is not known where values are compared, which is also done without the model",
                "write bounds only (ge, gt, le, lt, and min_length and max_length of a str)",
            )
    return None


def time_problem(order: CellOrder, config: Any) -> Problem | None:
    """Times in another form than ISO 8601 cannot be compared where the model is not known."""
    if order.type in _TIMES and {"ser_json_timedelta", "ser_json_temporal"} & set(config):
        return "times are compared in the form of ISO 8601", "write no ser_json_… in model_config"
    return None


def order_of(info: FieldInfo, codec: ValueCodec[Any]) -> CellOrder:
    """How the values of a `Max` or `Min` field compare; ``codec`` converts its bounds.

    Raises:
        InvalidValue: a bound is no value of the field's type.
    """
    bounds: dict[str, Any] = {}
    for each in plain_metadata(info):
        name = _BOUNDS[type(each)]
        bound = getattr(each, name)
        bounds[name] = bound if name.endswith("length") else codec.to_wire(bound, name)
    return CellOrder(type=ORDERED_TYPES[info.annotation], **bounds)


def _nested_policies(annotation: Any) -> Iterator[Any]:
    """Policies inside a type: in its arguments, and in the fields of models in it that are replaced whole."""
    waiting: list[Any] = [annotation]
    seen: list[Any] = []
    while waiting:
        current = waiting.pop()
        if any(current is each for each in seen):
            continue
        seen.append(current)
        if get_origin(current) is Annotated:
            current, *metadata = get_args(current)
            yield from (each for each in metadata if _is_policy(each))
        waiting.extend(get_args(current))
        if isinstance(current, type) and issubclass(current, BaseModel) and not hasattr(current, "board_layout"):
            for field in current.model_fields.values():
                yield from (each for each in field.metadata if _is_policy(each))
                waiting.append(field.annotation)


def _is_policy(metadata: Any) -> bool:
    return type(metadata) in POLICIES or isinstance(metadata, Scratch)


def _name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
