"""What a new schema does to the document of a board: values taken over from ``state``, and migrations. Needs no model.

Works on a document in memory. When it raises, or when what it did is not appended, the document must be rebuilt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import JsonValue

from crdt_board.cell_operations import Committer
from crdt_board.cells import CELL_KINDS
from crdt_board.document import Document
from crdt_board.errors import BoardError, InvalidValue, SchemaMismatch
from crdt_board.layout import SINGLE_KINDS, STRICT_PREFIX, FieldLayout, Layout
from crdt_board.migrations import MigrationRequest
from crdt_board.patching import apply_patch, build_plain_patch, operations_from_empty
from crdt_board.plain_fields import PlainField
from crdt_board.wire_values import document_wire, invalid_value


@dataclass(slots=True, eq=False)
class SchemaItem:
    """A model that waits to join, because the document must be changed for it. ``migration``: as its agent asks."""

    layout: Layout
    migrates: tuple[int, ...]
    agent: str
    answer: asyncio.Future[int]
    schema_version: int = 0
    """The board's newest schema, as its writer found it last."""
    migration: MigrationRequest | None = None

    def finish(self, number: int) -> None:
        if not self.answer.done():
            self.answer.set_result(number)

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def named_keys(document: Document, layout: Layout) -> list[str]:
    """The fields of ``layout`` that are new, and that an agent without a model has written as keys of ``state``."""
    known = document.layout.by_name
    return [name for name in layout.by_name if name not in known and name in document.state_map]


def take_over(document: Document, layout: Layout, committer: Committer, board_schema: int) -> bytes:
    """Declare ``layout`` and bring what was written under its names to where its fields are; return the update.

    Raises:
        SchemaMismatch: a value does not fit its field; each is named with what is wrong.
    """
    names = named_keys(document, layout)
    problems: list[str] = []
    for name in names:
        try:
            PlainField(layout.by_name[name]).to_wire(document_wire(document.state_map[name]))
        except InvalidValue as error:
            problems.append(str(error))
    if problems:
        raise SchemaMismatch(
            f"what the board holds does not fit {layout.title}: {'; '.join(problems)}",
            fields=problems,
            board_schema=board_schema,
        )
    document.declare(layout)
    return move_from_state(document, [name for name in names if layout.by_name[name].kind != "scalar"], committer)


def move_from_state(document: Document, names: Iterable[str], committer: Committer) -> bytes:
    """Bring keys of ``state`` to where the fields of these names are, as if they were assigned; return the update.

    Raises:
        InvalidValue: a value does not fit its field.
    """
    values = {name: document_wire(document.state_map[name]) for name in names}
    operations, _ = build_plain_patch(document, values)

    def change() -> None:
        apply_patch(document, operations, committer)  # checks everything before it changes anything
        for name in values:
            del document.state_map[name]

    return document.capture(change)


def migrate(document: Document, layout: Layout, request: MigrationRequest, committer: Committer) -> bytes:
    """Declare ``layout`` and make the state what ``request`` says; return the update.

    Raises:
        InvalidValue: a value does not fit its field.
    """
    before, after = document.layout.by_name, layout.by_name
    stale = [field for name, field in before.items() if name not in after or _moves(field, after[name])]
    stale_roots = [document.root(field.name) for field in stale if field.kind not in SINGLE_KINDS]
    document.declare(layout)
    wire = {name: PlainField(_named(layout, name)).to_wire(value) for name, value in request.state.items()}
    changed = [field for field in layout.fields if field.name not in request.kept]
    emptied = [field for field in changed if field.name not in wire or not _is_edited(field, before.get(field.name))]
    filled = {field.name for field in emptied}
    fields = {field.name: PlainField(field) for field in changed}
    operations = operations_from_empty(document, fields, {name: wire[name] for name in wire if name in filled})
    operations += build_plain_patch(document, {name: wire[name] for name in wire if name not in filled})[0]

    def change() -> None:
        for root in stale_roots:
            root.clear()
        for field in (*(field for field in stale if field.kind in SINGLE_KINDS), *emptied):
            empty_field(document, field)
        apply_patch(document, operations, committer)

    return document.capture(change)


def _named(layout: Layout, name: str) -> FieldLayout:
    try:
        return layout.by_name[name]
    except KeyError:
        raise invalid_value(name, f"{layout.title} has no such field") from None


def _moves(before: FieldLayout, after: FieldLayout) -> bool:
    return before.kind != after.kind or before.place != after.place


def _is_edited(field: FieldLayout, before: FieldLayout | None) -> bool:
    """Whether the value that is there can be brought to the new one by what differs."""
    return (
        before is not None
        and not _moves(before, field)
        and field.kind not in CELL_KINDS
        and _kinds_inside(before) == _kinds_inside(field)
    )


def _kinds_inside(field: FieldLayout) -> JsonValue:
    return {each.name: [each.kind, _kinds_inside(each)] for each in field.fields}


def empty_field(document: Document, field: FieldLayout) -> None:
    """Inside a transaction: remove everything that a field holds."""
    if field.kind not in SINGLE_KINDS:
        document.clear(field.name)
        return
    holder, key = document.state_map, field.name
    if field.kind == "strict":
        holder, key = document.board_map, STRICT_PREFIX + field.name
    if key in holder:
        del holder[key]
