"""Opening a board: the newest snapshot that verifies, and the tail of the journal on top.

The journal is the truth, and the base is what its squashed beginning has become. A bad snapshot costs time, never
content; a bad journal or base raises `BoardCorrupt` and nothing is written over it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from crdt_board.audit import Audit
from crdt_board.checkpoints import Checkpoint
from crdt_board.document import Document
from crdt_board.errors import BoardCorrupt, MalformedUpdate, NotFound
from crdt_board.fold import NOWHERE, Fold
from crdt_board.guarding import DocumentBroken
from crdt_board.intake import Intake
from crdt_board.journal import Entry, pack_updates, unpack_updates, verify_chain
from crdt_board.layout import Layout
from crdt_board.nesting import Nesting
from crdt_board.store.contract import BaseRecord, BoardHead, SnapshotRecord, Store

_PAGE_ENTRIES = 2_000
_OFFERED_BYTES_MIN = 64 * 1024
"""What is less is loaded in 3 ms, which is no reason to do anything before."""

UNUSABLE = (ValueError, KeyError, TypeError, zlib.error, MalformedUpdate, DocumentBroken)
"""What opening a snapshot raises that is not what was stored."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedBoard:
    """A board's document and fold at the same ``seq``, and what has come since the snapshot that they began with."""

    document: Document
    fold: Fold
    entries_since_snapshot: int = 0
    bytes_since_snapshot: int = 0
    audit: Audit | None = None
    """Checks what is written into the document; made by the writer of the board."""
    intake: Intake | None = None
    """What is given to the document of what peers send; made by the writer of the board."""
    nesting: Nesting = field(default_factory=Nesting)

    def __post_init__(self) -> None:
        self.track_scratch()

    def track_scratch(self) -> None:
        """Follow the last writes of the scratch fields of the document's layout; after it was declared anew."""
        self.fold.scratch.track(self.document.layout.ttls_ms)

    def advance(self, entry: Entry, origin: str = NOWHERE, checkpoint: Checkpoint | None = None) -> None:
        """Count an entry that the document holds; ``checkpoint`` is the one in it, if that was decoded already."""
        self.fold.advance(entry, origin, checkpoint)
        self.entries_since_snapshot += 1
        self.bytes_since_snapshot += len(entry.payload)

    def take_in(self, entries: list[Entry], *, is_apart: bool = False) -> None:
        """Verify entries that follow in the journal, and apply and count them.

        Raises:
            BoardCorrupt: one is missing or altered, or its bytes cannot be applied.
        """
        verify_chain(self.fold.hash, self.fold.seq, entries)
        apply_entries(self, entries, is_apart=is_apart)
        self.fold.advance_all(entries)
        self.entries_since_snapshot += len(entries)
        self.bytes_since_snapshot += sum(len(entry.payload) for entry in entries)


@dataclass(frozen=True, slots=True)
class StoredBoard:
    """All of a board as it is stored up to entry ``seq``, read and verified, before it is in a document."""

    epoch: str
    seq: int
    updates: list[bytes]
    """In order; at least one. A document to which they are applied holds the board."""


Offer = Callable[[StoredBoard], Awaitable[None]]
"""Does something with what is stored, before it is loaded."""


async def load_board(
    store: Store,
    head: BoardHead,
    layout: Layout | None,
    *,
    until: int | None = None,
    client_id: int | None = None,
    offer: Offer | None = None,
) -> LoadedBoard:
    """Rebuild the board as it was after entry ``until`` (the head when None; 0 is the empty board), in a document with
    this client id.

    Loading a large board holds up the event loop. ``offer`` is awaited before, with all that is stored up to the head,
    when that is a snapshot of a size and no more than a page of entries, and verifies. It may be called again, when
    loading begins anew from something else.

    Raises:
        StoreUnavailable: the store did not answer.
        NotFound: entry ``until`` was squashed, and the state after it was not kept.
        BoardCorrupt: an entry is missing or altered, or its bytes cannot be applied.
    """
    is_apart = False
    while True:
        try:
            return await _load(store, head, layout, until, client_id, is_apart=is_apart, offer=offer)
        except BoardCorrupt:
            now = await store.head(head.board_id)
            if now is not None and (now.epoch, now.base_seq) != (head.epoch, head.base_seq):
                head = now  # somebody compacted the board while it was read
            elif is_apart:
                raise
            else:
                is_apart = True


