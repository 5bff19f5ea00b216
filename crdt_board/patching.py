"""Patches of a commit: what a user hands over becomes operations, only for what differs from the replica's state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import AddElement, DropKey, Increment, PatchOp, SetValue, SpliceRange
from crdt_board.counters import check_amount
from crdt_board.diffs import rebase, splices
from crdt_board.document import Document
from crdt_board.fields import FieldSpec, nearest_name
from crdt_board.layout import FieldKind
from crdt_board.operations import apply_patch
from crdt_board.positions import Root, position_behind, position_in_front
from crdt_board.schema import BoardModel, fields_of
from crdt_board.wire_values import element_key, invalid_value, same_wire

__all__ = ["apply_patch", "build_patch"]

_Builder = Callable[[Document, str, Any, Any, Any], Sequence[PatchOp]]
"""From document, field, the value that the patch started from, the present value and the wanted one."""

_UNWRITTEN: Any = object()


def build_patch(
    document: Document, model: type[BoardModel], patch: Mapping[str, object] | BoardModel
) -> tuple[list[PatchOp], dict[str, JsonValue]]:
    """The operations that bring a document to what ``patch`` says, and ``patch`` itself in wire form.

    A mapping names fields and the values that they shall have; fields and items that have them already produce no
    operation. A changed copy of a snapshot stands for its difference to that snapshot only: what others changed
    meanwhile stays. An instance that is no such copy stands for the fields that were set on it.

    Raises:
        InvalidValue: a field is unknown, or a value does not fit it or would not come back as written.
    """
    fields = fields_of(model)
    base: dict[str, JsonValue] | None = None
    if isinstance(patch, BoardModel):
        base = patch._board_base.state
        patch = _values_of(patch, model)
    wire: dict[str, JsonValue] = {}
    for name, value in patch.items():
        if name not in fields:
            raise invalid_value(str(name), f"{model.__name__} has no such field{nearest_name(name, fields)}")
        target = fields[name].to_wire(value)
        if base is None or not same_wire(_stored(base, fields[name]), target):
            wire[name] = target
    present = document.wire_state() if wire else {}
    operations: list[PatchOp] = []
    for name, target in wire.items():
        now = _stored(present, fields[name])
        before = now if base is None else _stored(base, fields[name])
        operations += _BUILDERS[fields[name].kind](document, name, before, now, target)
    return operations, wire


def _values_of(patch: BoardModel, model: type[BoardModel]) -> dict[str, object]:
    if not isinstance(patch, model):
        raise invalid_value("", f"the patch is a {type(patch).__name__}, but the board holds a {model.__name__}")
    names = patch.model_fields_set if patch._board_base.state is None else fields_of(model).keys()
    return {name: getattr(patch, name) for name in fields_of(model) if name in names}


def _stored(state: Mapping[str, JsonValue], field: FieldSpec) -> JsonValue:
    """The field's value in a state, in which those that were never written may be missing."""
    if field.name in state:
        return state[field.name]
    return _UNWRITTEN if field.required else field.default_wire()


def _scalar(_document: Document, name: str, _before: Any, now: Any, target: Any) -> list[PatchOp]:
    return [] if same_wire(now, target) else [SetValue(field=name, value=target)]


def _counter(_document: Document, name: str, before: int, _now: Any, target: int) -> list[PatchOp]:
    amount = check_amount(target - before, name)
    return [Increment(field=name, amount=amount)] if amount else []


def _set(_document: Document, name: str, before: list[Any], now: list[Any], target: list[Any]) -> Sequence[PatchOp]:
    old, present, new = ({element_key(wire): wire for wire in side} for side in (before, now, target))
    dropped = [key for key in old if key not in new and key in present]
    added = [key for key in new if key not in old and key not in present]
    return [DropKey(field=name, key=key) for key in dropped] + [AddElement(field=name, value=new[key]) for key in added]


def _dict(
    _document: Document, name: str, before: dict[str, Any], now: dict[str, Any], target: dict[str, Any]
) -> Sequence[PatchOp]:
    dropped = [key for key in before if key not in target and key in now]
    changed = [
        key
        for key, wire in target.items()
        if not (key in before and same_wire(before[key], wire)) and not (key in now and same_wire(now[key], wire))
    ]
    return [DropKey(field=name, key=key) for key in dropped] + [
        SetValue(field=name, key=key, value=target[key]) for key in changed
    ]


def _text(document: Document, name: str, before: str, now: str, target: str) -> list[PatchOp]:
    root, offsets = document.text(name), document.text_index(name)
    operations: list[PatchOp] = []
    for edit in rebase(splices(before, target), before, now):
        start, stop = _places(root, offsets.to_byte(edit.start), offsets.to_byte(edit.stop))
        operations.append(SpliceRange(field=name, start=start, stop=stop, text=edit.new))
    return operations


def _list(document: Document, name: str, before: list[Any], now: list[Any], target: list[Any]) -> list[PatchOp]:
    items: dict[Hashable, JsonValue] = {canonical_json(wire): wire for wire in target}
    old, present, new = (
        cast(list[Hashable], [canonical_json(wire) for wire in side]) for side in (before, now, target)
    )
    operations: list[PatchOp] = []
    for edit in rebase(splices(old, new), old, present):
        start, stop = _places(document.array(name), edit.start, edit.stop)
        operations.append(SpliceRange(field=name, start=start, stop=stop, items=tuple(items[key] for key in edit.new)))
    return operations


def _places(root: Root, start: int, stop: int) -> tuple[str | None, str | None]:
    """What is inserted follows the item before it; what is removed is held at both of its ends."""
    if start == stop:
        return (position_behind(root, start) if start else None), None
    return position_in_front(root, start), position_behind(root, stop)


_BUILDERS: dict[FieldKind, _Builder] = {
    "scalar": _scalar,
    "counter": _counter,
    "set": _set,
    "dict": _dict,
    "text": _text,
    "list": _list,
}
