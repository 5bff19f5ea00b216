"""Forks of boards and the way back, restoring, deleting, exports; at both places where a board can be."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Self

import pycrdt
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue, model_validator
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from crdt_board import (
    BadRequest,
    Board,
    BoardCorrupt,
    BoardDeleted,
    BoardExists,
    BoardHost,
    BoardModel,
    BoardReplaced,
    Counter,
    InvalidBoardId,
    LimitExceeded,
    Max,
    NotFound,
    SchemaMismatch,
    Strict,
    Text,
    VersionConflict,
    Violated,
    migrates,
    open_board,
    wire,
)
from crdt_board.export_lines import FORMAT, FORMAT_VERSION
from crdt_board.exports import export_board
from crdt_board.imports import import_board
from crdt_board.journal import GENESIS_HASH, make_entry, pack_updates
from crdt_board.limits import Limits
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect as join
from support.places import BOARD, Place, PlaceKind, has_version, open_plain, place_of
from support.relay import Cut, Message, Way, pass_all, relay_to
from support.waiting import DEADLINE_SECONDS


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Migration(BoardModel):
    target: str = ""
    status: Annotated[str, Strict()] = "OPEN"
    best: Annotated[float, Max()] = 0.0
    plan: list[str] = []
    labels: set[str] = set()
    findings: dict[str, Finding] = {}
    draft: Text
    spent: Counter


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def board(place: Place) -> AsyncIterator[Board[Migration]]:
    async with place.open(Migration, "ann") as board:
        yield board


async def begin(board: Board[Migration]) -> Any:
    board.state.target = "pg-14"
    board.state.plan = ["look", "write"]
    board.state.draft.append("The plan. It is good.")
    board.state.findings["f1"].notes.append("seen")
    board.state.spent += 3
    return await board.commit("begin", patch={"status": "ANALYSED"}, expected_version=0)


async def test_a_fork_begins_with_the_state_of_a_version(place: Place, board: Board[Migration]) -> None:
    """Its own journal, epoch and versions; the parent is named; what either side writes does not reach the other."""
    made = await begin(board)
    board.state.target = "later"
    await board.commit("later")
    first = await board.fork("job-fork", at=made.pointer)
    assert (first.board_id, first.version, first.forked_from, first.checksum) == (
        "job-fork",
        1,
        made.pointer,
        made.checksum,
    )
    async with place.open(Migration, "bob", "job-fork") as fork:
        assert fork.version == 1
        assert fork.snapshot() == await board.at(made)
        fork.state.draft.append(" Bob was here.")
        await fork.commit("bob", patch={"status": "DONE"}, expected_version=1)
        assert await fork.at(first.pointer) == await board.at(made)
        assert (await fork.verify()).ok
        assert [(each.agent, each.step) for each in await fork.blame("draft")][-1] == ("bob", "bob")
    assert str(board.state.draft) == "The plan. It is good."
    assert board.state.status == "ANALYSED"
    assert [(each.board_id, each.parent) for each in await board.forks()] == [("job-fork", made.pointer)]


async def test_forks_that_cannot_be_are_refused(board: Board[Migration]) -> None:
    """H4: a name that is taken or none, a version that is not there, a board without versions."""
    with pytest.raises(NotFound, match="has no version yet"):
        await board.fork("x")
    await begin(board)
    await board.fork("taken")
    for name in ("taken", BOARD):
        with pytest.raises(BoardExists):
            await board.fork(name)
    with pytest.raises(InvalidBoardId):
        await board.fork("../x")
    with pytest.raises(NotFound):
        await board.fork("y", at=2)


async def test_both_sides_go_on_and_merge(place: Place, board: Board[Migration]) -> None:
    """Everything that a fork wrote comes into its parent, also what came later, and into the fork the other way."""
    await begin(board)
    await board.fork("job-fork")
    async with place.open(Migration, "bob", "job-fork") as fork:
        fork.state.draft.replace("It is good", "It is very good")
        fork.state.plan.append("fork's")
        fork.state.spent += 10
        fork.state.findings["f2"].title = "new"
        await fork.commit("bob", patch={"status": "DONE"}, expected_version=1)
        board.state.draft.replace("The plan", "Our plan")
        board.state.plan.insert(0, "ours")
        board.state.spent += 100
        await board.commit("ann")
        merged = await board.merge_from("job-fork")
        assert merged.merged_from == f"board:job-fork@2#{(await fork.checkpoints(limit=1))[0].hash[:16]}"
        assert board.version == merged.version
        assert str(board.state.draft) == "Our plan. It is very good."
        assert list(board.state.plan) == ["ours", "look", "write", "fork's"]
        assert (int(board.state.spent), board.state.status) == (113, "DONE")
        assert board.state.findings["f2"].title == "new"
        fork.state.labels.add("late")
        await fork.flush(DEADLINE_SECONDS)
        await board.merge_from("job-fork")
        assert set(board.state.labels) == {"late"}
        await fork.merge_from(BOARD)
        assert fork.snapshot() == board.snapshot()
        assert (await board.verify()).ok
        assert (await fork.verify()).ok


async def test_a_strict_field_that_both_decided_is_a_conflict(place: Place, board: Board[Migration]) -> None:
    """Nothing is merged until both sides agree; a decision of one side since the last merge is taken over."""
    await begin(board)
    await board.fork("job-fork")
    async with place.open(Migration, "bob", "job-fork") as fork:
        await fork.commit("bob", patch={"status": "DONE"}, expected_version=1)
        await board.commit("ann", patch={"status": "PENDING"}, expected_version=1)
        fork.state.target = "not yet"
        await fork.flush(DEADLINE_SECONDS)
        with pytest.raises(VersionConflict, match="status was decided differently") as conflict:
            await board.merge_from("job-fork")
        assert conflict.value.changed == ["status"]
        assert (board.state.target, board.version) == ("pg-14", 2)
        await board.commit("agree", patch={"status": "DONE"}, expected_version=2)
        await board.merge_from("job-fork")
        assert (board.state.target, board.state.status) == ("not yet", "DONE")
        await board.commit("on", patch={"status": "OPEN"}, expected_version=board.version)
        await board.merge_from("job-fork")
        assert board.state.status == "OPEN"
        await fork.merge_from(BOARD)
        assert fork.state.status == "OPEN"


async def test_a_fork_that_was_migrated_in_other_steps_is_not_merged(place: Place) -> None:
    """V11: fields that both keep under other names in the document would be lost without a word; it is refused."""

    class Listed(BoardModel):
        tags: list[str] = []

    class Longer(Listed):
        more: str = ""

    class Set(BoardModel):
        tags: set[str] = set()
        more: str = ""

        @migrates(from_version=1)
        @classmethod
        def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
            return old

    class LaterSet(Set):
        @migrates(from_version=2)
        @classmethod
        def from_v2(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
            return old

    async with place.open(Listed, "ann") as board:
        board.state.tags.append("x")
        await board.commit("begin")
        await board.fork("job-fork")
    async with place.open(Longer, "bob", "job-fork"):
        pass
    async with place.open(LaterSet, "bob", "job-fork") as fork:
        fork.state.tags.add("theirs")
        await fork.flush()
    async with place.open(Set, "ann") as board:
        with pytest.raises(SchemaMismatch, match="was migrated from schema 1 to 3 since the fork"):
            await board.merge_from("job-fork")
        assert board.version == 1
        assert board.snapshot().tags == {"x"}


async def test_a_violation_that_is_recorded_on_a_fork_keeps_it_from_being_merged(place: Place) -> None:
    """It is named, nothing changes on the parent, and it is resolved on the fork."""

    class Span(BoardModel):
        start: int = 1
        end: int = 5

        @model_validator(mode="after")
        def ends_after_start(self) -> Self:
            assert self.start <= self.end, "it ends before it starts"
            return self

    async with place.open(Span, "ann") as board:
        await board.commit("begin")
        await board.fork("job-fork")
        async with place.open(Span, "bob", "job-fork") as bob:
            with bob.transaction():
                bob.state.start, bob.state.end = 4, 2
            await bob.wait_for(lambda _: bool(bob.violations), timeout=DEADLINE_SECONDS)
            with pytest.raises(Violated) as refused:
                await board.merge_from("job-fork")
            assert refused.value.violations == bob.violations
            assert (board.violations, board.snapshot()) == ((), Span())
            await bob.commit("resolved", patch={"end": 8})
            await board.merge_from("job-fork")
            assert board.snapshot() == Span(start=4, end=8)


async def test_what_is_no_fork_is_not_merged(place: Place, board: Board[Migration]) -> None:
    """A board that is not there, or has no common past, is refused and changes nothing."""
    await begin(board)
    with pytest.raises(NotFound):
        await board.merge_from("nope")
    async with place.open(Migration, "bob", "other") as other:
        await begin(other)
    with pytest.raises(BadRequest, match="was forked from the other"):
        await board.merge_from("other")
    assert board.version == 1


async def test_a_fork_whose_model_went_on_brings_its_model(place: Place, board: Board[Migration]) -> None:
    """Compatible additions come along; what does not fit is refused."""

    class Larger(Migration):
        extra: str = ""

    class Other(Migration):
        plan: set[str] = set()  # type: ignore[assignment]

    await begin(board)
    await board.fork("job-fork")
    async with place.open(Larger, "bob", "job-fork") as fork:
        fork.state.extra = "more"
        await fork.flush(DEADLINE_SECONDS)
    await board.merge_from("job-fork")
    async with place.open(Larger, "cid") as larger:
        assert larger.state.extra == "more"
    with pytest.raises(SchemaMismatch):
        async with place.open(Other, "dan", "job-fork"):
            pass


async def test_a_fork_is_merged_before_a_migration(place: Place) -> None:
    """Both sides write a migrated field anew: merged, it would be there twice."""

    class Old(BoardModel):
        title: str = ""

    class New(BoardModel):
        title: Text

        @migrates(from_version=1)
        @classmethod
        def from_old(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
            return {"title": old["title"]}

    async with place.open(Old, "ann") as ann:
        await ann.commit("begin", patch={"title": "hi"})
        await ann.fork("fork")
    async with place.open(New, "bob", "fork") as bob:
        bob.state.title.append(" fork")
        await bob.flush(DEADLINE_SECONDS)
    async with place.open(New, "cid") as cid:
        with pytest.raises(SchemaMismatch, match="was migrated from schema 1 to 2 since the fork"):
            await cid.merge_from("fork")
        assert str(cid.state.title) == "hi"


_EDITS = st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=14)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_EDITS)
def test_merging_both_ways_makes_both_alike(edits: list[tuple[bool, int, int]]) -> None:
    """Whatever both sides write, after a merge in each direction they hold the same, and nothing added is lost."""

    async def run() -> None:
        async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
            await ann.commit("begin")
            await ann.fork("fork")
            async with open_board(host, "fork", Migration, agent="bob") as bob:
                expected = 0
                added: set[str] = set()
                for number, (ours, kind, place) in enumerate(edits):
                    state = (ann if ours else bob).state
                    word = f"w{number};"
                    if kind == 0:
                        state.spent += place
                        expected += place
                    elif kind == 1:
                        state.draft.insert(min(place, len(state.draft)), word)
                        added.add(word)
                    elif kind == 2:
                        state.plan.insert(place, word)
                    elif kind == 3:
                        state.labels.add(word)
                    elif kind == 4:
                        state.findings[f"f{place}"].notes.append(word)
                    else:
                        await (ann if ours else bob).commit("step")
                await bob.flush()
                await ann.merge_from("fork")
                await bob.merge_from(BOARD)
                assert ann.snapshot() == bob.snapshot()
                assert int(ann.state.spent) == expected
                joined = str(ann.state.draft)
                assert len(joined) == sum(map(len, added))

    asyncio.run(run())


async def test_a_restored_version_is_a_new_version(place: Place, board: Board[Migration]) -> None:
    """Nothing is erased, a replica that was offline follows, and a commit in between is a conflict."""
    made = await begin(board)
    before = board.snapshot()
    async with place.open(Migration, "bob") as bob:
        board.state.target = "wrong"
        board.state.plan.clear()
        board.state.draft.apply("all gone")
        del board.state.findings["f1"]
        board.state.labels.add("bad")
        board.state.spent += 5
        await board.commit("wrong", patch={"status": "DONE"}, expected_version=1)
        restored = await board.restore(made.pointer)
        assert (restored.version, restored.step) == (3, "restore")
        assert board.snapshot() == before
        await has_version(bob, 3)
        assert bob.snapshot() == before
        assert (await bob.at(2)).target == "wrong"
        assert (await bob.verify()).ok


async def test_a_board_without_a_model_is_restored(place: Place) -> None:
    """Keys that were not there then are gone again."""
    async with open_plain(place, "ann") as board:
        board.state["a"] = 1
        made = await board.commit("one")
        board.state["b"] = [1, 2]
        board.state["a"] = 2
        await board.commit("two")
        await board.restore(made)
        assert board.snapshot() == {"a": 1}
        assert await board.at(2) == {"a": 2, "b": [1, 2]}
        assert "b: " in str(await board.diff(2, 3))


async def test_a_client_that_was_offline_follows_a_restore(tmp_path: Path) -> None:
    """Its own edits of meanwhile are kept, and everything else is as it was restored."""

    def cut(_way: Way, _message: Message) -> Message:
        raise Cut

    async with (
        place_of("served", tmp_path / "boards.db") as place,
        place.open(Migration, "ann") as ann,
        relay_to(place.url) as relay,
        join(relay.url, BOARD, Migration, agent="bob") as bob,
    ):
        made = await begin(ann)
        ann.state.draft.apply("wrong")
        await ann.commit("wrong")
        await has_version(bob, 2)
        relay.judge = cut
        bob.announce(step="away")
        await bob.wait_for(lambda _state: bob.failure is not None, DEADLINE_SECONDS)
        bob.state.labels.add("offline")
        await ann.restore(made)
        relay.judge = pass_all
        await bob.flush(DEADLINE_SECONDS)
        await has_version(bob, 3)
        assert str(bob.state.draft) == "The plan. It is good."
        await ann.wait_for(lambda state: "offline" in state.labels, DEADLINE_SECONDS)


async def test_whoever_writes_to_a_deleted_board_is_told(place: Place, board: Board[Migration]) -> None:
    """Open replicas, late ones, and those after a restart hear `BoardDeleted`; a new board of the name is another."""
    await begin(board)
    async with contextlib.AsyncExitStack() as stack:
        bob = await stack.enter_async_context(place.open(Migration, "bob"))
        host = place.host
        await host.delete(BOARD, agent="cid")
        with pytest.raises(BoardDeleted, match="deleted by cid"):
            await asyncio.wait_for(bob.wait_for(lambda _state: False), DEADLINE_SECONDS)
        with pytest.raises(BoardDeleted):
            bob.state.target = "late"
        with pytest.raises(BoardDeleted):
            await bob.commit("late")
    with pytest.raises(BoardDeleted):
        await place.host.delete(BOARD, agent="cid")
    for _ in range(2):
        with pytest.raises(BoardDeleted):
            async with place.open(Migration, "dan"):
                pass
        await place.restart()
    await place.host.create(BOARD)
    with pytest.raises(BoardExists):
        await place.host.create(BOARD)
    async with place.open(Migration, "dan") as dan:
        assert dan.snapshot() == Migration()
        assert dan.version == 0


async def test_another_process_hears_of_a_deletion(tmp_path: Path) -> None:
    """D9: a replica whose writer is in another process is told when it writes, and when it waits."""
    async with (
        open_board(tmp_path / "boards.db", BOARD, Migration, agent="ann") as ann,
        BoardHost(await SqliteStore.open(tmp_path / "boards.db")) as other,
    ):
        await begin(ann)
        async with open_board(other, BOARD, Migration, agent="bob") as bob:
            assert bob.state.target == "pg-14"
        await other.delete(BOARD, agent="bob")
        with pytest.raises(BoardDeleted):
            await asyncio.wait_for(ann.wait_for(lambda _state: False), DEADLINE_SECONDS)


async def test_an_old_replica_cannot_pour_its_content_into_a_new_board(tmp_path: Path) -> None:
    """Our own replicas are known by their epoch, stock ones by the clients that they know of."""
    async with place_of("served", tmp_path / "boards.db") as place:
        async with contextlib.AsyncExitStack() as stack:
            ann = await stack.enter_async_context(place.open(Migration, "ann"))
            await begin(ann)
            stock: pycrdt.Doc[Any] = pycrdt.Doc()
            stock.apply_update(ann._session.replica.document.encode())
            stock.get("draft", type=pycrdt.Text).insert(0, "old ")
            await place.stop()
            ann.state.target = "kept while away"
            store = await SqliteStore.open(tmp_path / "boards.db")
            async with BoardHost(store) as host:
                await host.delete(BOARD, agent="cid")
                await host.create(BOARD)
            await place.start()
            with pytest.raises(BoardReplaced):
                await asyncio.wait_for(ann.flush(), DEADLINE_SECONDS)
            with pytest.raises(BoardReplaced):
                await ann.close()
        async with place.open(Migration, "dan") as dan:
            closed = await stock_answer(place, stock)
            assert closed == 4414
            assert dan.snapshot() == Migration()
            fresh: pycrdt.Doc[Any] = pycrdt.Doc()
            fresh.get("draft", type=pycrdt.Text).insert(0, "new")
            assert await stock_answer(place, fresh) is None
            await dan.wait_for(lambda state: str(state.draft) == "new", DEADLINE_SECONDS)


async def stock_answer(place: Place, doc: pycrdt.Doc[Any]) -> int | None:
    """Offer a stock client's document to the board; the code with which the server closes, None when it takes it."""
    async with connect(f"{place.url}/ws/{BOARD}") as socket:
        await socket.send(wire.encode_step1(doc.get_state()))
        await socket.send(wire.encode_step2(doc.get_update()))
        try:
            async with asyncio.timeout(1):
                while True:
                    await socket.recv()
        except TimeoutError:
            return None
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006


