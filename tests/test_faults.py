"""The store with faults on order, which other tests rely on."""

from __future__ import annotations

import asyncio

import pytest

from crdt_board.errors import StoreUnavailable
from crdt_board.store.contract import Appended, HeadMoved, Store
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.faults import FaultyStore
from crdt_board.testing.journals import JournalWriter, make_board
from crdt_board.testing.store_contract import StoreContract


class TestFaultyStoreWithoutFaults(StoreContract):
    """As long as nothing is ordered, a faulty store is a store like the one inside it."""

    async def make_store(self) -> Store:
        return FaultyStore(MemoryStore())

    async def open_second(self, store: Store) -> Store:
        assert isinstance(store, FaultyStore)
        assert isinstance(store.inner, MemoryStore)
        return FaultyStore(store.inner.peer())


async def test_a_fault_before_the_call_leaves_the_store_untouched() -> None:
    """A fault ``before`` raises once, and nothing was written."""
    store = FaultyStore(MemoryStore())
    request = JournalWriter(await make_board(store)).updates(b"x")
    store.fail("append")
    with pytest.raises(StoreUnavailable, match="before call 1 of append"):
        await store.append([request])
    assert await store.append([request]) == [Appended(seq=1)]


async def test_a_fault_after_the_call_loses_the_answer_only() -> None:
    """A fault ``after`` raises though everything was written."""
    store = FaultyStore(MemoryStore())
    request = JournalWriter(await make_board(store)).updates(b"x")
    store.fail("append", when="after")
    with pytest.raises(StoreUnavailable, match="after call 1 of append"):
        await store.append([request])
    assert await store.append([request]) == [HeadMoved(head=await store.head("job"))]
    assert len(await store.entries("job", after=0, limit=9)) == 1


async def test_a_fault_hits_the_call_that_was_named() -> None:
    """With ``call`` the fault waits for that call of that method."""
    store = FaultyStore(MemoryStore())
    store.fail("head", call=3)
    assert [await store.head("job"), await store.boards(), await store.head("job")] == [None, [], None]
    with pytest.raises(StoreUnavailable):
        await store.head("job")
    assert await store.head("job") is None
    assert store.calls == {"head": 4, "boards": 1}


async def test_a_breakdown_lasts_until_the_repair() -> None:
    """Methods that broke down fail on every call; the others and the time after the repair are not touched."""
    store = FaultyStore(MemoryStore())
    store.break_down("head", "append")
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.head("job")
    assert await store.boards() == []
    store.repair()
    assert await store.head("job") is None


async def test_a_held_call_waits_for_its_release() -> None:
    """A held call is seen to arrive, does not go on before its release, and then answers as ever."""
    store = FaultyStore(MemoryStore())
    gate = store.hold("create")
    call = asyncio.create_task(make_board(store))
    await gate.reached.wait()
    assert await store.head("job") is None
    assert not call.done()
    gate.release()
    assert await call == await store.head("job")


async def test_a_call_can_be_held_after_it_took_place() -> None:
    """Held ``after``, the call has taken place and its answer waits."""
    store = FaultyStore(MemoryStore())
    gate = store.hold("create", when="after")
    call = asyncio.create_task(make_board(store))
    await gate.reached.wait()
    assert await store.head("job") is not None
    assert not call.done()
    gate.release()
    await call
