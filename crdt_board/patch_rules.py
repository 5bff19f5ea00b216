"""Whether the patch of a commit keeps the rules: its values those of the layout, what it makes those of the board."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pycrdt
from pydantic import JsonValue

from crdt_board.checkpoints import AddElement, Decide, PatchOp, Propose, SetValue, SpliceRange
from crdt_board.document import Document
from crdt_board.layout import FieldKind
from crdt_board.limits import Limits
from crdt_board.rules import SIZED_KINDS, FieldRules, Problem, rules_of
from crdt_board.wire_values import check_wire, child_path

_FITTING: dict[type[PatchOp], FieldKind] = {
    AddElement: "set",
    Propose: "candidates",
    Decide: "strict",
    SpliceRange: "list",
}
"""The kinds of fields whose values these operations write."""


def check_patch(document: Document, operations: Iterable[PatchOp]) -> None:
    """Refuse values that the layout does not allow; what does not fit its field at all is for `apply_patch` to say.

    Raises:
        InvalidValue: ``path`` and ``rule`` say which value, and why.
    """
    rules = rules_of(document.layout)
    for operation in operations:
        try:
            field = rules.at(operation.field)
        except (KeyError, AttributeError):
            continue
        for path, key, value in _values(operation):
            problem = field.check_value(check_wire(value, path), path, key) if _has_rules(field, operation) else None
            if problem is not None:
                raise problem.error()


def sizes_of(document: Document, operations: Sequence[PatchOp]) -> dict[str, int]:
    """How much the containers hold that ``operations`` may add to, by path; texts in code points."""
    rules = rules_of(document.layout)
    sizes: dict[str, int] = {}
    for path in {operation.field for operation in operations}:
        try:
            kind = rules.at(path).field.kind
        except KeyError:
            continue
        if kind in SIZED_KINDS:
            sizes[path] = _size(document, path)
    return sizes


def outgrown(document: Document, before: Mapping[str, int], limits: Limits) -> Problem | None:
    """What a patch made larger than a board may hold, where ``before`` is what was there; None when nothing is.

    The model's own sizes are looked at by `crdt_board.validity.refusal_of`.
    """
    if not before:
        return None
    rules = rules_of(document.layout)
    for path, size_before in sorted(before.items()):
        field, size = rules.at(path), _size(document, path)
        if size <= size_before:
            continue
        most = limits.text_chars_max if field.field.kind == "text" else limits.container_items_max
        if size > most:
            return Problem(path, "limit", f"would hold {size}, at most {most} are allowed on a board")
    return None


def _has_rules(field: FieldRules, operation: PatchOp) -> bool:
    """Whether the operation is one for this kind of field, so that its values are those of the field."""
    kind = field.field.kind
    if isinstance(operation, SetValue):
        return kind in (("scalar", "max", "min") if operation.key is None else ("dict", "records"))
    return _FITTING.get(type(operation)) == kind


def _values(operation: PatchOp) -> Iterator[tuple[str, str, JsonValue]]:
    """Path, key and value of everything that an operation writes."""
    if isinstance(operation, SetValue):
        path = operation.field if operation.key is None else child_path(operation.field, operation.key)
        yield path, operation.key or "", operation.value
    elif isinstance(operation, AddElement | Propose | Decide):
        yield operation.field, "", operation.value
    elif isinstance(operation, SpliceRange):
        yield from ((operation.field, "", item) for item in operation.items)


def _size(document: Document, path: str) -> int:
    kind = rules_of(document.layout).at(path).field.kind
    if kind == "text":
        return len(document.read_text(path))
    shared = document.find(path, pycrdt.Array) if kind == "list" else document.find(path, pycrdt.Map)
    return 0 if shared is None else len(shared)
