"""Between rows of the SQLite schema and the values of the contract. Pure; whatever a row holds, it is read or named.

Text arrives as bytes, so that a damaged byte is found here, where the board and the entry are known, and not inside
the driver.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, get_args

from crdt_board.canonical import json_writer
from crdt_board.checkpoints import Checkpoint, decode_checkpoint
from crdt_board.errors import BoardCorrupt
from crdt_board.journal import Entry, EntryKind
from crdt_board.store.contract import (
    BaseRecord,
    BoardHead,
    KeyRecord,
    SchemaRecord,
    SnapshotRecord,
    StoredSizes,
    Tombstone,
)

_paths_json = json_writer(ensure_ascii=False)

Row = Sequence[Any]
T = TypeVar("T")

KINDS: tuple[EntryKind, ...] = get_args(EntryKind)
"""A kind is stored as its position here: new ones go to the end."""

SEQ_MAX = 2**36 - 1
"""The largest seq that a place has room for."""


def clamp_seq(seq: int) -> int:
    """The bound itself, or the nearest that a seq can have: keeps a query inside its own board."""
    return min(max(seq, 0), SEQ_MAX)


def read_rows(rows: Iterable[Row], read: Callable[[str, Row], T], board_id: str, *, seq_column: int | None) -> list[T]:
    """Each row through ``read``.

    Raises:
        BoardCorrupt: a row is not what was written; names the board, and the entry when there is a ``seq_column``.
    """
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(board_id, row))
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            seq = None if seq_column is None else row[seq_column]
            what = "a stored record" if seq is None else f"the record of journal entry {seq}"
            raise BoardCorrupt(
                f"board {board_id}: {what} cannot be read; restore the database from a backup",
                board_id=board_id,
                seq=seq,
            ) from error
    return found


def read_head(_board_id: str, row: Row) -> BoardHead:
    board_id, epoch, seq, entry_hash, version, checkpoint_hash, created_ms, parent, base_seq = row
    return BoardHead(
        board_id=_text(board_id),
        epoch=_text(epoch),
        seq=_count(seq),
        hash=_hex(entry_hash),
        version=_count(version),
        checkpoint_hash=_hex(checkpoint_hash),
        created_ms=_integer(created_ms),
        parent=_text(parent),
        base_seq=_count(base_seq),
    )


def read_tombstone(board_id: str, row: Row) -> Tombstone:
    epoch, deleted_ms, agent, clients = row
    return Tombstone(
        board_id=board_id,
        epoch=_text(epoch),
        deleted_ms=_integer(deleted_ms),
        agent=_text(agent),
        clients=_blob(clients),
    )


def read_entry(board_id: str, row: Row) -> Entry:
    seq, epoch, kind, author, time_ms, paths, checkpoint, payload, entry_hash = row
    return Entry(
        board_id=board_id,
        epoch=_text(epoch),
        seq=_count(seq),
        kind=KINDS[_count(kind)],
        author=_text(author),
        time_ms=_integer(time_ms),
        paths=_paths(paths),
        checkpoint=_text(checkpoint),
        payload=_blob(payload),
        hash=_hex(entry_hash),
    )


def write_entry(board: int, entry: Entry) -> Mapping[str, object]:
    assert entry.seq <= SEQ_MAX, entry.seq
    return {
        "board": board,
        "seq": entry.seq,
        "kind": KINDS.index(entry.kind),
        "author": entry.author,
        "time_ms": entry.time_ms,
        "paths": _paths_json(entry.paths),
        "checkpoint": entry.checkpoint,
        "payload": entry.payload,
        "hash": bytes.fromhex(entry.hash),
    }


def read_checkpoint(board_id: str, row: Row) -> Checkpoint:
    version, seq, text = row
    checkpoint = decode_checkpoint(_text(text))
    if (checkpoint.board_id, checkpoint.version, checkpoint.seq) != (board_id, version, seq):
        raise ValueError(f"holds version {checkpoint.version} of board {checkpoint.board_id}")
    return checkpoint


def read_key(_board_id: str, row: Row) -> KeyRecord:
    key, fingerprint, version = row
    return KeyRecord(key=_text(key), fingerprint=_text(fingerprint), version=_count(version))


def read_schema(_board_id: str, row: Row) -> SchemaRecord:
    number, fingerprint, document = row
    return SchemaRecord(number=_count(number), fingerprint=_text(fingerprint), document=_text(document))


def read_snapshot(board_id: str, row: Row) -> SnapshotRecord:
    seq, entry_hash, version, checkpoint_hash, meta, data, sha256, pinned = row
    return SnapshotRecord(
        board_id=board_id,
        seq=_count(seq),
        entry_hash=_hex(entry_hash),
        version=_count(version),
        checkpoint_hash=_hex(checkpoint_hash),
        meta=_text(meta),
        data=_blob(data),
        sha256=_hex(sha256),
        pinned=bool(_count(pinned)),
    )


def read_number(_board_id: str, row: Row) -> int:
    return _count(row[0])


def read_text(_board_id: str, row: Row) -> str:
    return _text(row[0])


def read_sizes(_board_id: str, row: Row) -> StoredSizes:
    entries, entry_bytes, checkpoints, snapshots, snapshot_bytes = map(_count, row)
    return StoredSizes(
        entries=entries,
        entry_bytes=entry_bytes,
        checkpoints=checkpoints,
        snapshots=snapshots,
        snapshot_bytes=snapshot_bytes,
    )


def read_base(board_id: str, row: Row) -> BaseRecord:
    seq, entry_hash, version, checkpoint_hash, meta, data, origins, sha256 = row
    return BaseRecord(
        board_id=board_id,
        seq=_count(seq),
        entry_hash=_hex(entry_hash),
        version=_count(version),
        checkpoint_hash=_hex(checkpoint_hash),
        meta=_text(meta),
        data=_blob(data),
        origins=_blob(origins),
        sha256=_hex(sha256),
    )


def write_snapshot(board: int, snapshot: SnapshotRecord) -> Mapping[str, object]:
    return {**_state_row(board, snapshot), "pinned": int(snapshot.pinned)}


def write_base(board: int, base: BaseRecord) -> Mapping[str, object]:
    return {**_state_row(board, base), "origins": base.origins}


def _state_row(board: int, record: SnapshotRecord | BaseRecord) -> dict[str, object]:
    assert record.seq <= SEQ_MAX, record.seq
    return {
        "board": board,
        "seq": record.seq,
        "entry_hash": bytes.fromhex(record.entry_hash),
        "version": record.version,
        "checkpoint_hash": bytes.fromhex(record.checkpoint_hash),
        "meta": record.meta,
        "data": record.data,
        "sha256": bytes.fromhex(record.sha256),
    }


def _text(value: Any) -> str:
    return _blob(value).decode()


def _blob(value: Any) -> bytes:
    if type(value) is not bytes:
        raise TypeError(f"expected bytes, found {type(value).__name__}")
    return value


def _hex(value: Any) -> str:
    if len(_blob(value)) != 32:
        raise ValueError(f"expected a hash of 32 bytes, found {len(value)}")
    return _blob(value).hex()


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, found {type(value).__name__}")
    return value


def _count(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError(f"expected a count, found {value}")
    return _integer(value)


@lru_cache(maxsize=1024)  # most entries of a board touch the same few paths
def _paths(value: Any) -> tuple[str, ...]:
    paths = json.loads(_text(value))
    if type(paths) is not list or not all(type(path) is str for path in paths):
        raise TypeError("expected a JSON array of strings")
    return tuple(paths)