async def exported(place: Place) -> bytes:
    file = io.BytesIO()
    await export_board(place.store, BOARD, file, artifacts=None)
    return file.getvalue()


async def test_an_export_is_the_board_elsewhere(place: Place, board: Board[Migration]) -> None:
    """Journal, versions, pointers, schemas and used keys are the same in another store; the board goes on there."""
    made = await begin(board)
    await board.commit("keyed", idempotency_key="k")
    board.state.target = "uncommitted"
    await board.flush(DEADLINE_SECONDS)
    data = await exported(place)
    store = MemoryStore()
    head = (await import_board(store, io.BytesIO(data))).head
    assert (head.board_id, head.version) == (BOARD, 2)
    async with BoardHost(store) as host, open_board(host, BOARD, Migration, agent="bob") as there:
        assert there.snapshot() == board.snapshot()
        assert await there.at(made.pointer) == await board.at(made.pointer)
        assert (await there.commit("keyed", idempotency_key="k")).version == 2
        there.state.draft.append(" On.")
        assert (await there.commit("on")).version == 3
    with pytest.raises(BoardExists):
        await import_board(place.store, io.BytesIO(data))


async def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    """D8, H6: cut off, altered, of something else, or well packed around a false content: nothing is made."""
    async with place_of("embedded", tmp_path / "boards.db") as place, place.open(Migration, "ann") as board:
        await begin(board)
        data = await exported(place)
    store = MemoryStore()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    lines = gzip.decompress(data).splitlines(keepends=True)
    wrong = [gzip.compress(b"".join(lines[:-1])), gzip.compress(b"".join([*lines[:3], *lines[4:]]))]
    wrong += [gzip.compress(b"".join(lines).replace(b'"author":"ann"', b'"author":"eve"'))]
    for bad in (b"", b"no gzip", data[:-20], bytes(flipped), gzip.compress(b"{}\n"), *wrong):
        with pytest.raises(BadRequest):
            await import_board(store, io.BytesIO(bad))
    with pytest.raises(BoardCorrupt):
        await import_board(store, io.BytesIO(_repacked(lines, b'"author":"ann"', b'"author":"eve"')))
    with pytest.raises(BadRequest):
        await import_board(store, io.BytesIO(_repacked(lines, b'"seq":2', b'"seq":9')))
    assert await store.boards() == []


