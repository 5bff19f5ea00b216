"""How large a field may be as a whole: written beside its type, kept in its JSON Schema, measured in a document.

A text is measured in code points, a list, set, dict or field of records by what it holds, a counter by its value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import annotated_types
import pycrdt

from crdt_board.layout import FieldKind, FieldLayout

SIZE_KEYWORDS: Mapping[FieldKind, tuple[str, str]] = {
    "text": ("minLength", "maxLength"),
    "list": ("minItems", "maxItems"),
    "record_list": ("minItems", "maxItems"),
    "set": ("minItems", "maxItems"),
    "dict": ("minProperties", "maxProperties"),
    "records": ("minProperties", "maxProperties"),
    "counter": ("minimum", "maximum"),
}
"""The keywords of JSON Schema for the least and the greatest size, by the kind of field."""


@dataclass(frozen=True, slots=True)
class SizeProblem:
    """The rule that a size breaks, as JSON Schema calls it, a sentence that says so, and by how much it does."""

    rule: str
    message: str
    excess: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest size of a field of some kind; None where there is none."""

    kind: FieldKind
    least: int | None = None
    most: int | None = None

    def problem(self, size: int) -> SizeProblem | None:
        """What is wrong with a size."""
        low, high = SIZE_KEYWORDS[self.kind]
        be = "is" if self.kind == "counter" else "are"
        if self.most is not None and size > self.most:
            return SizeProblem(high, f"{self._has(size)}, at most {self.most} {be} allowed", size - self.most)
        if self.least is not None and size < self.least:
            return SizeProblem(low, f"{self._has(size)}, at least {self.least} {be} needed", self.least - size)
        return None

    def change_problem(self, size: int, change: int) -> SizeProblem | None:
        """The same for the size after a change, unless the change leads towards what is allowed."""
        problem = self.problem(size + change)
        if problem is None or change == 0:
            return None
        return problem if problem.rule.startswith("max") == (change > 0) else None

    @property
    def json_schema(self) -> dict[str, int]:
        """The keywords that say the same in JSON Schema."""
        low, high = SIZE_KEYWORDS[self.kind]
        return {key: value for key, value in ((low, self.least), (high, self.most)) if value is not None}

    def _has(self, size: int) -> str:
        if self.kind == "counter":
            return f"is {size}"
        return f"has {size} {'characters' if self.kind == 'text' else 'items'}"


def declared_bounds(kind: FieldKind, metadata: Iterable[Any]) -> Bounds | None:
    """The bounds that are written beside a field's type; None when something else is written there."""
    least: list[int] = []
    most: list[int] = []
    for each in _flat(metadata):
        match each:
            case annotated_types.MinLen(int(low)) if kind != "counter":
                least.append(low)
            case annotated_types.MaxLen(int(high)) if kind != "counter":
                most.append(high)
            case annotated_types.Ge(int(low)) if kind == "counter":
                least.append(low)
            case annotated_types.Gt(int(low)) if kind == "counter":
                least.append(low + 1)
            case annotated_types.Le(int(high)) if kind == "counter":
                most.append(high)
            case annotated_types.Lt(int(high)) if kind == "counter":
                most.append(high - 1)
            case _:
                return None
    if kind != "counter":
        least = [low for low in least if low > 0]  # every size is at least 0
    return Bounds(kind, max(least, default=None), min(most, default=None))


def bounds_of(field: FieldLayout) -> Bounds | None:
    """The bounds that a layout says a field has as a whole, if any. It may come from a peer."""
    keys = SIZE_KEYWORDS.get(field.kind)
    if keys is None:
        return None
    least, most = (value if type(value := field.json_schema.get(key)) is int else None for key in keys)
    return None if least is None and most is None else Bounds(field.kind, least, most)


def measure(bounds: Bounds, content: pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any] | None) -> int:
    """The size of what a document holds for a field; for a text any number within its bounds when it is within them."""
    if content is None:
        return 0
    if isinstance(content, pycrdt.Text):
        size = len(content)  # bytes, of which there are no fewer than code points
        return size if bounds.least is None and size <= (bounds.most or 0) else len(str(content))
    if bounds.kind == "counter":
        return sum(cell for cell in json.loads(str(content)).values() if type(cell) is int)
    return len(content)


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for each in metadata:
        if isinstance(each, annotated_types.GroupedMetadata):
            yield from _flat(each)
        else:
            yield each