async def _load(
    store: Store,
    head: BoardHead,
    layout: Layout | None,
    until: int | None,
    client_id: int | None,
    *,
    is_apart: bool,
    offer: Offer | None,
) -> LoadedBoard:
    target = head.seq if until is None else until
    if 0 < target < head.base_seq:
        loaded = await _from_pinned(store, head, layout, target)
    else:
        loaded = await _from_snapshot(store, head, layout, target, client_id, offer=offer)
    async for page in entry_pages(store, head.board_id, after=loaded.fold.seq, until=target):
        loaded.take_in(page, is_apart=is_apart)
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


async def entry_pages(
    store: Store, board_id: str, *, after: int, until: int, page_max: int = _PAGE_ENTRIES
) -> AsyncIterator[list[Entry]]:
    """The entries ``after < seq <= until`` in order, in pages; stops early where the journal ends."""
    while after < until:
        page = await store.entries(board_id, after=after, limit=min(page_max, until - after))
        if not page:
            return
        yield page
        after = page[-1].seq


def encode_snapshot(document: Document) -> bytes:
    """The bytes of a snapshot before compression."""
    return pack_updates([document.encode()])


def compress_snapshot(data: bytes, layout: Layout, expected_checksum: str) -> bytes | None:
    """Compress snapshot bytes, or None when they do not load to the state that they were taken from.

    Pure and slow (tens of milliseconds for a large board): meant for a worker thread.
    """
    if _document_of(unpack_updates(data), layout).checksum() != expected_checksum:
        return None
    return zlib.compress(data)


def snapshot_digest(record: SnapshotRecord | BaseRecord) -> str:
    """sha256 over everything in a snapshot or base but the digest itself, in lower-case hex."""
    header = [record.board_id, record.seq, record.entry_hash, record.version, record.checkpoint_hash, record.meta]
    digest = hashlib.sha256(json.dumps(header, separators=(",", ":")).encode())
    digest.update(hashlib.sha256(record.data).digest())
    if isinstance(record, BaseRecord):
        digest.update(hashlib.sha256(record.origins).digest())
    return digest.hexdigest()


async def _from_snapshot(
    store: Store, head: BoardHead, layout: Layout | None, target: int, client_id: int | None, *, offer: Offer | None
) -> LoadedBoard:
    """The nearest state at or before ``target`` that is stored and verifies."""
    at_most = target
    while at_most > 0:
        try:
            found = await store.snapshots(head.board_id, at_most=at_most, limit=1)
            if not found or found[0].seq < head.base_seq:
                break
            at_most = found[0].seq - 1
            content = read_snapshot(found[0], head.epoch)
            if offer is not None:
                await _offer(offer, store, head, content)
            return content.load(layout, client_id=client_id)
        except UNUSABLE as error:
            logger.warning("board %s: snapshot at entry %d is unusable: %s", head.board_id, at_most + 1, error)
        except BoardCorrupt as error:
            if error.seq is None:
                raise
            at_most = error.seq - 1
            logger.warning("board %s: snapshot at entry %d is unusable: %s", head.board_id, error.seq, error)
    if head.base_seq == 0 or target == 0:
        document = Document(layout, strays=True, client_id=client_id)
        return LoadedBoard(document=document, fold=Fold(epoch=head.epoch))
    base = await store.base(head.board_id)
    if base is None or base.seq != head.base_seq:
        raise BoardCorrupt(
            f"board {head.board_id}: there is no base at entry {head.base_seq}; restore the database from a backup",
            board_id=head.board_id,
            seq=head.base_seq,
        )
    return open_truth(base, head, layout, client_id=client_id)


