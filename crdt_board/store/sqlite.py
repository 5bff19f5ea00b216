"""The store on one SQLite file, which several processes may use at the same time."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, encode_checkpoint, parse_pointer
from crdt_board.clock import Clock, SystemClock
from crdt_board.errors import BoardCorrupt, NotFound, StoreUnavailable
from crdt_board.journal import GENESIS_HASH as NO_ENTRY
from crdt_board.journal import Entry
from crdt_board.store import sqlite_rows as rows
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
from crdt_board.store.sql_files import load_statements
from crdt_board.store.sqlite_file import SqliteFile, Synchronous, is_damage

T = TypeVar("T")

_POLL_SECONDS = 0.05
_PURGE_ROWS = 1_000
"""Entries that one transaction of a deletion removes: some 10 ms."""

_PURGE_PAUSE_SECONDS = 0.1
"""Between two of them when nobody waits for it: it has a tenth of the writer's time."""

_INTEGER_MAX = 2**63 - 1

_HEAD_OF_BASE = ("board", "seq", "entry_hash", "version", "checkpoint_hash")

_SQL = load_statements("sqlite")

logger = logging.getLogger(__name__)


class SqliteStore:
    """A `Store` on one SQLite file. See the contract for what each method promises."""

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._closed = False
        self._data_version: int | None = None
        self._purging: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, path: str | os.PathLike[str], *, synchronous: Synchronous = "FULL", clock: Clock | None = None
    ) -> SqliteStore:
        """Open the file at ``path``, and make it when it is missing; its folder must exist.

        With ``synchronous="FULL"`` an answered append survives the loss of power; with ``NORMAL`` or ``OFF`` it
        survives the end of the process only.

        Raises:
            StoreUnavailable: the file belongs to another program, is no database, cannot be read or is newer than
                this program. Nothing was written into it in that case.
        """
        store = cls(await SqliteFile.open(path, synchronous=synchronous), clock or SystemClock())
        store._data_version = await store._file.data_version()
        store._purging = asyncio.create_task(store._purge_left(), name="purge-deleted")
        return store

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    async def close(self) -> None:
        self._closed = True
        if self._purging is not None:
            self._purging.cancel()
            await asyncio.wait([self._purging])
        await self._file.close()

    async def now_ms(self) -> int:
        if self._closed:
            raise StoreUnavailable("the store was closed")
        return self._clock.now_ms()

    async def head(self, board_id: str) -> BoardHead | None:
        found = await self._read(rows.read_head, "head", board_id)
        return found[0] if found else None

    async def create(self, board_id: str, *, epoch: str, created_ms: int, anew: bool = False) -> BoardHead:
        row = {**_new_row(board_id, epoch, created_ms), "anew": anew}
        await self._file.write(lambda connection: connection.execute(_SQL["create_board"], row).rowcount)
        head = await self.head(board_id)
        if head is None:
            raise deleted((await self.tombstones(board_id))[0])
        return head

    async def create_with(self, board: NewBoard) -> bool:
        if board.beginning.entries:
            assert_sound([board.beginning])
        return await self._file.write(partial(_create_with, board))

    async def forks(self, board_id: str, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        return await self._read(rows.read_head, "forks", board_id, after=after, limit=_clamp(limit))

    async def delete(self, tombstone: Tombstone) -> bool:
        found = await self._file.write(partial(_hide, tombstone))
        while await self._file.write(_purge):
            pass
        return found

    async def _purge_left(self) -> None:
        """Remove what deletions left behind whose process ended, with pauses, so that writers hardly wait."""
        try:
            while await self._file.read(_SQL["hidden_board"], {}):
                await self._file.write(_purge)
                await asyncio.sleep(_PURGE_PAUSE_SECONDS)
        except StoreUnavailable as error:  # tried again when the file is opened next
            logger.info("what is left of a deleted board was not removed: %s", error)
        except Exception:  # the boundary of this task
            logger.exception("what is left of a deleted board was not removed")

    async def tombstones(self, board_id: str) -> list[Tombstone]:
        return await self._read(rows.read_tombstone, "tombstones", board_id)

    async def boards(self, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        found = await self._file.read(_SQL["boards"], {"after": after, "limit": _clamp(limit)})
        return [rows.read_rows([row], rows.read_head, _name(row), seq_column=None)[0] for row in found]

    async def append(self, requests: Sequence[Append]) -> list[AppendResult]:
        assert_sound(requests)
        return await self._file.write(partial(_append_all, tuple(requests)))

    async def entries(self, board_id: str, *, after: int, limit: int) -> list[Entry]:
        bounds = {"after": rows.clamp_seq(after), "limit": _clamp(limit)}
        return await self._read(rows.read_entry, "entries", board_id, seq_column=0, **bounds)

    async def checkpoints(self, board_id: str, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        bounds = {"before": _INTEGER_MAX if before is None else _clamp(before), "limit": _clamp(limit)}
        return await self._read(rows.read_checkpoint, "checkpoints", board_id, seq_column=1, **bounds)

    async def checkpoint(self, board_id: str, version: int) -> Checkpoint | None:
        found = await self.checkpoints(board_id, before=version + 1, limit=1)
        return found[0] if found and found[0].version == version else None

    async def keys(self, board_id: str, keys: Sequence[str]) -> dict[str, KeyRecord]:
        found = await self._read(rows.read_key, "keys", board_id, keys=json.dumps(list(keys)))
        return {record.key: record for record in found}

    async def used_keys(self, board_id: str, *, after: str = "", limit: int = 1000) -> list[KeyRecord]:
        return await self._read(rows.read_key, "used_keys", board_id, after=after, limit=_clamp(limit))

    async def schemas(self, board_id: str) -> list[SchemaRecord]:
        return await self._read(rows.read_schema, "schemas", board_id)

    async def add_schema(self, board_id: str, schema: SchemaRecord) -> bool:
        def insert(connection: sqlite3.Connection) -> bool:
            board = _board_key(connection, board_id)
            return connection.execute(_SQL["insert_schema"], {"board": board, **_schema_row(schema)}).rowcount == 1

        return await self._file.write(insert)

    async def take_client_ids(self, board_id: str, limit: int) -> list[int]:
        bounds = {"board_id": board_id, "limit": _clamp(limit)}

        def take(connection: sqlite3.Connection) -> list[int]:
            return [int(client_id) for (client_id,) in connection.execute(_SQL["take_client_ids"], bounds).fetchall()]

        return await self._file.write(take)

    async def return_client_ids(self, board_id: str, client_ids: Sequence[int], *, epoch: str) -> None:
        returned = list(client_ids)

        def give(connection: sqlite3.Connection) -> None:
            head = _current_head(connection, board_id)
            if head is None or head.epoch != epoch:
                raise NotFound(f"there is no board {board_id}, or it was made anew", board_id=board_id)
            board = _board_key(connection, board_id)
            connection.executemany(_SQL["return_client_id"], [{"board": board, "client_id": each} for each in returned])

        await self._file.write(give)

    async def save_snapshot(self, snapshot: SnapshotRecord, *, drop: Sequence[int] = ()) -> None:
        def save(connection: sqlite3.Connection) -> None:
            board = _board_key(connection, snapshot.board_id)
            connection.execute(_SQL["save_snapshot"], rows.write_snapshot(board, snapshot))
            connection.execute(_SQL["drop_snapshots"], {"board": board, "seqs": json.dumps(list(drop))})

        await self._file.write(save)

    async def snapshots(
        self, board_id: str, *, at_most: int | None = None, limit: int | None = None
    ) -> list[SnapshotRecord]:
        bound = rows.SEQ_MAX if at_most is None else min(at_most, rows.SEQ_MAX)
        if bound < 0:
            return []
        bounds = {"at_most": bound, "limit": _INTEGER_MAX if limit is None else _clamp(limit)}
        return await self._read(rows.read_snapshot, "snapshots", board_id, seq_column=0, **bounds)

    async def snapshot_seqs(self, board_id: str, *, pinned: bool = False) -> list[int]:
        return await self._read(rows.read_number, "snapshot_seqs", board_id, pinned=pinned)

    async def base(self, board_id: str) -> BaseRecord | None:
        found = await self._read(rows.read_base, "base", board_id, seq_column=0)
        return found[0] if found else None

    async def retention(self, board_id: str) -> str:
        found = await self._read(rows.read_text, "retention", board_id)
        return found[0] if found else ""

    async def set_retention(self, board_id: str, policy: str) -> None:
        def write(connection: sqlite3.Connection) -> None:
            row = {"board": _board_key(connection, board_id), "policy": policy}
            connection.execute(_SQL["set_retention"], row)

        await self._file.write(write)

    async def sizes(self, board_id: str) -> StoredSizes:
        return (await self._read(rows.read_sizes, "sizes", board_id))[0]

    async def keyed_versions(self, board_id: str, *, at_most: int) -> list[int]:
        return await self._read(rows.read_number, "keyed_versions", board_id, at_most=_clamp(at_most))

    async def keep_checkpoints(self, board_id: str, versions: Sequence[int]) -> None:
        def keep(connection: sqlite3.Connection) -> None:
            row = {"board": _board_key(connection, board_id), "versions": json.dumps(list(versions))}
            connection.execute(_SQL["keep_checkpoints"], row)

        await self._file.write(keep)

    async def move_base(self, move: BaseMove) -> bool:
        return await self._file.write(partial(_move_base, move))

    async def drop_squashed(self, board_id: str, *, limit: int) -> int:
        if not await self._file.read(_SQL["is_squashed"], {"board_id": board_id}) and await self.head(board_id):
            return 0  # without taking the lock from those who write

        def drop(connection: sqlite3.Connection) -> int:
            board = _board_key(connection, board_id)
            last, count = connection.execute(_SQL["squashed"], {"board": board, "limit": _clamp(limit)}).fetchone()
            if count:
                row = {"board": board, "last": last}
                connection.execute(_SQL["drop_squashed_checkpoints"], row)
                connection.execute(_SQL["drop_squashed"], row)
            return int(count)

        return await self._file.write(drop)

    async def give_back(self, *, limit_bytes: int) -> bool:
        return await self._file.give_back(limit_bytes)

    async def wait_for_others(self) -> None:
        # SQLite rings no bell. A commit of our own does not move the number, so a busy process does not wake itself.
        while (found := await self._file.data_version()) == self._data_version:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        self._data_version = found

    async def _read(
        self,
        read: Callable[[str, rows.Row], T],
        statement: str,
        board_id: str,
        *,
        seq_column: int | None = None,
        **parameters: object,
    ) -> list[T]:
        try:
            found = await self._file.read(_SQL[statement], {"board_id": board_id, **parameters})
        except StoreUnavailable as error:
            if not is_damage(error):
                raise
            raise BoardCorrupt(f"board {board_id}: {error.message}", board_id=board_id, seq=None) from error
        return rows.read_rows(found, read, board_id, seq_column=seq_column)


def _new_row(board_id: str, epoch: str, created_ms: int) -> dict[str, object]:
    return {
        "board_id": board_id,
        "epoch": epoch,
        "hash": bytes.fromhex(NO_ENTRY),
        "checkpoint_hash": bytes.fromhex(NO_CHECKPOINT),
        "created_ms": created_ms,
    }


def _create_with(board: NewBoard, connection: sqlite3.Connection) -> bool:
    beginning = board.beginning
    row = {
        **_new_row(beginning.board_id, beginning.epoch, board.created_ms),
        "parent": board.parent,
        "parent_id": parse_pointer(board.parent).board_id if board.parent else "",
    }
    if connection.execute(_SQL["create_fork"], row).rowcount == 0:
        return False
    key = _board_key(connection, beginning.board_id)
    if board.base is not None:
        _begin_at(connection, key, board, board.base)
    if beginning.entries:
        _append(connection, beginning)
    else:
        _insert_keys(connection, key, beginning.keys)
    for schema in board.schemas:
        row = {"number": schema.number, "fingerprint": schema.fingerprint, "document": schema.document}
        connection.execute(_SQL["insert_schema"], {"board": key, **row})
    return True


def _hide(tombstone: Tombstone, connection: sqlite3.Connection) -> bool:
    row = {
        "board_id": tombstone.board_id,
        "epoch": tombstone.epoch,
        "deleted_ms": tombstone.deleted_ms,
        "agent": tombstone.agent,
        "clients": tombstone.clients,
    }
    connection.execute(_SQL["insert_tombstone"], row)
    named = {name: row[name] for name in ("board_id", "epoch")}
    return bool(connection.execute(_SQL["hide_board"], named).fetchall())


def _purge(connection: sqlite3.Connection) -> bool:
    """Remove a part of what is left of a deleted board; False when there is nothing left of any."""
    hidden = connection.execute(_SQL["hidden_board"]).fetchone()
    if hidden is None:
        return False
    board = {"board": hidden[0]}
    if connection.execute(_SQL["purge_entries"], {**board, "limit": _PURGE_ROWS}).rowcount == 0:
        for what in ("base", "snapshots", "checkpoints", "keys", "schemas", "client_ids", "board"):
            connection.execute(_SQL[f"purge_{what}"], board)
    return True


def _append_all(requests: Sequence[Append], connection: sqlite3.Connection) -> list[AppendResult]:
    return [_append(connection, request) for request in requests]


def _append(connection: sqlite3.Connection, request: Append) -> AppendResult:
    if request.schemas and request.schemas[0].number != _schema_count(connection, request.board_id) + 1:
        return HeadMoved(head=_current_head(connection, request.board_id))
    last = request.entries[-1]
    newest = bytes.fromhex(request.checkpoints[-1].hash) if request.checkpoints else None
    moved = connection.execute(
        _SQL["move_head"],
        {
            "board_id": request.board_id,
            "epoch": request.epoch,
            "expected_seq": request.expected_seq,
            "seq": last.seq,
            "hash": bytes.fromhex(last.hash),
            "commits": len(request.checkpoints),
            "checkpoint_hash": newest,
        },
    ).rowcount
    if not moved:
        return HeadMoved(head=_current_head(connection, request.board_id))
    board, version = connection.execute(_SQL["moved_head"], {"board_id": request.board_id}).fetchone()
    assert not request.checkpoints or request.checkpoints[-1].version == version, (request.board_id, version)
    connection.executemany(_SQL["insert_entry"], [rows.write_entry(board, entry) for entry in request.entries])
    for made in request.checkpoints:
        connection.execute(_SQL["insert_checkpoint"], {"board": board, "version": made.version, "seq": made.seq})
    _insert_keys(connection, board, request.keys)
    for schema in request.schemas:
        inserted = connection.execute(_SQL["insert_schema"], {"board": board, **_schema_row(schema)}).rowcount
        assert inserted == 1, (request.board_id, schema.number)
    return Appended(seq=last.seq)


def _insert_keys(connection: sqlite3.Connection, board: int, keys: Sequence[KeyRecord]) -> None:
    for used in keys:
        row = {"board": board, "key": used.key, "fingerprint": used.fingerprint, "version": used.version}
        connection.execute(_SQL["insert_key"], row)


def _begin_at(connection: sqlite3.Connection, key: int, board: NewBoard, base: BaseRecord) -> None:
    """Put a base, and what was kept from before it, in place of a journal's beginning."""
    row = rows.write_base(key, base)
    connection.execute(_SQL["begin_at"], {name: row[name] for name in _HEAD_OF_BASE})
    connection.execute(_SQL["save_base"], row)
    for state in board.states:
        connection.execute(_SQL["save_snapshot"], rows.write_snapshot(key, replace(state, pinned=True)))
    for made in board.kept:
        row = {"board": key, "version": made.version, "seq": made.seq, "content": encode_checkpoint(made)}
        connection.execute(_SQL["insert_kept_checkpoint"], row)


def _schema_count(connection: sqlite3.Connection, board_id: str) -> int:
    return len(connection.execute(_SQL["schemas"], {"board_id": board_id}).fetchall())


def _schema_row(schema: SchemaRecord) -> dict[str, object]:
    return {"number": schema.number, "fingerprint": schema.fingerprint, "document": schema.document}


def _move_base(move: BaseMove, connection: sqlite3.Connection) -> bool:
    base = move.base
    pinned, forgotten = json.dumps(list(move.pinned)), json.dumps(list(move.forgotten))
    raised = connection.execute(
        _SQL["raise_base"],
        {
            "board_id": base.board_id,
            "epoch": move.epoch,
            "expected_seq": move.expected_seq,
            "seq": base.seq,
            "pinned": pinned,
        },
    ).fetchall()
    if not raised:
        return False
    ((board,),) = raised
    connection.execute(_SQL["save_base"], rows.write_base(board, base))
    connection.execute(_SQL["drop_snapshots_before"], {"board": board, "seq": base.seq, "pinned": pinned})
    connection.execute(_SQL["forget_checkpoints"], {"board": board, "forgotten": forgotten})
    row = {"board": board, "forgotten": forgotten, "expected_seq": move.expected_seq}
    connection.execute(_SQL["drop_forgotten"], row)
    return True


def _current_head(connection: sqlite3.Connection, board_id: str) -> BoardHead | None:
    found = connection.execute(_SQL["head"], {"board_id": board_id}).fetchall()
    heads = rows.read_rows(found, rows.read_head, board_id, seq_column=None)
    return heads[0] if heads else None


def _board_key(connection: sqlite3.Connection, board_id: str) -> int:
    row = connection.execute(_SQL["board_key"], {"board_id": board_id}).fetchone()
    if row is None:
        raise NotFound(f"there is no board {board_id}", board_id=board_id)
    return int(row[0])


def _clamp(bound: int) -> int:
    return min(max(bound, 0), _INTEGER_MAX)


def _name(row: rows.Row) -> str:
    return str(row[0], "utf-8", "replace") if isinstance(row[0], bytes) else repr(row[0])
