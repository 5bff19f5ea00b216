"""Entries that follow from a schema: bringing a board to a new one, and fields that were written in the wrong place."""

from __future__ import annotations

from crdt_board.errors import BoardError, SchemaMismatch
from crdt_board.layout import Layout
from crdt_board.limits import Limits
from crdt_board.planning import plan_move, plan_schema
from crdt_board.schema_changes import SchemaItem
from crdt_board.schemas import BoardSchemas
from crdt_board.tail import Tail


async def write_schema(tail: Tail, item: SchemaItem, limits: Limits) -> None:
    """Bring the board to the schema that waits for it, and answer.

    Raises:
        StoreUnavailable: the store failed; after `Tail.recover` the same item may be given again.
    """
    while not item.answer.done():
        try:
            item.schema_version = tail.schemas.number
            number = _find_schema(tail.schemas, item)
            if number is not None:
                item.finish(number)
                return
            records = tail.schemas.following(item.layout, item.migrates)
            layout = Layout.model_validate_json(records[-1].document)
            plan = plan_schema(tail.loaded, item, layout, limits, await tail.now_ms())
        except BoardError as error:
            item.refuse(error)
            await tail.reload()
            return
        if not await tail.append([plan], schemas=records):
            await tail.reload()
            await tail.catch_up()


async def move_misplaced(tail: Tail, limits: Limits) -> None:
    """Bring what was written into ``state`` under the names of other fields to where these are.

    An agent without a model does so until it has heard of the board's schema. What does not fit stays there.

    Raises:
        StoreUnavailable: the store failed.
    """
    while names := tail.loaded.document.take_misplaced():
        plan = plan_move(tail.loaded, names, tail.last_author, limits, await tail.now_ms())
        if plan is not None and not await tail.append([plan]):
            await tail.reload()
            await tail.catch_up()


def _find_schema(schemas: BoardSchemas, item: SchemaItem) -> int | None:
    """The number under which the item's model uses the board as it is; None when the board must be changed."""
    try:
        return schemas.find(item.layout, item.migrates)
    except SchemaMismatch as mismatch:
        if item.migration is None or item.migration.from_version != mismatch.board_schema:
            raise
        return None
