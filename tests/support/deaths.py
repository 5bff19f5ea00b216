"""What processes do that `support.dying` kills: a migration, a deletion, an import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from crdt_board import BoardHost, BoardModel, Text, migrates, open_board
from crdt_board.imports import import_board
from crdt_board.store.sqlite import SqliteStore

NOTES = 400
"""How many a board that is migrated begins with."""


class Before(BoardModel):
    notes: list[str] = []
    draft: Text
    spent: int = 0


class After(BoardModel):
    notes: dict[str, str] = {}
    draft: Text
    cost: int = 0

    @migrates(from_version=1)
    @classmethod
    def from_v1(cls, old: dict[str, Any]) -> dict[str, Any]:
        notes = {str(number): note for number, note in enumerate(old.get("notes", []))}
        return {"notes": notes, "draft": old.get("draft", ""), "cost": old.get("spent", 0)}


def acknowledged(file: Path) -> list[str]:
    """What a process that worked on ``file`` knew to be durable when it died, in order."""
    said = Path(f"{file}.said")
    return said.read_text().splitlines() if said.exists() else []


def _say(file: Path, what: str) -> None:
    with Path(f"{file}.said").open("a") as said:
        os.write(said.fileno(), f"{what}\n".encode())


async def migrate(file: Path) -> None:
    """Write, migrate, and write again; say what is durable."""
    async with open_board(file, "job", Before, agent="ann") as board:
        board.state.draft.append("written before;")
        await board.flush()
        _say(file, "written before")
    async with open_board(file, "job", After, agent="bob") as board:
        _say(file, "migrated")
        board.state.draft.append("written after;")
        await board.flush()
        _say(file, "written after")


async def delete(file: Path) -> None:
    """Delete a large board, and make one of its name again."""
    async with BoardHost(await SqliteStore.open(file)) as host:
        await host.delete("large", agent="ann")
        _say(file, "deleted")
        await host.create("large")
        async with open_board(host, "large", After, agent="bob") as board:
            board.state.draft.append("written anew;")
            await board.flush()
            _say(file, "written anew")


async def import_it(file: Path) -> None:
    """Import the export beside the file, with its artifacts."""
    async with BoardHost(await SqliteStore.open(file)) as host:
        with (file.parent / "large.export").open("rb") as export:
            await import_board(host.store, export, artifacts=host.artifacts)
        _say(file, "imported")
