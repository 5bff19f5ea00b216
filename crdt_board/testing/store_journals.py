"""What stores promise of journals: appending, reading, and the snapshots beside them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from crdt_board.checkpoints import Checkpoint, decode_checkpoint, is_intact
from crdt_board.clock import ManualClock
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import verify_chain
from crdt_board.store.contract import Appended, HeadMoved
from crdt_board.testing.journals import (
    JournalWriter,
    append_patiently,
    key,
    make_board,
    payloads,
    schema,
    snapshot,
)
from crdt_board.testing.store_tests import StoreTests


class JournalTests(StoreTests):
    """Appends, reads, snapshots."""

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
