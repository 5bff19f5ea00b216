"""What stores promise of what compaction leaves: bases, kept checkpoints, sizes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from crdt_board.checkpoints import decode_checkpoint
from crdt_board.errors import NotFound
from crdt_board.store.contract import Append, Appended, NewBoard, StoredSizes
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.journals import (
    EPOCH,
    JournalWriter,
    base,
    journal_of_commits,
    key,
    make_board,
    move_to,
    read_all,
    snapshot,
    tombstone,
)
from crdt_board.testing.store_tests import StoreTests


class BaseTests(StoreTests):
    """Bases and what goes when they move."""

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
