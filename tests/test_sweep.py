"""Sweeping artifacts: what nothing refers to goes, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crdt_board import Artifact, BoardCorrupt, BoardHost, BoardModel, Text, migrates, open_board
from crdt_board.artifacts import Artifacts, ArtifactStore
from crdt_board.artifacts.memory import MemoryBlobs
from crdt_board.artifacts.references import References, hashes_in, strike_out_referenced
from crdt_board.artifacts.sweep import SweepReport, sweep
from crdt_board.clock import ManualClock
from crdt_board.errors import BadRequest
from crdt_board.history import BoardHistory, Retention
from crdt_board.store.contract import BaseRecord
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore

DAY_MS = 24 * 3_600_000


class Section(BoardModel):
    title: str = ""
    notes: Text


class Report(BoardModel):
    best: Artifact | None = None
    named: str = ""
    files: dict[str, Artifact] = {}
    seen: set[Artifact] = set()
    body: Text
    sections: dict[str, Section] = {}
    parts: list[Section] = []


class World:
    """A host on a clock of its own, whose artifacts are all old enough when it is swept."""

    def __init__(self, host: BoardHost, clock: ManualClock) -> None:
        self.host = host
        self.store = host.store
        self.clock = clock
        assert host.artifacts is not None
        self.artifacts = host.artifacts
        self._made = 0

    async def put(self) -> Artifact:
        """A new artifact that no other call gives."""
        self._made += 1
        return await Artifacts(self.artifacts).put(f"content {self._made}".encode())

    def open(self, board_id: str = "job") -> Any:
        return open_board(self.host, board_id, Report, agent="ann")

    async def swept(self, **options: Any) -> SweepReport:
        self.clock.advance(2 * DAY_MS)
        return await sweep(self.store, self.artifacts, clock=self.clock, **options)

    async def left(self) -> set[str]:
        """What is there after a sweep."""
        await self.swept()
        return {each.pointer async for each in self.artifacts.all()}


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    clock = ManualClock()
    store = MemoryStore() if request.param == "memory" else await SqliteStore.open(tmp_path / "boards.db")
    async with BoardHost(store, artifacts=ArtifactStore(MemoryBlobs(clock), clock=clock)) as host:
        yield World(host, clock)


async def test_what_nothing_refers_to_goes(world: World) -> None:
    """A dry run says what would go and removes nothing; the sweep removes just that."""
    kept, lost = await world.put(), await world.put()
    async with world.open() as board:
        board.state.best = kept
    planned = await world.swept(dry_run=True)
    assert [each.pointer for each in planned.removed] == [lost.pointer]
    assert (planned.referenced, planned.young, planned.removed_bytes) == (1, 0, lost.size)
    assert str(planned).startswith(f"1 artifacts with {lost.size} bytes would go; 1 stay")
    done = await world.swept()
    assert [each.pointer for each in done.removed] == [lost.pointer]
    assert not await world.artifacts.stat(lost.sha256)
    assert await Artifacts(world.artifacts).get(kept) == b"content 1"
    assert (await world.swept()).removed == []


async def test_what_is_new_stays(world: World) -> None:
    """An artifact stays for the grace period after it was put, and after it was put again."""
    old, again = await world.put(), await world.put()
    world.clock.advance(2 * DAY_MS)
    new = await world.put()
    await Artifacts(world.artifacts).put(b"content 2")
    found = await sweep(world.store, world.artifacts, clock=world.clock)
    assert [each.pointer for each in found.removed] == [old.pointer]
    assert found.young == 2
    for each in (again, new):
        assert await world.artifacts.stat(each.sha256)
    with pytest.raises(BadRequest, match="negative"):
        await sweep(world.store, world.artifacts, grace=timedelta(seconds=-1))


@pytest.mark.parametrize(
    "write",
    [
        lambda state, ref: setattr(state, "best", ref),
        lambda state, ref: setattr(state, "named", str(ref)),
        lambda state, ref: setattr(state, "named", f"see {ref.sha256}ff"),
        lambda state, ref: state.files.update({"a": ref}),
        lambda state, ref: state.seen.add(ref),
        lambda state, ref: state.body.append(f"as in {ref}."),
        lambda state, ref: state.sections["one"].notes.append(str(ref)),
        lambda state, ref: state.parts.append(Section(title=str(ref))),
    ],
    ids=["field", "text of a pointer", "hash alone", "dict", "set", "text", "text in a record", "item"],
)
@pytest.mark.parametrize("taken_back", [False, True], ids=["now", "in the journal"])
async def test_a_reference_is_found_wherever_it_stands(world: World, write: Any, taken_back: bool) -> None:
    """In every kind of field, now, and when it was taken back since, which can be looked up."""
    ref = await world.put()
    async with world.open() as board:
        board.enable_undo()
        with board.transaction():
            write(board.state, ref)
        if taken_back:
            await board.flush()
            board.undo()
    assert ref.pointer in await world.left()


@pytest.mark.parametrize("what", ["trace", "output", "handoff", "tags"])
async def test_what_a_checkpoint_hands_over_stays(world: World, what: str) -> None:
    """V4: a pointer in the data of a checkpoint, on a board that has no model."""
    ref = await world.put()
    given: Any = str(ref) if what == "trace" else [str(ref)]
    async with open_board(world.host, "job", agent="ann") as board:
        await board.commit("done", **{what: given})
    assert ref.pointer in await world.left()


@pytest.mark.parametrize("place", ["body", "sections", "parts"])
@pytest.mark.parametrize("when", ["now", "at a version", "at a version that was kept"])
async def test_a_pointer_that_was_typed_in_pieces_is_found(world: World, place: str, when: str) -> None:
    """A model streams it token by token, so that no entry holds it whole; neither does the base of a compaction."""
    ref = await world.put()
    async with world.open() as board:
        if place == "parts":
            board.state.parts.append(Section(title="one"))
        text = {
            "body": lambda: board.state.body,
            "sections": lambda: board.state.sections["one"].notes,
            "parts": lambda: board.state.parts[0].notes,
        }[place]
        pieces = [ref.pointer[begin : begin + 5] for begin in range(0, len(ref.pointer), 5)]
        for piece in reversed(pieces):
            text().insert(0, piece)
            await board.flush()
        if when != "now":
            await board.commit("typed", tags=["kept"])
            text().delete(10, 40)
            await board.commit("deleted")
            await board.commit("again")
    if when == "at a version that was kept":
        await (await BoardHistory.open(world.store, "job")).compact(Retention(keep_versions=1))
    assert ref.pointer in await world.left()
    async with world.open() as board:
        shown = await board.at(1) if when != "now" else board.snapshot()
    assert ref.pointer in shown.model_dump_json()


async def test_a_compaction_lets_go_of_what_it_squashed(world: World) -> None:
    """A reference goes with the last version that has it; those of versions that stay do not."""
    gone, tagged, base = await world.put(), await world.put(), await world.put()
    async with world.open() as board:
        for ref, tags in ((gone, []), (tagged, ["sent"]), (base, [])):
            board.state.best = ref
            await board.commit("next", tags=tags, trace=str(ref))
        await board.commit("last")
        assert {gone.pointer, tagged.pointer, base.pointer} == await world.left()
        await (await BoardHistory.open(world.store, "job")).compact(Retention(keep_versions=1))
        assert {tagged.pointer, base.pointer} == await world.left()
        assert (await board.at(2)).best == tagged


async def test_forks_and_deleted_boards(world: World) -> None:
    """A fork keeps what it holds when its board is deleted; when it is deleted too, nothing does."""
    ref, later = await world.put(), await world.put()
    async with world.open() as board:
        board.state.best = ref
        board.state.body.append("as above")
        await board.commit("one")
        await board.fork("other", at=1)
        board.state.best = later
    await world.host.delete("job", agent="ann")
    assert await world.left() == {ref.pointer}
    async with world.open("other") as fork:
        assert fork.state.best == ref
        fork.state.best = None
    assert await world.left() == {ref.pointer}
    await world.host.delete("other", agent="ann")
    assert await world.left() == set()


async def test_texts_of_an_older_schema_are_read(world: World) -> None:
    """A field that was a text, and is none since a migration, is looked through at the versions from before."""
    ref = await world.put()

    class Before(BoardModel):
        draft: Text

    class After(BoardModel):
        draft: list[str] = []

        @migrates(from_version=1)
        @classmethod
        def as_lines(cls, state: dict[str, Any]) -> dict[str, Any]:
            return {"draft": []}

    async with open_board(world.host, "job", Before, agent="ann") as board:
        for piece in (ref.pointer[40:], ref.pointer[:40]):
            board.state.draft.insert(0, piece)
            await board.flush()
        await board.commit("typed")
    async with open_board(world.host, "job", After, agent="ann") as after:
        assert list(after.state.draft) == []
        await after.commit("migrated")
    assert await world.left() == {ref.pointer}


async def test_a_board_that_cannot_be_read_stops_the_sweep(tmp_path: Path) -> None:
    """Nothing is known of what it refers to, so nothing is removed, of other boards neither."""
    clock = ManualClock()
    store = FaultyStore(MemoryStore())
    async with BoardHost(store, artifacts=ArtifactStore(MemoryBlobs(clock), clock=clock)) as host:
        world = World(host, clock)
        ref = await world.put()
        async with world.open() as board:
            board.state.body.append("x")
            await board.flush()

        async def no_entries(*_: object, **__: object) -> list[object]:
            return []

        store.inner.entries = no_entries  # type: ignore[method-assign, assignment]
        with pytest.raises(BoardCorrupt):
            await world.swept()
        assert await world.artifacts.stat(ref.sha256)


async def test_a_state_that_was_kept_and_is_damaged_stops_the_sweep(world: World) -> None:
    """What it referred to is not known any more."""
    ref = await world.put()
    async with world.open() as board:
        board.state.body.append("x")
        for step in "ab":
            await board.commit(step)
        await (await BoardHistory.open(world.store, "job")).compact(Retention(keep_versions=1))
        found = await world.store.base("job")
        assert found is not None

        async def damaged(_board_id: str) -> BaseRecord:
            return replace(found, data=found.data[:-1])

        world.store.base = damaged  # type: ignore[method-assign]
        with pytest.raises(BoardCorrupt, match="is damaged"):
            await world.swept()
    assert await world.artifacts.stat(ref.sha256)


async def test_a_pointer_that_moves_while_boards_are_read_is_found(world: World) -> None:
    """What comes to a board that was read already is looked at once more."""
    ref = await world.put()
    async with world.open("a") as first, world.open("b"):

        async def move(board_id: str) -> None:
            first.state.best = ref
            await first.flush()

        references = References({ref.sha256})
        assert await strike_out_referenced(world.store, references)
        assert references.wanted == {ref.sha256}
        await move("a")
        assert await strike_out_referenced(world.store, references)
        assert references.wanted == set()


async def test_a_board_that_has_not_moved_is_not_read_again(world: World) -> None:
    """Only what was written since is read, and a reading finds out that nothing was."""
    async with world.open() as board:
        board.state.body.append("x")
    references = References({"12" * 32})
    assert await strike_out_referenced(world.store, references)
    assert not await strike_out_referenced(world.store, references)


def test_hashes_are_found_inside_longer_runs() -> None:
    """Of digits that run on at both ends each stretch of 64 counts; with a digit less there is none."""
    digest = "0123456789abcdef" * 4
    wanted = {digest}
    assert set(hashes_in(f"ff{digest}00".encode(), wanted)) == wanted
    assert set(hashes_in(b"\x00" + digest.encode() + b"\xff", wanted)) == wanted
    assert set(hashes_in(digest[1:].encode(), wanted)) == set()
    assert set(hashes_in(digest.upper().encode(), wanted)) == set()