def _repacked(lines: list[bytes], old: bytes, new: bytes) -> bytes:
    """An export whose own hash is right, around altered content."""
    return _signed(b"".join(lines[:-1]).replace(old, new))


def _signed(content: bytes) -> bytes:
    return gzip.compress(content + json.dumps({"sha256": hashlib.sha256(content).hexdigest()}).encode() + b"\n")


_ONE_KEY = b"\x28\x01\x05state\x01a\x01"


@pytest.mark.parametrize(
    "update",
    [
        b"\x01\x01\x05\x00" + _ONE_KEY + b"\x75\x01" * 100_000 + b"\x7e\x00",
        b"\x02" + 2 * (b"\x01\x05\x00" + _ONE_KEY + b"\x7e") + b"\x00",
    ],
    ids=["nested 100,000 deep", "a client that is listed twice"],
)
async def test_an_export_that_would_end_the_process_is_refused(update: bytes) -> None:
    """What no peer may send does not come in with a file either, whose hashes anybody can make right."""
    payload = pack_updates([update])
    header = {"author": "eve", "checkpoint": "", "kind": "update", "paths": (), "seq": 1, "time_ms": 1}
    entry = make_entry(GENESIS_HASH, board_id=BOARD, epoch="e", payload=payload, **header)
    head = {"board": BOARD, "epoch": "e", "seq": 1, "hash": entry.hash, "created_ms": 1, "parent": ""}
    lines = [
        json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, **head}),
        json.dumps({**header, "payload": base64.b64encode(payload).decode(), "hash": entry.hash}),
    ]
    store = MemoryStore()
    with pytest.raises(BoardCorrupt, match="entry 1 of this export cannot be applied"):
        await import_board(store, io.BytesIO(_signed("".join(f"{line}\n" for line in lines).encode())))
    assert await store.boards() == []


