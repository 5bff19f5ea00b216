"""Opening a board: the newest snapshot that verifies, and the tail of the journal on top.

The journal is the truth. A bad snapshot costs time, never content; a bad journal raises `BoardCorrupt` and nothing is
written over it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from crdt_board.audit import Audit
from crdt_board.document import Document, DocumentBroken
from crdt_board.errors import BoardCorrupt, MalformedUpdate
from crdt_board.fold import NOWHERE, Fold
from crdt_board.journal import Entry, pack_updates, unpack_updates, verify_chain
from crdt_board.layout import Layout
from crdt_board.store.contract import BoardHead, SnapshotRecord, Store
from crdt_board.updates import is_integrated

_PAGE_ENTRIES = 2_000

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedBoard:
    """A board's document and fold at the same ``seq``, and what has come since the snapshot that they began with."""

    document: Document
    fold: Fold
    entries_since_snapshot: int = 0
    bytes_since_snapshot: int = 0
    waiting: tuple[bytes, ...] = ()
    """Updates in the document that wait for others which they build on."""
    audit: Audit | None = None
    """Checks what is written into the document; made by the writer of the board."""

    def advance(self, entry: Entry, origin: str = NOWHERE) -> None:
        """Count an entry that the document holds."""
        self.fold.advance(entry, origin)
        self.entries_since_snapshot += 1
        self.bytes_since_snapshot += len(entry.payload)


async def load_board(
    store: Store, head: BoardHead, layout: Layout | None, *, until: int | None = None, client_id: int | None = None
) -> LoadedBoard:
    """Rebuild the board as it was after entry ``until`` (the head when None), in a document with this client id.

    Raises:
        StoreUnavailable: the store did not answer.
        BoardCorrupt: an entry is missing or altered, or its bytes cannot be applied.
    """
    target = head.seq if until is None else until
    loaded = await _from_snapshot(store, head, layout, target, client_id)
    async for page in entry_pages(store, head.board_id, after=loaded.fold.seq, until=target):
        verify_chain(loaded.fold.hash, loaded.fold.seq, page)
        apply_entries(loaded, page)
        for entry in page:
            loaded.advance(entry)
    if loaded.fold.seq != target:
        raise BoardCorrupt(
            f"board {head.board_id}: the journal ends at entry {loaded.fold.seq}, its head says {target}",
            board_id=head.board_id,
            seq=loaded.fold.seq + 1,
        )
    if until is None and loaded.fold.hash != head.hash:
        raise BoardCorrupt(
            f"board {head.board_id}: entry {head.seq} does not have the hash that the head names",
            board_id=head.board_id,
            seq=head.seq,
        )
    return loaded


async def entry_pages(store: Store, board_id: str, *, after: int, until: int) -> AsyncIterator[list[Entry]]:
    """The entries ``after < seq <= until`` in order, in pages; stops early where the journal ends."""
    while after < until:
        page = await store.entries(board_id, after=after, limit=min(_PAGE_ENTRIES, until - after))
        if not page:
            return
        yield page
        after = page[-1].seq


def encode_snapshot(document: Document, waiting: tuple[bytes, ...]) -> bytes:
    """The bytes of a snapshot before compression. ``waiting`` goes along, since yrs leaves it out [measured]."""
    return pack_updates([document.encode(), *waiting])


def compress_snapshot(data: bytes, layout: Layout, expected_checksum: str) -> bytes | None:
    """Compress snapshot bytes, or None when they do not load to the state that they were taken from.

    Pure and slow (tens of milliseconds for a large board): meant for a worker thread.
    """
    fresh = Document(layout, strays=True)
    fresh.apply_or_raise(unpack_updates(data))
    if fresh.checksum() != expected_checksum:
        return None
    return zlib.compress(data)


def snapshot_digest(record: SnapshotRecord) -> str:
    """sha256 over everything in a snapshot but the digest itself, in lower-case hex."""
    header = [record.board_id, record.seq, record.entry_hash, record.version, record.checkpoint_hash, record.meta]
    digest = hashlib.sha256(json.dumps(header, separators=(",", ":")).encode())
    digest.update(hashlib.sha256(record.data).digest())
    return digest.hexdigest()


def still_waiting(document: Document, updates: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those of ``updates`` that still build on something which the document does not have."""
    if not updates:
        return ()
    state_vector = document.state_vector()
    return tuple(update for update in updates if not is_integrated(update, state_vector))


async def _from_snapshot(
    store: Store, head: BoardHead, layout: Layout | None, target: int, client_id: int | None
) -> LoadedBoard:
    for record in await store.snapshots(head.board_id, at_most=target):
        try:
            return open_snapshot(record, head.epoch, layout, client_id=client_id)
        except (ValueError, KeyError, TypeError, zlib.error, MalformedUpdate, DocumentBroken) as error:
            logger.warning("board %s: snapshot at entry %d is unusable: %s", head.board_id, record.seq, error)
    document = Document(layout, strays=True, client_id=client_id)
    return LoadedBoard(document=document, fold=Fold(epoch=head.epoch))


def open_snapshot(
    record: SnapshotRecord, epoch: str, layout: Layout | None, *, client_id: int | None = None
) -> LoadedBoard:
    """The board that a snapshot holds, in a document with this client id.

    Raises:
        ValueError, KeyError, TypeError, zlib.error, MalformedUpdate, DocumentBroken: it is not what was stored, or not
            of the board with this ``epoch``.
    """
    if snapshot_digest(record) != record.sha256:
        raise ValueError("its content does not match its sha256")
    fold = Fold.from_meta(
        record.meta,
        seq=record.seq,
        hash=record.entry_hash,
        version=record.version,
        checkpoint_hash=record.checkpoint_hash,
    )
    if fold.epoch != epoch:
        raise ValueError("it belongs to an earlier board of this name")
    document = Document(layout, strays=True, client_id=client_id)
    updates = unpack_updates(zlib.decompress(record.data))
    document.apply_or_raise(updates)
    document.take_touched()
    return LoadedBoard(document=document, fold=fold, waiting=tuple(updates[1:]))


def apply_entries(loaded: LoadedBoard, entries: list[Entry]) -> None:
    """Apply what entries of the journal hold to the document, and keep account of what waits for others.

    Raises:
        BoardCorrupt: the bytes cannot be applied.
    """
    updates: list[bytes] = []
    try:
        for entry in entries:
            unpacked = unpack_updates(entry.payload)
            updates.extend(unpacked)
            if entry.kind == "gapped":
                loaded.waiting += tuple(unpacked)
        loaded.document.apply_or_raise(updates)
    except (MalformedUpdate, DocumentBroken) as error:
        first, last = entries[0], entries[-1]
        raise BoardCorrupt(
            f"board {first.board_id}: an entry between {first.seq} and {last.seq} cannot be applied: {error}",
            board_id=first.board_id,
            seq=first.seq,
        ) from error
    if loaded.waiting:
        loaded.document.expect_gaps()
    loaded.document.take_touched()
    loaded.waiting = still_waiting(loaded.document, loaded.waiting)
