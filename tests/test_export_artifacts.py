"""Exports with the artifacts that a board points to: from one store and place to another, in Python."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import os
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from obstore.store import LocalStore

from crdt_board import Artifact, BoardHost, BoardModel, Text, open_board
from crdt_board.artifacts import Artifacts, ArtifactStore, open_artifacts
from crdt_board.artifacts.bucket import BucketBlobs
from crdt_board.artifacts.folder import FolderBlobs
from crdt_board.artifacts.memory import MemoryBlobs
from crdt_board.artifacts.sweep import sweep
from crdt_board.errors import ArtifactCorrupt, BadRequest, BoardExists, LimitExceeded, NotFound, StoreUnavailable
from crdt_board.export_lines import FORMAT_VERSION
from crdt_board.exports import export_board
from crdt_board.history import BoardHistory, Retention
from crdt_board.imports import ImportedBoard, import_board
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.contract import Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from support.waiting import DEADLINE_SECONDS

BOARD = "job"
MEBIBYTE = 1024 * 1024


class Report(BoardModel):
    best: Artifact | None = None
    files: dict[str, Artifact] = {}
    body: Text


class World:
    """A host, and what it can be asked for in one line."""

    def __init__(self, host: BoardHost, folder: Path) -> None:
        self.host = host
        self.folder = folder
        assert host.artifacts is not None
        self.place = host.artifacts
        self.artifacts = Artifacts(host.artifacts)

    @property
    def store(self) -> Store:
        return self.host.store

    def open(self, board_id: str = BOARD) -> Any:
        return open_board(self.host, board_id, Report, agent="ann")

    async def exported(self, board_id: str = BOARD, **options: Any) -> bytes:
        file = io.BytesIO()
        await export_board(self.store, board_id, file, **{"artifacts": self.place, **options})
        return file.getvalue()

    async def imported(self, data: bytes, **options: Any) -> ImportedBoard:
        return await import_board(self.store, io.BytesIO(data), **{"artifacts": self.place, **options})

    async def stored(self) -> set[str]:
        """The pointers of all artifacts that are there."""
        return {each.pointer async for each in self.place.all()}

    def file_of(self, ref: Artifact) -> Path:
        return self.folder / "sha256" / ref.sha256


@contextlib.asynccontextmanager
async def world_at(folder: Path) -> AsyncIterator[World]:
    """A database and a folder for its artifacts, in this one."""
    folder.mkdir()
    place = folder / "artifacts"
    async with BoardHost(await SqliteStore.open(folder / "boards.db"), artifacts=open_artifacts(place)) as host:
        yield World(host, place)


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(tmp_path / "here") as world:
        yield world


@pytest_asyncio.fixture
async def there(tmp_path: Path) -> AsyncIterator[World]:
    async with world_at(tmp_path / "there") as world:
        yield world


def place_of(kind: str, folder: Path) -> ArtifactStore:
    if kind == "bucket":
        folder.mkdir()
        return ArtifactStore(BucketBlobs(LocalStore(folder), "files"))
    return ArtifactStore(FolderBlobs(folder) if kind == "folder" else MemoryBlobs())


@pytest.mark.parametrize(("source", "target"), [("memory", "bucket"), ("bucket", "folder"), ("folder", "memory")])
async def test_every_artifact_that_a_board_refers_to_is_elsewhere(tmp_path: Path, source: str, target: str) -> None:
    """In a field, in what was deleted, in a trace, an output, a handoff, a text written in pieces; and no other one."""
    contents = {name: os.urandom(size) for name, size in enumerate((0, 1, MEBIBYTE, MEBIBYTE + 1, 5, 6, 7))}
    store = MemoryStore()
    file = io.BytesIO()
    steps: list[tuple[int, int]] = []
    async with BoardHost(store.peer(), artifacts=place_of(source, tmp_path / "source")) as host:
        assert host.artifacts is not None
        artifacts = Artifacts(host.artifacts)
        refs = [await artifacts.put(content) for content in contents.values()]
        await artifacts.put(b"of no board")
        async with open_board(host, BOARD, Report, agent="ann") as board:
            board.state.best = refs[0]
            board.state.files["gone"] = refs[1]
            await board.commit("one", trace=str(refs[2]), output={"log": refs[3].model_dump()}, handoff=str(refs[4]))
            del board.state.files["gone"]
            for piece in (refs[5].pointer[:30], refs[5].pointer[30:]):
                board.state.body.append(piece)
                await board.flush(DEADLINE_SECONDS)
            board.state.best = refs[6]
            snapshot = board.snapshot()
        await export_board(store, BOARD, file, lambda done, of: steps.append((done, of)), artifacts=host.artifacts)
    total = sum(map(len, contents.values()))
    assert steps[-1] == (total, total)
    file.seek(0)
    other = await SqliteStore.open(tmp_path / "other.db")
    steps.clear()
    async with BoardHost(other, artifacts=place_of(target, tmp_path / "target")) as host:
        assert host.artifacts is not None
        made = await import_board(other, file, lambda done, of: steps.append((done, of)), artifacts=host.artifacts)
        assert (made.artifacts, made.missing, steps[-1]) == (7, (), (total, total))
        assert {each.pointer async for each in host.artifacts.all()} == {str(ref) for ref in refs}
        async with open_board(host, BOARD, Report, agent="bob") as board:
            assert board.snapshot() == snapshot
            assert [await board.artifacts.get(ref) for ref in refs] == list(contents.values())
            assert (await board.verify()).ok


async def test_a_large_artifact_is_never_in_memory(here: World, there: World, tmp_path: Path) -> None:
    """20 MiB go out and in while less than half of that is allocated."""
    part = os.urandom(MEBIBYTE)

    async def content() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield part

    ref = await here.artifacts.put(content())
    async with here.open() as board:
        board.state.best = ref
    with (tmp_path / "file").open("w+b") as file:
        tracemalloc.start()
        try:
            await export_board(here.store, BOARD, file, artifacts=here.place)
            file.seek(0)
            await import_board(there.store, file, artifacts=there.place)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 10 * MEBIBYTE
    assert there.file_of(ref).stat().st_size == 20 * MEBIBYTE
    assert there.file_of(ref).read_bytes() == 20 * part


async def test_a_compacted_board_takes_what_is_left_and_a_fork_what_it_has(here: World, there: World) -> None:
    """What only versions had that were compacted away stays behind; what a fork of them holds goes with the fork."""
    refs = [await here.artifacts.put(f"content {n}".encode()) for n in range(4)]
    async with here.open() as board:
        for n, ref in enumerate(refs):
            board.state.best = ref
            await board.commit(f"step {n}", tags=["sent"] if n == 1 else [])
            if n == 0:
                await board.fork("fork")
    async with here.open("fork") as fork:
        fork.state.files["mine"] = refs[3]
        await fork.commit("fork")
    await (await BoardHistory.open(here.store, BOARD)).compact(Retention(keep_versions=1))
    forked = await there.imported(await here.exported("fork"))
    assert forked.artifacts == 2
    assert await there.stored() == {str(refs[0]), str(refs[3])}
    await here.host.delete("fork", agent="ann")
    await (await BoardHistory.open(here.store, BOARD)).compact(Retention(keep_versions=1))
    made = await there.imported(await here.exported())
    assert (made.artifacts, made.missing) == (2, ())
    assert await there.stored() == {str(refs[0]), str(refs[1]), str(refs[3])}
    async with there.open() as board:
        assert await board.artifacts.get((await board.at(2)).best) == b"content 1"


async def test_what_is_there_already_is_put_again(here: World, there: World) -> None:
    """An import stores what is there as if it were new: damage is made good, and no sweep takes it before the board."""
    ref = await here.artifacts.put(b"content")
    async with here.open() as board:
        board.state.best = ref
    data = await here.exported()
    await there.artifacts.put(b"content")
    there.file_of(ref).write_bytes(b"damaged")
    os.utime(there.file_of(ref), (1, 1))
    assert (await there.imported(data)).artifacts == 1
    assert await there.artifacts.get(ref) == b"content"
    assert (await there.artifacts.stat(ref)).stored_ms > 1_000
    with pytest.raises(BoardExists):
        await there.imported(data)


async def test_an_import_of_a_name_that_is_taken_stores_nothing(here: World, there: World) -> None:
    """It is refused before the first artifact is read."""
    async with here.open() as board:
        board.state.best = await here.artifacts.put(b"content")
    async with there.open() as board:
        board.state.body.append("mine")
    with pytest.raises(BoardExists):
        await there.imported(await here.exported())
    assert await there.stored() == set()


async def test_an_altered_artifact_is_refused(here: World, there: World) -> None:
    """D8, H6: a flipped byte, a cut, another hash or size than announced, a piece of something else: no board is made,
    and no artifact but sound ones, which go with the next sweep; the right file can be imported then."""
    first, second = sorted([await here.artifacts.put(os.urandom(3 * MEBIBYTE)) for _ in range(2)], key=str)
    async with here.open() as board:
        board.state.files["a"], board.state.files["b"] = first, second
    data = await here.exported()
    content = gzip.decompress(data)
    begin = content.index(b'{"artifacts"')
    line = content[begin : content.index(b"\n", begin) + 1]
    header, other = json.loads(line), f'"artifact":"{second.sha256}"'.encode()
    middle = content.index(other) + len(other) + MEBIBYTE
    flipped = bytearray(content)
    flipped[middle] ^= 1
    stored = bytearray(data)
    stored[len(data) * 3 // 4] ^= 1

    def announcing(**changed: Any) -> bytes:
        return content.replace(line, json.dumps({**header, **changed}).encode() + b"\n")

    wrong = [
        bytes(stored),
        data[: len(data) // 2],
        data[: -len(data) // 4],
        data + gzip.compress(b"{}\n"),
        *map(resigned, (bytes(flipped), announcing(artifacts=1), announcing(artifacts=3), announcing(size=9))),
        *map(resigned, (announcing(size=-1), announcing(artifacts="x"), announcing(before="0" * 64))),
        resigned(content.replace(other, b'"artifact":"../x"')),
        resigned(content.replace(other + f',"size":{second.size}'.encode(), other + b',"size":5')),
        resigned(content.replace(b'"author":"ann"', b'"author":"eve"')),
    ]
    for bad in wrong:
        with pytest.raises(BadRequest):
            await there.imported(bad)
        assert await there.store.boards() == []
    assert not list((there.folder / "incoming").iterdir())
    assert await there.stored() == {str(first), str(second)}
    for ref in (first, second):
        assert len(await there.artifacts.get(ref)) == ref.size
        os.utime(there.file_of(ref), (1, 1))
    await sweep(there.store, there.place, grace=timedelta(0))
    assert await there.stored() == set()
    assert (await there.imported(data)).artifacts == 2


def resigned(content: bytes) -> bytes:
    """An export whose own hash is right, around altered content."""
    before = content[: content.rindex(b'{"sha256"')]
    return gzip.compress(before + json.dumps({"sha256": hashlib.sha256(before).hexdigest()}).encode() + b"\n", 1)


async def test_a_missing_artifact_is_named(here: World, there: World) -> None:
    """V9: an export of a board that points to what is not there, or is damaged, is refused and writes nothing; without
    artifacts it is made, and the import says which ones are missing."""
    lost, kept = await here.artifacts.put(b"lost"), await here.artifacts.put(b"kept")
    async with here.open() as board:
        board.state.files["lost"], board.state.files["kept"] = lost, kept
    content = here.file_of(lost).read_bytes()
    here.file_of(lost).write_bytes(b"last")
    file = io.BytesIO()
    with pytest.raises(ArtifactCorrupt, match=f"only without its artifacts: artifact {lost.sha256} is damaged") as bad:
        await export_board(here.store, BOARD, file, artifacts=here.place)
    assert bad.value.sha256 == lost.sha256
    here.file_of(lost).unlink()
    with pytest.raises(NotFound, match=f"only without its artifacts: it points to {lost}, which is not there") as gone:
        await export_board(here.store, BOARD, file, artifacts=here.place)
    assert gone.value.sha256 == lost.sha256
    assert file.getvalue() == b""
    await there.artifacts.put(b"kept")
    made = await there.imported(await here.exported(artifacts=None))
    assert (made.artifacts, made.missing) == (0, (str(lost),))
    await there.artifacts.put(content)
    async with there.open() as board:
        assert await board.artifacts.get(board.state.files["lost"]) == b"lost"


async def test_artifacts_without_a_place_are_refused(here: World) -> None:
    """A board is not made whose artifacts would be dropped; a file that holds none needs no place."""
    async with here.open() as board:
        board.state.body.append("no pointer")
    store = MemoryStore()
    data = await here.exported()
    assert (await import_board(store, io.BytesIO(data))).missing == ()
    async with here.open("other") as board:
        board.state.best = await here.artifacts.put(b"content")
    with pytest.raises(BadRequest, match="holds 1 artifacts, and there is no place"):
        await import_board(store, io.BytesIO(await here.exported("other")))
    assert [head.board_id for head in await store.boards()] == [BOARD]


@pytest.mark.parametrize("limit", ["import_artifacts_bytes_max", "artifact_bytes_max"])
async def test_artifacts_of_an_import_are_bounded(here: World, limit: str) -> None:
    """One that is too large, or all together, are refused; those of a file do not count as what is in memory."""
    async with here.open() as board:
        board.state.best = await here.artifacts.put(b"a" * 300_000)
    data = await here.exported()
    limits = replace(DEFAULT_LIMITS, import_bytes_max=200_000, import_line_bytes_max=100_000)
    small = replace(limits, **{limit: 299_999})
    store = MemoryStore()
    artifacts = ArtifactStore(MemoryBlobs(), limits=small)
    with pytest.raises(LimitExceeded) as refused:
        await import_board(store, io.BytesIO(data), artifacts=artifacts, limits=small)
    assert refused.value.data["limit"] == limit
    assert await store.boards() == []
    await import_board(store, io.BytesIO(data), artifacts=ArtifactStore(MemoryBlobs()), limits=limits)


async def test_an_import_that_is_cancelled_leaves_no_board(here: World, there: World) -> None:
    """D6: nor half an artifact; the same file can be imported afterwards."""
    async with here.open() as board:
        board.state.best = await here.artifacts.put(os.urandom(4 * MEBIBYTE))
    data = await here.exported()
    reached = asyncio.Event()

    def on_progress(done: int, of: int) -> None:
        if of == 4 * MEBIBYTE:
            reached.set()

    importing = asyncio.create_task(import_board(there.store, io.BytesIO(data), on_progress, artifacts=there.place))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await reached.wait()
        importing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await importing
    assert (await there.store.boards(), await there.stored()) == ([], set())
    assert not list((there.folder / "incoming").iterdir())
    assert (await there.imported(data)).artifacts == 1


async def test_a_disk_that_is_full_is_told(here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the export goes, and where it is put together."""
    async with here.open() as board:
        board.state.body.append("x")
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(StoreUnavailable, match="No space left"):
        await export_board(here.store, BOARD, full, artifacts=here.place)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(StoreUnavailable, match="TMPDIR"):
        await here.exported()


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
async def test_an_export_of_another_format_is_refused_by_its_number(here: World, version: object) -> None:
    """The message names the format of the file and the one that is read."""
    async with here.open() as board:
        board.state.body.append("x")
    content = gzip.decompress(await here.exported())
    old = f'"format_version":{FORMAT_VERSION}'.encode()
    data = resigned(content.replace(old, f'"format_version":{json.dumps(version)}'.encode()))
    store = MemoryStore()
    with pytest.raises(BadRequest, match=f"has format {version}, and .* reads format {FORMAT_VERSION}"):
        await import_board(store, io.BytesIO(data), artifacts=here.place)
    assert await store.boards() == []
