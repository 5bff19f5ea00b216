"""Journal entries: what one looks like, how entries are chained, how updates are packed into one.

Pure: no I/O, no clock, no document. The journal is the truth; every process is a fold over a prefix of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from crdt_board.canonical import json_writer
from crdt_board.errors import BoardCorrupt, MalformedUpdate
from crdt_board.varint import read_varuint, write_varuint

EntryKind = Literal["update", "commit", "migration", "coordination", "expiry"]
"""``coordination``: the writer changed leases, tasks or the like, and no field.

``migration``: the writer brought the state to a new schema, which was stored with it. A kind of its own, so that who
reads on from before it learns that fields may be in other roots from here on.

``expiry``: the writer removed what had run out of scratch fields. A kind of its own, since it is no write that would
let anything live longer.
"""

GENESIS_HASH = "0" * 64
"""What the first entry of a board has as the hash before it."""


_encode_header = json_writer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One accepted change of a board.

    ``seq`` counts from 1 without gaps. ``payload`` holds the received update bytes packed by `pack_updates`.
    ``paths`` are the touched paths in alphabetical order. ``checkpoint`` is the canonical JSON of the checkpoint
    that a ``commit`` entry made, and empty otherwise. ``time_ms`` is informative; order is by ``seq`` only.
    """

    board_id: str
    epoch: str
    seq: int
    kind: EntryKind
    author: str
    time_ms: int
    paths: tuple[str, ...]
    checkpoint: str
    payload: bytes
    hash: str


def entry_hash(
    previous: str,
    *,
    board_id: str,
    epoch: str,
    seq: int,
    kind: EntryKind,
    author: str,
    time_ms: int,
    paths: Sequence[str],
    checkpoint: str,
    payload: bytes,
) -> str:
    """``sha256(previous hash, header, sha256(payload))`` in lower-case hex; the header is a JSON array."""
    header = _encode_header([board_id, epoch, seq, kind, author, time_ms, list(paths), checkpoint])
    digest = hashlib.sha256(bytes.fromhex(previous))
    digest.update(header.encode())
    digest.update(hashlib.sha256(payload).digest())
    return digest.hexdigest()


def make_entry(previous: str, **header: object) -> Entry:
    """An entry whose hash continues the chain from ``previous``; ``header`` is every other field of `Entry`."""
    return Entry(hash=entry_hash(previous, **header), **header)  # type: ignore[arg-type]


def verify_chain(previous: str, previous_seq: int, entries: Iterable[Entry]) -> tuple[str, int]:
    """Check that ``entries`` continue the chain after ``previous_seq``; return the last hash and seq.

    Raises:
        BoardCorrupt: an entry is missing, out of order, or was altered; ``seq`` names the first such one.
    """
    for entry in entries:
        if entry.seq != previous_seq + 1:
            raise BoardCorrupt(
                f"board {entry.board_id}: journal entry {previous_seq + 1} is missing (found {entry.seq})",
                board_id=entry.board_id,
                seq=previous_seq + 1,
            )
        expected = entry_hash(
            previous,
            board_id=entry.board_id,
            epoch=entry.epoch,
            seq=entry.seq,
            kind=entry.kind,
            author=entry.author,
            time_ms=entry.time_ms,
            paths=entry.paths,
            checkpoint=entry.checkpoint,
            payload=entry.payload,
        )
        if expected != entry.hash:
            raise BoardCorrupt(
                f"board {entry.board_id}: journal entry {entry.seq} does not match its hash",
                board_id=entry.board_id,
                seq=entry.seq,
            )
        previous, previous_seq = entry.hash, entry.seq
    return previous, previous_seq


def pack_updates(updates: Iterable[bytes]) -> bytes:
    """Several updates as one payload: each with its length before it as a varuint."""
    parts: list[bytes] = []
    for update in updates:
        parts.append(write_varuint(len(update)))
        parts.append(update)
    return b"".join(parts)


def unpack_updates(payload: bytes) -> list[bytes]:
    """The updates of a payload, in order.

    Raises:
        MalformedUpdate: the payload was not made by `pack_updates`.
    """
    updates: list[bytes] = []
    position = 0
    while position < len(payload):
        length, position = read_varuint(payload, position)
        if position + length > len(payload):
            raise MalformedUpdate("a packed update runs over the end of its payload")
        updates.append(payload[position : position + length])
        position += length
    return updates
