"""The operations of a patch on `Max`, `Min`, `Candidates` and `Strict` fields. Needs no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crdt_board.cell_writes import propose, raise_cell
from crdt_board.cells import CELL_KINDS, fits
from crdt_board.checkpoints import Decide, PatchOp, Propose, SetValue
from crdt_board.document import Document
from crdt_board.layout import STRICT_PREFIX, FieldKind
from crdt_board.wire_values import check_wire, invalid_value

POLICY_KINDS: frozenset[FieldKind] = CELL_KINDS | {"strict"}


@dataclass(frozen=True, slots=True)
class Committer:
    """Who a patch is from, and when it is applied: what candidates record."""

    agent: str = ""
    now_ms: int = 0


NOBODY = Committer()


def checked_policy_change(
    document: Document, operation: PatchOp, kind: FieldKind, committer: Committer
) -> Callable[[], None] | None:
    """What ``operation`` does to a field of one of `POLICY_KINDS`; None when it does not fit the kind.

    Raises:
        InvalidValue: its value cannot be stored, or the field cannot have it.
    """
    field = operation.field
    if isinstance(operation, SetValue) and kind in ("max", "min") and operation.key is None:
        value = check_wire(operation.value, field)
        if not fits(document.layout.by_name[field], value):
            raise invalid_value(field, "is no value that this field compares")
        return lambda: raise_cell(document, field, value)
    if isinstance(operation, Propose) and kind == "candidates":
        value, seen = check_wire(operation.value, field), operation.seen
        return lambda: propose(document, field, value, seen, agent=committer.agent, when_ms=committer.now_ms)
    if isinstance(operation, Decide) and kind == "strict":
        value = check_wire(operation.value, field)
        return lambda: document.board_map.__setitem__(STRICT_PREFIX + field, value)
    return None
