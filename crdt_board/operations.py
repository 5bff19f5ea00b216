"""What a patch's operations do to a document: checked as a whole, then applied. Needs no model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NoReturn

from crdt_board.checkpoints import AddElement, DropKey, Increment, PatchOp, SetValue, SpliceRange
from crdt_board.counters import check_amount, raised_cell
from crdt_board.document import Document
from crdt_board.layout import FieldKind
from crdt_board.positions import Root, check_position, index_of
from crdt_board.wire_values import check_text, check_wire, child_path, element_key, invalid_value

_Change = Callable[[], None]


def apply_patch(document: Document, operations: Sequence[PatchOp]) -> None:
    """Apply operations inside the transaction that is open; counters change in the cell of ``document``'s client id.

    Raises:
        InvalidValue: an operation names an unknown field, does not fit its kind, or holds what a document cannot give
            back; nothing was changed.
    """
    increments = Counter(operation.field for operation in operations if isinstance(operation, Increment))
    for field, times in increments.items():
        if times > 1:
            raise invalid_value(field, "is incremented twice by one patch")
    for change in [_checked(document, operation) for operation in operations]:
        change()


def _checked(document: Document, operation: PatchOp) -> _Change:
    kind = document.kinds.get(operation.field)
    if kind is None:
        raise invalid_value(operation.field, "the board has no such field")
    if isinstance(operation, SpliceRange):
        return _splice_text(document, operation) if kind == "text" else _splice_list(document, operation, kind)
    if isinstance(operation, SetValue):
        return _set_value(document, operation, kind)
    if isinstance(operation, Increment):
        return _increment(document, operation, kind)
    return _add(document, operation, kind) if isinstance(operation, AddElement) else _drop(document, operation, kind)


def _refuse(operation: PatchOp, kind: FieldKind) -> NoReturn:
    raise invalid_value(operation.field, f"is a {kind}, which the operation {operation.op!r} does not fit")


def _set_value(document: Document, operation: SetValue, kind: FieldKind) -> _Change:
    key = operation.field if operation.key is None else check_text(operation.key, operation.field)
    if kind == "scalar" and operation.key is None:
        content, path = document.state_map, operation.field
    elif kind == "dict" and operation.key is not None:
        content, path = document.map(operation.field), child_path(operation.field, key)
    else:
        _refuse(operation, kind)
    value = check_wire(operation.value, path)

    def change() -> None:
        content[key] = value

    return change


def _drop(document: Document, operation: DropKey, kind: FieldKind) -> _Change:
    if kind not in ("dict", "set"):
        _refuse(operation, kind)
    content, key = document.map(operation.field), check_text(operation.key, operation.field)

    def change() -> None:
        if key in content:
            del content[key]

    return change


def _add(document: Document, operation: AddElement, kind: FieldKind) -> _Change:
    if kind != "set":
        _refuse(operation, kind)
    content, value = document.map(operation.field), check_wire(operation.value, operation.field)

    def change() -> None:
        content[element_key(value)] = value

    return change


def _increment(document: Document, operation: Increment, kind: FieldKind) -> _Change:
    if kind != "counter":
        _refuse(operation, kind)
    cells, amount = document.map(operation.field), check_amount(operation.amount, operation.field)
    raised = raised_cell(cells, document.client_id, amount, operation.field)

    def change() -> None:
        cells[str(document.client_id)] = raised

    return change


def _splice_text(document: Document, operation: SpliceRange) -> _Change:
    root, text = document.text(operation.field), check_text(operation.text, operation.field)
    if operation.items:
        raise invalid_value(operation.field, "is a text: the operation puts items into it")
    _check_range(root, operation)

    def change() -> None:
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
    root, items = document.array(operation.field), [check_wire(item, operation.field) for item in operation.items]
    _check_range(root, operation)

    def change() -> None:
        start, stop = _range(root, operation)
        if start < stop:
            del root[start:stop]
        root[start:start] = items

    return change


def _check_range(root: Root, operation: SpliceRange) -> None:
    """Resolving once beforehand leaves nothing that could fail between two changes."""
    for position in (operation.start, operation.stop):
        if position is not None:
            check_position(root, position, operation.field)
    _range(root, operation)


def _range(root: Root, operation: SpliceRange) -> tuple[int, int]:
    """Where the operation applies now; nothing is removed when the stop has come before the start."""
    start = 0 if operation.start is None else index_of(root, operation.start, operation.field)
    stop = start if operation.stop is None else index_of(root, operation.stop, operation.field)
    return start, max(start, stop)
