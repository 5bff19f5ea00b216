"""Artifacts of boards in this process."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crdt_board import Artifact, Board, BoardHost, BoardModel, Text, open_board
from crdt_board.artifacts import Artifacts, ArtifactStore
from crdt_board.artifacts.folder import FolderBlobs
from crdt_board.artifacts.memory import MemoryBlobs
from crdt_board.clock import ManualClock
from crdt_board.errors import ArtifactCorrupt, BadRequest, InvalidValue, LimitExceeded, NotFound, StoreUnavailable
from crdt_board.limits import Limits
from crdt_board.store.memory import MemoryStore
from crdt_board.testing.faults import FaultyStore
from support.children import child
from support.disk import file_size_limit
from support.waiting import eventually

HELLO = "artifact:sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
MEBIBYTE = 1024 * 1024


class Report(BoardModel):
    """A board that has artifacts wherever a value may be."""

    best: Artifact | None = None
    files: dict[str, Artifact] = {}
    pages: list[Artifact] = []
    seen: set[Artifact] = set()
    body: Text


@pytest_asyncio.fixture
async def board(tmp_path: Path) -> AsyncIterator[Board[Report]]:
    async with open_board(tmp_path / "boards.db", "job", Report, agent="ann") as board:
        yield board


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "boards.db-artifacts"


def files_in(folder: Path) -> list[str]:
    """Every file below a folder, named from there."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def in_chunks(content: bytes, size: int) -> AsyncIterator[bytes]:
    for begin in range(0, len(content), size):
        yield content[begin : begin + size]


async def test_content_comes_back(board: Board[Report], folder: Path, tmp_path: Path) -> None:
    """Bytes, a file and an iterator of any chunks give one pointer, stored once, and the same bytes."""
    content = bytes(range(256)) * 20_000
    file = tmp_path / "page.html"
    file.write_bytes(content)
    made = [
        await board.artifacts.put(content, media_type="text/html"),
        await board.artifacts.put(file),
        await board.artifacts.put(in_chunks(content, 7), media_type="text/html"),
        await board.artifacts.put(in_chunks(content, 3 * MEBIBYTE), media_type="text/html"),
        await board.artifacts.put(memoryview(content), media_type="text/html"),
    ]
    assert {each.pointer for each in made} == {f"artifact:sha256:{hashlib.sha256(content).hexdigest()}"}
    assert {(each.size, each.media_type) for each in made} == {(len(content), "text/html")}
    assert files_in(folder) == [f"sha256/{made[0].sha256}"]
    assert await board.artifacts.get(made[0]) == await board.artifacts.get(str(made[0])) == content
    assert b"".join([chunk async for chunk in board.artifacts.stream(made[0])]) == content


async def test_what_is_stored_is_told(board: Board[Report]) -> None:
    """`stat` and `exists`, of what is there and of what is not."""
    ref = await board.artifacts.put(b"hello")
    assert (ref.pointer, ref.size, ref.media_type) == (HELLO, 5, "application/octet-stream")
    assert (await board.artifacts.stat(ref)).size == 5
    assert await board.artifacts.exists(HELLO)
    missing = f"artifact:sha256:{'0' * 64}"
    assert not await board.artifacts.exists(missing)
    for look in (board.artifacts.stat, board.artifacts.get):
        with pytest.raises(NotFound, match="never put here, or was swept"):
            await look(missing)


async def test_empty_content_is_content(board: Board[Report]) -> None:
    """No bytes at all have a hash, too."""
    ref = await board.artifacts.put(b"")
    assert (ref.size, await board.artifacts.get(ref)) == (0, b"")


async def test_a_pointer_is_a_value_of_a_board(board: Board[Report]) -> None:
    """It comes back as it was written, wherever values may be, live and from a version; in JSON it is an object."""
    one, two = await board.artifacts.put(b"one", media_type="text/plain"), await board.artifacts.put(b"two")
    board.state.best = one
    board.state.files["two"] = two
    board.state.pages.extend([two, one])
    board.state.seen.add(one)
    await board.commit("done", trace=str(one), output=one.model_dump())
    then = await board.at(1)
    assert (then.best, then.files, then.pages, then.seen) == (one, {"two": two}, [two, one], {one})
    assert board.state.best == one
    made = (await board.checkpoints())[0]
    assert made.output == {"pointer": one.pointer, "size": 3, "media_type": "text/plain"}
    assert await board.artifacts.get(made.trace or "") == b"one"


