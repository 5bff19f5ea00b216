"""Sound journals and records without a document: what tests of stores write and compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from crdt_board.checkpoints import GENESIS_HASH, Checkpoint, encode_checkpoint, make_checkpoint
from crdt_board.clock import Clock, ManualClock
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import Entry, EntryKind, make_entry, pack_updates, unpack_updates
from crdt_board.store.contract import (
    Append,
    Appended,
    BaseMove,
    BaseRecord,
    BoardHead,
    HeadMoved,
    KeyRecord,
    NewBoard,
    SchemaRecord,
    SnapshotRecord,
    Store,
    Tombstone,
)

EPOCH = "epoch-1"


class JournalWriter:
    """Makes the appends of one writer of a board, each continuing the one before.

    It follows its own appends whether or not they were accepted; begin a new one at the store's head after a
    `HeadMoved`.
    """

    def __init__(self, head: BoardHead, *, author: str = "tester", clock: Clock | None = None) -> None:
        self._head = head
        self._author = author
        self._clock = clock or ManualClock()
        self._seq, self._hash = head.seq, head.hash
        self._version, self._checkpoint_hash = head.version, head.checkpoint_hash

    def updates(self, *payloads: bytes) -> Append:
        """One ``update`` entry for each payload."""
        after = self._seq
        return self._append(after, [self._entry(payload) for payload in payloads])

    def commit(self, step: str, payload: bytes = b"", *, key: KeyRecord | None = None) -> Append:
        """One ``commit`` entry with its checkpoint, and the idempotency key that it used."""
        after = self._seq
        made = make_checkpoint(
            board_id=self._head.board_id,
            epoch=self._head.epoch,
            version=self._version + 1,
            seq=self._seq + 1,
            parent_hash=self._checkpoint_hash,
            checksum="0" * 64,
            agent=self._author,
            step=step,
            schema_version=1,
            time_ms=self._clock.now_ms(),
        )
        self._version, self._checkpoint_hash = made.version, made.hash
        return self._append(after, [self._entry(payload, made)], [made], [key] if key else [])

    def migration(self, payload: bytes, *schemas: SchemaRecord) -> Append:
        """One ``migration`` entry with the schemas that it begins."""
        after = self._seq
        return replace(self._append(after, [self._entry(payload, kind="migration")]), schemas=schemas)

    def _entry(self, payload: bytes, made: Checkpoint | None = None, kind: EntryKind = "update") -> Entry:
        entry = make_entry(
            self._hash,
            board_id=self._head.board_id,
            epoch=self._head.epoch,
            seq=self._seq + 1,
            kind="commit" if made else kind,
            author=self._author,
            time_ms=self._clock.now_ms(),
            paths=("draft", "findings/Größe"),
            checkpoint=encode_checkpoint(made) if made else "",
            payload=pack_updates([payload]),
        )
        self._seq, self._hash = entry.seq, entry.hash
        return entry

    def _append(
        self,
        after: int,
        entries: Sequence[Entry],
        checkpoints: Sequence[Checkpoint] = (),
        keys: Sequence[KeyRecord] = (),
    ) -> Append:
        return Append(
            board_id=self._head.board_id,
            epoch=self._head.epoch,
            expected_seq=after,
            entries=entries,
            checkpoints=checkpoints,
            keys=keys,
        )


async def make_board(store: Store, board_id: str = "job") -> BoardHead:
    """A new board, or the one that is there."""
    return await store.create(board_id, epoch=EPOCH, created_ms=1)


async def journal_of_commits(store: Store, count: int, board_id: str = "job") -> JournalWriter:
    """A board with that many versions, each of one entry; returns its writer."""
    writer = JournalWriter(await make_board(store, board_id))
    for number in range(1, count + 1):
        await store.append([writer.commit(f"step {number}", b"x")])
    return writer


async def append_patiently(store: Store, author: str, count: int, *, board_id: str = "job") -> None:
    """Append ``count`` entries, one at a time, each from the new head when somebody else was first."""
    for number in range(count):
        result: Appended | HeadMoved = HeadMoved(head=await store.head(board_id))
        while isinstance(result, HeadMoved):
            assert result.head is not None, board_id
            request: Append = JournalWriter(result.head, author=author).updates(f"{author} {number}".encode())
            (result,) = await store.append([request])


async def read_all(store: Store, board_id: str = "job") -> list[object]:
    """Everything that a store has of one board."""
    return [
        await store.boards(),
        await store.entries(board_id, after=0, limit=10_000),
        await store.checkpoints(board_id, limit=10_000),
        await store.keys(board_id, ["k"]),
        await store.schemas(board_id),
        await store.snapshots(board_id),
        await store.base(board_id),
    ]


def payloads(entries: list[Entry]) -> list[bytes]:
    """The updates of all entries in order."""
    return [update for entry in entries for update in unpack_updates(entry.payload)]


def key(name: str, *, version: int = 1) -> KeyRecord:
    """An idempotency key that led to ``version``."""
    return KeyRecord(key=name, fingerprint=hashlib.sha256(name.encode()).hexdigest(), version=version)


def schema(number: int, title: str = "Job") -> SchemaRecord:
    """A schema; another title makes it another one."""
    return SchemaRecord(number=number, fingerprint=f"fingerprint of {title}", document=f'{{"title":"{title}"}}')


def beginning(board_id: str, *, parent: str) -> NewBoard:
    """A board with an update, a commit with a key, and a schema."""
    head = BoardHead(
        board_id=board_id,
        epoch=EPOCH,
        seq=0,
        hash=NO_ENTRY,
        version=0,
        checkpoint_hash=GENESIS_HASH,
        created_ms=1,
    )
    writer = JournalWriter(head)
    first, second = writer.updates(b"state"), writer.commit("begin", key=key("k"))
    whole = replace(second, expected_seq=0, entries=[*first.entries, *second.entries])
    return NewBoard(beginning=whole, created_ms=1, parent=parent, schemas=[schema(1)])


def tombstone(board_id: str) -> Tombstone:
    """What is left of a board that `make_board` made."""
    return Tombstone(board_id=board_id, epoch=EPOCH, deleted_ms=5, agent="tester", clients=bytes([0]))


def snapshot(board_id: str, seq: int, data: bytes = b"document") -> SnapshotRecord:
    """A snapshot whose hashes are well formed, with any bytes as its document."""
    return SnapshotRecord(
        board_id=board_id,
        seq=seq,
        entry_hash=hashlib.sha256(str(seq).encode()).hexdigest(),
        version=seq // 2,
        checkpoint_hash=GENESIS_HASH,
        meta=f'{{"seq":{seq}}}',
        data=data,
        sha256=hashlib.sha256(data).hexdigest(),
    )


def base(board_id: str, seq: int) -> BaseRecord:
    """A base whose hashes are well formed, with any bytes as its content."""
    return BaseRecord(
        board_id=board_id,
        seq=seq,
        entry_hash=hashlib.sha256(str(seq).encode()).hexdigest(),
        version=seq,
        checkpoint_hash=GENESIS_HASH,
        meta=f'{{"seq":{seq}}}',
        data=b"document",
        origins=b"origins",
        sha256=hashlib.sha256(b"base").hexdigest(),
    )


def move_to(
    seq: int, *, expected: int = 0, pinned: Sequence[int] = (), forgotten: Sequence[int] = (), board_id: str = "job"
) -> BaseMove:
    """A move of the base of a board from ``expected`` to ``seq``."""
    return BaseMove(
        base=base(board_id, seq), epoch=EPOCH, expected_seq=expected, pinned=tuple(pinned), forgotten=tuple(forgotten)
    )
