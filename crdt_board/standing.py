"""The violations that stand in one document: sizes, worked out from its layout, and what agents have recorded.

Sizes are looked at again only where something was touched; a document whose layout has no bounds pays nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pycrdt
from pydantic import JsonValue, TypeAdapter, ValidationError

from crdt_board.bounds import Bounds, bounds_of, measure
from crdt_board.checkpoints import DropKey, Increment, PatchOp, SpliceRange
from crdt_board.layout import RECORD_KINDS, VIOLATION_PREFIX, FieldLayout, Layout
from crdt_board.records import SharedType, shared_class
from crdt_board.violation import Violation
from crdt_board.wire_values import child_path, invalid_value

if TYPE_CHECKING:
    from crdt_board.document import Document

_RECORDED: TypeAdapter[Violation] = TypeAdapter(Violation)

_Stale = set[str] | None
"""The keys of a field's records to look at again; None for all there is."""

_Size = tuple[Violation, int]
"""A field that is out of its bounds, and by how much."""


class Standing:
    """The violations of the document that owns it and is handed to each call.

    Invariant: what `sizes` and `recorded` return is that of the document now, as long as the owner calls `touch` and
    `touch_recorded` for every change.
    """

    def __init__(self) -> None:
        self._bounded: dict[str, FieldLayout] = {}
        self._stale: dict[str, _Stale] = {}
        self._sizes: dict[str, dict[str | None, list[_Size]]] = {}
        self._recorded: dict[str, Violation] | None = {}
        self._told: tuple[Violation, ...] = ()
        self._moved = False

    def declare(self, layout: Layout) -> None:
        self._bounded = {field.name: field for field in layout.fields if _is_bounded(field)}
        self._sizes = {}
        self._stale = dict.fromkeys(self._bounded)
        self._moved = True

    def touch(self, field: str, record: str | None = None) -> None:
        """Something changed in a field, or only in one of its records."""
        if field in self._bounded:
            self._moved = True
            stale = self._stale.setdefault(field, set())
            if record is None:
                self._stale[field] = None
            elif stale is not None:
                stale.add(record)

    def touch_recorded(self) -> None:
        self._recorded = None
        self._moved = True

    def take_moved(self, document: Document) -> bool:
        """Whether the violations are others than at the last call."""
        if not self._moved:
            return False
        self._moved = False
        before, self._told = self._told, self.all(document)
        return before != self._told

    def all(self, document: Document) -> tuple[Violation, ...]:
        """Everything that stands, in the order of places and rules."""
        found = [*(each for each, _ in self.sizes(document)), *self.recorded(document).values()]
        return tuple(sorted(found, key=lambda each: (each.path, each.rule)))

    def sizes(self, document: Document) -> list[tuple[Violation, int]]:
        """The fields that are out of their bounds, and by how much."""
        stale, self._stale = self._stale, {}
        for field, records in stale.items():
            self._look(document, self._bounded[field], records)
        return [each for by_record in self._sizes.values() for found in by_record.values() for each in found]

    def recorded(self, document: Document) -> dict[str, Violation]:
        """What agents have found, by key. What else stands there, and is none, is passed over."""
        if self._recorded is None:
            content: dict[str, JsonValue] = json.loads(str(document.board_map))
            read = (_read(key, value) for key, value in content.items() if key.startswith(VIOLATION_PREFIX))
            self._recorded = {each.key: each for each in read if each is not None}
        return self._recorded

    def check_change(self, document: Document, path: str, change: int) -> None:
        """Before a local edit makes the field at ``path`` larger or smaller by ``change``.

        Raises:
            InvalidValue: it would go beyond its bounds, or further beyond; ``rule`` is the one that it breaks.
        """
        if not self._bounded or path.partition("/")[0] not in self._bounded:
            return
        field = document.field_at(path)
        bounds = bounds_of(field)
        problem = bounds.change_problem(_size(document, path, field, bounds), change) if bounds else None
        if problem is not None:
            raise invalid_value(path, f"with this edit it {problem.message}", rule=problem.rule)

    def surely_allows(self, document: Document, operations: Sequence[PatchOp]) -> bool:
        """Whether operations leave every size within its bounds, however they are applied. Nothing is changed."""
        changes: dict[str, tuple[int, int]] = {}
        for operation in operations:
            path = operation.field
            if path.partition("/")[0] in self._bounded:
                fewer, more = changes.get(path, (0, 0))
                least, most = _extent(operation)
                changes[path] = fewer + least, more + most
        return all(self._allows(document, path, *extent) for path, extent in changes.items())

    def _allows(self, document: Document, path: str, fewer: int, more: int) -> bool:
        try:
            field = document.field_at(path)
        except KeyError:
            return False
        if any(map(_is_bounded, field.fields)):
            return False
        bounds = bounds_of(field)
        if bounds is None:
            return True
        size = measure(bounds, _content(document, path, field))
        return bounds.problem(size + more) is None and (bounds.least is None or bounds.problem(size + fewer) is None)

    def check_opening(self, document: Document, path: str) -> None:
        """Before a local edit writes into ``path``, which makes the records on the way to it that are missing.

        Raises:
            InvalidValue: as `check_change`.
        """
        if not self._bounded or path.partition("/")[0] not in self._bounded:
            return
        parts = path.split("/")
        for end in range(2, len(parts) + 1, 2):
            if document.find("/".join(parts[:end]), pycrdt.Map) is None:
                self.check_change(document, "/".join(parts[: end - 1]), 1)
                return

    def _look(self, document: Document, field: FieldLayout, records: _Stale) -> None:
        found = self._sizes[field.name] = {} if records is None else self._sizes.get(field.name, {})
        found[None] = list(_own_size(document, field.name, field))
        content = document.find(field.name, pycrdt.Map) if any(map(_is_bounded, field.fields)) else None
        if content is None:
            return
        for key in content.keys() if records is None else records:
            found.pop(key, None)
            broken = list(_inner_sizes(document, child_path(field.name, key), field)) if key in content else []
            if broken:
                found[key] = broken


