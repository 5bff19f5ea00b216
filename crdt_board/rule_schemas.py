"""From the JSON Schema of a field, which may come from a peer, to one that is safe to compile and to check by.

References are replaced by what they name, so that nothing is fetched, nothing goes in circles and the work of a check
is bounded by the size of the schema times that of the value. Where a type contains itself, what is deeper than two
levels is not checked. Keywords that pydantic does not write are left out: whatever the model accepts must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crdt_board.canonical import SAFE_INTEGER
from crdt_board.rule_keywords import CUSTOM, FORMATS
from crdt_board.values import BIG_INTEGER_PATTERN as _BIG_INTEGER

_DEPTH_MAX = 100
_RECURSION_MAX = 2
_WEIGHT_MAX = 200_000
"""Keywords and characters of one field's schema, when references have been replaced."""
_NOTHING: dict[str, Any] = {}

_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
_SIZES = _COUNTS - {"minLength", "maxLength"}
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class MalformedSchema(Exception):
    """A schema that says nothing that could be checked."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A schema that can be compiled, how large it is, and the patterns in it."""

    schema: dict[str, Any]
    weight: int = 0
    patterns: frozenset[str] = frozenset()


def expand(schema: Mapping[str, Any]) -> Expanded:
    """A copy of ``schema`` that has no references and only keywords that are checked.

    Raises:
        MalformedSchema: it is no JSON Schema, refers to something outside of itself, or is too large or too deep.
    """
    expansion = _Expansion(schema)
    result: dict[str, Any] = expansion.expand(schema, 0, ())
    return Expanded(result, expansion.weight, frozenset(expansion.patterns))