@pytest.mark.parametrize("limit", ["import_bytes_max", "import_line_bytes_max"])
async def test_a_small_export_does_not_unpack_without_bound(limit: str) -> None:
    """It is refused as soon as more has been unpacked than may be, in one line or in all."""
    limits = Limits(**{limit: 10_000})
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, "board": BOARD, "epoch": "e"}
    schema = json.dumps({"schema": 1, "fingerprint": "", "document": ""}) + "\n"
    content = json.dumps(header) + "\n" + (schema * 1_000 if limit == "import_bytes_max" else " " * 20_000)
    with pytest.raises(LimitExceeded) as refused:
        await import_board(MemoryStore(), io.BytesIO(_signed(content.encode())), limits=limits)
    assert refused.value.data["limit"] == limit


async def test_a_merge_of_a_fork_that_only_claimed_something_makes_no_version(place: Place) -> None:
    """Tasks and leases stay with the fork: that they are free there is nothing that a merge would bring."""
    async with place.open(Migration) as board, board.lease("payments"):
        await board.tasks.put({"n": 1}, key="one")
        made = await board.commit("begin")
        await board.fork("branch")
        async with place.open(Migration, agent="bob", board_id="branch") as branch, branch.tasks.claim():
            await branch.tasks.put({"n": 2}, key="two")
        assert (await board.merge_from("branch")).version == made.version
        assert [task.key for task in board.tasks.all()] == ["one"]
