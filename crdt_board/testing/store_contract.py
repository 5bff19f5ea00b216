"""The conformance suite of stores: each promise of ``crdt_board.store.contract`` as a test.

A store passes when a subclass of `StoreContract` (and, if it is durable, of `DurableStoreContract`) passes::

    class TestMyStore(DurableStoreContract):
        async def make_store(self): return await MyStore.open(self.new_place())
        async def open_second(self, store): return await MyStore.open(store.place)

The tests are coroutines and need pytest: run them with pytest-asyncio in ``asyncio_mode=auto``, or mark the subclass.
"""

from __future__ import annotations

import asyncio

import pytest

from crdt_board.errors import StoreUnavailable
from crdt_board.store.contract import Appended
from crdt_board.testing.journals import (
    EPOCH,
    JournalWriter,
    key,
    make_board,
    move_to,
    read_all,
    schema,
    snapshot,
)
from crdt_board.testing.store_bases import BaseTests
from crdt_board.testing.store_boards import BoardTests
from crdt_board.testing.store_journals import JournalTests
from crdt_board.testing.store_tests import DEADLINE_SECONDS

__all__ = ["DEADLINE_SECONDS", "DurableStoreContract", "StoreContract"]


class StoreContract(BoardTests, JournalTests, BaseTests):
    """What every store promises. Subclass it and implement `make_store`, and `open_second`."""

    async def test_another_process_is_noticed(self) -> None:
        """A waiter is woken when another store on the same boards appends, also when it did so before the wait."""
        async with self.opened_twice() as (store, other), asyncio.timeout(DEADLINE_SECONDS):
            writer = JournalWriter(await make_board(store))
            waiter = asyncio.create_task(store.wait_for_others())
            await other.append([writer.updates(b"while it waits")])
            await waiter
            await other.append([writer.updates(b"before it waits")])
            await store.wait_for_others()

    async def test_closing_is_idempotent(self) -> None:
        """Closing again, also at the same moment, changes nothing."""
        async with self.opened() as store:
            await asyncio.gather(store.close(), store.close())
            await store.close()

    async def test_a_closed_store_is_unavailable(self) -> None:
        """Every call after closing raises `StoreUnavailable`."""
        async with self.opened() as store:
            head = await make_board(store)
            await store.close()
            calls = [
                store.now_ms(),
                store.head("job"),
                store.create("job", epoch=EPOCH, created_ms=1),
                store.boards(),
                store.append([JournalWriter(head).updates(b"x")]),
                store.entries("job", after=0, limit=1),
                store.checkpoints("job"),
                store.checkpoint("job", 1),
                store.keys("job", ["k"]),
                store.schemas("job"),
                store.add_schema("job", schema(1)),
                store.take_client_ids("job", 1),
                store.return_client_ids("job", [2**40], epoch=EPOCH),
                store.save_snapshot(snapshot("job", 1)),
                store.snapshots("job"),
                store.snapshot_seqs("job"),
                store.base("job"),
                store.keyed_versions("job", at_most=1),
                store.keep_checkpoints("job", [1]),
                store.move_base(move_to(1)),
                store.drop_squashed("job", limit=1),
                store.give_back(limit_bytes=1),
                store.wait_for_others(),
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(result) for result in results] == [StoreUnavailable] * len(calls)

    async def test_closing_ends_pending_calls(self) -> None:
        """Calls that are under way when the store closes end, with an answer or with `StoreUnavailable`."""
        async with self.opened() as store, asyncio.timeout(DEADLINE_SECONDS):
            writer = JournalWriter(await make_board(store))
            waiter = asyncio.create_task(store.wait_for_others())
            append = asyncio.create_task(store.append([writer.updates(b"x")]))
            await asyncio.sleep(0)
            await store.close()
            (answer,) = await asyncio.gather(append, return_exceptions=True)
            assert answer == [Appended(seq=1)] or isinstance(answer, StoreUnavailable)
            with pytest.raises(StoreUnavailable):
                await waiter

    async def test_the_clock_of_the_store(self) -> None:
        """The store's clock is one for all who have its boards open, and does not go back."""
        async with self.opened_twice() as (first, second):
            hours = [await first.now_ms(), await second.now_ms(), await first.now_ms()]
            assert hours == sorted(hours)
            assert hours[0] > 0


class DurableStoreContract(StoreContract):
    """What a store promises in addition when its boards outlive it."""

    async def test_everything_is_there_after_reopening(self) -> None:
        """What was answered before closing is there, and equal, after opening again."""
        store = await self.make_store()
        try:
            writer = JournalWriter(await make_board(store))
            await store.append([writer.updates(b"x")])
            await store.append([writer.commit("plan", key=key("k"))])
            await store.add_schema("job", schema(1))
            await store.return_client_ids("job", [2**40, 2**41], epoch=EPOCH)
            assert len(await store.take_client_ids("job", 1)) == 1
            await store.keep_checkpoints("job", [1])
            await store.move_base(move_to(2))
            await store.save_snapshot(snapshot("job", 2))
            before = await read_all(store)
        finally:
            await store.close()
        again = await self.open_second(store)
        try:
            assert await read_all(again) == before
            assert len(await again.take_client_ids("job", 16)) == 1
            assert await again.append([writer.updates(b"more")]) == [Appended(seq=3)]
        finally:
            await again.close()
