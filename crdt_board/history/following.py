"""Bringing a board that was loaded at one entry forward to later ones."""

from __future__ import annotations

from collections import deque

from crdt_board.errors import BoardCorrupt
from crdt_board.journal import Entry
from crdt_board.loading import LoadedBoard
from crdt_board.store.contract import Store

_PAGE_ENTRIES_MAX = 500


class Follower:
    """Owns a loaded board. Reads the journal in pages, since a version is often one entry."""

    def __init__(self, store: Store, board_id: str, loaded: LoadedBoard) -> None:
        self.loaded = loaded
        self._store = store
        self._board_id = board_id
        self._read: deque[Entry] = deque()
        """What follows on the board as it is loaded."""
        self._page_entries = 1

    async def follow(self, seq: int) -> bool:
        """Bring the board to entry ``seq``; False when that does not follow, and it must be loaded.

        What lies between was compacted then, or is not what was written: loading says which.
        """
        while self.loaded.fold.seq < seq:
            if not self._read:
                await self._read_on(seq - self.loaded.fold.seq)
            entries: list[Entry] = []
            while self._read and self._read[0].seq <= seq:
                entries.append(self._read.popleft())
            try:
                self.loaded.take_in(entries)
            except BoardCorrupt:
                return False
            if not entries:
                return False
        return self.loaded.fold.seq == seq

    async def _read_on(self, wanted: int) -> None:
        """The next entries: those that are wanted, and more each time, since more is wanted after them."""
        self._page_entries = min(max(wanted, 2 * self._page_entries), _PAGE_ENTRIES_MAX)
        after = self.loaded.fold.seq
        self._read.extend(await self._store.entries(self._board_id, after=after, limit=self._page_entries))
