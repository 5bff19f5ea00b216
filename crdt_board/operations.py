"""What a patch's operations do to a document: checked as a whole, then applied. Needs no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import pycrdt

from crdt_board.cell_operations import NOBODY, POLICY_KINDS, Committer, checked_policy_change
from crdt_board.checkpoints import (
    AddElement,
    Clear,
    Decide,
    DropKey,
    Increment,
    InsertItem,
    MoveItem,
    PatchOp,
    Propose,
    SetValue,
    SpliceRange,
)
from crdt_board.counters import check_amount, raised_cell
from crdt_board.document import Document
from crdt_board.item_operations import checked_insertion, checked_move
from crdt_board.layout import FieldKind
from crdt_board.paths import split_path
from crdt_board.positions import Root, check_position, index_of, is_stored
from crdt_board.records import check_record
from crdt_board.wire_values import check_text, check_wire, child_path, element_key, invalid_value

_Change = Callable[[], None]


def apply_patch(document: Document, operations: Sequence[PatchOp], committer: Committer = NOBODY) -> None:
    """Apply operations inside the transaction that is open; cells are written under ``document``'s client id.

    Raises:
        InvalidValue: an operation names an unknown field, does not fit its kind, or holds what a document cannot give
            back; nothing was changed.
    """
    increments = [operation.field for operation in operations if operation.op == "increment"]
    if len(set(increments)) < len(increments):
        twice = next(field for field in increments if increments.count(field) > 1)
        raise invalid_value(twice, "is incremented twice by one patch")
    apply_edits(document, operations, committer)
    document.write_cells()


def apply_edits(document: Document, operations: Sequence[PatchOp], committer: Committer = NOBODY) -> None:
    """The same in a transaction that may be taken back: cells are written at its end."""
    _check_independence(operations)
    for change in [_checked_at(document, operation, committer) for operation in operations]:
        change()


def patched(document: Document, operations: Sequence[PatchOp], committer: Committer = NOBODY) -> Document:
    """A copy of a document with operations applied, to look at what they would do.

    Raises:
        InvalidValue: as `apply_patch`.
        DocumentBroken: yrs panicked; only the copy is broken.
    """
    copy = Document(document.layout, strays=document.strays)
    copy.apply_or_raise([document.encode()])
    copy.capture(lambda: apply_patch(copy, operations, committer))
    return copy


def _check_independence(operations: Sequence[PatchOp]) -> None:
    """Nothing is changed in a record that the same patch puts there, so that what was checked holds when it is done."""
    replaced = {
        child_path(operation.field, operation.key)
        for operation in operations
        if isinstance(operation, SetValue | DropKey | InsertItem) and operation.key is not None
    }
    for operation in operations if replaced else ():
        parts = operation.field.split("/")
        if any("/".join(parts[:end]) in replaced for end in range(2, len(parts))):
            raise invalid_value(operation.field, "is in a record that the same patch replaces")


def _checked_at(document: Document, operation: PatchOp, committer: Committer) -> _Change:
    """The change of one operation; inside a record that is not there it does nothing, since deletions win."""
    try:
        field = document.field_at(check_text(operation.field, ""))
    except KeyError:
        raise invalid_value(operation.field, "the board has no such field") from None
    change = _checked(document, operation, field.kind, committer)
    record = operation.field.rpartition("/")[0]

    def unless_deleted() -> None:
        if document.find(record, pycrdt.Map) is not None:
            change()

    return unless_deleted if record else change


def _checked(document: Document, operation: PatchOp, kind: FieldKind, committer: Committer) -> _Change:
    if kind in POLICY_KINDS:
        return checked_policy_change(document, operation, kind, committer) or _refuse(operation, kind)
    if isinstance(operation, SetValue):  # the usual one first: that a model is no instance of another takes 1 µs
        return _set_value(document, operation, kind)
    if isinstance(operation, Propose | Decide):
        _refuse(operation, kind)
    if isinstance(operation, SpliceRange):
        return _splice_text(document, operation) if kind == "text" else _splice_list(document, operation, kind)
    if isinstance(operation, Clear):
        return _clear(document, operation, kind)
    if isinstance(operation, InsertItem | MoveItem):
        return _change_items(document, operation, kind)
    return _checked_part(document, operation, kind)


def _checked_part(document: Document, operation: Increment | AddElement | DropKey, kind: FieldKind) -> _Change:
    if isinstance(operation, Increment):
        return _increment(document, operation, kind)
    return _add(document, operation, kind) if isinstance(operation, AddElement) else _drop(document, operation, kind)


def _refuse(operation: PatchOp, kind: FieldKind) -> NoReturn:
    raise invalid_value(operation.field, f"is a {kind}, which the operation {operation.op!r} does not fit")


def _set_value(document: Document, operation: SetValue, kind: FieldKind) -> _Change:
    key = operation.field if operation.key is None else check_text(operation.key, operation.field)
    if kind == "records" and operation.key is not None:
        return _put_record(document, operation, key)
    if kind == "scalar" and operation.key is None:
        holder, name = operation.field.rpartition("/")[::2]
        key, path = split_path(name)[0], operation.field
    elif kind == "dict" and operation.key is not None:
        holder, path = operation.field, child_path(operation.field, key)
    else:
        _refuse(operation, kind)
    value = check_wire(operation.value, path)

    def change() -> None:
        content = _made_map(document, holder) if holder else document.state_map
        content[key] = value

    return change


def _put_record(document: Document, operation: SetValue, key: str) -> _Change:
    path = child_path(operation.field, key)
    value = check_record(operation.value, document.field_at(operation.field), path)

    def change() -> None:
        document.put_record(path, value)

    return change


def _made_map(document: Document, path: str) -> pycrdt.Map[Any]:
    return cast("pycrdt.Map[Any]", document.make(path))


def _clear(document: Document, operation: Clear, kind: FieldKind) -> _Change:
    holder, name = operation.field.rpartition("/")[::2]
    if kind != "scalar" or holder:
        _refuse(operation, kind)
    key = split_path(name)[0]

    def change() -> None:
        if key in document.state_map:
            del document.state_map[key]

    return change


def _drop(document: Document, operation: DropKey, kind: FieldKind) -> _Change:
    if kind not in ("dict", "set", "records", "record_list"):
        _refuse(operation, kind)
    key = check_text(operation.key, operation.field)

    def change() -> None:
        document.drop_key(operation.field, key)

    return change


def _change_items(document: Document, operation: InsertItem | MoveItem, kind: FieldKind) -> _Change:
    if kind != "record_list":
        _refuse(operation, kind)
    if isinstance(operation, InsertItem):
        return checked_insertion(document, operation)
    return checked_move(document, operation)


def _add(document: Document, operation: AddElement, kind: FieldKind) -> _Change:
    if kind != "set":
        _refuse(operation, kind)
    value = check_wire(operation.value, operation.field)

    def change() -> None:
        _made_map(document, operation.field)[element_key(value)] = value

    return change


def _increment(document: Document, operation: Increment, kind: FieldKind) -> _Change:
    if kind != "counter":
        _refuse(operation, kind)
    amount = check_amount(operation.amount, operation.field)

    def raised() -> int:
        cells = document.find(operation.field, pycrdt.Map)
        return raised_cell(cells, document.client_id, amount, operation.field) if cells is not None else amount

    raised()

    def change() -> None:
        part = raised()
        _made_map(document, operation.field)[str(document.client_id)] = part

    return change


def _splice_text(document: Document, operation: SpliceRange) -> _Change:
    text = check_text(operation.text, operation.field)
    if operation.items:
        raise invalid_value(operation.field, "is a text: the operation puts items into it")
    _check_range(document.find(operation.field, pycrdt.Text), operation)

    def change() -> None:
        root = cast(pycrdt.Text, document.make(operation.field))
        if _is_gone(root, operation):
            return
        start, stop = _range(root, operation)
        offsets = document.text_index(operation.field)
        offsets.replace(offsets.to_char(start), offsets.to_char(stop), text)
        if start < stop:
            del root[start:stop]
        if text:
            root.insert(start, text)

    return change


def _splice_list(document: Document, operation: SpliceRange, kind: FieldKind) -> _Change:
    if kind != "list":
        _refuse(operation, kind)
    if operation.text:
        raise invalid_value(operation.field, "is a list: the operation puts text into it")
    items = [check_wire(item, operation.field) for item in operation.items]
    _check_range(document.find(operation.field, pycrdt.Array), operation)

    def change() -> None:
        root = cast("pycrdt.Array[Any]", document.make(operation.field))
        if _is_gone(root, operation):
            return
        start, stop = _range(root, operation)
        if start < stop:
            del root[start:stop]
        root[start:start] = items

    return change


def _check_range(root: Root | None, operation: SpliceRange) -> None:
    """Resolving once beforehand leaves nothing that could fail between two changes."""
    if root is None:
        return
    for position in (operation.start, operation.stop):
        if position is not None:
            check_position(root, position, operation.field)
    if not _is_gone(root, operation):
        _range(root, operation)


def _is_gone(root: Root, operation: SpliceRange) -> bool:
    """Whether the text or list that the operation means was deleted, and another one is now in its place."""
    return "/" in operation.field and any(
        position is not None and not is_stored(root, position) for position in (operation.start, operation.stop)
    )


def _range(root: Root, operation: SpliceRange) -> tuple[int, int]:
    """Where the operation applies now; nothing is removed when the stop has come before the start."""
    start = 0 if operation.start is None else index_of(root, operation.start, operation.field)
    stop = start if operation.stop is None else index_of(root, operation.stop, operation.field)
    return start, max(start, stop)
