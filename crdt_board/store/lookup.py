"""Finding a board that must be there."""

from __future__ import annotations

from crdt_board.errors import NotFound
from crdt_board.store.appends import deleted
from crdt_board.store.contract import BoardHead, Store


async def existing_head(store: Store, board_id: str) -> BoardHead:
    """The head of a board.

    Raises:
        NotFound: there never was such a board.
        BoardDeleted: there was.
        StoreUnavailable: the store did not answer.
    """
    head = await store.head(board_id)
    if head is not None:
        return head
    for tombstone in await store.tombstones(board_id):
        raise deleted(tombstone)
    raise NotFound(f"there is no board {board_id}", board_id=board_id)
