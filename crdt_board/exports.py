"""A board as one file that checks itself, to carry it from one store to another.

The file is gzip over lines of JSON: a header with the board's head; its schemas; its entries, each with its payload in
base64 and, in a commit, its checkpoint; at the end a line with the SHA-256 of all the lines before, which shows a file
that was cut off or altered. Snapshots are left out: they can be made again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, BinaryIO

from crdt_board.checkpoints import Checkpoint, decode_checkpoint
from crdt_board.errors import BadRequest, BoardCorrupt, BoardExists, LimitExceeded, MalformedUpdate
from crdt_board.history import BoardHistory
from crdt_board.journal import GENESIS_HASH, Entry, unpack_updates, verify_chain
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_board_id
from crdt_board.loading import entry_pages
from crdt_board.readiness import is_ready
from crdt_board.store.contract import Append, BoardHead, KeyRecord, NewBoard, SchemaRecord, Store
from crdt_board.store.lookup import existing_head
from crdt_board.store.memory import MemoryStore
from crdt_board.update_walk import walk

FORMAT = "crdt-board-export"
FORMAT_VERSION = 1

EXPORT_SUFFIX = ".crdtboard"
EXPORT_TYPE = "application/vnd.crdt-board.export"

_PAGE_KEYS = 1_000

Progress = Callable[[int, int], None]
"""Called with how many entries were written or read, and of how many."""


def _no_progress(_done: int, _of: int) -> None:
    pass


async def export_board(store: Store, board_id: str, file: BinaryIO, on_progress: Progress = _no_progress) -> BoardHead:
    """Write a board into ``file`` as it is now; return its head. Others may go on writing to it.

    Raises:
        NotFound, BoardDeleted: there is no such board.
        BadRequest: it was compacted, so that its journal is not whole any more.
        BoardCorrupt: its journal does not verify; what was written so far is no whole file.
    """
    head = await existing_head(store, board_id)
    if head.base_seq:
        raise BadRequest(
            f"board {board_id} was compacted, and an export holds a whole journal; fork it and export the fork, or "
            "copy the database"
        )
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        async for line in _lines(store, head, on_progress):
            data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
            digest.update(data)
            packed.write(data)
        packed.write(json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n")
    return head


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
    board = await asyncio.to_thread(_read, file, limits)
    trial = MemoryStore()
    await trial.create_with(board)
    beginning = board.beginning
    found = await (await BoardHistory.open(trial, beginning.board_id)).verify(on_progress)
    if not found.ok:
        raise BoardCorrupt(found.problems[0].message, board_id=beginning.board_id, seq=found.problems[0].number)
    if not await store.create_with(board):
        raise BoardExists(f"there is a board {beginning.board_id} already", board_id=beginning.board_id)
    head = await store.head(beginning.board_id)
    assert head is not None, beginning.board_id
    return head


async def _lines(store: Store, head: BoardHead, on_progress: Progress) -> AsyncIterator[dict[str, Any]]:
    yield {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "board": head.board_id,
        "epoch": head.epoch,
        "seq": head.seq,
        "hash": head.hash,
        "created_ms": head.created_ms,
        "parent": head.parent,
    }
    for schema in await store.schemas(head.board_id):
        yield {"schema": schema.number, "fingerprint": schema.fingerprint, "document": schema.document}
    after = ""
    while keys := await store.used_keys(head.board_id, after=after, limit=_PAGE_KEYS):
        for key in keys:
            if key.version <= head.version:  # not those that were used since
                yield {"key": key.key, "fingerprint": key.fingerprint, "version": key.version}
        after = keys[-1].key
    last, last_seq = GENESIS_HASH, 0
    async for page in entry_pages(store, head.board_id, after=0, until=head.seq):
        last, last_seq = verify_chain(last, last_seq, page)
        for entry in page:
            yield _entry_line(entry)
        on_progress(last_seq, head.seq)
    if (last_seq, last) != (head.seq, head.hash):
        raise BoardCorrupt(
            f"board {head.board_id}: the journal ends at entry {last_seq}, its head says {head.seq}",
            board_id=head.board_id,
            seq=last_seq + 1,
        )


def _entry_line(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "author": entry.author,
        "time_ms": entry.time_ms,
        "paths": entry.paths,
        "checkpoint": entry.checkpoint,
        "payload": base64.b64encode(entry.payload).decode(),
        "hash": entry.hash,
    }


def _read(file: BinaryIO, limits: Limits) -> NewBoard:
    """The board in a file whose hash is right."""
    try:
        return _assembled(_checked_lines(file, limits), limits)
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


def _assembled(lines: Iterator[dict[str, Any]], limits: Limits) -> NewBoard:
    header = next(lines, {})
    if header.get("format") != FORMAT or header.get("format_version") != FORMAT_VERSION:
        raise BadRequest("this is no export of a board, or one of another version of CRDT Board")
    board_id, epoch = check_board_id(header["board"]), header["epoch"]
    schemas: list[SchemaRecord] = []
    keys: list[KeyRecord] = []
    entries: list[Entry] = []
    clocks: dict[int, int] = {}
    for line in lines:
        if "schema" in line:
            schemas.append(SchemaRecord(number=line.pop("schema"), **line))
        elif "key" in line:
            keys.append(KeyRecord(**line))
        else:
            payload = base64.b64decode(line.pop("payload"), validate=True)
            paths = tuple(line.pop("paths"))
            _check_payload(payload, len(entries) + 1, clocks, limits)
            entries.append(Entry(board_id=board_id, epoch=epoch, payload=payload, paths=paths, **line))
    if (len(entries), entries[-1].hash if entries else GENESIS_HASH) != (header["seq"], header["hash"]):
        raise BadRequest("this export of a board does not hold the entries that it announces")
    beginning = Append(
        board_id=board_id,
        epoch=epoch,
        expected_seq=0,
        entries=entries,
        checkpoints=_checkpoints(entries),
        keys=keys,
    )
    return NewBoard(
        beginning=beginning, created_ms=header["created_ms"], parent=header["parent"], schemas=tuple(schemas)
    )


def _check_payload(payload: bytes, seq: int, clocks: dict[int, int], limits: Limits) -> None:
    """Refuse what peers may not send either: anybody can make a file whose hashes are right around bytes that end yrs.

    ``clocks`` are those that the entries before have reached, and are brought up to date.

    Raises:
        BoardCorrupt: it is not made of updates, or one of them must not be applied.
    """
    try:
        for update in unpack_updates(payload):
            extent = walk(update, limits.nesting_depth_max)
            if not is_ready(extent, clocks):
                raise MalformedUpdate("it builds on what is in no entry before it")
            clocks |= {client: max(end, clocks.get(client, 0)) for client, end in extent.ends.items()}
    except MalformedUpdate as error:
        raise BoardCorrupt(f"entry {seq} of this export cannot be applied: {error}", seq=seq) from error


def _checkpoints(entries: list[Entry]) -> list[Checkpoint]:
    """The checkpoints in a journal.

    Raises:
        ValueError: the entries or their checkpoints are not numbered one after the other.
    """
    made: list[Checkpoint] = []
    for seq, entry in enumerate(entries, start=1):
        if entry.seq != seq or bool(entry.checkpoint) != (entry.kind == "commit"):
            raise ValueError(f"there is no entry {seq}")
        if entry.checkpoint:
            checkpoint = decode_checkpoint(entry.checkpoint)
            if (checkpoint.seq, checkpoint.version) != (seq, len(made) + 1):
                raise ValueError(f"entry {seq} does not hold version {len(made) + 1}")
            made.append(checkpoint)
    return made
