"""Patches of a commit: what a user hands over becomes operations, only for what differs from the replica's state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.cells import beats, candidate_mark
from crdt_board.checkpoints import AddElement, Decide, DropKey, Increment, PatchOp, Propose, SetValue, SpliceRange
from crdt_board.counters import check_amount
from crdt_board.diffs import rebase, splices
from crdt_board.document import Document
from crdt_board.fields import UNWRITTEN, FieldSpec, nearest_name
from crdt_board.identities import Field, drops_a_value, without_ids
from crdt_board.item_patching import items_difference, items_inserted
from crdt_board.layout import FieldKind
from crdt_board.operations import apply_patch, patched
from crdt_board.paths import field_of
from crdt_board.plain_fields import PlainField, plain_field
from crdt_board.positions import Root, position_behind, position_in_front
from crdt_board.readings import present_wire
from crdt_board.schema import BoardModel, fields_of
from crdt_board.wire_values import check_text, child_path, element_key, invalid_value, same_wire

__all__ = ["apply_patch", "build_patch", "build_plain_patch", "operations_from_empty"]

_Builder = Callable[[Document, str, Any, Any, Any], Sequence[PatchOp]]
"""From document, field, the value that the patch started from, the present value and the wanted one."""


def build_patch(
    document: Document, model: type[BoardModel], patch: Mapping[str, object] | BoardModel
) -> tuple[list[PatchOp], dict[str, JsonValue]]:
    """The operations that bring a document to what ``patch`` says, and ``patch`` itself in wire form, without ids.

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
        if base is None or not fields[name].same(_stored(base, fields[name]), target):
            wire[name] = target
    return _operations(document, fields, wire, base), cast(dict[str, JsonValue], without_ids(wire, fields))


def build_plain_patch(document: Document, patch: Mapping[str, object]) -> tuple[list[PatchOp], dict[str, JsonValue]]:
    """The same for an agent without a model: by the layout of the document, and as scalars what that does not name.

    Raises:
        InvalidValue: a value does not fit its field, or is no JSON that would come back as written.
    """
    fields = {name: plain_field(document, check_text(name, "patch")) for name in patch}
    wire = {name: field.to_wire(patch[name], child_path("", name), any_size=True) for name, field in fields.items()}
    return _operations(document, fields, wire, None), cast(dict[str, JsonValue], without_ids(wire, fields))


def operations_from_empty(
    document: Document, fields: Mapping[str, PlainField], wire: Mapping[str, JsonValue]
) -> list[PatchOp]:
    """The operations that fill fields which hold nothing with ``wire``."""
    operations: list[PatchOp] = []
    for name, target in wire.items():
        field = fields[name]
        if field.kind == "candidates":
            operations.append(Propose(field=name, value=target))
        elif field.kind in ("max", "min"):
            operations.append(SetValue(field=name, value=target))
        elif field.kind == "record_list":
            operations += items_inserted(document, name, cast(list[Any], target))
        else:
            empty = field.stored_in({})
            operations += _difference(document, field, name, before=empty, now=empty, target=target)
    return operations


def _operations(
    document: Document,
    fields: Mapping[str, Field],
    wire: Mapping[str, JsonValue],
    base: Mapping[str, JsonValue] | None,
) -> list[PatchOp]:
    present = document.wire_state(wire)
    operations: list[PatchOp] = []
    for name, target in wire.items():
        now = _stored(present, fields[name])
        before = now if base is None else _stored(base, fields[name])
        if fields[name].kind == "candidates":
            operations += _candidates(name, present if base is None else base, now, target)
            continue
        path = child_path("", name)
        operations += _difference(document, fields[name], path, before=before, now=now, target=target)
    return operations


def state_after(
    document: Document,
    operations: Sequence[PatchOp],
    wire: Mapping[str, JsonValue] | None = None,
    base: Mapping[str, JsonValue] | None = None,
) -> dict[str, JsonValue]:
    """The state of the document in wire form with operations on top.

    It is worked out from the values in ``wire``, where these are what `build_patch` made the operations from; ``base``
    is the state that the patch started from, None for that of now. Without ``wire``, or when somebody has changed one
    of the fields since, the operations are applied to a copy: 9 ms for a text of 1 MB and 6,000 items.
    """
    present = document.wire_state()
    changed = {field_of(operation.field) for operation in operations}
    if wire is None or (base is not None and any(base.get(name) != present.get(name) for name in changed)):
        return patched(document, operations).wire_state()
    after = {name: wire[name] for name in changed}
    candidates = {name: [{"value": after[name]}] for name in changed if document.kinds[name] == "candidates"}
    return {**present, **after, **cast(dict[str, JsonValue], candidates)}


