"""The way back from `crdt_board.exports`: a board and its artifacts from a file, all of it verified."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from crdt_board.artifacts.contract import CHUNK_BYTES
from crdt_board.artifacts.pointer import pointer_of
from crdt_board.artifacts.references import artifacts_of_board
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import BadRequest, BoardCorrupt, BoardExists, LimitExceeded
from crdt_board.export_lines import Announcement, Line, altered, announced_in, artifact_in, assembled, is_end
from crdt_board.exports import Progress, no_progress
from crdt_board.forks import new_epoch
from crdt_board.history import BoardHistory
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_board_id
from crdt_board.renaming import renamed
from crdt_board.store.contract import BoardHead, NewBoard, Store
from crdt_board.store.memory import MemoryStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What a file holds: a board, the hashes of the artifacts that it points to, and of those that came with it."""

    board: NewBoard
    pointed: frozenset[str]
    brought: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBoard:
    """A board that was made: its head, how many artifacts came with it, and the pointers on it to what is not here."""

    head: BoardHead
    artifacts: int
    missing: tuple[str, ...]


async def import_board(
    store: Store,
    file: BinaryIO,
    on_progress: Progress = no_progress,
    *,
    board_id: str | None = None,
    artifacts: ArtifactStore | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> ImportedBoard:
    """Make the board that `export_board` wrote, under its own name and epoch, or as a copy under ``board_id``.

    The board is verified before anything is written: hash, both chains, the state of every version. Then the artifacts
    are stored in ``artifacts``, each when its hash is right, and at last the board, in one transaction. So it never
    points to what is still to come. ``file`` is read once, in threads.

    Under its own name it is the same board, and a pointer to one of its versions stays valid. Under another one it is
    `renamed`: all its versions are there under their numbers, with other hashes, and pointers lead to the board that
    was exported.

    After an error or a cancellation there is no board; some artifacts may be there, which a sweep removes and another
    import stores again.

    Raises:
        BadRequest: ``file`` is no export, is cut off or was altered; or it holds artifacts and there is no place.
        LimitExceeded: it holds more than ``import_bytes_max`` without its artifacts, or one line of more than
            ``import_line_bytes_max``, or more than ``import_artifacts_bytes_max``, or too large an artifact.
        BoardCorrupt: its hash is right and its content is not.
        BoardExists: there is a board of this name.
        InvalidBoardId: ``board_id`` is not one.
    """
    reading = _Reading(file, limits, on_progress)
    name = await reading.read_board(board_id)
    if await store.head(name) is not None:
        raise _exists(name)
    return await add_board(store, await reading.read_artifacts(artifacts), artifacts)


async def read_export(
    file: BinaryIO,
    on_progress: Progress = no_progress,
    *,
    board_id: str | None = None,
    artifacts: ArtifactStore | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Export:
    """What an export holds, verified; its artifacts are stored then, and the board is left to `add_board`.

    Raises:
        BadRequest, LimitExceeded, BoardCorrupt, InvalidBoardId: as `import_board`.
    """
    reading = _Reading(file, limits, on_progress)
    await reading.read_board(board_id)
    return await reading.read_artifacts(artifacts)


async def add_board(store: Store, export: Export, artifacts: ArtifactStore | None) -> ImportedBoard:
    """Make a board that was read by `read_export`.

    Raises:
        BoardExists: there is a board of this name.
    """
    board_id = export.board.beginning.board_id
    if not await store.create_with(export.board):
        raise _exists(board_id)
    head = await store.head(board_id)
    assert head is not None, board_id
    missing = [
        pointer_of(digest)
        for digest in sorted(export.pointed - export.brought)
        if artifacts is None or await artifacts.stat(digest) is None
    ]
    return ImportedBoard(head=head, artifacts=len(export.brought), missing=tuple(missing))


class _Reading:
    """One file, read from its beginning to its end: `read_board`, then `read_artifacts`."""

    def __init__(self, file: BinaryIO, limits: Limits, on_progress: Progress) -> None:
        self._file = _ExportFile(file, limits)
        self._limits = limits
        self._on_progress = on_progress
        self._board: NewBoard
        self._pointed: frozenset[str]

    async def read_board(self, name: str | None) -> str:
        """Verify the board; return its id, which is ``name`` where that is one."""
        if name is not None:
            check_board_id(name, self._limits)
        self._board = await in_thread(self._file.read_board)
        board_id = self._board.beginning.board_id
        trial = MemoryStore()
        await trial.create_with(self._board)
        found = await (await BoardHistory.open(trial, board_id)).verify(self._on_progress)
        if not found.ok:
            raise BoardCorrupt(found.problems[0].message, board_id=board_id, seq=found.problems[0].number)
        head = await trial.head(board_id)
        assert head is not None, board_id
        self._pointed = frozenset(await artifacts_of_board(trial, head, ()))
        if name is None or name == board_id:
            return board_id
        self._board = await in_thread(renamed, self._board, name, new_epoch())
        return name

    async def read_artifacts(self, artifacts: ArtifactStore | None) -> Export:
        """Store the artifacts behind the board, if there are any, and verify the end of the file."""
        brought: set[str] = set()
        announced = self._file.announced
        if announced is not None:
            if announced.count and artifacts is None:
                raise BadRequest(
                    f"this export holds {announced.count} artifacts, and there is no place for artifacts here: name "
                    "one, or export the board without them"
                )
            if artifacts is not None:
                await self._store_all(announced, artifacts, brought)
            await in_thread(self._file.read_end)
        return Export(board=self._board, pointed=self._pointed, brought=frozenset(brought))

    async def _store_all(self, announced: Announcement, artifacts: ArtifactStore, brought: set[str]) -> None:
        _check("import_artifacts_bytes_max", announced.size, self._limits)
        done = 0
        for _ in range(announced.count):
            digest, size = await in_thread(self._file.read_artifact)
            if done + size > announced.size:
                raise altered()
            await artifacts.put(self._content(digest, size, done, announced.size))
            done += size
            brought.add(digest)

    async def _content(self, digest: str, size: int, before: int, of: int) -> AsyncGenerator[bytes]:
        """The bytes of one artifact. It is not stored when this raises, as it does where they have another hash."""
        sha256, done = hashlib.sha256(), 0
        while done < size:
            chunk = await in_thread(self._file.read_content, min(CHUNK_BYTES, size - done))
            await in_thread(sha256.update, chunk)
            done += len(chunk)
            self._on_progress(before + done, of)
            yield chunk
        if sha256.hexdigest() != digest:
            raise BadRequest(f"this export was altered: {pointer_of(digest)} has another hash in it")


class _ExportFile:
    """The file of an export, and the hash of what was read of it. All methods block: they are called in threads.

    They raise BadRequest when it cannot be read, or is not what an export is.
    """

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._packed = gzip.GzipFile(fileobj=file, mode="rb")
        self._limits = limits
        self._digest = hashlib.sha256()
        self._lines_bytes = 0
        self.announced: Announcement | None = None
        """The artifacts that come behind the board; None when the file ended with it."""

    def read_board(self) -> NewBoard:
        """The board that its lines up to the artifacts, or to the end, add up to; their hash is right."""
        with _unreadable():
            return assembled(self._board_lines(), self._limits)

    def read_artifact(self) -> tuple[str, int]:
        """The hash of the next artifact, and its size in bytes."""
        with _unreadable():
            _, line = self._line()
            return artifact_in(line)

    def read_content(self, count: int) -> bytes:
        """The next ``count`` bytes of it, or fewer, but one at least."""
        with _unreadable():
            content = self._packed.read(count)
            if not content:
                raise altered()
            self._digest.update(content)
            return content

    def read_end(self) -> None:
        """Compare the hash of all that was read, and that there is no more."""
        with _unreadable():
            before, line = self._line()
            if not is_end(line, before):
                raise altered()
            self._check_nothing_follows()

    def _board_lines(self) -> Iterator[Line]:
        while True:
            before, line = self._line()
            self.announced = announced_in(line, before)
            if self.announced is not None:
                return
            if is_end(line, before):
                self._check_nothing_follows()
                return
            yield line

    def _check_nothing_follows(self) -> None:
        if self._packed.read(1):
            raise altered()

    def _line(self) -> tuple[str, Line]:
        """The next line, and the hash of what stands before it."""
        before = self._digest.hexdigest()
        data = self._packed.readline(self._limits.import_line_bytes_max + 1)
        _check("import_line_bytes_max", len(data), self._limits)
        self._lines_bytes += len(data)  # little may unpack to more than the memory holds
        _check("import_bytes_max", self._lines_bytes, self._limits)
        if not data:
            raise altered()
        self._digest.update(data)
        line = json.loads(data)
        if not isinstance(line, dict):
            raise ValueError("a line is no JSON object")
        return before, line


@contextlib.contextmanager
def _unreadable() -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequest(f"this is no export of a board, or it is cut off: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadRequest(f"this export of a board cannot be read: {error}") from error


_TOO_LARGE = {
    "import_line_bytes_max": "one line of this export unpacks to more than {} bytes",
    "import_bytes_max": "this export unpacks to more than {} bytes, without its artifacts",
    "import_artifacts_bytes_max": "the artifacts in this export have more than {} bytes",
}


def _check(limit: str, value: int, limits: Limits) -> None:
    maximum: int = getattr(limits, limit)
    if value > maximum:
        raise LimitExceeded(_TOO_LARGE[limit].format(maximum), limit=limit, value=value, maximum=maximum)


def _exists(board_id: str) -> BoardExists:
    return BoardExists(
        f"there is a board {board_id} already; import under another name, or delete it first", board_id=board_id
    )
