"""Removing what has run out of scratch fields: an entry of the board's writer, which merges like any edit.

It deletes the items that are there. What somebody writes at the same time is another item, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crdt_board.document import Document
from crdt_board.fold import bounded_paths
from crdt_board.layout import KEYED_KINDS, FieldLayout
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.plans import Plan
from crdt_board.schema_changes import empty_field
from crdt_board.scratch_times import Due

EXPIRY_AUTHOR = "board"
"""The author of entries that remove what has run out."""


def plan_expiry(loaded: LoadedBoard, due: Sequence[Due], limits: Limits) -> tuple[Plan | None, list[Due]]:
    """Remove what is due from the document, a page of it, and plan the entry; None when none of it is there any more.

    Also returns what of ``due`` is gone when the plan is durable.
    """
    document = loaded.document
    gone: list[Due] = []
    stale: list[tuple[FieldLayout, Sequence[str]]] = []
    room = limits.scratch_page_keys
    for each in due:
        field = document.layout.by_name[each.field]
        keys = _stale_keys(document, field, each)
        page = keys[:room]
        room -= len(page)
        if len(page) == len(keys):
            gone.append(each)
        else:
            gone.append(replace(each, keys=page if each.keys else (), rest=False))
        stale.append((field, page))

    def remove() -> None:
        for field, keys in stale:
            if field.kind in KEYED_KINDS:
                content = document.map(field.name)
                for key in keys:
                    del content[key]
            elif keys:
                empty_field(document, field)

    if not any(keys for _, keys in stale):
        return None, gone
    update = document.capture(remove)
    paths = bounded_paths(document.take_touched(), limits.entry_paths_max)
    return Plan("expiry", EXPIRY_AUTHOR, None, [update], paths), gone


def _stale_keys(document: Document, field: FieldLayout, due: Due) -> list[str]:
    """The keys that are to go; of a field without keys its name, when it holds something."""
    if field.kind in KEYED_KINDS:
        content = document.map(field.name)
        if due.rest:
            return [key for key in content.keys() if key not in due.kept]  # noqa: SIM118 - a Yjs map is no mapping
        return [key for key in due.keys if key in content]
    if field.kind == "scalar":
        return [field.name] if field.name in document.state_map else []
    return [field.name] if len(document.root(field.name)) else []