def _difference(
    document: Document, field: Field, path: str, *, before: Any, now: Any, target: Any
) -> Sequence[PatchOp]:
    if field.kind == "records":
        operations: Sequence[PatchOp] = _records(document, field, path, before=before, now=now, target=target)
    elif field.kind == "record_list":
        edit = partial(_edits_inside, document, field)
        operations = list(items_difference(document, field, path, before=before, now=now, target=target, edit=edit))
    else:
        operations = _BUILDERS[field.kind](document, path, before, now, target)
    if operations and field.bounds is not None:
        size, wanted = (before, target) if field.kind == "counter" else (len(before), len(target))
        problem = field.bounds.change_problem(size, wanted - size)
        if problem is not None:
            raise invalid_value(path, problem.message, rule=problem.rule)
    return operations


def _records(
    document: Document,
    field: Field,
    path: str,
    *,
    before: dict[str, Any],
    now: dict[str, Any],
    target: dict[str, Any],
) -> Sequence[PatchOp]:
    """New records are assigned whole; others are changed where they differ, unless somebody deleted them meanwhile."""
    operations: list[PatchOp] = [DropKey(field=path, key=key) for key in before if key not in target and key in now]
    for key, record in target.items():
        if key in now and drops_a_value(field.inside, before.get(key, now[key]), record):
            operations.append(SetValue(field=path, key=key, value=record))
        elif key in now:
            there, old = child_path(path, key), before.get(key, now[key])
            operations += _edits_inside(document, field, there, before=old, now=now[key], target=record)
        elif key not in before:
            operations.append(SetValue(field=path, key=key, value=record))
    return operations


def _edits_inside(
    document: Document,
    field: Field,
    record: str,
    *,
    before: dict[str, Any],
    now: dict[str, Any],
    target: dict[str, Any],
) -> Sequence[PatchOp]:
    """What differs inside the record at a path."""
    operations: list[PatchOp] = []
    for inner in field.inside.values():
        old, new = inner.stored_in(before), inner.stored_in(target)
        if not inner.same(old, new):
            there, present = child_path(record, inner.name), inner.stored_in(now)
            operations += _difference(document, inner, there, before=old, now=present, target=new)
    return operations


def _values_of(patch: BoardModel, model: type[BoardModel]) -> dict[str, object]:
    if not isinstance(patch, model):
        raise invalid_value("", f"the patch is a {type(patch).__name__}, but the board holds a {model.__name__}")
    names = patch.model_fields_set if patch._board_base.state is None else fields_of(model).keys()
    return {name: getattr(patch, name) for name in fields_of(model) if name in names}


def _stored(state: Mapping[str, JsonValue], field: Field) -> JsonValue:
    """The field's value in a state, in which those that were never written may be missing."""
    return present_wire(field, state) if isinstance(field, FieldSpec) else field.present_in(state)


def _scalar(_document: Document, name: str, _before: Any, now: Any, target: Any) -> list[PatchOp]:
    return [] if same_wire(now, target) else [SetValue(field=name, value=target)]


def _extreme(document: Document, name: str, _before: Any, now: Any, target: Any) -> list[PatchOp]:
    wanted = now is UNWRITTEN or beats(document.layout.by_name[name], target, now)
    return [SetValue(field=name, value=target)] if wanted else []


def _strict(_document: Document, name: str, _before: Any, now: Any, target: Any) -> list[PatchOp]:
    return [] if same_wire(now, target) else [Decide(field=name, value=target)]


def _candidates(name: str, seen: Mapping[str, Any], now: Any, target: JsonValue) -> list[PatchOp]:
    """``seen`` is the state that the patch started from: what came since is not replaced."""
    if same_wire(now, target):
        return []
    return [Propose(field=name, value=target, seen=tuple(map(candidate_mark, seen.get(name, ()))))]


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
    root, offsets = document.find(name, pycrdt.Text), document.text_index(name)
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
        start, stop = _places(document.find(name, pycrdt.Array), edit.start, edit.stop)
        operations.append(SpliceRange(field=name, start=start, stop=stop, items=tuple(items[key] for key in edit.new)))
    return operations


def _places(root: Root | None, start: int, stop: int) -> tuple[str | None, str | None]:
    """What is inserted follows the item before it; what is removed is held at both of its ends."""
    if start == stop == 0:
        return None, None
    assert root is not None, "what was never made is empty"
    if start == stop:
        return position_behind(root, start), None
    return position_in_front(root, start), position_behind(root, stop)


_BUILDERS: dict[FieldKind, _Builder] = {
    "scalar": _scalar,
    "max": _extreme,
    "min": _extreme,
    "strict": _strict,
    "counter": _counter,
    "set": _set,
    "dict": _dict,
    "text": _text,
    "list": _list,
}
