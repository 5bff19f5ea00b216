"""What a layout allows: validators for one value of a field, for a field as a whole, and for a record. Pure.

They are compiled from the layout's JSON Schemas when they are first needed. A layout comes from a peer, so what is
compiled is a copy that `crdt_board.rule_schemas` made of it: bounded, without references, and never fetched.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import jsonschema_rs
from pydantic import JsonValue

from crdt_board.bounds import SIZE_KEYWORDS, Bounds, bounds_of
from crdt_board.canonical import SAFE_INTEGER
from crdt_board.errors import InvalidValue, ModelError
from crdt_board.layout import ITEM_KEY, PLACE_KEY, RECORD_KINDS, FieldKind, FieldLayout, Layout
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.paths import split_path
from crdt_board.rule_keywords import KEYWORDS, PATTERN_CHARS_MAX, PATTERNS_MAX, plain_name
from crdt_board.rule_schemas import MalformedSchema, expand, without_sizes
from crdt_board.wire_values import child_path

_WITH_KEYS: frozenset[FieldKind] = frozenset({"dict", "records"})
_WITH_ITEMS: frozenset[FieldKind] = frozenset({"list", "set", "record_list"})

_MESSAGE_CHARS_MAX = 300
_RULES_KEPT = 128
_WEIGHT_MAX = 500_000

logger = logging.getLogger(__name__)

SIZED_KINDS: frozenset[FieldKind] = frozenset(SIZE_KEYWORDS) - {"counter"}
"""The kinds of fields that hold more or less: texts and containers."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a value: where, which rule it breaks (a keyword of JSON Schema, or the like), and why."""

    path: str
    rule: str
    message: str

    def error(self) -> InvalidValue:
        """The same as an exception."""
        return InvalidValue(
            f"{self.path}: {self.message}", path=self.path, reason=self.message, rule=self.rule
        )  # fmt: skip


class FieldRules:
    """The rules of one field, which may be inside a record. ``path`` arguments name the place in what is answered."""

    def __init__(self, field: FieldLayout) -> None:
        self.field = field

    @cached_property
    def inside(self) -> dict[str, FieldRules]:
        """The rules of the fields of each record."""
        return {inner.name: FieldRules(inner) for inner in self.field.fields}

    @property
    def has_records(self) -> bool:
        return self.field.kind in RECORD_KINDS

    @cached_property
    def size_max(self) -> int | None:
        """The most code points of a text, or items of a container, that the model allows."""
        return None if self._bounds is None else self._bounds.most

    @cached_property
    def _bounds(self) -> Bounds | None:
        if self.field.kind not in SIZED_KINDS:
            return None
        return bounds_of(self.field.model_copy(update={"json_schema": self._schema}))  # without references

    def check_value(self, wire: JsonValue, path: str, key: str = "") -> Problem | None:
        """What is wrong with one value: a scalar, one item, one value of a dict (under ``key``), or one record.

        For fields with cells it is the value that a cell stands for; for a counter, a cell.
        """
        kind = self.field.kind
        if kind in RECORD_KINDS:
            return self.check_record(wire, path)
        if kind == "counter":
            return _count_problem(wire, path)
        if kind == "text":
            return None if isinstance(wire, str) else Problem(path, "type", f"{_show(wire)} is no text")
        if kind in _WITH_ITEMS:
            return _first(self._values, [wire], path, 1)
        if kind in _WITH_KEYS:
            return _first(self._values, {key: wire}, path, 1)
        return _first(self._values, wire, path, 0)

    def check_record(self, wire: JsonValue, path: str) -> Problem | None:
        """What is wrong with one record in wire form; fields that were not written may be missing in it."""
        if not isinstance(wire, dict):
            return Problem(path, "type", f"{_show(wire)} is no record")
        for name, value in wire.items():
            if name in (PLACE_KEY, ITEM_KEY) and self.field.kind == "record_list":
                continue
            rules = self.inside.get(name)
            problem = (
                rules.check_all(value, child_path(path, name))
                if rules is not None
                else Problem(child_path(path, name), "additionalProperties", "the record has no such field")
            )
            if problem is not None:
                return problem
        return None

    def check_all(self, wire: JsonValue, path: str) -> Problem | None:
        """What is wrong with all of a field's value in wire form, each item and the whole."""
        return self.check_parts(wire, path) or self.check_whole(wire, path)

    def check_parts(self, wire: JsonValue, path: str) -> Problem | None:
        """The same, but for how much the field holds."""
        kind = self.field.kind
        if kind in _WITH_KEYS:
            if not isinstance(wire, dict):
                return Problem(path, "type", f"{_show(wire)} is no {kind}")
            parts: Any = ((child_path(path, key), key, item) for key, item in wire.items())
        elif kind in _WITH_ITEMS:
            if not isinstance(wire, list):
                return Problem(path, "type", f"{_show(wire)} is no {kind}")
            parts = ((child_path(path, index), "", item) for index, item in enumerate(wire))
        else:
            return self.check_value(wire, path)
        for place, key, item in parts:
            problem = self.check_value(item, place, key)
            if problem is not None:
                return problem
        return None

    def check_whole(self, wire: JsonValue, path: str) -> Problem | None:
        """What is wrong with a field as a whole, apart from its items: how many there are, or how long a text is."""
        if self.field.kind in SIZED_KINDS and isinstance(wire, str | list | dict):
            return self.check_size(len(wire), path)
        if self.field.kind == "counter":
            return _first(self._values, wire, path, 0)
        return None

    def check_size(self, size: int, path: str) -> Problem | None:
        """The same, from how many code points or items there are."""
        problem = None if self._bounds is None else self._bounds.problem(size)
        return None if problem is None else Problem(path, problem.rule, problem.message)

    def tree(self) -> Iterator[FieldRules]:
        """These, and those of all fields in the records."""
        yield self
        for rules in self.inside.values():
            yield from rules.tree()

    @cached_property
    def _schema(self) -> dict[str, Any]:
        try:
            schema = expand(self.field.json_schema).schema
            _compiled(schema)
        except MalformedSchema as error:  # stored by a version that did not check
            logger.warning("field %s is not checked, because its JSON Schema %s", self.field.name, error)
            return {}
        return schema

    @cached_property
    def _values(self) -> jsonschema_rs.Draft202012Validator:
        """Checks one value; of a container, one that holds nothing but that value."""
        return _compiled(without_sizes(self._schema) if self.field.kind in SIZED_KINDS else self._schema)


