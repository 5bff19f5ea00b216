"""Keywords of a schema that are checked as pydantic checks them, where JSON Schema would decide otherwise.

The `date-time` of JSON Schema wants an offset, its patterns are those of ECMAScript, and its `multipleOf` is exact. A
value that the model accepts must pass, so these ask pydantic's own validators.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import Annotated, Any
from uuid import UUID

from pydantic import AllowInfNan, AnyUrl, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from crdt_board.orders import CellOrder

Check = Callable[[Any], bool]
"""Whether a value is what a keyword asks for."""

PATTERN_CHARS_MAX = 1_000
PATTERNS_MAX = 100
"""How many patterns of one layout are compiled, each of how many characters: a hostile one takes 0.1 s [measured]."""

_MATCHED_CHARS_MAX = 100_000
"""A pattern is not looked for in longer texts, where a hostile one takes seconds."""


def _reads(kind: Any, config: ConfigDict | None = None) -> Check:
    """Whether a text is what pydantic reads as ``kind``."""
    read = TypeAdapter(kind, config=config).validator.validate_json

    def check(value: Any) -> bool:
        if not isinstance(value, str):
            return True
        try:
            read(json.dumps(value))
        except ValidationError:
            return False
        return True

    return check


def _passes(validator: SchemaValidator, value: Any) -> bool:
    try:
        validator.validate_python(value)
    except ValidationError:
        return False
    return True


_ip_network, _ip_address, _ip_interface = map(
    _reads, (IPv4Network | IPv6Network, IPv4Address | IPv6Address, IPv4Interface | IPv6Interface)
)

FORMATS: Mapping[str, Check] = {
    "date-time": _reads(datetime),
    "date": _reads(date),
    "time": _reads(time),
    "duration": _reads(timedelta),
    "decimal": _reads(Annotated[Decimal, AllowInfNan(True)]),
    "base64url": _reads(bytes, ConfigDict(val_json_bytes="base64")),
    "uri": _reads(AnyUrl),
    "ipv4": _reads(IPv4Address),
    "ipv6": _reads(IPv6Address),
    "ipv4network": _reads(IPv4Network),
    "ipv6network": _reads(IPv6Network),
    "ipv4interface": _reads(IPv4Interface),
    "ipv6interface": _reads(IPv6Interface),
    "ipvanyaddress": _ip_address,
    "ipvanynetwork": _ip_network,
    "ipvanyinterface": _ip_interface,
    "big-integer": lambda value: not isinstance(value, str) or _is_big_integer(value),
    **dict.fromkeys(("uuid", *(f"uuid{version}" for version in range(1, 9))), _reads(UUID)),
}
"""The formats that are checked; others say something to people."""


def _is_big_integer(value: str) -> bool:
    return CellOrder(type="integer").key(value) is not None


def _format(name: str) -> Check:
    return FORMATS[name]


@lru_cache(maxsize=PATTERNS_MAX)
def _pattern(pattern: str) -> Check:
    try:
        validator = SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError as error:
        raise ValueError(str(error).strip().rpartition("\n")[2].strip()) from None

    def check(value: Any) -> bool:
        return not isinstance(value, str) or len(value) > _MATCHED_CHARS_MAX or _passes(validator, value)

    return check


def _multiple(divisor: Any) -> Check:
    if isinstance(divisor, bool) or not isinstance(divisor, int | float) or not divisor > 0:
        raise ValueError("no number above zero")
    whole = isinstance(divisor, int)
    made: Any = core_schema.int_schema if whole else core_schema.float_schema
    validator = SchemaValidator(made(multiple_of=divisor))

    def check(value: Any) -> bool:
        return isinstance(value, bool) or not isinstance(value, int | float) or _passes(validator, value)

    return check


def _order(order: Any) -> Check:
    key = CellOrder.model_validate(order).key
    return lambda value: not isinstance(value, str) or key(value) is not None


CUSTOM: Mapping[str, Callable[[Any], Check]] = {
    "x-format": _format,
    "x-pattern": _pattern,
    "x-multipleOf": _multiple,
    "x-order": _order,
}
"""What makes the check of a keyword from its value; raises ValueError or TypeError when that is none."""

_WORDS = {
    "x-format": "is not of the form: {}",
    "x-pattern": "does not match {}",
    "x-multipleOf": "is not a multiple of {}",
    "x-order": "is out of its bounds",
}
_PLAIN = {"x-order": "bounds"}


def plain_name(keyword: str) -> str:
    """The name of a keyword as the published schema has it."""
    return _PLAIN.get(keyword, keyword.removeprefix("x-"))


def _keyword(name: str) -> type[Any]:
    class Keyword:
        def __init__(self, _parent: Any, value: Any, _path: Any) -> None:
            self._value = value
            self._check = CUSTOM[name](value)

        def validate(self, instance: Any) -> None:
            if not self._check(instance):
                what = "integer" if self._value == "big-integer" else self._value
                raise ValueError(f"{json.dumps(instance, ensure_ascii=False)} {_WORDS[name].format(what)}")

    return Keyword


KEYWORDS = {name: _keyword(name) for name in CUSTOM}
"""The keywords as jsonschema-rs takes them."""
