"""What the operations of a patch on a list of records do to a document: inserting and moving items. Needs no model."""

from __future__ import annotations

from collections.abc import Callable

from crdt_board.checkpoints import InsertItem, MoveItem
from crdt_board.document import Document
from crdt_board.item_places import is_place
from crdt_board.records import check_record
from crdt_board.wire_values import check_text, child_path, invalid_value

_Change = Callable[[], None]


def checked_insertion(document: Document, operation: InsertItem) -> _Change:
    """What inserts an item, when it has been checked.

    Raises:
        InvalidValue: the id is taken, or the record does not fit the layout.
    """
    path = child_path(operation.field, check_text(operation.key, operation.field))
    if operation.key in document.items(operation.field):
        raise invalid_value(path, "another item has this id already")
    _check_anchor(operation)
    value = check_record(operation.value, document.field_at(operation.field), path)

    def change() -> None:
        document.insert_items(operation.field, _gap(document, operation), {operation.key: value})

    return change


def checked_move(document: Document, operation: MoveItem) -> _Change:
    """What moves an item, if it is still there then.

    Raises:
        InvalidValue: the place cannot be read.
    """
    check_text(operation.key, operation.field)
    _check_anchor(operation)

    def change() -> None:
        if operation.key in document.items(operation.field):
            document.move_item(operation.field, operation.key, _gap(document, operation))

    return change


def _check_anchor(operation: InsertItem | MoveItem) -> None:
    if operation.after is not None:
        check_text(operation.after, operation.field)
    if operation.after_place is not None and not is_place(operation.after_place):
        raise invalid_value(operation.field, "the place in the patch cannot be read")


def _gap(document: Document, operation: InsertItem | MoveItem) -> int:
    return document.items(operation.field).gap_behind(operation.after, operation.after_place)