@pytest.mark.parametrize("content", [b"content", "content", HELLO, bytearray(b"x")])
async def test_content_in_place_of_a_pointer_is_refused(board: Board[Report], content: Any) -> None:
    """V6: the refusal names what to call; nothing was written."""
    with pytest.raises(InvalidValue, match=r"store the content first.*board\.artifacts\.put") as caught:
        board.state.best = content
    assert caught.value.path == "best"
    assert board.state.best is None


async def test_an_edit_that_is_too_large_names_artifacts(board: Board[Report]) -> None:
    """V6: so does the refusal of what is too large to be inline."""
    with pytest.raises(LimitExceeded, match=r"board\.artifacts\.put"):
        board.state.body.append("x" * (17 * MEBIBYTE))


@pytest.mark.parametrize(
    "pointer",
    [
        "", "sha256:00", "artifact:sha256:", f"artifact:sha256:{'0' * 63}", f"artifact:sha256:{'0' * 65}",
        f"artifact:sha256:{'A' * 64}", f"artifact:sha256:{'g' * 64}", f"artifact:sha256:../{'0' * 61}",
        f"artifact:sha256:{'0' * 64}\n", f"artifact:md5:{'0' * 64}", "artifact:sha256:\ud800",
        f"artifact:sha256:{'٣' * 64}",
        "/etc/passwd", None, 7, b"artifact",
    ],
)  # fmt: skip
async def test_what_is_no_pointer_is_refused(board: Board[Report], folder: Path, pointer: Any) -> None:
    """H4: path tricks, other digits and other types never reach the folder, and are no value of a field."""
    for look in (board.artifacts.get, board.artifacts.stat, board.artifacts.exists):
        with pytest.raises(BadRequest, match="points to no artifact"):
            await look(pointer)
    with pytest.raises(BadRequest, match="points to no artifact"):
        board.artifacts.stream(pointer)
    with pytest.raises(ValueError, match="pointer"):
        Artifact(pointer=pointer, size=1)
    assert not folder.exists()


@pytest.mark.parametrize("media_type", ["", "text", "text/", "/plain", "text/plain\r\nX: y", "a/" + "b" * 200, 7])
async def test_what_is_no_media_type_is_refused(board: Board[Report], media_type: Any) -> None:
    """It will be told to others, so it must be one; an empty one counts as none."""
    if media_type == "":
        assert (await board.artifacts.put(b"x", media_type="")).media_type == "application/octet-stream"
        return
    with pytest.raises(BadRequest, match="no media type"):
        await board.artifacts.put(b"x", media_type=media_type)
    with pytest.raises(ValueError, match="media_type"):
        Artifact(pointer=HELLO, size=1, media_type=media_type)


async def test_what_is_no_content_is_refused(board: Board[Report], folder: Path, tmp_path: Path) -> None:
    """A text, another type, an iterator of texts and a file that is not there; nothing is left behind."""
    with pytest.raises(BadRequest, match=r"text\.encode\(\), or Path"):
        await board.artifacts.put("report.pdf")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="not int"):
        await board.artifacts.put(7)  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="cannot be read"):
        await board.artifacts.put(tmp_path / "none")

    async def texts() -> AsyncIterator[str]:
        yield "x"

    with pytest.raises(BadRequest, match="the iterator gave a str"):
        await board.artifacts.put(texts())  # type: ignore[arg-type]
    assert files_in(folder) == []