class Rules:
    """The rules of all fields of a layout."""

    def __init__(self, layout: Layout) -> None:
        self.by_name = {field.name: FieldRules(field) for field in layout.fields}

    def at(self, path: str) -> FieldRules:
        """The rules of the field at ``field``, or in a record at ``field/key/name``.

        Raises:
            KeyError: there is no such field.
        """
        parts = split_path(path)
        found = self.by_name[parts[0]]
        if len(parts) % 2 == 0:
            raise KeyError(path)
        for name in parts[2::2]:
            found = found.inside[name]
        return found


def rules_of(layout: Layout) -> Rules:
    """The rules of a layout, shared by all that use an equal one."""
    found = _known.get(layout.fingerprint)
    if found is None:
        found = _known[layout.fingerprint] = Rules(layout)
        if len(_known) > _RULES_KEPT:
            _known.popitem(last=False)
    _known.move_to_end(layout.fingerprint)
    return found


def check_layout(layout: Layout, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse a layout that does not say what its fields may hold, or says it in a way that harms who reads it.

    Raises:
        ModelError: ``field`` names the field whose schema is malformed, too large or too deep; the peer's fault.
    """
    size = len(layout.model_dump_json())
    if size > limits.layout_bytes_max:
        raise _refused(layout, "", f"takes {size} bytes, {limits.layout_bytes_max} are allowed")
    if layout.fingerprint in _checked:
        return
    weight, patterns = 0, set[str]()
    for name, rules in Rules(layout).by_name.items():
        try:
            for each in rules.tree():
                made = expand(each.field.json_schema)
                weight += made.weight
                patterns |= made.patterns
                _check_extent(weight, patterns)
                _compiled(made.schema)
        except MalformedSchema as error:
            raise _refused(layout, name, str(error)) from None
        except RecursionError:
            raise _refused(layout, name, "is nested too deep") from None
    _checked.append(layout.fingerprint)


def _check_extent(weight: int, patterns: Collection[str]) -> None:
    if weight > _WEIGHT_MAX:
        raise MalformedSchema(f"the schemas have more than {_WEIGHT_MAX} parts when their references are followed")
    longest = max(map(len, patterns), default=0)
    if len(patterns) > PATTERNS_MAX or longest > PATTERN_CHARS_MAX:
        raise MalformedSchema(
            f"there are {len(patterns)} patterns of up to {longest} characters, where {PATTERNS_MAX} of up to "
            f"{PATTERN_CHARS_MAX} can be checked"
        )


def _refused(layout: Layout, field: str, reason: str) -> ModelError:
    where = f"{layout.title}.{field}" if field else layout.title
    return ModelError(
        f"{where}: its JSON Schema cannot be used: {reason}",
        field=field,
        reason=reason,
        instead="write the schema that pydantic generates for the model",
    )


_known: OrderedDict[str, Rules] = OrderedDict()
_checked: deque[str] = deque(maxlen=_RULES_KEPT)


def _compiled(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    try:
        return jsonschema_rs.Draft202012Validator(schema, validate_formats=False, keywords=KEYWORDS, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise MalformedSchema(_cut(str(error).partition("\n")[0])) from error


def _first(
    validator: jsonschema_rs.Draft202012Validator, instance: Any, path: str, skipped: int
) -> Problem | None:  # fmt: skip
    """What is wrong with ``instance``, of whose paths the first ``skipped`` parts stand for ``path``."""
    if validator.is_valid(instance):
        return None
    found = _clearest(next(iter(validator.iter_errors(instance))))
    rule, message = plain_name(found.kind.name), found.message
    if rule == "anyOf":
        message = f"{_show(found.instance)} is none of what is allowed here"
    return Problem(child_path(path, *found.instance_path[skipped:]), rule, _cut(message))


def _clearest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Of the reasons why no branch of a union fits, that of the branch which is of the right type, if one is."""
    while error.kind.name == "anyOf":
        branches = [branch[0] for branch in cast(Any, error.kind).context if branch]
        telling = [each for each in branches if each.kind.name != "type" or each.instance_path != error.instance_path]
        if not telling:
            return error
        error = telling[0]
    return error


def _count_problem(wire: JsonValue, path: str) -> Problem | None:
    if isinstance(wire, float) and wire.is_integer():
        wire = int(wire)
    if isinstance(wire, bool) or not isinstance(wire, int):
        return Problem(path, "type", f'{_show(wire)} is not of type "integer"')
    if abs(wire) > SAFE_INTEGER:
        return Problem(path, "maximum", "a counter's cell must stay within 2^53-1")
    return None


def _show(wire: object) -> str:
    return _cut(repr(wire), 80)


def _cut(text: str, chars_max: int = _MESSAGE_CHARS_MAX) -> str:
    half = chars_max // 2
    return text if len(text) <= chars_max else f"{text[:half]} … {text[-half:]}"