def without_sizes(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a container, without how many items there may be."""
    return {keyword: value for keyword, value in schema.items() if keyword not in _SIZES}


class _Expansion:
    """One schema on its way; ``weight`` counts what was made of it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = _object(root.get("$defs", {}), "$defs")
        self.weight = 0
        self.patterns: set[str] = set()

    def expand(self, schema: Any, depth: int, names: tuple[str, ...]) -> Any:
        if isinstance(schema, bool):
            return schema
        schema = _object(schema, "a schema")
        if depth > _DEPTH_MAX:
            raise MalformedSchema(f"is nested deeper than {_DEPTH_MAX} levels")
        self._weigh(1 + len(schema))
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            take = _KEYWORDS.get(keyword)
            if take is not None:
                result.update(take(self, keyword, value, depth + 1, names))
        if result.get("type") == "integer":  # larger ones are written as text
            result["minimum"] = max(result.get("minimum", -SAFE_INTEGER), -SAFE_INTEGER)
            result["maximum"] = min(result.get("maximum", SAFE_INTEGER), SAFE_INTEGER)
        if "$ref" not in schema:
            return result
        target = self._referred(schema["$ref"], depth, names)
        if not result:
            return target
        return {"allOf": [target, result]} if result.keys() & target.keys() else {**target, **result}

    def _referred(self, reference: Any, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        name = reference.removeprefix("#/$defs/") if isinstance(reference, str) else ""
        name = name.replace("~1", "/").replace("~0", "~")
        if name == reference or name not in self._definitions:
            raise MalformedSchema(f"refers to {str(reference)[:80]!r}, which is not in its $defs")
        if names.count(name) >= _RECURSION_MAX:
            return _NOTHING
        target = self.expand(self._definitions[name], depth + 1, (*names, name))
        return target if isinstance(target, dict) else {"allOf": [target]}

    def _weigh(self, weight: int) -> None:
        self.weight += weight
        if self.weight > _WEIGHT_MAX:
            raise MalformedSchema(f"has more than {_WEIGHT_MAX} parts when its references are followed")

    def type(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        types = value if isinstance(value, list) else [value]
        if not types or not all(isinstance(each, str) and each in _TYPES for each in types):
            raise MalformedSchema(f"the type {str(value)[:80]!r} is none of JSON")
        return {keyword: value}

    def count(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise MalformedSchema(f"{keyword} is {str(value)[:80]!r}, and no count")
        return {keyword: value}

    def number(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MalformedSchema(f"{keyword} is {str(value)[:80]!r}, and no number")
        return {keyword: value}

    def values(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if keyword == "enum" and not isinstance(value, list):
            raise MalformedSchema("an enum is no list")
        self._weigh(len(str(value)))
        return {keyword: value}

    def flag(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, bool):
            raise MalformedSchema(f"{keyword} is neither true nor false")
        return {keyword: value}

    def names(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise MalformedSchema(f"{keyword} is no list of names")
        self._weigh(sum(map(len, value)))
        return {keyword: list(dict.fromkeys(value))}

    def schema(self, keyword: str, value: Any, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        return {keyword: self.expand(value, depth, names)}

    def schemas(self, keyword: str, value: Any, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, list) or not value:
            raise MalformedSchema(f"{keyword} is no list of schemas")
        made = [self.expand(each, depth, names) for each in value]
        # Of a union that pydantic tells apart by other means, a value may look like several members.
        return {"anyOf" if keyword == "oneOf" else keyword: made}

    def properties(self, keyword: str, value: Any, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        made = {name: self.expand(each, depth, names) for name, each in _object(value, keyword).items()}
        self._weigh(sum(map(len, made)))
        return {keyword: made}

    def keys(self, keyword: str, value: Any, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        """What pydantic writes for a dict whose keys have a pattern: it accepts no other keys."""
        patterns = _object(value, keyword)
        if len(patterns) != 1:
            return {}
        ((pattern, schema),) = patterns.items()
        key = self.pattern("pattern", pattern, depth, names)
        return {"additionalProperties": self.expand(schema, depth, names), "allOf": [{"propertyNames": key}]}

    def discriminator(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        """What tells the members of a union apart must be there, although a member alone has a default for it."""
        name = _object(value, keyword).get("propertyName")
        return {"required": [name]} if isinstance(name, str) else {}

    def format(self, _keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        return {"x-format": value} if isinstance(value, str) and value in FORMATS else {}

    def pattern(self, _keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, str):
            raise MalformedSchema("a pattern is no text")
        if value == _BIG_INTEGER:
            return {"x-format": "big-integer"}
        self._weigh(len(value))
        self.patterns.add(value)
        return {"x-pattern": value}

    def custom(self, keyword: str, value: Any, _depth: int, _names: tuple[str, ...]) -> dict[str, Any]:
        name = keyword if keyword.startswith("x-") else f"x-{keyword}"
        try:
            CUSTOM[name](value)
        except (TypeError, ValueError) as error:
            raise MalformedSchema(f"{keyword} is {str(value)[:80]!r}: {str(error).partition(chr(10))[0]}") from None
        return {name: value}


_Keyword = Callable[[_Expansion, str, Any, int, tuple[str, ...]], dict[str, Any]]

_KEYWORDS: dict[str, _Keyword] = {
    "type": _Expansion.type,
    "enum": _Expansion.values,
    "const": _Expansion.values,
    "uniqueItems": _Expansion.flag,
    "required": _Expansion.names,
    "items": _Expansion.schema,
    "additionalProperties": _Expansion.schema,
    "propertyNames": _Expansion.schema,
    "prefixItems": _Expansion.schemas,
    "anyOf": _Expansion.schemas,
    "oneOf": _Expansion.schemas,
    "allOf": _Expansion.schemas,
    "properties": _Expansion.properties,
    "patternProperties": _Expansion.keys,
    "discriminator": _Expansion.discriminator,
    "format": _Expansion.format,
    "pattern": _Expansion.pattern,
    "multipleOf": _Expansion.custom,
    "x-order": _Expansion.custom,
    **dict.fromkeys(_COUNTS, _Expansion.count),
    **dict.fromkeys(_NUMBERS, _Expansion.number),
}


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MalformedSchema(f"{what} is no object")
    return value