async def test_an_iterator_that_fails_leaves_nothing(board: Board[Report], folder: Path) -> None:
    """Its error is the caller's, and no part of the content stays."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"x" * 3 * MEBIBYTE
        raise RuntimeError("the model hung up")

    with pytest.raises(RuntimeError, match="hung up"):
        await board.artifacts.put(broken())
    assert files_in(folder) == []


async def test_a_put_that_is_cancelled_leaves_nothing(board: Board[Report], folder: Path) -> None:
    """Cancellation in the middle removes what was gathered."""
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * MEBIBYTE
            begun.set()

    putting = asyncio.create_task(board.artifacts.put(endless()))
    await begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert files_in(folder) == []


async def test_a_put_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """At the limit it is stored; a byte more is refused as soon as it is seen, and leaves nothing."""
    place = ArtifactStore(FolderBlobs(tmp_path / "a"), limits=Limits(artifact_bytes_max=2 * MEBIBYTE))
    artifacts = Artifacts(place)
    await artifacts.put(b"x" * 2 * MEBIBYTE)
    kept = files_in(tmp_path / "a")
    with pytest.raises(LimitExceeded, match="at most 2097152 bytes") as caught:
        await artifacts.put(in_chunks(b"x" * 9 * MEBIBYTE, 1000))
    assert caught.value.limit == "artifact_bytes_max"
    assert files_in(tmp_path / "a") == kept


async def test_get_is_bounded() -> None:
    """What is too large for memory is refused, naming `stream`, which gives it."""
    store = ArtifactStore(MemoryBlobs())
    artifacts = Artifacts(store, Limits(artifact_memory_bytes_max=MEBIBYTE))
    ref = await artifacts.put(b"x" * (MEBIBYTE + 1))
    with pytest.raises(LimitExceeded, match="stream"):
        await artifacts.get(ref)
    assert sum([len(chunk) async for chunk in artifacts.stream(ref)]) == ref.size


@pytest.mark.parametrize("size", [1, 100, 3 * MEBIBYTE])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow"])
async def test_damage_is_found_when_it_is_read(board: Board[Report], folder: Path, size: int, damage: str) -> None:
    """D7: never all of wrong bytes, and from then on none; putting the content again makes it good."""
    content = bytes(range(7)) * size
    ref = await board.artifacts.put(content)
    file = folder / "sha256" / ref.sha256
    stored = bytearray(file.read_bytes())
    if damage == "flip":
        stored[len(stored) // 2] ^= 1
    file.write_bytes(stored[:-1] if damage == "cut" else stored + (b"x" if damage == "grow" else b""))
    with pytest.raises(ArtifactCorrupt, match="another hash") as caught:
        await board.artifacts.get(ref)
    assert (caught.value.code, caught.value.sha256) == ("artifact_corrupt", ref.sha256)
    with pytest.raises(ArtifactCorrupt):
        await anext(aiter(board.artifacts.stream(ref)))
    await board.artifacts.put(content)
    assert await board.artifacts.get(ref) == content


async def test_the_last_chunk_waits_for_the_hash(board: Board[Report], folder: Path) -> None:
    """A stream of damaged content ends with the error, before its last chunk."""
    ref = await board.artifacts.put(b"x" * 5 * MEBIBYTE)
    (folder / "sha256" / ref.sha256).write_bytes(b"y" * 5 * MEBIBYTE)
    stream = aiter(board.artifacts.stream(ref))
    got = [await anext(stream) for _ in range(4)]
    assert sum(map(len, got)) == 4 * MEBIBYTE
    with pytest.raises(ArtifactCorrupt):
        await anext(stream)


async def test_a_full_disk_refuses_and_leaves_nothing(board: Board[Report], folder: Path) -> None:
    """D6: the error says what to look at; there is no half artifact, and the next put works once there is space."""
    with file_size_limit(2 * MEBIBYTE), pytest.raises(StoreUnavailable, match="cannot be written") as caught:
        await board.artifacts.put(b"x" * 4 * MEBIBYTE)
    assert caught.value.retryable
    assert files_in(folder) == []
    ref = await board.artifacts.put(b"x" * 4 * MEBIBYTE)
    assert files_in(folder) == [f"sha256/{ref.sha256}"]


async def test_a_process_that_is_killed_in_a_put_leaves_no_name(tmp_path: Path) -> None:
    """D1: what was gathered is no artifact; a sweep removes it when it is old, and the next put is whole."""
    folder = tmp_path / "a"
    program = [sys.executable, "-m", "support.putting", str(folder)]
    async with child(program, folder=tmp_path) as putting:
        assert await putting.answer() == "half"
        assert [name.split("/")[0] for name in files_in(folder)] == ["incoming"]
        await putting.kill()
    store = ArtifactStore(FolderBlobs(folder), clock=ManualClock(2**42))
    assert await store.page(limit=10) == []
    await store.tidy(2**42)
    assert files_in(folder) == []
    ref = await Artifacts(store).put(b"x" * 4 * MEBIBYTE)
    assert len(await Artifacts(store).get(ref)) == ref.size


async def test_a_put_outlives_its_process(tmp_path: Path) -> None:
    """What was answered is there for another process, on the same folder."""
    program = [sys.executable, "-m", "support.putting", str(tmp_path / "a")]
    async with child(program, folder=tmp_path) as putting:
        assert await putting.answer() == "half"
        pointer = await putting.ask("go on")
        await putting.kill()
    assert len(await Artifacts(ArtifactStore(FolderBlobs(tmp_path / "a"))).get(pointer)) == 8 * MEBIBYTE


async def test_boards_of_a_host_share_its_artifacts(tmp_path: Path) -> None:
    """What one puts the other gets; a host over a store that says nothing of files has no place unless told."""
    async with (
        BoardHost(MemoryStore()) as host,
        open_board(host, "one", Report, agent="ann") as one,
        open_board(host, "two", agent="bob") as two,
    ):
        ref = await one.artifacts.put(b"hello")
        assert await two.artifacts.get(ref) == b"hello"
    async with BoardHost(FaultyStore(MemoryStore())) as host, open_board(host, "one", agent="ann") as one:
        with pytest.raises(BadRequest, match="no place for artifacts"):
            _ = one.artifacts
    with pytest.raises(BadRequest, match="argument of the BoardHost"):
        async with BoardHost(MemoryStore()) as host, open_board(host, "one", agent="ann", artifacts=tmp_path):
            pass
    assert not list(tmp_path.iterdir())


async def test_the_place_can_be_chosen(tmp_path: Path) -> None:
    """``artifacts=`` names another folder."""
    place = tmp_path / "elsewhere"
    async with open_board(tmp_path / "boards.db", "job", agent="ann", artifacts=place) as board:
        ref = await board.artifacts.put(b"hello")
        board.state["report"] = ref.model_dump()
    assert files_in(place) == [f"sha256/{ref.sha256}"]
    async with open_board(tmp_path / "boards.db", "job", agent="ann", artifacts=f"file://{place}") as board:
        assert await board.artifacts.get(Artifact(**board.state["report"])) == b"hello"


async def test_other_languages_read_the_pointer(board: Board[Report]) -> None:
    """docs/layout.md: an object with three keys, whose schema refuses what is no pointer."""
    board.state.best = await board.artifacts.put(b"hello", media_type="text/plain")
    wire = {"pointer": HELLO, "size": 5, "media_type": "text/plain"}
    assert json.loads(board.snapshot().model_dump_json())["best"] == wire
    schema = Report.board_layout().by_name["best"].json_schema
    assert "artifact:sha256" in json.dumps(schema)


async def test_a_removal_that_meets_a_put_loses(tmp_path: Path) -> None:
    """A put that returns while a removal is between its look and its deletion finds that out, and writes again."""
    clock = ManualClock(1_000_000)
    blobs = _Held(clock)
    store = ArtifactStore(blobs, clock=clock)
    ref = await Artifacts(store).put(b"hello")
    clock.advance(10_000)
    removing = asyncio.create_task(store.remove(ref.sha256, before_ms=clock.now_ms()))
    await blobs.deleting.wait()
    putting = asyncio.create_task(Artifacts(store).put(b"hello"))
    await eventually(lambda: blobs.writes == 3, "the put has written, beside the first one and the notice")
    blobs.go_on.set()
    assert await removing
    await putting
    assert await Artifacts(store).get(ref) == b"hello"


async def test_what_others_keep_there_stays(tmp_path: Path) -> None:
    """A file under a name that is no hash is not listed, and so not swept."""
    store = ArtifactStore(FolderBlobs(tmp_path))
    ref = await Artifacts(store).put(b"hello")
    (tmp_path / "sha256" / "notes.txt").write_text("mine")
    assert [each.pointer for each in await store.page(limit=10)] == [ref.pointer]


async def test_a_removal_that_was_cut_off_holds_nobody_up_for_ever() -> None:
    """A notice that is too old to be that of a removal is passed over, and removed by the next sweep."""
    clock = ManualClock(1_000_000)
    blobs = _Held(clock)
    store = ArtifactStore(blobs, clock=clock)
    ref = await Artifacts(store).put(b"hello")
    clock.advance(1)
    removing = asyncio.create_task(store.remove(ref.sha256, before_ms=clock.now_ms()))
    await blobs.deleting.wait()
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removing
    assert [each.size async for each in blobs.blobs_in("sweeping")] == [0]
    clock.advance(3_600_000)
    await Artifacts(store).put(b"hello")
    assert await Artifacts(store).get(ref) == b"hello"
    await store.tidy(clock.now_ms())
    assert [each async for each in blobs.blobs_in("sweeping")] == []


class _Held(MemoryBlobs):
    """Memory whose deletions of artifacts wait."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.deleting, self.go_on = asyncio.Event(), asyncio.Event()
        self.writes = 0

    async def write(self, name: str, spool: Any) -> None:
        await super().write(name, spool)
        self.writes += 1

    async def delete(self, name: str) -> None:
        if name.startswith("sha256/"):
            self.deleting.set()
            await self.go_on.wait()
        await super().delete(name)
