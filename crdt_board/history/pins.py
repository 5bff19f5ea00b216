"""What needs a version of a board to stay, beside the policy: the contract, and the pins that there are.

A pin is a function over the store that says which versions of a board something needs, and what that is. Whoever keeps
a reference to a version adds one to `PINS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping

from pydantic import JsonValue

from crdt_board.checkpoints import Checkpoint, parse_pointer
from crdt_board.coordination.approvals import ApprovalRecord
from crdt_board.coordination.records import stored
from crdt_board.loading import load_board
from crdt_board.schemas import BoardSchemas
from crdt_board.store.contract import BoardHead, Store

_PAGE_CHECKPOINTS = 500

Pin = Callable[[Store, BoardHead], Awaitable[Mapping[int, str]]]
"""The versions of the board that must stay, each with the reason as a few words. Reads only; may name versions that are
not there."""


async def needed_now(store: Store, head: BoardHead) -> Mapping[int, str]:
    """Versions whose pointers stand in what the board holds now, tasks and the like included, and those to which
    pending approvals are bound."""
    schemas = BoardSchemas(store, head.board_id, await store.schemas(head.board_id))
    document = (await load_board(store, head, schemas.newest)).document
    records = document.ledger.everything()
    content: JsonValue = [document.wire_state(), *(stored(record) for record in records.values())]
    pointed_at = dict.fromkeys(pointers_in(content, head.board_id), "a pointer to it stands on the board")
    asked_at = {
        approval.version: f"approval {approval.name} is pending, and bound to it"
        for approval in document.ledger.all(ApprovalRecord).values()
        if approval.decision is None and not approval.forked
    }
    return {**pointed_at, **asked_at}


async def of_relatives(store: Store, head: BoardHead) -> Mapping[int, str]:
    """Versions that forks of the board, or the board that it was forked from, need to be merged with it.

    Those are where they were alike: where a fork begins, and the last merge in each direction.
    """
    found: dict[int, str] = {}
    relatives = [parse_pointer(head.parent).board_id] if head.parent else []
    forks: list[BoardHead] = []
    while page := await store.forks(head.board_id, after=forks[-1].board_id if forks else ""):
        forks += page
    for fork in forks:
        found[parse_pointer(fork.parent).version] = f"board {fork.board_id} was forked from it"
        relatives.append(fork.board_id)
    for relative in relatives:
        there = await _last_merge(store, relative, head.board_id)
        if there is not None and there.merged_from:
            found.setdefault(parse_pointer(there.merged_from).version, f"board {relative} has merged it")
        here = await _last_merge(store, head.board_id, relative)
        if here is not None:
            found.setdefault(here.version, f"it has merged board {relative}")
    return found


async def _last_merge(store: Store, board_id: str, source_id: str) -> Checkpoint | None:
    """The newest version of a board that merged the other one."""
    before: int | None = None
    while page := await store.checkpoints(board_id, before=before, limit=_PAGE_CHECKPOINTS):
        for made in page:
            if made.merged_from and parse_pointer(made.merged_from).board_id == source_id:
                return made
        before = page[-1].version
    return None


PINS: tuple[Pin, ...] = (of_relatives, needed_now)


async def pins_of(store: Store, head: BoardHead) -> dict[int, str]:
    """The versions of a board that something needs, and what that is."""
    found: dict[int, str] = {}
    for pin in PINS:
        found = {**await pin(store, head), **found}
    return found


def handed_over(checkpoints: Iterable[Checkpoint]) -> dict[int, str]:
    """Versions whose pointers stand in what these checkpoints hand to the next agent."""
    found: dict[int, str] = {}
    for made in checkpoints:
        content: JsonValue = [made.output, made.handoff, made.trace]
        for version in pointers_in(content, made.board_id):
            found[version] = f"version {made.version} hands over a pointer to it"
    return found


def pointers_in(content: JsonValue, board_id: str) -> list[int]:
    """The versions of a board to which texts inside ``content`` point."""
    pointer = rf"board:{re.escape(board_id)}@([1-9][0-9]{{0,15}})#[0-9a-f]{{16}}"
    return [int(version) for version in re.findall(pointer, json.dumps(content, ensure_ascii=False))]
