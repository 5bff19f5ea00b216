"""What a replica does when it learns of a schema of its board."""

from __future__ import annotations

from crdt_board.errors import SchemaMismatch
from crdt_board.layout import Layout, lost_by
from crdt_board.placement import as_on_board
from crdt_board.replica import Replica


def follow_schema(replica: Replica, model: Layout | None, board: Layout | None, number: int) -> None:
    """Take over the board's schema ``number``: with a ``model`` where it keeps its fields, and without one all of it.

    Raises:
        SchemaMismatch: the replica has no model, and its edits that are not durable were made to fields that the board
            does not have any more.
    """
    if board is None:
        return
    replica.schema_version = number
    if model is not None:
        replica.declare(as_on_board(model, board))
        return
    lost = lost_by(replica.document.layout, board)
    if lost and replica.pending:
        raise SchemaMismatch(
            f"the board was migrated to schema {number} while {len(replica.pending)} edits were not durable yet: "
            f"{'; '.join(lost)}; open it again and repeat them",
            fields=lost,
            board_schema=number,
        )
    replica.declare(board)
