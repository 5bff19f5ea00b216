"""Patches of a commit on a list of records: which items are inserted, moved, dropped and edited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import DropKey, InsertItem, MoveItem, PatchOp
from crdt_board.document import Document
from crdt_board.identities import Field, content_of, drops_a_value
from crdt_board.item_matching import Item, items_to_move, match_items
from crdt_board.layout import ITEM_KEY
from crdt_board.wire_values import child_path


class Edit(Protocol):
    """Gives the operations for what differs inside the record at a path."""

    def __call__(self, record: str, *, before: Item, now: Item, target: Item) -> Sequence[PatchOp]: ...


def items_difference(
    document: Document,
    field: Field,
    path: str,
    *,
    before: list[Item],
    now: list[Item],
    target: list[Item],
    edit: Edit,
) -> Iterator[PatchOp]:
    """The operations that bring the list at ``path`` from ``now`` to where ``target`` differs from ``before``.

    What others inserted meanwhile stays, what they moved stays where it is unless the patch moves it too, and what they
    deleted stays deleted.
    """
    old, present = ({item[ITEM_KEY]: item for item in side} for side in (before, now))
    matched = match_items(before, target, lambda item: canonical_json(content_of(item, field.inside)))
    matched = [
        None if key in present and drops_a_value(field.inside, old[key], item) else key
        for key, item in zip(matched, target, strict=True)
    ]
    for key in old:
        if key in present and key not in matched:
            yield DropKey(field=path, key=key)
    moving = items_to_move(list(old), [key for key in matched if key])
    after: str | None = None
    for key, item in zip(matched, target, strict=True):
        place = document.items(path).place_of(after) if after else None
        if key is None:
            after, inserted = document.new_id(), after
            value = {name: wire for name, wire in item.items() if name != ITEM_KEY}
            yield InsertItem(field=path, key=after, after=inserted, after_place=place, value=value)
        elif key in present:
            if key in moving:
                yield MoveItem(field=path, key=key, after=after, after_place=place)
            yield from edit(child_path(path, key), before=old[key], now=present[key], target=item)
            after = key


def items_inserted(document: Document, path: str, items: Sequence[Item]) -> list[PatchOp]:
    """The operations that fill an empty list; items that have ids keep them."""
    operations: list[PatchOp] = []
    after: str | None = None
    for item in items:
        key = item.get(ITEM_KEY) or document.new_id()
        value = {name: wire for name, wire in item.items() if name != ITEM_KEY}
        operations.append(InsertItem(field=path, key=key, after=after, value=value))
        after = key
    return operations
