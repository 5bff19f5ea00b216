"""The wire form of values: the JSON that a document holds for them.

It is JSON as pydantic writes it, with whole floats as integers, integers beyond 2^53-1 as strings and sets in the order
of their canonical JSON. Knows nothing of pydantic models and documents.
"""

from __future__ import annotations

import json
import math
from typing import Any, cast

from pydantic import JsonValue

from crdt_board.canonical import SAFE_INTEGER, canonical_json
from crdt_board.errors import InvalidValue
from crdt_board.limits import DEFAULT_LIMITS

_LEAVES = frozenset({str, int, float, bool, type(None)})


def child_path(path: str, *parts: str | int) -> str:
    """``path`` extended by keys or indexes, as a JSON Pointer (RFC 6901) without its leading slash."""
    escaped = [str(part).replace("~", "~0").replace("/", "~1") for part in parts]
    return "/".join([path, *escaped] if path else escaped)


def invalid_value(path: str, reason: str, **data: Any) -> InvalidValue:
    """The error for a value at ``path`` that is refused because of ``reason``."""
    return InvalidValue(f"{path}: {reason}" if path else reason, path=path, reason=reason, **data)


def check_text(text: object, path: str) -> str:
    """Return ``text`` when it is a str that can be stored.

    Raises:
        InvalidValue: it is no str, or holds a lone surrogate, on which yrs panics.
    """
    if not isinstance(text, str):
        raise invalid_value(path, f"must be a str, not {type(text).__name__}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise invalid_value(path, f"has a lone surrogate at position {error.start}") from None
    return text


def check_key(key: object, path: str) -> str:
    """The same for a key of what is at ``path``."""
    if isinstance(key, str) and not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise invalid_value(path, f"has a key with a lone surrogate at position {error.start}") from None
    return check_text(key, path)


def check_texts(value: JsonValue, path: str) -> None:
    """Return when every text and key in a JSON value can be stored.

    Raises:
        InvalidValue: one has a lone surrogate; the path says where.
    """
    if isinstance(value, str):
        check_text(value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_texts(item, child_path(path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            check_texts(item, child_path(path, check_key(key, path)))


def check_wire(value: Any, path: str) -> JsonValue:
    """A copy of a JSON value in wire form.

    Raises:
        InvalidValue: it holds something that a document cannot give back; the path says where.
    """
    return to_wire(value, path, big_integers_as_text=False)


def document_wire(value: Any) -> JsonValue:
    """What pycrdt returned for one value, in wire form: it gives floats for integers, bytearrays for binary content."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return _document_number(value)
    if isinstance(value, list | bytes | bytearray):
        return [document_wire(item) for item in value]
    if isinstance(value, dict):
        return {key: item if type(item) is str else document_wire(item) for key, item in value.items()}
    return _shared_type_wire(value)


def _document_number(value: float) -> JsonValue:
    if not math.isfinite(value):
        return None
    if abs(value) > SAFE_INTEGER:
        return float(value)
    return int(value) if value == int(value) else value


def _shared_type_wire(value: Any) -> JsonValue:
    """A Yjs type that another client nested where a plain value belongs."""
    text = str(value)
    try:
        return cast(JsonValue, json.loads(text))
    except ValueError:
        return text


def printed_wire(wire: JsonValue) -> JsonValue:
    """A wire value as it stands in the JSON that Rust prints of a document: whole floats below 2^63 are integers."""
    if isinstance(wire, float) and wire.is_integer() and abs(wire) <= 2**63:
        return int(wire)
    if isinstance(wire, list):
        return [printed_wire(item) for item in wire]
    if isinstance(wire, dict):
        return {key: printed_wire(item) for key, item in wire.items()}
    return wire


def copy_wire(wire: JsonValue) -> JsonValue:
    """A copy that shares nothing which could be changed."""
    if isinstance(wire, dict):
        flat = _LEAVES.issuperset(map(type, wire.values()))
        return wire.copy() if flat else {key: copy_wire(item) for key, item in wire.items()}
    if isinstance(wire, list):
        return wire.copy() if _LEAVES.issuperset(map(type, wire)) else list(map(copy_wire, wire))
    return wire


def same_wire(one: JsonValue, other: JsonValue) -> bool:
    """Equality of wire values: unlike ``==`` it tells ``True`` from ``1``."""
    if type(one) is type(other) and not isinstance(one, dict | list):
        return one == other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_wire, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_wire(item, other[key]) for key, item in one.items())
    if isinstance(one, bool) or isinstance(other, bool):
        return False
    return isinstance(one, int | float) and isinstance(other, int | float) and float(one) == float(other)


def element_key(wire: JsonValue) -> str:
    """The key under which the map of a set field holds an element."""
    return canonical_json(wire).decode()


def number_to_wire(value: float | bool | None, path: str) -> JsonValue:
    """The wire form of a number, or of None.

    Raises:
        InvalidValue: it is NaN, infinite or -0.0.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else _big_integer(value, path)
    if not math.isfinite(value):
        raise invalid_value(path, f"{value} is not a JSON number")
    if value == 0 and math.copysign(1, value) < 0:
        raise invalid_value(path, "-0.0 would come back as 0.0")
    return int(value) if value.is_integer() and abs(value) <= SAFE_INTEGER else value


def _big_integer(value: int, path: str) -> str:
    try:
        return str(value)
    except ValueError as error:
        raise invalid_value(path, f"is too large an integer: {error}") from None


def _is_wire(value: object) -> bool:
    """Whether this is one of the usual values that stay as they are; a path for each costs more than all else."""
    kind = type(value)
    if kind is str:
        return cast(str, value).isascii()
    return value is None or kind is bool or (kind is int and -SAFE_INTEGER <= cast(int, value) <= SAFE_INTEGER)


def to_wire(value: Any, path: str, depth: int = 0, *, big_integers_as_text: bool) -> JsonValue:
    """JSON as pydantic dumps it, checked and copied into wire form.

    Raises:
        InvalidValue: it holds something that a document cannot give back; the path says where.
    """
    if isinstance(value, str):
        return check_text(value, path)
    if value is None or isinstance(value, bool | float):
        return number_to_wire(value, path)
    if isinstance(value, int):
        if not big_integers_as_text and abs(value) > SAFE_INTEGER:
            raise invalid_value(path, "is an integer beyond 2^53-1, which is written as a string in wire form")
        return number_to_wire(value, path)
    if depth >= DEFAULT_LIMITS.nesting_depth_max:
        raise invalid_value(path, f"is nested deeper than {DEFAULT_LIMITS.nesting_depth_max} levels")
    if isinstance(value, list | tuple):
        return [
            item
            if _is_wire(item)
            else to_wire(item, child_path(path, index), depth + 1, big_integers_as_text=big_integers_as_text)
            for index, item in enumerate(value)
        ]
    if isinstance(value, dict):
        return {
            check_key(key, path): item
            if _is_wire(item)
            else to_wire(item, child_path(path, key), depth + 1, big_integers_as_text=big_integers_as_text)
            for key, item in value.items()
        }
    raise invalid_value(path, f"{type(value).__name__} is not a JSON value")
