"""A board as one file that checks itself, to carry it from one store to another; `crdt_board.imports` is the way back.

The file is gzip over lines that are told in `crdt_board.export_lines`; at its end is a line with the SHA-256 of all
that stands before it, which shows a file that was cut off or altered. Snapshots are left out but for those that are
all that is left of a version: the others can be made again.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

from crdt_board.artifacts.pointer import pointer_of
from crdt_board.artifacts.references import artifacts_of_board
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.artifacts.threads import in_thread
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import ArtifactCorrupt, BoardCorrupt, Conflict, NotFound, StoreUnavailable
from crdt_board.export_lines import (
    Announcement,
    Line,
    artifact_line,
    artifacts_line,
    base_line,
    end_line,
    entry_line,
    header_line,
    kept_line,
    key_line,
    schema_line,
    state_line,
)
from crdt_board.journal import GENESIS_HASH, verify_chain
from crdt_board.loading import entry_pages
from crdt_board.store.contract import BaseRecord, BoardHead, Store
from crdt_board.store.lookup import existing_head

EXPORT_SUFFIX = ".crdtboard"
EXPORT_TYPE = "application/vnd.crdt-board.export"

_PAGE_KEYS = 1_000
_PAGE_CHECKPOINTS = 1_000
_ATTEMPTS_MAX = 5
_COMPRESSION = 9
_COMPRESSION_OF_ARTIFACTS = 1

Progress = Callable[[int, int], None]
"""Called with how many entries were written or read, and of how many; then with how many bytes of artifacts."""


def no_progress(_done: int, _of: int) -> None:
    pass


@contextlib.contextmanager
def file_errors() -> Iterator[None]:
    """Raise `StoreUnavailable` where the file of an export cannot be written, or gathered in a temporary one."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"an export cannot be written ({error.strerror or error}); check the space on the disk, also in the folder "
            "for temporary files (TMPDIR)"
        ) from error


async def export_board(
    store: Store,
    board_id: str,
    file: BinaryIO,
    on_progress: Progress = no_progress,
    *,
    artifacts: ArtifactStore | None,
) -> BoardHead:
    """Write a board into ``file`` as it is now; return its head. Others may go on writing to it, or compact it.

    Of a compacted board everything that is left: what it is since its base, and the versions before that were kept.
    With it goes the content of all that it refers to in ``artifacts``, now or in any version that can be read; None
    leaves that out. Artifacts are streamed. The export is put together in a temporary file, so that nothing is written
    into ``file`` before all of it is known.

    Raises:
        NotFound, BoardDeleted: there is no such board.
        NotFound: an artifact that it points to is not there; ``sha256`` is in its data, and nothing was written.
        ArtifactCorrupt: one has another hash; nothing was written.
        Conflict: the board was compacted again and again meanwhile; nothing was written.
        BoardCorrupt: what is stored of it does not verify; nothing was written.
        StoreUnavailable: a store did not answer, or ``file`` or the temporary one cannot be written.
    """
    for _ in range(_ATTEMPTS_MAX):
        head = await existing_head(store, board_id)
        with file_errors(), tempfile.TemporaryFile() as whole:
            try:
                await _write(store, head, artifacts, _Export(whole, on_progress))
            except (BoardCorrupt, NotFound):  # NotFound: swept, since the compacted board does not need it any more
                if not await _was_compacted(store, head):
                    raise
                continue
            if await _was_compacted(store, head):
                continue
            whole.seek(0)
            await in_thread(shutil.copyfileobj, whole, file)
        return head
    raise Conflict(f"board {board_id} was compacted again and again while it was exported; try again")


class _Export:
    """What is written into the file so far."""

    def __init__(self, file: BinaryIO, on_progress: Progress) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.on_progress = on_progress

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @contextlib.contextmanager
    def packing(self, compression: int) -> Iterator[None]:
        """Compress what is written in the block."""
        with gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=compression, mtime=0) as self._packed:
            yield

    def write_line(self, line: Line) -> None:
        self.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._packed.write(data)


