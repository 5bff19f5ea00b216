"""In which root of a board's document each field is: chosen once for each schema of the board. Pure.

A root of a Yjs document has one type for ever. So a field whose kind changes in a migration gets another root, named
``<field>~<number of the schema>``; a field that stays what it is keeps its root, and a new one has that of its own name
unless an earlier schema used it.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdt_board.layout import SINGLE_KINDS, FieldLayout, Layout


def place_fields(model: Layout, earlier: Sequence[Layout], number: int) -> Layout:
    """The layout of a model as schema ``number`` of a board that had the schemas ``earlier``, in their order."""
    taken = {field.place for layout in earlier for field in layout.fields if field.kind not in SINGLE_KINDS}
    before = earlier[-1].by_name if earlier else {}

    def root_of(field: FieldLayout) -> str:
        if field.kind in SINGLE_KINDS:
            return ""
        same = before.get(field.name)
        if same is not None and same.kind == field.kind:
            return same.root
        return f"{field.name}~{number}" if field.name in taken else ""

    return _with_roots(model, [root_of(field) for field in model.fields])


def as_on_board(model: Layout, board: Layout) -> Layout:
    """The layout of a model that has joined a board, with the roots that the board's newest schema gives its fields."""
    return _with_roots(model, [board.by_name[field.name].root for field in model.fields])


def kept_elsewhere(board: Layout, other: Layout) -> list[str]:
    """The fields that both layouts have in roots of different names, in the order of ``board``."""
    places = {field.name: field.place for field in other.fields if field.kind not in SINGLE_KINDS}
    return [field.name for field in board.fields if places.get(field.name, field.place) != field.place]


def _with_roots(model: Layout, roots: Sequence[str]) -> Layout:
    fields = (field.model_copy(update={"root": root}) for field, root in zip(model.fields, roots, strict=True))
    return Layout(title=model.title, fields=tuple(fields))
