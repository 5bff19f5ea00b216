"""Which item of a list of records a model stands for.

In the wire form every item has its id beside its fields; a model keeps it out of sight, where it takes no part in
``==``. So an item that was read, changed and handed in again is known again wherever it stands by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, JsonValue

from crdt_board.fields import UNWRITTEN, FieldSpec
from crdt_board.layout import ITEM_KEY, RECORD_KINDS
from crdt_board.plain_fields import PlainField

Field = FieldSpec | PlainField
Fields = Mapping[str, FieldSpec] | Mapping[str, PlainField]


def without_ids(record: JsonValue, fields: Fields) -> JsonValue:
    """A record, or the fields of a board, in wire form without the ids of items: what pydantic takes for the model."""
    if not isinstance(record, dict):
        return record
    return {
        name: field_without_ids(value, fields[name]) if name in fields else value
        for name, value in record.items()
        if name != ITEM_KEY
    }


def field_without_ids(value: JsonValue, spec: Field) -> JsonValue:
    """The same of one field."""
    if spec.kind == "record_list" and isinstance(value, list):
        return [without_ids(item, spec.inside) for item in value]
    if spec.kind == "records" and isinstance(value, dict):
        return {key: without_ids(record, spec.inside) for key, record in value.items()}
    return value


def identify(model: BaseModel, wire: JsonValue, fields: Fields) -> None:
    """Note in every item inside ``model``, which was made from ``wire`` without its ids, which item it is."""
    record = cast(dict[str, Any], wire)
    for name, spec in fields.items():
        if spec.kind in RECORD_KINDS and name in record:
            identify_inside(getattr(model, name), record[name], spec)


def identify_inside(records: Any, wire: Any, spec: Field) -> None:
    """The same in the records of one field."""
    if spec.kind == "records":
        for key, value in records.items():
            identify(value, wire[key], spec.inside)
        return
    for value, item in zip(records, wire, strict=True):
        value._board_base.item = item.get(ITEM_KEY)
        identify(value, item, spec.inside)


def content_of(record: JsonValue, fields: Fields) -> JsonValue:
    """What a record reads as, equal for all records that read alike: without ids and without what is default."""
    if not isinstance(record, dict):
        return record
    content: dict[str, JsonValue] = {}
    for name, spec in fields.items():
        if name not in record or (not spec.required and spec.same(record[name], spec.default_wire())):
            continue
        value = record[name]
        if spec.kind == "record_list" and isinstance(value, list):
            value = [content_of(item, spec.inside) for item in value]
        elif spec.kind == "records" and isinstance(value, dict):
            value = {key: content_of(each, spec.inside) for key, each in value.items()}
        content[name] = value
    return content


def drops_a_value(fields: Fields, before: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a field that holds one value has none any more. No operation says so: the record is made anew."""
    return any(
        inner.stored_in(record) is UNWRITTEN and inner.stored_in(before) is not UNWRITTEN for inner in fields.values()
    )
