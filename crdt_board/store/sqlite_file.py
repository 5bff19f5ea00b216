"""One SQLite database file of boards: how it is recognised, opened, waited for, written and closed.

Knows nothing about journals. Three things here are not as the driver has them:

* A call to another thread and back takes 60-90 µs, a commit with its sync some 200 µs. So a whole transaction is one
  function that runs on the connection's thread, not one call for each statement.
* Reads have a connection of their own. In WAL mode a reader neither waits for a writer nor holds one up, so loading
  one board does not stand in line behind the syncs of all the others. A read sees every commit that was answered.
* SQLite's own waiting for a lock is unfair and sleeps up to 100 ms at a time; with eight writers one of them starves.
  It waits `_BUSY_MS` at most; after that the call leaves the thread and tries again after a short random time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import sqlite3
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import aiosqlite

from crdt_board.errors import StoreUnavailable
from crdt_board.store.sql_files import load_migrations

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Synchronous = Literal["FULL", "NORMAL", "OFF"]

APPLICATION_ID = 0x43524442  # "CRDB": stands in the header of the file and tells whose it is

_PAGE_BYTES = 8192  # entries of 100 to 600 bytes: 7 % less space than in pages of 4096, and commits take the same time
_BUSY_MS = 10
_BUSY_SECONDS_MAX = 30.0
_RETRY_SECONDS_MAX = 0.02
_MAGIC = b"SQLite format 3\0"
_SQLITE_NEEDED = (3, 37, 0)  # STRICT tables

_REMEDIES = {
    sqlite3.SQLITE_BUSY: f"another process has kept it locked for {_BUSY_SECONDS_MAX:.0f} s; find and end that process",
    sqlite3.SQLITE_LOCKED: "another connection has kept it locked; close that connection",
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_IOERR: "the disk did not read or write; check it, and the space that is left on it",
    sqlite3.SQLITE_READONLY: "it cannot be written; check the permissions of the file and of its folder",
    sqlite3.SQLITE_PERM: "it may not be opened; check the permissions of the file and of its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check the permissions of the file and of its folder",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database; choose another file",
}


class _Connection(aiosqlite.Connection):
    """A connection that runs a whole function on its thread."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        # A store that was not closed must not keep the interpreter from ending: what was answered is on the disk.
        self._thread.daemon = True
        self._opening: asyncio.Task[None] | None = None
        self._stopped: asyncio.Future[object] | None = None

    async def open(self) -> None:
        """Connect. After a failure or a cancellation too, `end` must be called.

        The driver leaves its thread, and a connection that it has just made, to themselves when connecting fails or is
        cancelled; hence the shield, and the wait for the thread in `end`.
        """
        self._opening = asyncio.create_task(self._start())
        await asyncio.shield(self._opening)

    async def _start(self) -> None:
        await self

    async def end(self) -> None:
        """Close the connection and wait for its thread."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self.close()
        if self._stopped is not None:
            await self._stopped

    def stop(self) -> asyncio.Future[object] | None:
        self._stopped = super().stop()
        return self._stopped

    async def run(self, work: Work[T]) -> T:
        """What ``work`` returns or raises. When cancelled, ``work`` still runs to its end."""
        return cast(T, await self._execute(lambda: work(self._conn)))  # type: ignore[no-untyped-call]


class SqliteFile:
    """An open database file. Every method may raise `StoreUnavailable`."""

    def __init__(self, path: Path, synchronous: Synchronous) -> None:
        self._path = path
        self._files = (str(path), f"{path}-wal")
        self._synchronous = synchronous
        self._closed = False
        self._closing = asyncio.Lock()
        self._connections = contextlib.AsyncExitStack()
        self._identity: tuple[int, ...] | None = None
        self._writer: _Connection
        self._reader: _Connection

    @property
    def path(self) -> Path:
        return self._path.absolute()

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, synchronous: Synchronous) -> SqliteFile:
        """Open the file, make it when it is missing or empty, bring its schema up to date.

        Raises:
            StoreUnavailable: it is not ours, not readable, not a file, or newer than this program. Nothing was
                written into it in that case.
        """
        file = cls(Path(path), synchronous)
        mode = "rwc" if _check_ours_or_new(file._path) else "rw"
        try:
            file._writer = await file._connect(mode)
            await file._patiently(file._writer, partial(_prepare, file._path))
            file._reader = await file._connect("rw")
            await file._patiently(file._reader, partial(_execute, "PRAGMA query_only = ON"))
            file._identity = file._find_identity()
        except BaseException:
            await file.close()
            raise
        return file

    async def _connect(self, mode: str) -> _Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        connection = _Connection(partial(_open_connection, uri))
        self._connections.push_async_callback(connection.end)
        try:
            await connection.open()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        await self._patiently(connection, partial(_set_up, self._synchronous))
        return connection

    async def close(self) -> None:
        """Fold the write-ahead log into the file and release both. Idempotent."""
        self._closed = True
        async with self._closing:
            if self._identity is not None:
                self._identity = None
                with contextlib.suppress(sqlite3.Error):
                    await self._writer.run(partial(_execute, "PRAGMA wal_checkpoint(TRUNCATE)"))
            await self._connections.aclose()

    async def read(self, sql: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """All rows of one query, as of one moment that is not before any answered write."""

        def fetch(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            rows = connection.execute(sql, parameters).fetchall()
            self._check_identity()
            return rows

        return await self._patiently(self._reader, fetch)

    async def write(self, work: Work[T]) -> T:
        """Run ``work`` in a transaction of its own, on disk when this returns.

        ``work`` may run again when another process has the file locked. When it raises, nothing was written. When the
        call is cancelled, the transaction takes place as a whole or not at all.
        """
        return await self._patiently(self._writer, partial(self._transact, work))

    async def give_back(self, limit_bytes: int) -> bool:
        """Shorten the file by some of the pages that nothing uses; True when there are more.

        The file itself shrinks when the write-ahead log is folded into it, which is tried here without waiting for
        anybody.
        """

        def shorten(connection: sqlite3.Connection) -> bool:
            pages, unused = (
                max(1, limit_bytes // _pragma(connection, "page_size")),
                _pragma(connection, "freelist_count"),
            )
            connection.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            self._check_identity()
            left = _pragma(connection, "freelist_count")
            return 0 < left < unused  # a file that an older version made never gets shorter: its pages are used again

        has_more = await self._patiently(self._writer, shorten)
        if not has_more:
            await self._patiently(self._writer, partial(_execute, "PRAGMA wal_checkpoint(PASSIVE)"))
        return has_more

    async def data_version(self) -> int:
        """A number that moves when somebody else has written into the file, and stays when we have."""
        rows = await self._patiently(self._writer, lambda c: c.execute("PRAGMA data_version").fetchall())
        return int(rows[0][0])

    def _transact(self, work: Work[T], connection: sqlite3.Connection) -> T:
        def checked(connection: sqlite3.Connection) -> T:
            result = work(connection)
            self._check_identity()
            return result

        result = _transact(connection, checked)
        self._check_identity()  # again, for a file that went while it was synced: reads then refuse to confirm it
        return result

    def _check_identity(self) -> None:
        if self._identity is not None and self._find_identity() != self._identity:
            raise StoreUnavailable(
                f"{self._path}: the file was moved, deleted or replaced while it was open, or its -wal was, and what "
                "is written to it now would be lost; put it back, or open the board again",
                path=str(self._path),
            )

    def _find_identity(self) -> tuple[int, ...]:
        """Which files the path leads to: the database, and the write-ahead log that holds its newest part."""
        found: list[int] = []
        for path in self._files:
            try:
                status = os.stat(path)
            except OSError:
                found += [0, 0]
            else:
                found += [status.st_dev, status.st_ino]
        return tuple(found)

    async def _patiently(self, connection: _Connection, work: Work[T]) -> T:
        """Run ``work``, again and again while the file is locked, for `_BUSY_SECONDS_MAX`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _BUSY_SECONDS_MAX
        for attempt in itertools.count(1):
            if self._closed:
                break
            try:
                return await connection.run(work)
            except sqlite3.Error as error:
                if _code(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or loop.time() >= deadline:
                    raise self._unavailable(error) from error
            await asyncio.sleep(random.uniform(0, min(_RETRY_SECONDS_MAX, 0.001 * attempt)))
        raise StoreUnavailable(f"{self._path}: the store was closed", path=str(self._path))

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailable:
        remedy = _REMEDIES.get(_code(error), "the database refused")
        return StoreUnavailable(f"{self._path}: {remedy} (SQLite: {error})", path=str(self._path))


def is_damage(error: StoreUnavailable) -> bool:
    """True when the file could be read but does not hold a database any more."""
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and _code(cause) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the upper bits are the extended code


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _execute(sql: str, connection: sqlite3.Connection) -> None:
    connection.execute(sql).fetchall()


def _open_connection(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_MS / 1000)
    connection.text_factory = bytes
    return connection


def _set_up(synchronous: Synchronous, connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # of a new file; an old one keeps its own
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA synchronous = {synchronous}")


def _transact(connection: sqlite3.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself after some errors
            connection.execute("ROLLBACK")
        raise
    return result


def _check_ours_or_new(path: Path) -> bool:
    """True when the file is to be made. Looks at the bytes only: SQLite would write beside a file, or into it."""
    try:
        if not path.parent.is_dir():
            raise _refused(path, f"the folder {path.parent} does not exist; make it first")
        if not path.exists() and not path.is_symlink():
            return True
        if not stat.S_ISREG(path.stat().st_mode):
            raise _refused(path, "it is not a file; name a file")
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise _refused(path, f"it cannot be read ({error.strerror}); check its permissions") from error
    if not header or _never_had_a_table(header):  # a new file is like that for a moment
        return True
    if not header.startswith(_MAGIC) or int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise _refused(path, "it is not a CRDT Board database; choose another file")
    return False


def _never_had_a_table(header: bytes) -> bool:
    """Whether this is the header of a database that nobody has put anything into: no schema, and no owner."""
    has_form = header.startswith(_MAGIC) and header[21:24] == b"\x40\x20\x20"
    return has_form and not any(header[40:44] + header[60:64] + header[68:72])


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    """Bring the schema up to date.

    The first migration runs before the file is switched to WAL mode: so it lands in the file itself together with
    the application id, and another process never sees a header without it.
    """
    if sqlite3.sqlite_version_info < _SQLITE_NEEDED:
        raise _refused(path, f"Python has SQLite {sqlite3.sqlite_version} here; 3.37 or newer is needed")
    if _schema_number(path, connection) < len(load_migrations("sqlite")):
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file; see `SqliteFile.give_back`
        _transact(connection, partial(_migrate, path))
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != b"wal":
        raise _refused(path, "its file system has no shared memory, which several processes need; use a local disk")


def _schema_number(path: Path, connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    known = len(load_migrations("sqlite"))
    if number > known:
        raise _refused(path, f"a newer CRDT Board wrote it (schema {number}, known here: {known}); upgrade crdt-board")
    return int(number)


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if owner != APPLICATION_ID and (owner or tables):
        raise _refused(path, "it is not a CRDT Board database; choose another file")
    done = _schema_number(path, connection)
    for migration in load_migrations("sqlite")[done:]:
        for statement in migration.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {migration.number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _refused(path: Path, reason: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path}: {reason}", path=str(path))
