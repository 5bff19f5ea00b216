"""Where in a board's layout an event belongs: which rules hold for what was written there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crdt_board.layout import STATE_ROOT, WRITERS_ROOTS
from crdt_board.rules import FieldRules, Rules
from crdt_board.wire_values import child_path


@dataclass(frozen=True, slots=True)
class Place:
    """A shared type at ``path``.

    ``rules`` are those of the field whose content it holds; with ``is_record`` it is one record of that field. Without
    rules it is the root map of the scalars, or that of the board's writer.
    """

    path: str
    rules: FieldRules | None = None
    is_record: bool = False


def place_of(rules: Rules, root: str, way: Sequence[str | int]) -> Place | None:
    """The place that ``way`` leads to from ``root``; None when the layout does not say what belongs there."""
    if root in WRITERS_ROOTS:
        return Place(child_path(root, *way))
    if root == STATE_ROOT:
        return None if way else Place(root)
    field = rules.by_name.get(root)
    if field is None:
        return None
    path, is_record = child_path("", root), False
    for part in way:
        path = child_path(path, part)
        if is_record:
            field = field.inside.get(str(part))
            if field is None or field.field.kind == "scalar":
                return None
        elif not field.has_records:
            return None
        is_record = not is_record
    return Place(path, field, is_record)
