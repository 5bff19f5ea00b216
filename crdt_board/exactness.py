"""Whether a value came back as it was written: equal in type and value, all the way down."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import OrderedDict
from collections.abc import Iterable
from datetime import datetime, time, timezone
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from pydantic_core import TzInfo

from crdt_board.wire_values import child_path

Difference = tuple[str, str]
"""A path, and what is different there."""


def same_value(one: Any, other: Any) -> bool:
    """Equality in type and value, all the way down."""
    return difference(one, other, "") is None


def sort_sets(value: Any, dumped: Any) -> None:
    """Put what was dumped from a set in an order that does not depend on the process that did it."""
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        for item, item_dumped in zip(value, dumped, strict=True):
            sort_sets(item, item_dumped)
        dumped.sort(key=lambda item: json.dumps(item, sort_keys=True))
    elif isinstance(value, list | tuple) and isinstance(dumped, list):
        for item, item_dumped in zip(value, dumped, strict=True):
            sort_sets(item, item_dumped)
    elif isinstance(dumped, dict):
        parts = value if isinstance(value, dict) else _fields(value)
        if len(parts) == len(dumped):
            for item, item_dumped in zip(parts.values(), dumped.values(), strict=True):
                sort_sets(item, item_dumped)


def _fields(value: Any) -> dict[str, Any]:
    """What a model or dataclass instance is made of, in the order of declaration."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {}


def difference(value: Any, back: Any, path: str) -> Difference | None:
    """Where and how ``back`` is not ``value``, or None when it is the same in type and value."""
    if isinstance(value, datetime | time) and isinstance(back, datetime | time):
        return _time_difference(value, back, path)
    if type(value) is not type(back):
        return path, f"{_show(value)} would be {_show(back)}"
    if isinstance(value, list | tuple):
        return _pairs_difference(enumerate(value), dict(enumerate(back)), path)
    if isinstance(value, dict):
        return _dict_difference(value, back, path)
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return _model_difference(value, back, path)
    return None if _is_same_leaf(value, back) else (path, f"{_show(value)} would be {_show(back)}")


def _is_same_leaf(value: Any, back: Any) -> bool:
    if isinstance(value, set | frozenset):
        return {(type(each), each) for each in value} == {(type(each), each) for each in back}
    if isinstance(value, float):
        return value == back and math.copysign(1, value) == math.copysign(1, back)
    if isinstance(value, Decimal):
        return bool(value.as_tuple() == back.as_tuple())
    return bool(value == back)


def _dict_difference(value: dict[Any, Any], back: dict[Any, Any], path: str) -> Difference | None:
    """The order of keys is no part of a value: objects in a document have none."""
    if isinstance(value, OrderedDict) and len(value) > 1:
        return path, "the order of its keys would be lost"
    keys, keys_back = ({(type(key), key) for key in side} for side in (value, back))
    if keys != keys_back:
        return path, f"keys {_show(list(value))} would be {_show(list(back))}"
    return _pairs_difference(value.items(), back, path)


def _pairs_difference(pairs: Iterable[tuple[Any, Any]], back: dict[Any, Any], path: str) -> Difference | None:
    count = 0
    for key, item in pairs:
        count += 1
        if key not in back:
            return child_path(path, key), f"{_show(item)} would be missing"
        found = difference(item, back[key], child_path(path, key))
        if found is not None:
            return found
    return None if count == len(back) else (path, f"{count} items would be {len(back)}")


def _model_difference(value: Any, back: Any, path: str) -> Difference | None:
    found = _pairs_difference(_fields(value).items(), _fields(back), path)
    if found is None and isinstance(value, BaseModel) and value.__pydantic_private__ != back.__pydantic_private__:
        return path, f"private attributes of {type(value).__name__} would be lost"
    return found


def _time_difference(value: datetime | time, back: datetime | time, path: str) -> Difference | None:
    if value.tzinfo is None or isinstance(value.tzinfo, TzInfo):
        zone_kept = value.utcoffset() == back.utcoffset()
    else:
        offset = value.utcoffset()
        zone_kept = (
            isinstance(value.tzinfo, timezone)
            and offset == back.utcoffset()
            and offset is not None
            and value.tzname() == timezone(offset).tzname(None)
        )
    if not zone_kept:
        return path, f"the time zone {value.tzinfo} would be {back.tzinfo}: convert it with astimezone(UTC)"
    if type(value) is type(back) and value == back and value.fold == back.fold:
        return None
    return path, f"{_show(value)} would be {_show(back)}"


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of too many digits
        text = "…"
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"
