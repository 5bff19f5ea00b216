"""Forks: a new board that starts at a checkpoint of another one, and the way back. What is decided here is pure.

A fork has a journal, an epoch and client ids of its own. Its first entry is a commit that holds the parent's document
with the ids of all its items, so that what both sides write afterwards merges like concurrent edits.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, encode_checkpoint, make_checkpoint
from crdt_board.coordinating import to_begin_anew
from crdt_board.document import Document
from crdt_board.errors import VersionConflict
from crdt_board.fold import bounded_paths
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import make_entry, pack_updates
from crdt_board.limits import Limits
from crdt_board.store.contract import Append, NewBoard, SchemaRecord
from crdt_board.wire_values import same_wire

State = dict[str, JsonValue]
"""Fields in wire form."""

FORK_STEP = "fork"
"""The step of a fork's first version."""


def new_epoch() -> str:
    """What tells a board from every other, also from one that had its name."""
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class ForkContent:
    """What a fork begins with: all of a document as one update, and the names of the fields that hold something.

    Nobody is at work there yet: leases are free, tasks that were claimed and approvals that were pending are open.
    """

    update: bytes
    fields: tuple[str, ...]

    @classmethod
    def of(cls, document: Document) -> ForkContent:
        """Of a document that stays as it is."""
        fields = document.written_fields()
        changes = to_begin_anew(document)
        if changes:
            copy = Document(document.layout, strays=True)
            copy.apply_or_raise([document.encode()])
            copy.capture(lambda: copy.write_records(changes))
            return cls(copy.encode(), fields)
        return cls(document.encode(), fields)


def new_fork(
    content: ForkContent,
    parent: Checkpoint,
    schemas: Sequence[SchemaRecord],
    *,
    board_id: str,
    epoch: str,
    agent: str,
    now_ms: int,
    limits: Limits,
) -> NewBoard:
    """A board under ``board_id`` that begins with ``content``, which is the state at ``parent``."""
    made = make_checkpoint(
        board_id=board_id,
        epoch=epoch,
        version=1,
        seq=1,
        parent_hash=NO_CHECKPOINT,
        checksum=parent.checksum,
        agent=agent,
        step=FORK_STEP,
        schema_version=parent.schema_version,
        time_ms=now_ms,
        fields=content.fields,
        forked_from=parent.pointer,
    )
    entry = make_entry(
        NO_ENTRY,
        board_id=board_id,
        epoch=epoch,
        seq=1,
        kind="commit",
        author=agent,
        time_ms=now_ms,
        paths=bounded_paths(made.fields, limits.entry_paths_max),
        checkpoint=encode_checkpoint(made),
        payload=pack_updates([content.update]),
    )
    beginning = Append(board_id=board_id, epoch=epoch, expected_seq=0, entries=[entry], checkpoints=[made])
    return NewBoard(
        beginning=beginning,
        created_ms=now_ms,
        parent=parent.pointer,
        schemas=[schema for schema in schemas if schema.number <= parent.schema_version],
    )


def decided_on_both_sides(bases: Sequence[State], ours: State, theirs: State, strict: Sequence[str]) -> list[str]:
    """The strict fields that both sides have changed since they were alike, to different values, in alphabetical order.

    ``bases`` are the states in which they were.
    """

    def differs(one: State, other: State, name: str) -> bool:
        return (name in one) != (name in other) or not same_wire(one.get(name), other.get(name))

    def changed(side: State, name: str) -> bool:
        return all(differs(base, side, name) for base in bases)

    return sorted(
        name for name in strict if differs(ours, theirs, name) and changed(ours, name) and changed(theirs, name)
    )


def decision_conflict(names: Sequence[str], fork_id: str, *, version: int, author: str, seq: int) -> VersionConflict:
    """The error for strict fields that a fork and its parent have decided differently."""
    return VersionConflict(
        f"{', '.join(names)} was decided differently on this board and on its fork {fork_id}; "
        "commit one decision on both, then merge again",
        current_version=version,
        author=author,
        changed=list(names),
        seq=seq,
    )