def _extent(operation: PatchOp) -> tuple[int, int]:
    """By how much an operation makes its field smaller, and larger, at most."""
    match operation:
        case Increment(amount=amount):
            return min(0, amount), max(0, amount)
        case SpliceRange(stop=stop, text=text, items=items):
            return 0 if stop is None else -(2**53), len(text) + len(items)
        case DropKey():
            return -1, 0
        case _:
            return 0, 1


def _is_bounded(field: FieldLayout) -> bool:
    return bounds_of(field) is not None or any(map(_is_bounded, field.fields))


def _own_size(document: Document, path: str, field: FieldLayout) -> Iterator[_Size]:
    bounds = bounds_of(field)
    if bounds is not None:
        problem = bounds.problem(measure(bounds, _content(document, path, field)))
        if problem is not None:
            yield Violation(path=path, rule=problem.rule, message=problem.message, fields=(field.name,)), problem.excess


def _inner_sizes(document: Document, path: str, field: FieldLayout) -> Iterator[_Size]:
    """The sizes inside the record at ``path``, to any depth."""
    for inner in field.fields:
        if not _is_bounded(inner):
            continue
        below = child_path(path, inner.name)
        yield from _own_size(document, below, inner)
        if inner.kind in RECORD_KINDS:
            content = document.find(below, pycrdt.Map)
            for key in () if content is None else content.keys():
                yield from _inner_sizes(document, child_path(below, key), inner)


def _size(document: Document, path: str, field: FieldLayout, bounds: Bounds) -> int:
    """The exact size, edits of a text that are pending included."""
    if field.kind == "text":
        return document.text_index(path).chars
    return measure(bounds, _content(document, path, field))


def _content(document: Document, path: str, field: FieldLayout) -> SharedType | None:
    kind: type[Any] = shared_class(field.kind)
    return document.find(path, kind)


def _read(key: str, value: JsonValue) -> Violation | None:
    try:
        violation = _RECORDED.validate_python(value)
    except ValidationError:
        return None
    return violation if VIOLATION_PREFIX + violation.key == key else None
