"""Comparing values in wire form where the model is not known: what `Max` and `Min` fields are decided by.

The server and other languages know a field by its layout only. So the layout says by which rule the field's values are
compared, and which bounds they keep; a value that does not keep them counts as if it were not there.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue, NaiveDatetime, TypeAdapter, ValidationError

from crdt_board.canonical import canonical_json

OrderedType = Literal[
    "boolean",
    "integer",
    "number",
    "decimal",
    "text",
    "date",
    "datetime",
    "aware-datetime",
    "naive-datetime",
    "duration",
]

ORDERED_TYPES: dict[Any, OrderedType] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    Decimal: "decimal",
    str: "text",
    date: "date",
    datetime: "datetime",
    AwareDatetime: "aware-datetime",
    NaiveDatetime: "naive-datetime",
    timedelta: "duration",
}
"""Which annotations are ordered, and how."""

_BIG_INTEGER = re.compile(r"-?[1-9][0-9]{15,4000}")


class CellOrder(BaseModel):
    """How the values of one field compare, and the bounds that they keep; bounds are in wire form.

    Texts compare by code points, ``False`` is less than ``True``, and a datetime without a zone counts as UTC.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: OrderedType
    ge: JsonValue = None
    gt: JsonValue = None
    le: JsonValue = None
    lt: JsonValue = None
    min_length: int | None = None
    max_length: int | None = None

    def model_post_init(self, _context: Any) -> None:
        for name in ("ge", "gt", "le", "lt"):
            wire = getattr(self, name)
            if wire is not None and _READERS[self.type](wire) is None:
                raise ValueError(f"{name}: {wire!r} is no {self.type}")
        if self.type != "text" and (self.min_length is not None or self.max_length is not None):
            raise ValueError(f"a {self.type} has no length")

    def key(self, wire: JsonValue) -> Any:
        """What ``wire`` compares by; None when it is no value of this type, or out of bounds."""
        key = _READERS[self.type](wire)
        return key if key is not None and all(holds(key, bound) for holds, bound in self._bounds) else None

    def rank(self, wire: JsonValue) -> tuple[Any, bytes] | None:
        """As `key`, with a second part that tells apart what is written differently and compares as equal."""
        key = self.key(wire)
        return None if key is None else (key, canonical_json(wire))

    @cached_property
    def _bounds(self) -> list[tuple[Callable[[Any, Any], bool], Any]]:
        compare = {"ge": operator.ge, "gt": operator.gt, "le": operator.le, "lt": operator.lt}
        bounds: list[tuple[Callable[[Any, Any], bool], Any]] = [
            (holds, _READERS[self.type](getattr(self, name)))
            for name, holds in compare.items()
            if getattr(self, name) is not None
        ]
        if self.min_length is not None:
            bounds.append((lambda text, least: len(text) >= least, self.min_length))
        if self.max_length is not None:
            bounds.append((lambda text, most: len(text) <= most, self.max_length))
        return bounds


def _boolean(wire: JsonValue) -> bool | None:
    return wire if isinstance(wire, bool) else None


def _integer(wire: JsonValue) -> int | None:
    if isinstance(wire, str):
        return int(wire) if _BIG_INTEGER.fullmatch(wire) else None
    if isinstance(wire, bool) or not isinstance(wire, int | float) or not math.isfinite(wire):
        return None
    return int(wire) if wire == int(wire) else None


def _number(wire: JsonValue) -> float | None:
    if isinstance(wire, bool) or not isinstance(wire, int | float):
        return None
    try:
        number = float(wire)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _text(wire: JsonValue) -> str | None:
    return wire if isinstance(wire, str) else None


def _in_zone(moment: datetime) -> datetime:
    return moment if moment.utcoffset() is not None else moment.replace(tzinfo=UTC)


def _written(kind: Any, change: Callable[[Any], Any] = lambda value: value) -> Callable[[JsonValue], Any]:
    """Reads values that are strings in wire form, as pydantic does."""
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(wire: JsonValue) -> Any:
        if not isinstance(wire, str):
            return None
        try:
            return change(adapter.validate_json(json.dumps(wire), strict=True))
        except ValidationError:
            return None

    return read


_READERS: dict[OrderedType, Callable[[JsonValue], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "decimal": _written(Decimal),
    "text": _text,
    "date": _written(date),
    "datetime": _written(datetime, _in_zone),
    "aware-datetime": _written(AwareDatetime),
    "naive-datetime": _written(NaiveDatetime),
    "duration": _written(timedelta),
}
