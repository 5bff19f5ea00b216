"""What a store promises to the engine. Policy lives above: a store compares, sets, reads and wakes, nothing else.

The conformance suite in ``crdt_board.testing.store_contract`` states every promise as a test; a store is one that
passes it. Driver errors never escape: they become `StoreUnavailable` (nothing was decided, or it is not known
whether it was), with the driver's error as ``__cause__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crdt_board.checkpoints import Checkpoint
from crdt_board.journal import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardHead:
    """The head row of a board: where its journal ends. ``seq`` 0 and version 0 mean that nothing was written yet.

    ``parent`` is a pointer to the checkpoint that the board was forked from, empty for all others.
    ``base_seq`` is where the journal begins: what was before has become the base (0: it is all there).
    """

    board_id: str
    epoch: str
    seq: int
    hash: str
    version: int
    checkpoint_hash: str
    created_ms: int
    parent: str = ""
    base_seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is left of a board that was deleted, at ``deleted_ms`` by ``agent``.

    ``clients`` is the state vector that it had: by it a replica of the old board is known that says nothing of itself.
    """

    board_id: str
    epoch: str
    deleted_ms: int
    agent: str
    clients: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """Document bytes at ``seq``: only to load faster, or when ``pinned`` all that is left of a version before the base.

    ``data`` is compressed by the engine; ``entry_hash`` is the hash of entry ``seq``; ``meta`` is JSON that the engine
    needs beside the document (versions, what changed last). ``sha256`` covers all other attributes but ``pinned``.
    """

    board_id: str
    seq: int
    entry_hash: str
    version: int
    checkpoint_hash: str
    meta: str
    data: bytes
    sha256: str
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRecord:
    """What the journal of a board up to entry ``seq`` has become: the truth about everything before.

    As a snapshot; ``origins`` says in addition which of the entries that are gone brought what. ``sha256`` covers all
    other attributes.
    """

    board_id: str
    seq: int
    entry_hash: str
    version: int
    checkpoint_hash: str
    meta: str
    data: bytes
    origins: bytes
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseMove:
    """A new base for a board whose base is at ``expected_seq``, or the same again.

    ``pinned`` are the seqs of the pinned snapshots before it that stay, ``forgotten`` versions whose records go.
    """

    base: BaseRecord
    epoch: str
    expected_seq: int
    pinned: Sequence[int] = ()
    forgotten: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSizes:
    """What is stored of a board: its entries after the base, with the bytes of their updates and checkpoints; its
    checkpoints; its snapshots and base, with their bytes."""

    entries: int = 0
    entry_bytes: int = 0
    checkpoints: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    """An idempotency key that was used: by which request, and the version that it led to."""

    key: str
    fingerprint: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRecord:
    """One numbered schema of a board (JSON), from 1 without gaps."""

    number: int
    fingerprint: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """One board's share of a group commit: entries that continue its journal after ``expected_seq``.

    ``checkpoints`` are those made by the ``commit`` entries among them, in order (each entry carries its own as
    JSON), and ``keys`` the idempotency keys that those used. ``schemas`` are those that a ``migration`` entry among
    them begins, under the numbers that follow the board's newest.
    """

    board_id: str
    epoch: str
    expected_seq: int
    entries: Sequence[Entry]
    checkpoints: Sequence[Checkpoint] = ()
    keys: Sequence[KeyRecord] = ()
    schemas: Sequence[SchemaRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBoard:
    """A board that begins with something: a fork, or one that was exported from another store.

    ``beginning`` is its whole journal, from seq 1 on, or for a board that was compacted from ``base`` on: then
    ``states`` are its pinned snapshots, and ``kept`` the checkpoints up to the base, ascending. ``parent`` as in
    `BoardHead`.
    """

    beginning: Append
    created_ms: int
    parent: str = ""
    schemas: Sequence[SchemaRecord] = ()
    base: BaseRecord | None = None
    states: Sequence[SnapshotRecord] = ()
    kept: Sequence[Checkpoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The entries are durable."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMoved:
    """Nothing of this request was written: the board's head is elsewhere (another process appended), or it is gone; or
    the numbers of the request's schemas do not follow the board's newest (another process added one)."""

    head: BoardHead | None


AppendResult = Appended | HeadMoved


class Store(Protocol):
    """Boards, journals, checkpoints, snapshots and keys of one database.

    Every method may raise `StoreUnavailable`. Cancelling a call leaves the store consistent; whether a cancelled
    write took place is unknown. All methods may be called concurrently from one event loop. Reads of a board that
    is not there find nothing and create nothing. A stored row that cannot be read back raises `BoardCorrupt`, with
    the journal entry in ``seq`` where there is one.
    """

    async def close(self) -> None:
        """Release files, threads and connections. Idempotent. Pending calls finish or raise `StoreUnavailable`, later
        ones raise it.
        """
        ...

    async def now_ms(self) -> int:
        """The store's own clock, milliseconds since 1970-01-01 UTC: what deadlines of several processes are measured
        with.
        """
        ...

    async def head(self, board_id: str) -> BoardHead | None:
        """The head row, or None when there is no such board. Never creates anything."""
        ...

    async def create(self, board_id: str, *, epoch: str, created_ms: int, anew: bool = False) -> BoardHead:
        """Make an empty board and return its head; when it exists already, return the existing head unchanged.

        Raises:
            BoardDeleted: there was a board of this name, which was deleted, and ``anew`` is not set.
        """
        ...

    async def create_with(self, board: NewBoard) -> bool:
        """Make a board with all that it begins with, in one transaction synced to disk.

        False when there is a board of this name: then nothing was written. One that was deleted is no hindrance.
        """
        ...

    async def forks(self, board_id: str, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        """Up to ``limit`` boards that were forked from this one, in the order of their ids, from ``after`` on."""
        ...

    async def delete(self, tombstone: Tombstone) -> bool:
        """Remove a board and all that is stored of it, and leave the tombstone; False when it is not there.

        ``epoch`` must be that of the board, or it is not. The board is gone when a first transaction is on disk; what
        was stored of it goes in further ones, so that writers of other boards do not wait. What they leave behind when
        the process ends in between is removed after the store is opened again, and by the next deletion.
        """
        ...

    async def tombstones(self, board_id: str) -> list[Tombstone]:
        """What was left of boards of this name, the last one deleted first."""
        ...

    async def boards(self, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        """Up to ``limit`` boards whose id sorts after ``after`` (by code point), in that order."""
        ...

    async def append(self, requests: Sequence[Append]) -> list[AppendResult]:
        """Write all requests in one transaction, synced to disk, and answer each in order.

        A request whose ``expected_seq`` and ``epoch`` are not those of the head row, or whose schemas do not follow
        the newest one, answers `HeadMoved` and does not hinder the others. A board occurs at most once in
        ``requests``. When it raises, none of them is acknowledged, and each is either wholly written or not at all.
        """
        ...

    async def entries(self, board_id: str, *, after: int, limit: int) -> list[Entry]:
        """Up to ``limit`` entries with ``seq > after``, ascending. Those up to the base are not there."""
        ...

    async def checkpoints(self, board_id: str, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        """Up to ``limit`` checkpoints with ``version < before`` (all when None), newest first.

        Of those made by entries up to the base, the ones that `keep_checkpoints` was told of.
        """
        ...

    async def checkpoint(self, board_id: str, version: int) -> Checkpoint | None:
        """One checkpoint, or None."""
        ...

    async def keys(self, board_id: str, keys: Sequence[str]) -> dict[str, KeyRecord]:
        """Those of ``keys`` that were used on this board."""
        ...

    async def used_keys(self, board_id: str, *, after: str = "", limit: int = 1000) -> list[KeyRecord]:
        """Up to ``limit`` used keys that sort after ``after`` (by code point), in that order."""
        ...

    async def schemas(self, board_id: str) -> list[SchemaRecord]:
        """The board's schemas in order of their number."""
        ...

    async def add_schema(self, board_id: str, schema: SchemaRecord) -> bool:
        """Store a schema under the next number; False when its number is not the next (another process was first).

        Raises:
            NotFound: there is no such board.
        """
        ...

    async def take_client_ids(self, board_id: str, limit: int) -> list[int]:
        """Remove up to ``limit`` of the board's free client ids and return them, in no order; durable on return.

        Of several callers, in whatever process, no two get the same. After an error the ids that would have been
        returned may be gone.
        """
        ...

    async def return_client_ids(self, board_id: str, client_ids: Sequence[int], *, epoch: str) -> None:
        """Make ids free, to be taken again; durable on return. One that is free already stays free, once.

        Raises:
            NotFound: there is no such board, or it is not that of ``epoch`` any more.
        """
        ...

    async def save_snapshot(self, snapshot: SnapshotRecord, *, drop: Sequence[int] = ()) -> None:
        """Store a snapshot, and drop those at the seqs ``drop`` that are not pinned.

        A snapshot at the same seq is replaced, so that one which turned out to be damaged can be made good; it stays
        pinned if it was. One before the base is stored only when it is pinned.

        Raises:
            NotFound: there is no such board.
        """
        ...

    async def snapshots(
        self, board_id: str, *, at_most: int | None = None, limit: int | None = None
    ) -> list[SnapshotRecord]:
        """Up to ``limit`` snapshots with ``seq <= at_most`` (all when None), newest first."""
        ...

    async def snapshot_seqs(self, board_id: str, *, pinned: bool = False) -> list[int]:
        """Where there are snapshots that are pinned, or that are not, ascending."""
        ...

    async def base(self, board_id: str) -> BaseRecord | None:
        """What the journal up to the head's ``base_seq`` has become; None while all of it is there."""
        ...

    async def retention(self, board_id: str) -> str:
        """The text that `set_retention` stored last; empty when there is none, or no such board."""
        ...

    async def set_retention(self, board_id: str, policy: str) -> None:
        """Store a text with the board: which versions it keeps, as its writers say; durable on return.

        Raises:
            NotFound: there is no such board.
        """
        ...

    async def sizes(self, board_id: str) -> StoredSizes:
        """How much is stored of the board; all zero when there is none. Reads every row that it counts."""
        ...

    async def keyed_versions(self, board_id: str, *, at_most: int) -> list[int]:
        """The versions up to ``at_most`` that idempotency keys led to, ascending."""
        ...

    async def keep_checkpoints(self, board_id: str, versions: Sequence[int]) -> None:
        """Let the records of these checkpoints outlive the entries that made them. Those that are not there are passed
        over.
        """
        ...

    async def move_base(self, move: BaseMove) -> bool:
        """Replace the journal up to the new base by it, in one transaction; durable on return.

        From then on the entries up to it are not read any more, nor are checkpoints before it that were not kept;
        snapshots before it are gone but for ``pinned``. `drop_squashed` then removes what is not read.

        False, and nothing was changed: the base or epoch is another than was expected, the journal does not reach so
        far, or one of ``pinned`` is not there.
        """
        ...

    async def drop_squashed(self, board_id: str, *, limit: int) -> int:
        """Remove up to ``limit`` entries at or before the base, oldest first, with their checkpoints that are not
        kept. Returns how many were removed: 0 when none is left.
        """
        ...

    async def give_back(self, *, limit_bytes: int) -> bool:
        """Give up to about ``limit_bytes`` of unused space back to the file system; True when there is more."""
        ...

    async def wait_for_others(self) -> None:
        """Return when another process may have appended since the last return (spurious returns are allowed).

        One watcher per store: it is told of all boards at once, and a second one would take its turns away.
        """
        ...
