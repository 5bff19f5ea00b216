"""A database of one's own in a Postgres server that is there, gone after the block."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

SERVER = os.environ.get("CRDT_BOARD_BENCH_POSTGRES", "postgresql://postgres@127.0.0.1/postgres")
_CONNECT_SECONDS = 3


@dataclass(frozen=True, slots=True)
class Database:
    """``address`` is a connection string."""

    address: str
    name: str
    durability: str

    def url(self) -> str:
        """The same as a URL."""
        return SERVER.rpartition("/")[0] + "/" + self.name

    def size(self) -> int:
        """Bytes of all tables and indexes, dead rows included, the log that is written ahead not."""
        with psycopg.connect(SERVER, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SELECT pg_database_size(%s)", [self.name]).fetchone()
            assert row is not None
            return int(row[0])


def why_not() -> str | None:
    """Why there is no server to measure, or None."""
    try:
        with psycopg.connect(SERVER, connect_timeout=_CONNECT_SECONDS):
            return None
    except psycopg.OperationalError as error:
        reason = str(error).strip().splitlines()[0]
        return f"no Postgres at CRDT_BOARD_BENCH_POSTGRES={SERVER.rpartition('@')[2]} ({reason})"


@contextlib.contextmanager
def scratch_database() -> Iterator[Database]:
    """Make a database, and drop it at the end, whoever is connected to it."""
    name = f"crdt_board_bench_{secrets.token_hex(4)}"
    with psycopg.connect(SERVER, autocommit=True, connect_timeout=_CONNECT_SECONDS) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            settings = ", ".join(f"{which}={_setting(connection, which)}" for which in ("fsync", "synchronous_commit"))
            yield Database(make_conninfo(SERVER, dbname=name), name, f"Postgres, {settings}")
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])
