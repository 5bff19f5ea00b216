"""The store in memory."""

from __future__ import annotations

from crdt_board.store.contract import Store
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """The store in memory keeps every promise of the contract but durability."""

    async def make_store(self) -> Store:
        return MemoryStore()

    async def open_second(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        return store.peer()
