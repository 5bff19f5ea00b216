"""What the parts of the conformance suite of stores share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from crdt_board.store.contract import Store

DEADLINE_SECONDS = 30.0


class StoreTests:
    """What the parts of the suite share; `StoreContract` tells what to implement."""

    async def make_store(self) -> Store:
        """A new, open, empty store."""
        raise NotImplementedError

    async def open_second(self, store: Store) -> Store:
        """Another open store on the boards of ``store``, as another process would open it."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Store]:
        """A new store that is closed at the end."""
        store = await self.make_store()
        try:
            yield store
        finally:
            await store.close()

    @asynccontextmanager
    async def opened_twice(self) -> AsyncIterator[tuple[Store, Store]]:
        """Two stores on the same boards, both closed at the end."""
        async with self.opened() as store:
            second = await self.open_second(store)
            try:
                yield store, second
            finally:
                await second.close()