async def _write(store: Store, head: BoardHead, artifacts: ArtifactStore | None, export: _Export) -> None:
    sizes = None if artifacts is None else await _referenced(store, head, artifacts)
    with export.packing(_COMPRESSION):
        async for line in _lines(store, head, export.on_progress):
            export.write_line(line)
    with export.packing(_COMPRESSION_OF_ARTIFACTS):
        if artifacts is not None and sizes is not None:
            try:
                await _write_artifacts(artifacts, sizes, export)
            except (ArtifactCorrupt, NotFound) as error:
                raise type(error)(f"{_NOT_WHOLE.format(head.board_id)}: {error}", **error.data) from error
        export.write_line(end_line(export.sha256))


_NOT_WHOLE = "board {} can be exported only without its artifacts"


async def _referenced(store: Store, head: BoardHead, artifacts: ArtifactStore) -> dict[str, int]:
    """The artifacts that the board refers to, with their sizes, in the order of their hashes."""
    stored = {each.sha256: each.size async for each in artifacts.all()}
    found = sorted(await artifacts_of_board(store, head, stored))
    missing = [digest for digest in found if digest not in stored]
    if missing:
        more = f", and {len(missing) - 1} more are not" if len(missing) > 1 else ""
        raise NotFound(
            f"{_NOT_WHOLE.format(head.board_id)}: it points to {pointer_of(missing[0])}, which is not there{more}; put "
            "the content again, or restore it from a backup",
            sha256=missing[0],
        )
    return {digest: stored[digest] for digest in found}


async def _write_artifacts(artifacts: ArtifactStore, sizes: dict[str, int], export: _Export) -> None:
    announced, written = Announcement(count=len(sizes), size=sum(sizes.values())), 0
    export.write_line(artifacts_line(announced, export.sha256))
    for digest, size in sizes.items():
        export.write_line(artifact_line(digest, size))
        end = written + size
        async with contextlib.aclosing(artifacts.read(digest)) as chunks:
            async for chunk in chunks:
                await in_thread(export.write, chunk)
                written += len(chunk)
                export.on_progress(written, announced.size)
        if written != end:
            raise ArtifactCorrupt(
                f"artifact {digest} was damaged, and was put again meanwhile; try again", sha256=digest
            )


async def _was_compacted(store: Store, head: BoardHead) -> bool:
    """Whether the base has moved; raises when the board is gone."""
    now = await existing_head(store, head.board_id)
    return (now.epoch, now.base_seq) != (head.epoch, head.base_seq)


async def _lines(store: Store, head: BoardHead, on_progress: Progress) -> AsyncIterator[Line]:
    yield header_line(head)
    for schema in await store.schemas(head.board_id):
        yield schema_line(schema)
    after = ""
    while keys := await store.used_keys(head.board_id, after=after, limit=_PAGE_KEYS):
        for key in keys:
            if key.version <= head.version:  # not those that were used since
                yield key_line(key)
        after = keys[-1].key
    last, last_seq = GENESIS_HASH, 0
    if head.base_seq:
        base = await store.base(head.board_id)
        if base is None or base.seq != head.base_seq:
            raise _corrupt(head, f"there is no base at entry {head.base_seq}", head.base_seq)
        last, last_seq = base.entry_hash, base.seq
        async for line in _lines_before(store, base):
            yield line
    async for page in entry_pages(store, head.board_id, after=last_seq, until=head.seq):
        last, last_seq = verify_chain(last, last_seq, page)
        for entry in page:
            yield entry_line(entry)
        on_progress(last_seq, head.seq)
    if (last_seq, last) != (head.seq, head.hash):
        raise _corrupt(head, f"the journal ends at entry {last_seq}, its head says {head.seq}", last_seq + 1)


async def _lines_before(store: Store, base: BaseRecord) -> AsyncIterator[Line]:
    """The base, and what was kept from before it."""
    yield base_line(base)
    for seq in await store.snapshot_seqs(base.board_id, pinned=True):
        for state in await store.snapshots(base.board_id, at_most=seq, limit=1):
            if state.seq == seq:  # else it has gone meanwhile
                yield state_line(state)
    kept: list[Checkpoint] = []
    before: int | None = None
    while page := await store.checkpoints(base.board_id, before=before, limit=_PAGE_CHECKPOINTS):
        kept += [checkpoint for checkpoint in page if checkpoint.seq <= base.seq]
        before = page[-1].version
    for checkpoint in reversed(kept):
        yield kept_line(checkpoint)


def _corrupt(head: BoardHead, what: str, seq: int) -> BoardCorrupt:
    return BoardCorrupt(f"board {head.board_id}: {what}", board_id=head.board_id, seq=seq)
