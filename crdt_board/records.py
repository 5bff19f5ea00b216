"""What a field of records holds, from its layout alone: reading it, making records, and which paths were changed.

Knows shared types and layouts, but no document and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pycrdt
from pydantic import JsonValue

from crdt_board.counters import check_amount
from crdt_board.item_places import first_places, run_of
from crdt_board.layout import ITEM_KEY, PLACE_KEY, RECORD_KINDS, FieldKind, FieldLayout
from crdt_board.wire_values import check_text, check_wire, child_path, element_key, invalid_value

SharedType = pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any]

_CLASSES: dict[FieldKind, type[SharedType]] = {"text": pycrdt.Text, "list": pycrdt.Array}
_WITH_KEYS: frozenset[FieldKind] = frozenset({"dict", "set"})

IdsAt = Callable[[str], Sequence[str]]
"""From the path of a list of records to the ids of its items, in their order."""


class DeepEvent(Protocol):
    """What pycrdt's inner types hand to a deep observer; ``keys`` exists on events of maps only."""

    @property
    def path(self) -> list[str | int]: ...

    @property
    def keys(self) -> dict[str, Any]: ...

    @property
    def delta(self) -> list[dict[str, Any]]: ...


class Maker(Protocol):
    """Who makes records."""

    @property
    def client_id(self) -> int: ...

    @property
    def new_id(self) -> Callable[[], str]:
        """Gives ids for the items of lists of records, each another one."""
        ...


def shared_class(kind: FieldKind) -> type[SharedType]:
    """The shared type that holds a container of this kind."""
    return _CLASSES.get(kind, pycrdt.Map)


def records_wire(content: JsonValue, field: FieldLayout, path: str, ids_at: IdsAt) -> JsonValue:
    """The wire form of all records of a field at ``path``, from the JSON that Rust prints of its map.

    Those of a ``record_list`` are an array in their order, each with its id under ``$id``. A record has the scalars
    that were written and the containers that are not empty, so that fields which were added to the layout and never
    written do not show. What another client put there and is no record stays as it is, and is left out of a list.
    """
    if field.kind == "record_list":
        return [
            {ITEM_KEY: item, **_item_wire(content, item, field, child_path(path, item), ids_at)}
            for item in ids_at(path)
        ]
    if not isinstance(content, dict):
        return content
    return {key: record_wire(record, field, child_path(path, key), ids_at) for key, record in content.items()}


def record_wire(content: JsonValue, field: FieldLayout, path: str, ids_at: IdsAt) -> JsonValue:
    """The wire form of the one record at ``path``, without an id."""
    if not isinstance(content, dict):
        return content
    record: dict[str, JsonValue] = {}
    for inner in field.fields:
        if inner.name in content:
            value = _field_wire(content[inner.name], inner, path, ids_at)
            if value or inner.kind == "scalar":
                record[inner.name] = value
    return record


def _item_wire(content: Any, item: str, field: FieldLayout, path: str, ids_at: IdsAt) -> dict[str, JsonValue]:
    record = record_wire(content[item], field, path, ids_at)
    assert isinstance(record, dict), "only maps are items"
    return record


def _field_wire(content: JsonValue, field: FieldLayout, record: str, ids_at: IdsAt) -> JsonValue:
    if field.kind in RECORD_KINDS:
        return records_wire(content, field, f"{record}/{field.name}", ids_at)
    if field.kind == "set" and isinstance(content, dict):
        return [content[key] for key in sorted(content)]
    if field.kind == "counter" and isinstance(content, dict):
        return sum(cell for cell in content.values() if isinstance(cell, int))
    return content


def check_record(wire: JsonValue, field: FieldLayout, path: str) -> dict[str, JsonValue]:
    """A copy of a record in wire form, without an id, that fits a layout.

    Raises:
        InvalidValue: it has a field that the layout lacks, or a value that a document cannot give back.
    """
    checked = check_wire(wire, path)
    if not isinstance(checked, dict):
        raise invalid_value(path, "a record is an object with its fields")
    checked.pop(ITEM_KEY, None)
    for name, value in checked.items():
        if name not in field.by_name:
            raise invalid_value(child_path(path, name), "the record has no such field")
        _check_field(value, field.by_name[name], child_path(path, name))
    return checked


