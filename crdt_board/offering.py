"""What is stored of a board, for those who wait for it to be loaded and can do with less.

Loading a large board holds up the event loop. Who can use what is stored as it is does so before, while nobody needs
the board itself.
"""

from __future__ import annotations

import asyncio

from crdt_board.loading import Offer, StoredBoard
from crdt_board.signals import Signal


class Offering:
    """Between the one who loads a board and those who wait for it. Made in a running event loop.

    Invariants:
        1. Who loads waits only until somebody wants the board, and for nobody who has wanted it.
        2. What was offered is not kept here once the board is loaded.
    """

    __slots__ = ("_stored", "_wanted")

    def __init__(self) -> None:
        self._stored: asyncio.Future[StoredBoard | None] | None = asyncio.get_running_loop().create_future()
        self._wanted = Signal()

    async def offer(self, stored: StoredBoard) -> None:
        """Show what is stored, and return when somebody wants the board."""
        assert self._stored is not None, "an offer of a board that is loaded"
        if not self._stored.done():
            self._stored.set_result(stored)
        await self._wanted.wait()

    async def use(self, look: Offer) -> None:
        """Await ``look`` with what is stored, before the board is loaded; not at all when it is loaded without an
        offer."""
        stored = None if self._stored is None else await asyncio.shield(self._stored)
        if stored is not None:
            await look(stored)

    def want(self) -> None:
        """The board is to be loaded now."""
        self._wanted.set()

    def end(self) -> None:
        """The board is loaded, or cannot be."""
        stored, self._stored = self._stored, None
        if stored is not None and not stored.done():
            stored.set_result(None)
