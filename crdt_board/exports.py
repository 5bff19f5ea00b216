"""A board as one file that checks itself, to carry it from one store to another.

The file is gzip over lines of JSON, which are told in `crdt_board.export_lines`; at its end is a line with the SHA-256
of all the lines before, which shows a file that was cut off or altered. Snapshots are left out but for those that are
all that is left of a version: the others can be made again.
"""

from __future__ import annotations

import asyncio
import binascii
import gzip
import hashlib
import json
import shutil
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, BinaryIO

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, BoardCorrupt, BoardExists, Conflict, LimitExceeded
from crdt_board.export_lines import (
    Line,
    assembled,
    base_line,
    entry_line,
    header_line,
    kept_line,
    key_line,
    schema_line,
    state_line,
)
from crdt_board.history import BoardHistory
from crdt_board.journal import GENESIS_HASH, verify_chain
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.loading import entry_pages
from crdt_board.store.contract import BaseRecord, BoardHead, NewBoard, Store
from crdt_board.store.lookup import existing_head
from crdt_board.store.memory import MemoryStore

EXPORT_SUFFIX = ".crdtboard"
EXPORT_TYPE = "application/vnd.crdt-board.export"

_PAGE_KEYS = 1_000
_PAGE_CHECKPOINTS = 1_000
_ATTEMPTS_MAX = 5

Progress = Callable[[int, int], None]
"""Called with how many entries were written or read, and of how many."""


def _no_progress(_done: int, _of: int) -> None:
    pass


async def export_board(store: Store, board_id: str, file: BinaryIO, on_progress: Progress = _no_progress) -> BoardHead:
    """Write a board into ``file`` as it is now; return its head. Others may go on writing to it, or compact it.

    Of a compacted board everything that is left: what it is since its base, and the versions before that were kept.
    It is put together in a temporary file, so that nothing is written into ``file`` before all of it is known.

    Raises:
        NotFound, BoardDeleted: there is no such board.
        Conflict: the board was compacted again and again meanwhile; nothing was written.
        BoardCorrupt: what is stored of it does not verify; nothing was written.
    """
    for _ in range(_ATTEMPTS_MAX):
        head = await existing_head(store, board_id)
        with tempfile.TemporaryFile() as whole:
            try:
                await _write(store, head, whole, on_progress)
            except BoardCorrupt:
                if not await _was_compacted(store, head):
                    raise
                continue
            if await _was_compacted(store, head):
                continue
            whole.seek(0)
            await asyncio.to_thread(shutil.copyfileobj, whole, file)
        return head
    raise Conflict(f"board {board_id} was compacted again and again while it was exported; try again")


async def _write(store: Store, head: BoardHead, file: BinaryIO, on_progress: Progress) -> None:
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        async for line in _lines(store, head, on_progress):
            data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            digest.update(data)
            packed.write(data)
        packed.write(json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n")


async def _was_compacted(store: Store, head: BoardHead) -> bool:
    """Whether the base has moved; raises when the board is gone."""
    now = await existing_head(store, head.board_id)
    return (now.epoch, now.base_seq) != (head.epoch, head.base_seq)


async def import_board(
    store: Store, file: BinaryIO, on_progress: Progress = _no_progress, *, limits: Limits = DEFAULT_LIMITS
) -> BoardHead:
    """Make the board that `export_board` wrote, under its own name and epoch; return its head.

    Everything is verified before anything is written: the file's hash, both chains, the state of every version. All of
    it is written in one transaction. A pointer to one of its versions stays valid. ``file`` is read in a thread.

    Raises:
        BadRequest: ``file`` is no export, is cut off or was altered.
        LimitExceeded: it holds more than ``import_bytes_max``, or one line of it more than ``import_line_bytes_max``.
        BoardCorrupt: its hash is right and its content is not.
        BoardExists: there is a board of this name.
    """
    return await add_board(store, await read_export(file, on_progress, limits=limits))


async def read_export(
    file: BinaryIO, on_progress: Progress = _no_progress, *, limits: Limits = DEFAULT_LIMITS
) -> NewBoard:
    """The board in an export, verified; nothing is written.

    Raises:
        BadRequest, LimitExceeded, BoardCorrupt: as `import_board`.
    """
    board = await asyncio.to_thread(_read, file, limits)
    trial = MemoryStore()
    await trial.create_with(board)
    board_id = board.beginning.board_id
    found = await (await BoardHistory.open(trial, board_id)).verify(on_progress)
    if not found.ok:
        raise BoardCorrupt(found.problems[0].message, board_id=board_id, seq=found.problems[0].number)
    return board


async def add_board(store: Store, board: NewBoard) -> BoardHead:
    """Make a board that was read by `read_export`; return its head.

    Raises:
        BoardExists: there is a board of this name.
    """
    board_id = board.beginning.board_id
    if not await store.create_with(board):
        raise BoardExists(
            f"there is a board {board_id} already; delete it first, or import into another database", board_id=board_id
        )
    head = await store.head(board_id)
    assert head is not None, board_id
    return head


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


def _read(file: BinaryIO, limits: Limits) -> NewBoard:
    """The board in a file whose hash is right."""
    try:
        return assembled(_checked_lines(file, limits), limits)
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequest(f"this is no export of a board, or it is cut off: {error}") from error
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise BadRequest(f"this export of a board cannot be read: {error}") from error


def _checked_lines(file: BinaryIO, limits: Limits) -> Iterator[dict[str, Any]]:
    digest = hashlib.sha256()
    previous = b""
    with gzip.GzipFile(fileobj=file, mode="rb") as packed:
        for line in _bounded_lines(packed, limits):
            if previous:
                digest.update(previous)
                yield json.loads(previous)
            previous = line
    if not previous or json.loads(previous) != {"sha256": digest.hexdigest()}:
        raise BadRequest("this export of a board was cut off or altered: its hash is not that of its content")


def _bounded_lines(packed: gzip.GzipFile, limits: Limits) -> Iterator[bytes]:
    """The lines of a file of which little may unpack to more than the memory holds."""
    size = 0
    while line := packed.readline(limits.import_line_bytes_max + 1):
        if len(line) > limits.import_line_bytes_max:
            raise _too_large("import_line_bytes_max", limits.import_line_bytes_max)
        size += len(line)
        if size > limits.import_bytes_max:
            raise _too_large("import_bytes_max", limits.import_bytes_max)
        yield line


def _too_large(limit: str, maximum: int) -> LimitExceeded:
    what = "one line of this export" if limit == "import_line_bytes_max" else "this export"
    message = f"{what} unpacks to more than {maximum} bytes"
    return LimitExceeded(message, limit=limit, value=maximum + 1, maximum=maximum)
