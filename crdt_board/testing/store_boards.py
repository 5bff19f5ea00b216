"""What stores promise of whole boards: making, forking and deleting them, their schemas and client ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.errors import BoardDeleted, NotFound
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.store.contract import Appended, BoardHead, HeadMoved
from crdt_board.testing.journals import (
    EPOCH,
    JournalWriter,
    beginning,
    key,
    make_board,
    payloads,
    read_all,
    schema,
    snapshot,
    tombstone,
)
from crdt_board.testing.store_tests import StoreTests


class BoardTests(StoreTests):
    """Boards, forks, schemas, client ids."""

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
