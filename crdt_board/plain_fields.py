"""Fields as far as the layout of a board says what they are: for agents and writers that do not have the model.

The counterpart of `crdt_board.fields` for plain JSON values. Defaults are not in a layout, so a field that holds one
value and was never written has none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import cast

from pydantic import JsonValue

from crdt_board.bounds import Bounds, bounds_of
from crdt_board.cells import fits
from crdt_board.counters import check_amount
from crdt_board.document import Document
from crdt_board.fields import UNWRITTEN, VALUE_KINDS, nearest_name, plain_value
from crdt_board.layout import ITEM_KEY, FieldKind, FieldLayout
from crdt_board.orders import CellOrder
from crdt_board.rules import FieldRules, rules_of
from crdt_board.wire_values import check_text, check_wire, child_path, element_key, invalid_value, same_wire

_EMPTY: dict[FieldKind, JsonValue] = {"text": "", "counter": 0, "list": [], "set": [], "record_list": []}


class PlainField:
    """One field of a layout, and of records those in them."""

    def __init__(self, layout: FieldLayout, rules: FieldRules | None = None) -> None:
        self.layout = layout
        self._rules = rules or FieldRules(layout)

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def kind(self) -> FieldKind:
        return self.layout.kind

    @property
    def order(self) -> CellOrder | None:
        return self.layout.order

    @property
    def required(self) -> bool:
        """Whether there is no value before one was written."""
        return self.kind in VALUE_KINDS

    @cached_property
    def inside(self) -> dict[str, PlainField]:
        """The fields of each record."""
        return {field.name: PlainField(field, self._rules.inside[field.name]) for field in self.layout.fields}

    @cached_property
    def bounds(self) -> Bounds | None:
        """How large a container may be."""
        return bounds_of(self.layout)

    def default_wire(self) -> JsonValue:
        """What an empty container reads as."""
        return _EMPTY.get(self.kind, {})

    def to_wire(self, value: object, path: str | None = None, *, any_size: bool = False) -> JsonValue:
        """All of the field's value in wire form, a copy; ``value`` is JSON, or for a set also a Python set.

        With ``any_size`` it is left to others how much the field as a whole may hold. Empty it may be in any case, as
        it is before anything is written.

        Raises:
            InvalidValue: it is not what this field holds; ``rule`` is the one that it breaks.
        """
        path = self.name if path is None else path
        wire = self._converted(plain_value(value), path)
        problem = self._rules.check_whole(wire, path) if wire and not any_size else None
        if problem is not None:
            raise problem.error()
        return wire

    def _converted(self, value: object, path: str) -> JsonValue:
        match self.kind:
            case "text":
                return check_text(value, path)
            case "counter":
                return check_amount(value, path)
            case "set":
                return self._set_wire(value, path)
            case "dict" | "records":
                if not isinstance(value, Mapping):
                    raise invalid_value(path, f"is an object with keys, not {_name_of(value)}")
                if self.kind == "records":
                    return {
                        check_text(key, path): self._record_wire(each, child_path(path, key))
                        for key, each in value.items()
                    }
                value = dict(value)
            case "list" | "record_list":
                if not isinstance(value, list | tuple):
                    raise invalid_value(path, f"is a list, not {_name_of(value)}")
                if self.kind == "record_list":
                    return self._items_wire(value, path)
                value = list(value)
        wire = check_wire(value, path)
        self._check(wire, path)
        return wire

    def stored_in(self, state: Mapping[str, JsonValue]) -> JsonValue:
        """The field's value in a state or record; without one an object that equals no value."""
        if self.name in state:
            return state[self.name]
        return cast(JsonValue, UNWRITTEN) if self.required else self.default_wire()

    def present_in(self, state: Mapping[str, JsonValue]) -> JsonValue:
        """What the field reads as in a state: of candidates the newest."""
        wire = self.stored_in(state)
        if self.kind == "candidates" and isinstance(wire, list):
            return cast(list[dict[str, JsonValue]], wire)[0]["value"]
        return wire

    def same(self, one: JsonValue, other: JsonValue) -> bool:
        """Whether two values of the field in wire form read alike."""
        if one is UNWRITTEN or other is UNWRITTEN:
            return one is other
        if self.kind == "records" and isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(self._same_record(each, other[key]) for key, each in one.items())
        if self.kind == "record_list" and isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self._same_record, one, other))
        return same_wire(one, other)

    def _same_record(self, one: JsonValue, other: JsonValue) -> bool:
        if not (isinstance(one, dict) and isinstance(other, dict)):
            return same_wire(one, other)
        return all(field.same(field.stored_in(one), field.stored_in(other)) for field in self.inside.values())

    def _set_wire(self, value: object, path: str) -> JsonValue:
        if not isinstance(value, list | tuple | set | frozenset):
            raise invalid_value(path, f"is a set, given as a list of its elements, not {_name_of(value)}")
        elements = {element_key(wire): wire for each in value for wire in [check_wire(each, path)]}
        wire: JsonValue = [elements[key] for key in sorted(elements)]
        self._check(wire, path)
        return wire

    def _items_wire(self, items: list[object] | tuple[object, ...], path: str) -> JsonValue:
        """Items of a list of records; those that were read have their ids beside their fields, each id once."""
        wires: list[JsonValue] = []
        ids: set[str] = set()
        for index, item in enumerate(items):
            there, known = child_path(path, index), None
            if isinstance(item, Mapping) and ITEM_KEY in item:
                known = check_text(item[ITEM_KEY], child_path(there, ITEM_KEY))
                item = {name: value for name, value in item.items() if name != ITEM_KEY}  # noqa: PLW2901
            wire = self._record_wire(item, there)
            if known is not None and known not in ids:
                ids.add(known)
                wire = {ITEM_KEY: known, **wire}
            wires.append(wire)
        return wires

    def _record_wire(self, record: object, path: str) -> dict[str, JsonValue]:
        record = plain_value(record)
        if not isinstance(record, Mapping):
            raise invalid_value(path, f"a record is an object with its fields, not {_name_of(record)}")
        for name in record:
            if name not in self.inside:
                hint = nearest_name(name, self.inside)
                raise invalid_value(child_path(path, str(name)), f"the record has no such field{hint}")
        for field in self.layout.fields:
            if field.required and field.name not in record:
                raise invalid_value(child_path(path, field.name), "is missing, and has no default")
        return {name: self.inside[name].to_wire(value, child_path(path, name)) for name, value in record.items()}

    def _check(self, wire: JsonValue, path: str) -> None:
        """By the rules of the layout, and for `Max` and `Min` fields by their order."""
        problem = self._rules.check_parts(wire, path) if self.layout.json_schema else None
        if problem is not None:
            raise problem.error()
        if self.kind in ("max", "min") and not fits(self.layout, wire):
            raise invalid_value(path, "is no value that this field compares")


def plain_field(document: Document, name: str) -> PlainField:
    """A field of the document's layout; a scalar of any value, when the layout does not name it."""
    field = document.layout.by_name.get(name)
    if field is None:
        return PlainField(FieldLayout.model_construct(name=name, kind="scalar"))
    return PlainField(field, rules_of(document.layout).by_name[name])


def _name_of(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
