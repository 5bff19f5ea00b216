"""Cursors: how far somebody has handled the journal of a board, kept on the board itself.

A cursor moves in the entry of the commit that holds what was made of the entries before it: so each is handled once,
also when whoever follows dies in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.leases import LeaseClaim, check_claim
from crdt_board.coordination.records import Frozen, Name, Record
from crdt_board.errors import CursorMoved

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

Seq = Annotated[int, Field(ge=0, le=2**53 - 1)]


class CursorRecord(Record):
    """``seq`` is the newest journal entry that was handled, ``agent`` who did."""

    prefix: ClassVar[str] = "cursor"

    seq: int = 0
    agent: str = ""

    def in_fork(self) -> None:
        """A fork has a journal of its own, in which other entries have these numbers."""


class MoveCursor(Frozen):
    """Everything up to entry ``to`` was handled; ``expected`` is where the cursor is, 0 when there is none yet.

    ``lease`` is what the mover must have for it.
    """

    op: Literal["move_cursor"] = "move_cursor"
    name: Name
    expected: Seq
    to: Seq
    lease: LeaseClaim | None = None


class DropCursor(Frozen):
    """Forget how far somebody has come; nothing happens when there is no such cursor."""

    op: Literal["drop_cursor"] = "drop_cursor"
    name: Name


CursorOperation = MoveCursor | DropCursor


def move(draft: Draft, op: MoveCursor) -> JsonValue:
    """Raises CursorMoved when somebody else has moved it, unless it is where it shall be; LeaseLost as it says."""
    cursor = draft.get(CursorRecord, op.name) or CursorRecord(name=op.name)
    if cursor.seq == op.to:
        return None
    if op.lease is not None:
        check_claim(draft, op.lease)
    if cursor.seq != op.expected:
        raise CursorMoved(
            f"cursor {op.name} is at entry {cursor.seq}, where {cursor.agent or 'nobody'} moved it, "
            f"and not at {op.expected}",
            cursor=op.name,
            seq=cursor.seq,
        )
    draft.put(CursorRecord(name=op.name, seq=op.to, agent=draft.agent))
    return None


def drop(draft: Draft, op: DropCursor) -> JsonValue:
    cursor = draft.get(CursorRecord, op.name)
    if cursor is not None:
        draft.drop(cursor)
    return None