def _check_field(value: JsonValue, field: FieldLayout, path: str) -> None:
    if field.kind == "text":
        check_text(value, path)
    elif field.kind == "counter":
        check_amount(value, path)
    elif field.kind in ("list", "set", "record_list"):
        if not isinstance(value, list):
            raise invalid_value(path, f"a {field.kind} is an array in wire form")
        if field.kind == "record_list":
            _check_items(value, field, path)
    elif field.kind != "scalar":
        if not isinstance(value, dict):
            raise invalid_value(path, f"a {field.kind} is an object in wire form")
        if field.kind == "records":
            for key, record in value.items():
                check_record(record, field, child_path(path, key))


def _check_items(items: list[JsonValue], field: FieldLayout, path: str) -> None:
    ids: set[str] = set()
    for index, item in enumerate(items):
        there = child_path(path, index)
        if isinstance(item, dict) and ITEM_KEY in item:
            found = check_text(item[ITEM_KEY], child_path(there, ITEM_KEY))
            if found in ids:
                raise invalid_value(there, f"another item has the id {found!r} already")
            ids.add(found)
        check_record(item, field, there)


def new_record(wire: Mapping[str, JsonValue], field: FieldLayout, maker: Maker) -> pycrdt.Map[Any]:
    """A record with all that it holds, to be put under a key; ``wire`` has passed `check_record`.

    It has every container of the layout, so that none needs to be made later.
    """
    return pycrdt.Map(_record_content(wire, field, maker))


def new_item(wire: Mapping[str, JsonValue], place: str, field: FieldLayout, maker: Maker) -> pycrdt.Map[Any]:
    """The same for an item of a list of records, at a place."""
    return pycrdt.Map({PLACE_KEY: place, **_record_content(wire, field, maker)})


def _record_content(wire: Mapping[str, JsonValue], field: FieldLayout, maker: Maker) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for inner in field.fields:
        if inner.kind != "scalar":
            content[inner.name] = _new_container(wire.get(inner.name), inner, maker)
        elif inner.name in wire:
            content[inner.name] = wire[inner.name]
    return content


def _new_container(wire: Any, field: FieldLayout, maker: Maker) -> SharedType:
    if field.kind == "text":
        return pycrdt.Text(wire or "")
    if field.kind == "list":
        return pycrdt.Array(wire or [])
    if field.kind == "set":
        return pycrdt.Map({element_key(item): item for item in wire or ()})
    if field.kind == "counter":
        return pycrdt.Map({str(maker.client_id): wire} if wire else {})
    if field.kind == "record_list":
        return pycrdt.Map(_new_items(wire or [], field, maker))
    content = dict(wire or {})
    if field.kind == "records":
        content = {key: new_record(record, field, maker) for key, record in content.items()}
    return pycrdt.Map(content)


def _new_items(items: Sequence[Any], field: FieldLayout, maker: Maker) -> dict[str, pycrdt.Map[Any]]:
    places = first_places(len(items), run_of(maker.client_id))
    return {
        item.get(ITEM_KEY) or maker.new_id(): new_item(item, place, field, maker)
        for item, place in zip(items, places, strict=True)
    }


def changed_paths(field: FieldLayout, way: Sequence[str | int], keys: Iterable[str]) -> Iterator[list[str]]:
    """The parts of each path that an event inside a field with records is about, without the field's own name.

    ``way`` leads from the field's map to the type that the event is of; ``keys`` are what changed in it, if it is a
    map. A key of a dict or set has a path of its own; a text, list or counter is changed as a whole.
    """
    if not way:
        yield from ([str(key)] for key in keys)
        return
    record = str(way[0])
    if len(way) == 1:
        yield from ([record, str(name)] for name in keys)
        return
    name = str(way[1])
    inner = field.by_name.get(name)
    if inner is not None and inner.kind in RECORD_KINDS:
        yield from ([record, name, *rest] for rest in changed_paths(inner, way[2:], keys))
    elif inner is not None and inner.kind in _WITH_KEYS:
        below = [str(way[2])] if len(way) > 2 else keys
        yield from ([record, name, str(key)] for key in below)
    else:
        yield [record, name]
