"""The conformance suite of stores: each promise of ``crdt_board.store.contract`` as a test.

A store passes when a subclass of `StoreContract` (and, if it is durable, of `DurableStoreContract`) passes::

    class TestMyStore(DurableStoreContract):
        async def make_store(self): return await MyStore.open(self.new_place())
        async def open_second(self, store): return await MyStore.open(store.place)

The tests are coroutines and need pytest: run them with pytest-asyncio in ``asyncio_mode=auto``, or mark the subclass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, decode_checkpoint, is_intact
from crdt_board.clock import ManualClock
from crdt_board.errors import BoardDeleted, NotFound, StoreUnavailable
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import verify_chain
from crdt_board.store.contract import Append, Appended, BoardHead, HeadMoved, NewBoard, Store, StoredSizes
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.journals import (
    EPOCH,
    JournalWriter,
    append_patiently,
    base,
    beginning,
    journal_of_commits,
    key,
    make_board,
    move_to,
    payloads,
    read_all,
    schema,
    snapshot,
    tombstone,
)

DEADLINE_SECONDS = 30.0


class StoreContract:
    """What every store promises. Subclass it and implement `make_store`."""

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

    # Boards

    async def test_a_new_board_is_empty(self) -> None:
        """A board that was just made has seq 0, version 0 and the hashes from which both chains begin."""
        async with self.opened() as store:
            head = await store.create("job", epoch=EPOCH, created_ms=7)
            assert head == BoardHead(
                board_id="job",
                epoch=EPOCH,
                seq=0,
                hash=NO_ENTRY,
                version=0,
                checkpoint_hash=NO_CHECKPOINT,
                created_ms=7,
            )
            assert await store.head("job") == head

    async def test_creating_again_changes_nothing(self) -> None:
        """Making a board that is there returns its head as it is, entries, epoch and all."""
        async with self.opened() as store:
            await store.append([JournalWriter(await make_board(store)).commit("plan")])
            head = await store.head("job")
            assert await store.create("job", epoch="another", created_ms=99) == head
            assert await store.head("job") == head

    async def test_callers_who_create_at_once_get_one_board(self) -> None:
        """Twenty callers who make one board at the same moment all get the same head."""
        async with self.opened() as store:
            calls = [store.create("job", epoch=f"epoch-{number}", created_ms=number) for number in range(20)]
            heads = await asyncio.gather(*calls)
            assert len(set(heads)) == 1

    async def test_reading_an_unknown_board_creates_nothing(self) -> None:
        """W11: every read of a board that is not there finds nothing, and it is still not there afterwards."""
        async with self.opened() as store:
            for _ in range(50):
                assert await store.head("ghost") is None
                assert await store.entries("ghost", after=0, limit=10) == []
                assert await store.checkpoints("ghost") == []
                assert await store.checkpoint("ghost", 1) is None
                assert await store.keys("ghost", ["k"]) == {}
                assert await store.schemas("ghost") == []
                assert await store.take_client_ids("ghost", 16) == []
                assert await store.snapshots("ghost") == []
                assert await store.snapshot_seqs("ghost") == []
                assert await store.base("ghost") is None
            assert await store.boards() == []

    async def test_writing_to_an_unknown_board_is_refused(self) -> None:
        """A write to a board that is not there creates nothing and says so."""
        async with self.opened() as store:
            ghost = replace(await make_board(store), board_id="ghost")
            assert await store.append([JournalWriter(ghost).updates(b"x")]) == [HeadMoved(head=None)]
            with pytest.raises(NotFound):
                await store.add_schema("ghost", schema(1))
            with pytest.raises(NotFound):
                await store.return_client_ids("ghost", [2**40], epoch=EPOCH)
            with pytest.raises(NotFound):
                await store.save_snapshot(snapshot("ghost", 1))
            with pytest.raises(NotFound):
                await store.keep_checkpoints("ghost", [1])
            with pytest.raises(NotFound):
                await store.drop_squashed("ghost", limit=1)
            assert await store.head("ghost") is None

    async def test_boards_are_listed_in_pages_by_code_point(self) -> None:
        """Boards come in the order of their ids by code point, each once, however small the pages."""
        names = ["a", "ab", "a_b", "a.b", "a-b", "a~", "B", "b", "Z", "0", "a:1"]
        async with self.opened() as store:
            for name in names:
                await make_board(store, name)
            found: list[str] = []
            while page := await store.boards(after=found[-1] if found else "", limit=2):
                assert len(page) <= 2
                found += [head.board_id for head in page]
            assert found == sorted(names)
            assert await store.boards(limit=0) == []

    async def test_look_alike_boards_never_mix(self) -> None:
        """H4: ids that are prefixes or patterns of each other name different boards in every method."""
        names = ["a", "ab", "a_b", "a%", "A"]
        async with self.opened() as store:
            for name in names:
                writer = JournalWriter(await make_board(store, name))
                await store.append([writer.commit(name, name.encode(), key=key(name))])
                await store.add_schema(name, schema(1, name))
                await store.save_snapshot(snapshot(name, 1))
            for name in names:
                assert payloads(await store.entries(name, after=0, limit=10)) == [name.encode()]
                assert [made.step for made in await store.checkpoints(name)] == [name]
                assert list(await store.keys(name, names)) == [name]
                assert await store.schemas(name) == [schema(1, name)]
                assert await store.snapshots(name) == [snapshot(name, 1)]

    # Appending

    async def test_an_append_moves_the_head(self) -> None:
        """After an append the head row is the last entry and the last checkpoint of it."""
        async with self.opened() as store:
            head = await make_board(store)
            writer = JournalWriter(head)
            first, second = writer.updates(b"one", b"two"), writer.commit("plan", b"three")
            assert await store.append([first]) == [Appended(seq=2)]
            assert await store.append([second]) == [Appended(seq=3)]
            assert await store.head("job") == replace(
                head,
                seq=3,
                hash=second.entries[-1].hash,
                version=1,
                checkpoint_hash=second.checkpoints[-1].hash,
            )

    async def test_an_update_leaves_the_version(self) -> None:
        """Entries without a commit leave version and checkpoint hash of the head as they were."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            commit = writer.commit("plan")
            await store.append([commit])
            await store.append([writer.updates(b"x")])
            head = await store.head("job")
            assert head is not None
            assert (head.seq, head.version, head.checkpoint_hash) == (2, 1, commit.checkpoints[0].hash)

    async def test_entries_come_back_as_they_were_written(self) -> None:
        """Every attribute of an entry is read back as it was written, and the chain verifies."""
        async with self.opened() as store:
            head = await make_board(store)
            writer = JournalWriter(head, author="Ada Lovelace 🖋")
            written = [
                writer.updates(b"", bytes(range(256)), b"x" * 100_000),
                writer.commit("draft § 1", b"y"),
            ]
            for request in written:
                await store.append([request])
            found = await store.entries("job", after=0, limit=100)
            assert found == [entry for request in written for entry in request.entries]
            assert verify_chain(head.hash, head.seq, found) == (written[-1].entries[-1].hash, 4)

    async def test_a_stale_seq_is_refused_with_the_head(self) -> None:
        """V1: of two writers at one head the second writes nothing and is told where the head is."""
        async with self.opened() as store:
            head = await make_board(store)
            await store.append([JournalWriter(head).updates(b"first")])
            refused = await store.append([JournalWriter(head).commit("late", b"second", key=key("k"))])
            assert refused == [HeadMoved(head=await store.head("job"))]
            assert payloads(await store.entries("job", after=0, limit=10)) == [b"first"]
            assert await store.checkpoints("job") == []
            assert await store.keys("job", ["k"]) == {}

    async def test_a_seq_ahead_of_the_head_is_refused(self) -> None:
        """An append after an entry that is not there leaves no gap behind."""
        async with self.opened() as store:
            head = await make_board(store)
            ahead = JournalWriter(replace(head, seq=5)).updates(b"x")
            assert await store.append([ahead]) == [HeadMoved(head=head)]
            assert await store.entries("job", after=0, limit=10) == []

    async def test_another_epoch_is_refused(self) -> None:
        """An append for a board that was made anew since is refused, though the seq fits."""
        async with self.opened() as store:
            head = await make_board(store)
            stale = JournalWriter(replace(head, epoch="older")).updates(b"x")
            assert await store.append([stale]) == [HeadMoved(head=head)]
            assert await store.entries("job", after=0, limit=10) == []

    async def test_one_refusal_does_not_hinder_the_others(self) -> None:
        """In a group commit each request is answered in its place, and the good ones are written."""
        async with self.opened() as store:
            heads = [await make_board(store, name) for name in ("a", "b", "c")]
            await store.append([JournalWriter(heads[1]).updates(b"earlier")])
            results = await store.append([JournalWriter(head).updates(b"x", b"y") for head in heads])
            assert results == [Appended(seq=2), HeadMoved(head=await store.head("b")), Appended(seq=2)]
            assert payloads(await store.entries("a", after=0, limit=9)) == [b"x", b"y"]
            assert payloads(await store.entries("b", after=0, limit=9)) == [b"earlier"]
            assert payloads(await store.entries("c", after=0, limit=9)) == [b"x", b"y"]

    async def test_an_empty_group_is_no_error(self) -> None:
        """Appending nothing answers nothing."""
        async with self.opened() as store:
            assert await store.append([]) == []

    async def test_one_winner_for_each_seq(self) -> None:
        """V1: many writers who race, each again after it lost, leave a gapless chain with all that was accepted."""
        async with self.opened_twice() as stores:
            await make_board(stores[0])
            await asyncio.gather(*(append_patiently(stores[n % 2], f"writer-{n}", 5) for n in range(8)))
            found = await stores[0].entries("job", after=0, limit=1000)
            verify_chain(NO_ENTRY, 0, found)
            assert sorted(payloads(found)) == sorted(f"writer-{n} {i}".encode() for n in range(8) for i in range(5))

    async def test_a_frozen_clock_does_not_disturb_the_order(self) -> None:
        """M10: a thousand commits under a frozen clock keep their order."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store), clock=ManualClock(1))
            for number in range(1000):
                await store.append([writer.commit(f"step {number}", str(number).encode())])
            found = await store.entries("job", after=0, limit=2000)
            assert payloads(found) == [str(number).encode() for number in range(1000)]
            verify_chain(NO_ENTRY, 0, found)
            made = await store.checkpoints("job", limit=2000)
            assert [checkpoint.step for checkpoint in made] == [f"step {number}" for number in reversed(range(1000))]

    async def test_a_cancelled_append_leaves_the_store_consistent(self) -> None:
        """A cancelled append took place wholly or not at all, and the next one works."""
        async with self.opened() as store:
            head = await make_board(store)
            for yields in range(12):
                request = JournalWriter(head).commit("step", b"x")
                call = asyncio.create_task(store.append([request]))
                for _ in range(yields):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                probe = await store.append([JournalWriter(head).commit("after", b"y")])
                found = await store.head("job")
                assert found is not None
                assert found.seq == found.version == head.seq + 1
                assert probe in ([Appended(seq=found.seq)], [HeadMoved(head=found)])
                head = found
            verify_chain(NO_ENTRY, 0, await store.entries("job", after=0, limit=100))

    async def test_what_was_handed_over_can_be_changed(self) -> None:
        """M7: a list that was handed to the store or returned by it and is changed later changes nothing."""
        async with self.opened() as store:
            request = JournalWriter(await make_board(store)).updates(b"x")
            handed = list(request.entries)
            await store.append([replace(request, entries=handed)])
            handed.clear()
            (await store.entries("job", after=0, limit=10)).clear()
            (await store.schemas("job")).append(schema(1))
            assert len(await store.entries("job", after=0, limit=10)) == 1
            assert await store.schemas("job") == []

    # Reading

    async def test_entries_are_read_in_pages(self) -> None:
        """Pages ascend, begin after ``after`` and hold at most ``limit``; bounds outside the journal are fine."""
        async with self.opened() as store:
            await store.append([JournalWriter(await make_board(store)).updates(*(bytes([n]) for n in range(10)))])
            await store.append([JournalWriter(await make_board(store, "next")).updates(b"x")])

            async def seqs(after: int, limit: int) -> list[int]:
                return [entry.seq for entry in await store.entries("job", after=after, limit=limit)]

            assert await seqs(0, 3) == [1, 2, 3]
            assert await seqs(3, 3) == [4, 5, 6]
            assert await seqs(8, 100) == [9, 10]
            assert await seqs(10, 5) == []
            assert await seqs(2**70, 5) == []
            assert await seqs(-5, 2) == [1, 2]
            assert await seqs(0, 0) == []
            assert await seqs(0, -1) == []
            assert await seqs(0, 2**70) == list(range(1, 11))

    async def test_checkpoints_come_newest_first(self) -> None:
        """Checkpoints come newest first, below ``before``, at most ``limit``, and as the commits made them."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            made: list[Checkpoint] = []
            for number in range(5):
                request = writer.commit(f"step {number}")
                await store.append([request])
                made += request.checkpoints
            assert await store.checkpoints("job") == made[::-1]
            assert await store.checkpoints("job", before=4, limit=2) == [made[2], made[1]]
            assert await store.checkpoints("job", before=1) == []
            assert await store.checkpoints("job", before=2**70, limit=1) == [made[4]]
            assert await store.checkpoints("job", limit=0) == []
            assert all(is_intact(checkpoint) for checkpoint in await store.checkpoints("job"))
            entries = await store.entries("job", after=0, limit=10)
            assert [decode_checkpoint(entry.checkpoint) for entry in entries] == made

    async def test_one_checkpoint_by_its_version(self) -> None:
        """A version names one checkpoint; one that was never made names none."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            first, second = writer.commit("one"), writer.commit("two")
            await store.append([first])
            await store.append([second])
            assert await store.checkpoint("job", 1) == first.checkpoints[0]
            assert await store.checkpoint("job", 2) == second.checkpoints[0]
            for version in (0, -1, 3, 2**70):
                assert await store.checkpoint("job", version) is None

    async def test_used_keys_are_found(self) -> None:
        """V4: exactly the asked keys that an accepted commit of this board used are found, with what they led to."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            await store.append([writer.commit("one", key=key("k1"))])
            await store.append([writer.commit("two", key=key("ключ", version=2))])
            found = await store.keys("job", ["ключ", "k1", "k", "K1", "unused"])
            assert found == {"k1": key("k1"), "ключ": key("ключ", version=2)}
            assert await store.keys("job", []) == {}
            assert len(await store.keys("job", [str(number) for number in range(5000)] + ["k1"])) == 1

    async def test_a_read_sees_every_answered_write(self) -> None:
        """What was answered is seen by every later read of every store on these boards."""
        async with self.opened_twice() as (first, second):
            writer = JournalWriter(await make_board(first))
            for number in range(1, 21):
                await first.append([writer.commit("step")])
                for store in (first, second):
                    head = await store.head("job")
                    assert head is not None
                    assert head.seq == number
                    assert len(await store.entries("job", after=0, limit=100)) == number

    # Forks and deletion

    async def test_a_board_can_begin_with_a_history(self) -> None:
        """Entries, checkpoints, keys, schemas and parent are there at once; a name that is taken is refused whole."""
        async with self.opened_twice() as (store, second):
            parent = await make_board(store)
            await store.append([JournalWriter(parent).commit("one")])
            (made,) = await store.checkpoints("job")
            board = beginning("fork", parent=made.pointer)
            assert await store.create_with(board)
            head = await second.head("fork")
            assert head is not None
            assert (head.seq, head.version, head.parent) == (2, 1, made.pointer)
            assert await second.entries("fork", after=0, limit=10) == list(board.beginning.entries)
            assert await second.checkpoints("fork") == list(board.beginning.checkpoints)
            assert await second.keys("fork", ["k"]) == {"k": key("k")}
            assert await second.used_keys("fork") == [key("k")]
            assert await second.used_keys("fork", after="k") == []
            assert await second.schemas("fork") == [schema(1)]
            assert not await store.create_with(beginning("job", parent=""))
            assert await second.schemas("job") == []
            assert [each.board_id for each in await second.forks("job")] == ["fork"]
            assert await second.forks("fork") == []

    async def test_forks_are_listed_in_pages(self) -> None:
        """Forks come in the order of their ids; boards with look-alike names have their own."""
        async with self.opened() as store:
            await store.append([JournalWriter(await make_board(store)).commit("one")])
            await store.append([JournalWriter(await make_board(store, "job1")).commit("one")])
            (made,), (other,) = await store.checkpoints("job"), await store.checkpoints("job1")
            for name in ("c", "a", "b"):
                assert await store.create_with(beginning(name, parent=made.pointer))
            assert await store.create_with(beginning("x", parent=other.pointer))
            assert [each.board_id for each in await store.forks("job", limit=2)] == ["a", "b"]
            assert [each.board_id for each in await store.forks("job", after="b")] == ["c"]
            assert [each.board_id for each in await store.forks("job1")] == ["x"]

    async def test_an_empty_board_can_be_made_with_a_schema(self) -> None:
        """A beginning may have no entries."""
        async with self.opened() as store:
            begin = beginning("job", parent="")
            empty = replace(begin.beginning, entries=[], checkpoints=[], keys=[])
            assert await store.create_with(replace(begin, beginning=empty))
            head = await store.head("job")
            assert head is not None
            assert (head.seq, await store.schemas("job")) == (0, [schema(1)])

    async def test_a_deleted_board_is_gone_and_stays_so(self) -> None:
        """Nothing of it is read any more, nothing can be appended, and its name is free on request only."""
        async with self.opened_twice() as (store, second):
            head = await make_board(store)
            writer = JournalWriter(head)
            await store.append([writer.updates(*[b"x"] * 2_500)])
            await store.append([writer.commit("one", key=key("k"))])
            await store.add_schema("job", schema(1))
            await store.save_snapshot(snapshot("job", 1))
            neighbour = await make_board(store, "job1")
            await store.append([JournalWriter(neighbour).updates(b"mine")])
            left = tombstone("job")
            assert not await store.delete(replace(left, epoch="another"))
            assert await store.delete(left)
            assert not await store.delete(left)
            assert await second.head("job") is None
            assert await read_all(second) == [await second.boards(), [], [], {}, [], [], None]
            assert [each.board_id for each in await second.boards()] == ["job1"]
            assert await second.append([writer.updates(b"late")]) == [HeadMoved(head=None)]
            assert await second.tombstones("job") == [left]
            with pytest.raises(BoardDeleted) as refused:
                await second.create("job", epoch="late", created_ms=3)
            assert (refused.value.agent, refused.value.deleted_ms) == ("tester", 5)
            assert payloads(await second.entries("job1", after=0, limit=10)) == [b"mine"]

    async def test_a_name_can_be_used_anew(self) -> None:
        """A board that is made anew has nothing of the old one, and the tombstone stays."""
        async with self.opened() as store:
            await store.append([JournalWriter(await make_board(store)).updates(b"old")])
            await store.delete(tombstone("job"))
            head = await store.create("job", epoch="epoch-2", created_ms=9, anew=True)
            assert (head.epoch, head.seq) == ("epoch-2", 0)
            assert await store.create("job", epoch="epoch-3", created_ms=9) == head
            assert await store.entries("job", after=0, limit=10) == []
            assert [each.epoch for each in await store.tombstones("job")] == [EPOCH]
            await store.delete(replace(tombstone("job"), epoch="epoch-2", deleted_ms=10))
            assert [each.epoch for each in await store.tombstones("job")] == ["epoch-2", EPOCH]

    async def test_a_board_that_was_brought_back_can_be_deleted_again(self) -> None:
        """An import has the epoch of the board that was deleted; the newer tombstone replaces the older one."""
        async with self.opened() as store:
            assert await store.create_with(beginning("job", parent=""))
            assert await store.delete(tombstone("job"))
            assert await store.create_with(beginning("job", parent=""))
            assert await store.delete(replace(tombstone("job"), deleted_ms=9))
            assert [each.deleted_ms for each in await store.tombstones("job")] == [9]

    # Schemas

    async def test_schemas_are_numbered_without_gaps(self) -> None:
        """A schema is stored under the next number only."""
        async with self.opened() as store:
            await make_board(store)
            assert not await store.add_schema("job", schema(2))
            assert await store.add_schema("job", schema(1))
            assert not await store.add_schema("job", schema(1, "other"))
            assert await store.add_schema("job", schema(2))
            assert await store.schemas("job") == [schema(1), schema(2)]

    async def test_one_winner_for_each_schema_number(self) -> None:
        """V11: of ten callers who bring a schema under one number, one is told that it was stored."""
        async with self.opened_twice() as stores:
            await make_board(stores[0])
            offers = [stores[n % 2].add_schema("job", schema(1, f"offer {n}")) for n in range(10)]
            answers = await asyncio.gather(*offers)
            assert answers.count(True) == 1
            assert await stores[1].schemas("job") == [schema(1, f"offer {answers.index(True)}")]

    async def test_a_schema_is_stored_with_its_entry(self) -> None:
        """V11: the schemas of an append and its entries are stored together, after those that are there already."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            await store.add_schema("job", schema(1))
            request = writer.migration(b"moved", schema(2, "new"), schema(3, "new"))
            assert await store.append([request]) == [Appended(seq=1)]
            assert await store.schemas("job") == [schema(1), schema(2, "new"), schema(3, "new")]
            assert [entry.kind for entry in await store.entries("job", after=0, limit=10)] == ["migration"]

    async def test_a_schema_out_of_turn_is_refused_with_its_entry(self) -> None:
        """V11: an append whose schema is not the next one, or that comes late, writes nothing and tells the head."""
        async with self.opened() as store:
            head = await make_board(store)
            await store.add_schema("job", schema(1))
            for number in (1, 3):
                request = JournalWriter(head).migration(b"moved", schema(number, "other"))
                assert await store.append([request]) == [HeadMoved(head=head)]
            await store.append([JournalWriter(head).updates(b"first")])
            assert isinstance((await store.append([JournalWriter(head).migration(b"x", schema(2))]))[0], HeadMoved)
            assert await store.schemas("job") == [schema(1)]
            assert len(await store.entries("job", after=0, limit=10)) == 1

    # Client ids

    async def test_a_client_id_is_taken_as_often_as_it_became_free(self) -> None:
        """An id that was returned is taken once, from its own board only, also when it was returned twice."""
        async with self.opened() as store:
            await make_board(store)
            await make_board(store, "other")
            ids = [2**32, 2**40, 2**52 - 1]
            assert await store.take_client_ids("job", 16) == []
            await store.return_client_ids("job", ids, epoch=EPOCH)
            await store.return_client_ids("job", [*ids, ids[0]], epoch=EPOCH)
            await store.return_client_ids("job", [], epoch=EPOCH)
            assert await store.take_client_ids("other", 16) == []
            assert await store.take_client_ids("job", 0) == []
            assert sorted([*await store.take_client_ids("job", 2), *await store.take_client_ids("job", 2)]) == ids
            assert await store.take_client_ids("job", 16) == []
            await store.return_client_ids("job", [2**40], epoch=EPOCH)
            with pytest.raises(NotFound):
                await store.return_client_ids("job", [2**41], epoch="an earlier board")
            assert await store.take_client_ids("job", 16) == [2**40]

    async def test_no_two_callers_get_one_client_id(self) -> None:
        """Of twenty callers in two processes who take three ids each, no two get the same, and none is left out."""
        async with self.opened_twice() as stores:
            await make_board(stores[0])
            ids = list(range(2**40, 2**40 + 50))
            await stores[0].return_client_ids("job", ids, epoch=EPOCH)
            taken = await asyncio.gather(*(stores[n % 2].take_client_ids("job", 3) for n in range(20)))
            assert sorted(client_id for each in taken for client_id in each) == ids

    # Snapshots

    async def test_snapshots_come_newest_first(self) -> None:
        """Snapshots come newest first, with ``seq <= at_most``, and as they were saved."""
        async with self.opened() as store:
            await make_board(store)
            for seq in (3, 7, 5):
                await store.save_snapshot(snapshot("job", seq))
            assert await store.snapshots("job") == [snapshot("job", seq) for seq in (7, 5, 3)]
            assert await store.snapshots("job", at_most=6) == [snapshot("job", seq) for seq in (5, 3)]
            assert await store.snapshots("job", at_most=3) == [snapshot("job", 3)]
            assert await store.snapshots("job", at_most=2) == []
            assert await store.snapshots("job", at_most=-1) == []
            assert len(await store.snapshots("job", at_most=2**70)) == 3

    async def test_a_page_of_snapshots(self) -> None:
        """At most ``limit`` snapshots come, the newest of those asked for."""
        async with self.opened() as store:
            await make_board(store)
            for seq in (3, 5, 7):
                await store.save_snapshot(snapshot("job", seq))
            assert await store.snapshots("job", limit=2) == [snapshot("job", 7), snapshot("job", 5)]
            assert await store.snapshots("job", at_most=6, limit=1) == [snapshot("job", 5)]
            assert await store.snapshots("job", limit=0) == []
            assert await store.snapshot_seqs("job") == [3, 5, 7]

    async def test_snapshots_are_dropped_as_told(self) -> None:
        """Saving drops the named snapshots of this board, but no pinned one and none of another board."""
        async with self.opened() as store:
            await make_board(store, "next")
            await store.save_snapshot(snapshot("next", 1))
            await make_board(store)
            for seq in range(1, 5):
                await store.save_snapshot(replace(snapshot("job", seq), pinned=seq == 2))
            await store.save_snapshot(snapshot("job", 5), drop=[1, 2, 4, 9])
            assert [each.seq for each in await store.snapshots("job")] == [5, 3, 2]
            assert await store.snapshot_seqs("job") == [3, 5]
            assert await store.snapshot_seqs("job", pinned=True) == [2]
            assert await store.snapshots("next") == [snapshot("next", 1)]

    async def test_a_pinned_snapshot_stays_pinned(self) -> None:
        """Saving an ordinary snapshot in the place of a pinned one leaves it pinned; an ordinary one can be pinned."""
        async with self.opened() as store:
            await make_board(store)
            pinned = replace(snapshot("job", 1), pinned=True)
            await store.save_snapshot(snapshot("job", 1, b"before"))
            await store.save_snapshot(pinned)
            await store.save_snapshot(snapshot("job", 1))
            assert await store.snapshots("job") == [pinned]

    async def test_a_snapshot_can_be_saved_again(self) -> None:
        """A snapshot at a seq that has one takes its place: saving twice is saving once."""
        async with self.opened() as store:
            await make_board(store)
            await store.save_snapshot(snapshot("job", 1, b"damaged"))
            for _ in range(2):
                await store.save_snapshot(snapshot("job", 1))
            assert await store.snapshots("job") == [snapshot("job", 1)]

    # Bases

    async def test_a_board_has_no_base_at_first(self) -> None:
        """As long as nothing was squashed the journal begins with its first entry."""
        async with self.opened() as store:
            head = await make_board(store)
            assert head.base_seq == 0
            assert await store.base("job") is None
            assert await store.drop_squashed("job", limit=10) == 0

    async def test_a_base_takes_the_place_of_the_journal_before_it(self) -> None:
        """Entries up to the base are not read from the moment it is there, and it comes back as it was written."""
        async with self.opened_twice() as (store, other):
            writer = await journal_of_commits(store, 6)
            head = await store.head("job")
            assert head is not None
            assert await store.move_base(move_to(4))
            for each in (store, other):
                assert await each.head("job") == replace(head, base_seq=4)
                assert await each.base("job") == base("job", 4)
                assert [entry.seq for entry in await each.entries("job", after=0, limit=10)] == [5, 6]
                assert [entry.seq for entry in await each.entries("job", after=5, limit=10)] == [6]
                assert [made.version for made in await each.checkpoints("job")] == [6, 5]
                assert await each.checkpoint("job", 4) is None
            assert await store.append([writer.commit("more")]) == [Appended(seq=7)]

    async def test_squashed_entries_go_in_steps(self) -> None:
        """Each step removes at most as many entries as it was told, until none is left; what is read stays the same."""
        async with self.opened() as store:
            await journal_of_commits(store, 10)
            await store.move_base(move_to(7))
            before = await read_all(store)
            steps = [await store.drop_squashed("job", limit=3) for _ in range(5)]
            assert steps == [3, 3, 1, 0, 0]
            assert await read_all(store) == before
            assert [entry.seq for entry in await store.entries("job", after=0, limit=100)] == [8, 9, 10]

    async def test_kept_checkpoints_outlive_their_entries(self) -> None:
        """A checkpoint that was to be kept is read before, between and after the base and the steps."""
        async with self.opened() as store:
            await journal_of_commits(store, 8)
            made = {each.version: each for each in await store.checkpoints("job")}
            await store.keep_checkpoints("job", [2, 5, 99])
            await store.keep_checkpoints("job", [])
            assert len(await store.checkpoints("job")) == 8
            await store.move_base(move_to(5))
            while True:
                assert await store.checkpoints("job") == [made[number] for number in (8, 7, 6, 5, 2)]
                assert await store.checkpoint("job", 2) == made[2]
                assert await store.checkpoints("job", before=5) == [made[2]]
                if not await store.drop_squashed("job", limit=2):
                    break

    async def test_a_base_forgets_what_was_kept(self) -> None:
        """Versions that a later base forgets are gone, whether or not their entries were still there."""
        async with self.opened() as store:
            await journal_of_commits(store, 9)
            await store.keep_checkpoints("job", [1, 2, 3])
            await store.move_base(move_to(3))
            await store.drop_squashed("job", limit=2)
            await store.keep_checkpoints("job", [5, 6])
            assert await store.move_base(move_to(6, expected=3, forgotten=[1, 3, 5]))
            while await store.drop_squashed("job", limit=2):
                pass
            assert [made.version for made in await store.checkpoints("job")] == [9, 8, 7, 6, 2]

    async def test_a_base_can_be_set_again(self) -> None:
        """Setting the base that is there forgets and unpins as a new one does."""
        async with self.opened() as store:
            await journal_of_commits(store, 5)
            await store.save_snapshot(replace(snapshot("job", 2), pinned=True))
            await store.keep_checkpoints("job", [2])
            assert await store.move_base(move_to(3, pinned=[2]))
            assert await store.move_base(move_to(3, expected=3, forgotten=[2]))
            assert await store.snapshots("job") == []
            assert [made.version for made in await store.checkpoints("job")] == [5, 4]

    async def test_a_board_can_begin_with_a_base(self) -> None:
        """A board that was compacted elsewhere begins with its base, and what was kept from before it, and goes on."""
        async with self.opened() as store:
            other = MemoryStore()
            await journal_of_commits(other, 5)
            kept = await other.checkpoint("job", 1)
            whole = await other.entries("job", after=3, limit=9)
            checkpoints = [decode_checkpoint(entry.checkpoint) for entry in whole]
            assert kept is not None
            begin = Append(
                board_id="job", epoch=EPOCH, expected_seq=3, entries=whole, checkpoints=checkpoints, keys=[key("k")]
            )
            board = NewBoard(
                beginning=begin, created_ms=1, base=base("job", 3), states=[snapshot("job", 1)], kept=[kept]
            )
            assert await store.create_with(board)
            assert not await store.create_with(board)
            head, there = await store.head("job"), await other.head("job")
            assert head is not None
            assert there is not None
            assert head == replace(there, base_seq=3)
            assert await store.base("job") == base("job", 3)
            assert await store.entries("job", after=0, limit=9) == whole
            assert [made.version for made in await store.checkpoints("job")] == [5, 4, 1]
            assert await store.snapshots("job") == [replace(snapshot("job", 1), pinned=True)]
            assert await store.keys("job", ["k"]) == {"k": key("k")}
            assert await store.drop_squashed("job", limit=9) == 0
            assert isinstance((await store.append([JournalWriter(head).commit("on")]))[0], Appended)
            assert await store.move_base(move_to(5, expected=3, pinned=[1]))

    async def test_a_board_can_be_nothing_but_a_base(self) -> None:
        """A base without an entry after it is a board with that head, and keeps its keys."""
        async with self.opened() as store:
            begin = Append(board_id="job", epoch=EPOCH, expected_seq=3, entries=[], keys=[key("k")])
            assert await store.create_with(NewBoard(beginning=begin, created_ms=1, base=base("job", 3)))
            head = await store.head("job")
            assert head is not None
            assert (head.seq, head.version, head.base_seq, head.hash) == (3, 3, 3, base("job", 3).entry_hash)
            assert await store.keys("job", ["k"]) == {"k": key("k")}

    async def test_a_board_keeps_its_retention(self) -> None:
        """The text that was stored last is read in every process; it is of this board alone, and goes with it."""
        async with self.opened_twice() as (store, second):
            assert await store.retention("ghost") == ""
            with pytest.raises(NotFound):
                await store.set_retention("ghost", "all")
            await make_board(store, "job")
            await make_board(store, "next")
            assert await store.retention("job") == ""
            await store.set_retention("job", '{"keep":"Größe"}')
            assert await second.retention("job") == '{"keep":"Größe"}'
            assert await second.retention("next") == ""
            await second.set_retention("job", "")
            assert await store.retention("job") == ""
            await store.set_retention("job", "gone soon")
            assert await store.delete(tombstone("job"))
            await store.create("job", epoch="epoch-2", created_ms=2, anew=True)
            assert await second.retention("job") == ""

    async def test_sizes_count_what_is_read(self) -> None:
        """Numbers and bytes of what is stored of a board, but not of what is before its base, or of other boards."""
        async with self.opened() as store:
            assert await store.sizes("ghost") == StoredSizes()
            await journal_of_commits(store, 4)
            await journal_of_commits(store, 1, "other")
            entries = await store.entries("job", after=0, limit=9)
            content = [len(entry.payload) + len(entry.checkpoint.encode()) for entry in entries]
            assert await store.sizes("job") == StoredSizes(entries=4, entry_bytes=sum(content), checkpoints=4)
            await store.save_snapshot(snapshot("job", 4))
            await store.save_snapshot(replace(snapshot("job", 1), pinned=True))
            await store.keep_checkpoints("job", [1])
            assert await store.move_base(move_to(3, pinned=[1]))
            stored = base("job", 3)
            assert await store.sizes("job") == StoredSizes(
                entries=1,
                entry_bytes=content[-1],
                checkpoints=2,
                snapshots=3,
                snapshot_bytes=2 * len(snapshot("job", 1).data) + len(stored.data) + len(stored.origins),
            )

    async def test_snapshots_before_a_base_go_but_for_those_named(self) -> None:
        """Of the snapshots before the base the named pinned ones stay; later ordinary ones there are not stored."""
        async with self.opened() as store:
            await journal_of_commits(store, 9)
            for seq in range(1, 8):
                await store.save_snapshot(replace(snapshot("job", seq), pinned=seq in (2, 3)))
            assert await store.move_base(move_to(5, pinned=[2]))
            assert [each.seq for each in await store.snapshots("job")] == [7, 6, 5, 2]
            await store.save_snapshot(snapshot("job", 4))
            await store.save_snapshot(replace(snapshot("job", 3), pinned=True))
            assert [each.seq for each in await store.snapshots("job")] == [7, 6, 5, 3, 2]

    async def test_a_base_that_does_not_fit_is_refused(self) -> None:
        """Another base, another epoch, an entry that is not there, or no pinned snapshot: nothing changes."""
        async with self.opened() as store:
            await journal_of_commits(store, 5)
            await store.save_snapshot(snapshot("job", 2))
            await store.move_base(move_to(3))
            before = await read_all(store)
            for move in (
                move_to(4),
                move_to(2, expected=3),
                move_to(6, expected=3),
                replace(move_to(4, expected=3), epoch="older"),
                move_to(4, expected=3, pinned=[2]),
                replace(move_to(4, expected=3), base=base("ghost", 4)),
            ):
                assert not await store.move_base(move)
            assert await read_all(store) == before

    async def test_one_winner_for_each_base(self) -> None:
        """Of many who move one base at once, one is told that it did."""
        async with self.opened_twice() as stores:
            await journal_of_commits(stores[0], 9)
            answers = await asyncio.gather(*(stores[n % 2].move_base(move_to(n)) for n in range(1, 9)))
            assert answers.count(True) == 1
            assert await stores[1].base("job") == base("job", answers.index(True) + 1)

    async def test_bases_of_boards_do_not_mix(self) -> None:
        """Squashing one board leaves every other one as it is."""
        async with self.opened() as store:
            for name in ("a", "ab", "b"):
                await journal_of_commits(store, 4, name)
            assert await store.move_base(replace(move_to(3), base=base("ab", 3)))
            await store.drop_squashed("ab", limit=100)
            for name in ("a", "b"):
                assert len(await store.entries(name, after=0, limit=100)) == 4
                assert len(await store.checkpoints(name)) == 4
                assert await store.drop_squashed(name, limit=100) == 0

    async def test_versions_of_keys(self) -> None:
        """The versions that keys led to are found, each once, ascending, up to a bound; keys outlive a base."""
        async with self.opened() as store:
            writer = JournalWriter(await make_board(store))
            for number, name in enumerate(("one", None, "three", "four"), 1):
                await store.append([writer.commit("step", key=key(name, version=number) if name else None)])
            assert await store.keyed_versions("job", at_most=3) == [1, 3]
            await store.move_base(move_to(4))
            while await store.drop_squashed("job", limit=10):
                pass
            assert await store.keyed_versions("job", at_most=2**70) == [1, 3, 4]
            assert list(await store.keys("job", ["one"])) == ["one"]
            assert await store.keyed_versions("ghost", at_most=9) == []

    async def test_space_is_given_back_in_steps(self) -> None:
        """Giving back ends after finitely many steps and leaves everything as it was."""
        async with self.opened() as store:
            await journal_of_commits(store, 5)
            before = await read_all(store)
            for _ in range(1000):
                if not await store.give_back(limit_bytes=1 << 16):
                    break
            else:
                raise AssertionError("there is always more to give back")
            assert await read_all(store) == before

    # Waking, closing

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
