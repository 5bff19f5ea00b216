"""What is wrong with values and records that a peer wrote: their kind, then the rules of their field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pycrdt
from pydantic import JsonValue

from crdt_board.cells import as_candidate, fits
from crdt_board.compensation import MISSING, PutBack, Remove, Undo
from crdt_board.layout import PLACE_KEY
from crdt_board.limits import Limits
from crdt_board.records import shared_class
from crdt_board.rules import FieldRules, Problem
from crdt_board.wire_values import child_path, document_wire, element_key

R = TypeVar("R")

SHARED_NAMES = frozenset({"Map", "Array", "Text", "XmlFragment", "XmlElement", "XmlText", "Doc"})
"""The names of the classes of shared types, in pycrdt and in what is below it."""


def misfit(path: str, value: object) -> Problem | None:
    """What is wrong with the kind of something that stands where a value belongs."""
    if type(value).__name__ in SHARED_NAMES:
        return Problem(path, "type", "a shared type stands where a value belongs")
    return None


def key_problem(
    rules: FieldRules, wire: JsonValue, path: str, key: str, *, is_value: bool = False
) -> Problem | None:  # fmt: skip
    """What is wrong with a value under a key of a field's map, or with a scalar (``is_value``)."""
    kind = rules.field.kind
    if is_value or kind == "scalar":
        return rules.check_value(wire, path)
    if kind == "set" and element_key(wire) != key:
        return Problem(path, "key", "the key of a set's element is its canonical JSON")
    if kind in ("max", "min") and not fits(rules.field, wire):
        return Problem(path, "order", "is no value that this field compares")
    if kind == "candidates":
        candidate = as_candidate(wire)
        if candidate is None:
            return Problem(path, "cell", "a candidate has a value, the agent that wrote it and when_ms")
        wire = candidate["value"]
    return rules.check_value(wire, path, key)


@dataclass(frozen=True, slots=True)
class CheckedRecord(Generic[R]):
    """Checks a record that was just put into a document, and what it holds.

    ``undo`` takes the whole record back; ``refuse`` makes a finding of a problem and what takes it back;
    ``before_lists`` is called before a list is read.
    """

    rules: FieldRules
    path: str
    undo: Undo | None
    refuse: Callable[[Problem, Undo], R]
    limits: Limits
    before_lists: Callable[[], None]

    def record(self, content: pycrdt.Map[Any]) -> Iterator[R]:
        for key in list(content.keys()):
            if key == PLACE_KEY and self.rules.field.kind == "record_list":
                continue
            path = child_path(self.path, key)
            yield from self.entry(key, content[key], path, PutBack(self.path, key, MISSING))

    def entry(self, key: str, value: Any, path: str, undo: Undo) -> Iterator[R]:
        """One field of the record."""
        rules = self.rules.inside.get(key)
        if rules is None:
            yield self.refuse(Problem(path, "additionalProperties", "the record has no such field"), undo)
        elif rules.field.kind == "scalar":
            problem = misfit(path, value) or rules.check_value(document_wire(value), path)
            if problem is not None:
                # Without a required field the record could not be read.
                yield self.refuse(problem, self.undo if rules.field.required and self.undo else undo)
        elif not isinstance(value, shared_class(rules.field.kind)):
            kind = rules.field.kind
            yield self.refuse(Problem(path, "type", f"something else stands where a {kind} belongs"), undo)
        else:
            yield from self._content(rules, value, path, undo)

    def _content(self, rules: FieldRules, value: Any, path: str, undo: Undo) -> Iterator[R]:
        size = len(value)
        if size == 0:
            return
        if isinstance(value, pycrdt.Text):
            text = str(value)
            if size != len(text.encode()):
                yield self.refuse(Problem(path, "type", "a text holds something that is no text"), undo)
            size, most = len(text), self.limits.text_chars_max
        else:
            most = self.limits.container_items_max
            yield from self._items(rules, value, path)
        problem = Problem(path, "limit", f"has {size} parts, at most {most} are allowed on a board")
        if size > most:
            yield self.refuse(problem, undo)
        elif rules.size_max is not None and size > rules.size_max:
            yield self.refuse(rules.check_size(size, path) or problem, undo)

    def _items(self, rules: FieldRules, value: Any, path: str) -> Iterator[R]:
        if isinstance(value, pycrdt.Array):
            self.before_lists()
            for index, item in enumerate(value):
                place = child_path(path, index)
                problem = misfit(place, item) or rules.check_value(document_wire(item), place)
                if problem is not None:
                    yield self.refuse(problem, Remove(path, ((index, index + 1),)))
            return
        for key in list(value.keys()):
            place, undo = child_path(path, key), PutBack(path, key, MISSING)
            item = value[key]
            if not rules.has_records:
                problem = misfit(place, item) or key_problem(rules, document_wire(item), place, key)
                if problem is not None:
                    yield self.refuse(problem, undo)
            elif not isinstance(item, pycrdt.Map):
                yield self.refuse(Problem(place, "type", "a value stands where a record belongs"), undo)
            else:
                inner = replace(self, rules=rules, path=place, undo=undo)
                yield from inner.record(item)
