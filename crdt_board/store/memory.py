"""A store in the memory of the process: for tests and for boards that nobody needs tomorrow.

Keeps every promise of the contract but durability. `MemoryStore.peer` stands for another process on the same database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakSet

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, parse_pointer
from crdt_board.clock import Clock, SystemClock
from crdt_board.errors import NotFound, StoreUnavailable
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import Entry
from crdt_board.store.appends import assert_sound, deleted
from crdt_board.store.contract import (
    Append,
    Appended,
    AppendResult,
    BaseMove,
    BaseRecord,
    BoardHead,
    HeadMoved,
    KeyRecord,
    NewBoard,
    SchemaRecord,
    SnapshotRecord,
    StoredSizes,
    Tombstone,
)


@dataclass(slots=True)
class _Board:
    head: BoardHead
    entries: list[Entry] = field(default_factory=list)
    """From the one after ``dropped_seq``."""
    dropped_seq: int = 0
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    """By version, ascending."""
    kept: set[int] = field(default_factory=set)
    base: BaseRecord | None = None
    keys: dict[str, KeyRecord] = field(default_factory=dict)
    schemas: list[SchemaRecord] = field(default_factory=list)
    free_client_ids: set[int] = field(default_factory=set)
    snapshots: dict[int, SnapshotRecord] = field(default_factory=dict)
    retention: str = ""


@dataclass(slots=True)
class _Database:
    clock: Clock
    boards: dict[str, _Board] = field(default_factory=dict)
    tombstones: dict[str, list[Tombstone]] = field(default_factory=dict)
    stores: WeakSet[MemoryStore] = field(default_factory=WeakSet)


class MemoryStore:
    """A `Store` whose boards live as long as it or a peer of it. See the contract for what each method promises."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._join(_Database(clock or SystemClock()))

    def peer(self) -> MemoryStore:
        """Another store on the same boards, as another process would open it. Closing one leaves the other open."""
        other = MemoryStore.__new__(MemoryStore)
        other._join(self._database)
        return other

    def _join(self, database: _Database) -> None:
        self._database = database
        self._closed = False
        self._disturbed = asyncio.Event()
        database.stores.add(self)

    async def close(self) -> None:
        self._closed = True
        self._disturbed.set()

    async def now_ms(self) -> int:
        self._check_open()
        return self._database.clock.now_ms()

    async def head(self, board_id: str) -> BoardHead | None:
        board = self._find(board_id)
        return board.head if board else None

    async def create(self, board_id: str, *, epoch: str, created_ms: int, anew: bool = False) -> BoardHead:
        if board := self._find(board_id):
            return board.head
        left = self._database.tombstones.get(board_id)
        if left and not anew:
            raise deleted(left[-1])
        return self._make(board_id, epoch=epoch, created_ms=created_ms).head

    async def create_with(self, board: NewBoard) -> bool:
        beginning = board.beginning
        if self._find(beginning.board_id):
            return False
        made = self._make(beginning.board_id, epoch=beginning.epoch, created_ms=board.created_ms, parent=board.parent)
        made.schemas.extend(board.schemas)
        if board.base is not None:
            _begin_at(made, board, board.base)
        if beginning.entries:
            assert_sound([beginning])
            self._append(beginning)
        else:
            made.keys.update((record.key, record) for record in beginning.keys)
        return True

    async def forks(self, board_id: str, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        self._check_open()
        boards = self._database.boards
        found = [boards[name].head for name in sorted(boards) if name > after and _is_fork(boards[name].head, board_id)]
        return found[: max(limit, 0)]

    async def delete(self, tombstone: Tombstone) -> bool:
        board = self._find(tombstone.board_id)
        if board is None or board.head.epoch != tombstone.epoch:
            return False
        del self._database.boards[tombstone.board_id]
        left = self._database.tombstones.get(tombstone.board_id, [])
        others = [each for each in left if each.epoch != tombstone.epoch]
        self._database.tombstones[tombstone.board_id] = [*others, tombstone]
        self._disturb_others()
        return True

    async def tombstones(self, board_id: str) -> list[Tombstone]:
        self._check_open()
        return self._database.tombstones.get(board_id, [])[::-1]

    def _make(self, board_id: str, *, epoch: str, created_ms: int, parent: str = "") -> _Board:
        head = BoardHead(
            board_id=board_id,
            epoch=epoch,
            seq=0,
            hash=NO_ENTRY,
            version=0,
            checkpoint_hash=NO_CHECKPOINT,
            created_ms=created_ms,
            parent=parent,
        )
        made = self._database.boards[board_id] = _Board(head)
        self._disturb_others()
        return made

    async def boards(self, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        self._check_open()
        following = sorted(board_id for board_id in self._database.boards if board_id > after)
        return [self._database.boards[board_id].head for board_id in following[: max(limit, 0)]]

    async def append(self, requests: Sequence[Append]) -> list[AppendResult]:
        self._check_open()
        assert_sound(requests)
        results = [self._append(request) for request in requests]
        self._disturb_others()
        return results

    def _append(self, request: Append) -> AppendResult:
        board = self._find(request.board_id)
        if board is None:
            return HeadMoved(head=None)
        if (board.head.epoch, board.head.seq) != (request.epoch, request.expected_seq):
            return HeadMoved(head=board.head)
        if request.schemas and request.schemas[0].number != len(board.schemas) + 1:
            return HeadMoved(head=board.head)
        last = request.entries[-1]
        version, checkpoint_hash = board.head.version, board.head.checkpoint_hash
        if request.checkpoints:
            assert request.checkpoints[0].version == version + 1, (request.board_id, version)
            version, checkpoint_hash = request.checkpoints[-1].version, request.checkpoints[-1].hash
        board.head = replace(board.head, seq=last.seq, hash=last.hash, version=version, checkpoint_hash=checkpoint_hash)
        board.entries.extend(request.entries)
        board.checkpoints.update((made.version, made) for made in request.checkpoints)
        board.keys.update((record.key, record) for record in request.keys)
        board.schemas.extend(request.schemas)
        return Appended(seq=last.seq)

    async def entries(self, board_id: str, *, after: int, limit: int) -> list[Entry]:
        board = self._find(board_id)
        if board is None:
            return []
        start = max(after, board.head.base_seq) - board.dropped_seq
        return board.entries[start : start + max(limit, 0)]

    async def checkpoints(self, board_id: str, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        board = self._find(board_id)
        found = [
            made
            for made in (reversed(board.checkpoints.values()) if board else ())
            if (before is None or made.version < before) and _is_read(board, made)
        ]
        return found[: max(limit, 0)]

    async def checkpoint(self, board_id: str, version: int) -> Checkpoint | None:
        board = self._find(board_id)
        found = board.checkpoints.get(version) if board else None
        return found if found and _is_read(board, found) else None

    async def keys(self, board_id: str, keys: Sequence[str]) -> dict[str, KeyRecord]:
        board = self._find(board_id)
        return {key: board.keys[key] for key in keys if key in board.keys} if board else {}

    async def used_keys(self, board_id: str, *, after: str = "", limit: int = 1000) -> list[KeyRecord]:
        board = self._find(board_id)
        names = sorted(name for name in board.keys if name > after) if board else []
        return [board.keys[name] for name in names[: max(limit, 0)]] if board else []

    async def schemas(self, board_id: str) -> list[SchemaRecord]:
        board = self._find(board_id)
        return list(board.schemas) if board else []

    async def add_schema(self, board_id: str, schema: SchemaRecord) -> bool:
        board = self._get(board_id)
        if schema.number != len(board.schemas) + 1:
            return False
        board.schemas.append(schema)
        return True

    async def take_client_ids(self, board_id: str, limit: int) -> list[int]:
        board = self._find(board_id)
        free = board.free_client_ids if board else set()
        return [free.pop() for _ in range(min(max(limit, 0), len(free)))]

    async def return_client_ids(self, board_id: str, client_ids: Sequence[int], *, epoch: str) -> None:
        board = self._get(board_id)
        if board.head.epoch != epoch:
            raise NotFound(f"board {board_id} was made anew", board_id=board_id)
        board.free_client_ids.update(client_ids)

    async def save_snapshot(self, snapshot: SnapshotRecord, *, drop: Sequence[int] = ()) -> None:
        board = self._get(snapshot.board_id)
        there = board.snapshots.get(snapshot.seq)
        if snapshot.pinned or snapshot.seq >= board.head.base_seq:
            pinned = snapshot.pinned or (there is not None and there.pinned)
            board.snapshots[snapshot.seq] = replace(snapshot, pinned=pinned)
        for seq in drop:
            if seq in board.snapshots and not board.snapshots[seq].pinned:
                del board.snapshots[seq]

    async def snapshots(
        self, board_id: str, *, at_most: int | None = None, limit: int | None = None
    ) -> list[SnapshotRecord]:
        board = self._find(board_id)
        if board is None:
            return []
        seqs = sorted((seq for seq in board.snapshots if at_most is None or seq <= at_most), reverse=True)
        return [board.snapshots[seq] for seq in seqs[: None if limit is None else max(limit, 0)]]

    async def snapshot_seqs(self, board_id: str, *, pinned: bool = False) -> list[int]:
        board = self._find(board_id)
        return sorted(seq for seq, there in board.snapshots.items() if there.pinned == pinned) if board else []

    async def base(self, board_id: str) -> BaseRecord | None:
        board = self._find(board_id)
        return board.base if board else None

    async def retention(self, board_id: str) -> str:
        board = self._find(board_id)
        return board.retention if board else ""

    async def set_retention(self, board_id: str, policy: str) -> None:
        self._get(board_id).retention = policy

    async def sizes(self, board_id: str) -> StoredSizes:
        board = self._find(board_id)
        if board is None:
            return StoredSizes()
        entries = [entry for entry in board.entries if entry.seq > board.head.base_seq]
        snapshots = [len(each.data) for each in board.snapshots.values()]
        bases = [len(board.base.data) + len(board.base.origins)] if board.base else []
        return StoredSizes(
            entries=len(entries),
            entry_bytes=sum(len(entry.payload) + len(entry.checkpoint.encode()) for entry in entries),
            checkpoints=len(await self.checkpoints(board_id, limit=len(board.checkpoints))),
            snapshots=len(snapshots) + len(bases),
            snapshot_bytes=sum(snapshots) + sum(bases),
        )

    async def keyed_versions(self, board_id: str, *, at_most: int) -> list[int]:
        board = self._find(board_id)
        return sorted({used.version for used in board.keys.values() if used.version <= at_most}) if board else []

    async def keep_checkpoints(self, board_id: str, versions: Sequence[int]) -> None:
        board = self._get(board_id)
        board.kept.update(version for version in versions if version in board.checkpoints)

    async def move_base(self, move: BaseMove) -> bool:
        base = move.base
        board = self._find(base.board_id)
        if (
            board is None
            or (board.head.epoch, board.head.base_seq) != (move.epoch, move.expected_seq)
            or not move.expected_seq <= base.seq <= board.head.seq
            or any(seq not in board.snapshots or not board.snapshots[seq].pinned for seq in move.pinned)
        ):
            return False
        board.base = base
        board.head = replace(board.head, base_seq=base.seq)
        for seq in [seq for seq in board.snapshots if seq < base.seq and seq not in move.pinned]:
            del board.snapshots[seq]
        for version in move.forgotten:
            board.kept.discard(version)
            made = board.checkpoints.get(version)
            if made is not None and made.seq <= board.dropped_seq:
                del board.checkpoints[version]
        self._disturb_others()
        return True

    async def drop_squashed(self, board_id: str, *, limit: int) -> int:
        board = self._get(board_id)
        gone = board.entries[: max(0, min(limit, board.head.base_seq - board.dropped_seq))]
        del board.entries[: len(gone)]
        board.dropped_seq += len(gone)
        for version in [v for v, made in board.checkpoints.items() if made.seq <= board.dropped_seq]:
            if version not in board.kept:
                del board.checkpoints[version]
        return len(gone)

    async def give_back(self, *, limit_bytes: int) -> bool:
        self._check_open()
        return False

    async def wait_for_others(self) -> None:
        self._check_open()
        await self._disturbed.wait()
        self._check_open()
        self._disturbed.clear()

    def _disturb_others(self) -> None:
        for store in self._database.stores:
            if store is not self:
                store._disturbed.set()

    def _find(self, board_id: str) -> _Board | None:
        self._check_open()
        return self._database.boards.get(board_id)

    def _get(self, board_id: str) -> _Board:
        if board := self._find(board_id):
            return board
        raise NotFound(f"there is no board {board_id}", board_id=board_id)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store was closed")


def _is_fork(head: BoardHead, parent_id: str) -> bool:
    return bool(head.parent) and parse_pointer(head.parent).board_id == parent_id


def _is_read(board: _Board | None, checkpoint: Checkpoint) -> bool:
    return board is not None and (checkpoint.seq > board.head.base_seq or checkpoint.version in board.kept)


def _begin_at(made: _Board, board: NewBoard, base: BaseRecord) -> None:
    """Put a base, and what was kept from before it, in place of a journal's beginning."""
    made.base, made.dropped_seq = base, base.seq
    made.head = replace(
        made.head,
        seq=base.seq,
        hash=base.entry_hash,
        version=base.version,
        checkpoint_hash=base.checkpoint_hash,
        base_seq=base.seq,
    )
    made.snapshots.update((state.seq, replace(state, pinned=True)) for state in board.states)
    made.checkpoints.update((checkpoint.version, checkpoint) for checkpoint in board.kept)
    made.kept.update(checkpoint.version for checkpoint in board.kept)
