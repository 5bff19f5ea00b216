"""SQL by name: one statement a file, one numbered file a migration. Knows no driver."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_SQL = files("crdt_board.store") / "sql"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a database's schema; ``number`` counts from 1 without gaps."""

    number: int
    statements: tuple[str, ...]


@cache
def load_statements(dialect: str) -> MappingProxyType[str, str]:
    """The statements of a dialect by their names."""
    found = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in (_SQL / dialect).iterdir()
        if file.name.endswith(".sql")
    }
    return MappingProxyType(found)


@cache
def load_migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of a dialect in the order of their numbers. They are the only source of its schema."""
    names = sorted(file.name for file in (_SQL / dialect / "migrations").iterdir() if file.name.endswith(".sql"))
    found = tuple(
        Migration(int(name[:4]), _split((_SQL / dialect / "migrations" / name).read_text(encoding="utf-8")))
        for name in names
    )
    assert [migration.number for migration in found] == list(range(1, len(found) + 1)), names
    return found


def _split(script: str) -> tuple[str, ...]:
    statements: list[str] = []
    waiting = ""
    for line in script.splitlines(keepends=True):
        waiting += line
        if sqlite3.complete_statement(waiting):
            statements.append(waiting)
            waiting = ""
    assert not waiting.strip(), waiting
    return tuple(statements)