async def _offer(offer: Offer, store: Store, head: BoardHead, content: SnapshotContent) -> None:
    """Offer a snapshot with the entries after it; nothing when these do not verify, of which loading them will tell."""
    fold, updates = content.fold, content.updates
    after = head.seq - fold.seq
    if sum(map(len, updates)) < _OFFERED_BYTES_MIN or after > _PAGE_ENTRIES:
        return
    try:
        entries = await store.entries(head.board_id, after=fold.seq, limit=after) if after else []
        end = verify_chain(fold.hash, fold.seq, entries)
        updates = [*updates, *(update for entry in entries for update in unpack_updates(entry.payload))]
    except (BoardCorrupt, MalformedUpdate):
        return
    if end == (head.hash, head.seq):
        await offer(StoredBoard(epoch=head.epoch, seq=head.seq, updates=updates))


async def _from_pinned(store: Store, head: BoardHead, layout: Layout | None, target: int) -> LoadedBoard:
    found = await store.snapshots(head.board_id, at_most=target, limit=1)
    if not found or found[0].seq != target:
        raise NotFound(
            f"entry {target} of board {head.board_id} was compacted away; the journal begins after {head.base_seq}",
            board_id=head.board_id,
            seq=target,
        )
    return open_truth(found[0], head, layout)


def open_truth(
    record: SnapshotRecord | BaseRecord, head: BoardHead, layout: Layout | None, *, client_id: int | None = None
) -> LoadedBoard:
    """The board that a base holds, or a pinned snapshot before it: there is nothing to make it good from.

    Raises:
        BoardCorrupt: it is not what was stored.
    """
    try:
        return open_snapshot(record, head.epoch, layout, client_id=client_id)
    except UNUSABLE as error:
        what = "base" if isinstance(record, BaseRecord) else "state that was kept"
        raise BoardCorrupt(
            f"board {head.board_id}: the {what} at entry {record.seq} is unusable ({error}); restore the database from "
            "a backup",
            board_id=head.board_id,
            seq=record.seq,
        ) from error


def open_snapshot(
    record: SnapshotRecord | BaseRecord, epoch: str, layout: Layout | None, *, client_id: int | None = None
) -> LoadedBoard:
    """The board that a snapshot or base holds, in a document with this client id.

    Raises:
        UNUSABLE: it is not what was stored, or not of the board with this ``epoch``.
    """
    return read_snapshot(record, epoch).load(layout, client_id=client_id)


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What a snapshot or base holds, verified."""

    fold: Fold
    updates: list[bytes]

    def load(self, layout: Layout | None, *, client_id: int | None = None) -> LoadedBoard:
        """The board, in a document with this client id. Only once: the fold becomes the board's.

        Raises:
            UNUSABLE: the updates cannot be applied.
        """
        return LoadedBoard(document=_document_of(self.updates, layout, client_id), fold=self.fold)


def read_snapshot(record: SnapshotRecord | BaseRecord, epoch: str) -> SnapshotContent:
    """What a snapshot or base holds.

    Raises:
        UNUSABLE: it is not what was stored, or not of the board with this ``epoch``.
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
    return SnapshotContent(fold, unpack_updates(zlib.decompress(record.data)))


def _document_of(updates: list[bytes], layout: Layout | None, client_id: int | None = None) -> Document:
    document = Document(strays=True, client_id=client_id)
    document.apply_or_raise(updates)
    if layout is not None:
        document.declare(layout)  # not before: making events of everything takes longer than applying it
    document.take_touched()
    return document


def apply_entries(loaded: LoadedBoard, entries: list[Entry], *, is_apart: bool = False) -> None:
    """Apply what entries of the journal hold to the document: in one transaction, or each update in its own.

    The latter costs more, and is needed for what hostile peers write inside something that is not a shared type: yrs
    takes it once that was deleted in an earlier transaction [measured].

    Raises:
        BoardCorrupt: the bytes cannot be applied.
    """
    updates: list[bytes] = []
    try:
        for entry in entries:
            updates.extend(unpack_updates(entry.payload))
        for part in [[update] for update in updates] if is_apart else [updates]:
            loaded.document.apply_or_raise(part)
    except (MalformedUpdate, DocumentBroken) as error:
        first, last = entries[0], entries[-1]
        raise BoardCorrupt(
            f"board {first.board_id}: an entry between {first.seq} and {last.seq} cannot be applied: {error}",
            board_id=first.board_id,
            seq=first.seq,
        ) from error
    loaded.document.take_touched()
