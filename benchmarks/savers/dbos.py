"""DBOS as a saver: a workflow whose every step returns what it changed; a state is the fold of what steps returned."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.savers.contract import Change, State, bytes_of, timed_each
from benchmarks.savers.postgres import Database, scratch_database

_WORKFLOW = "steps"


def _start(notes: dict[str, str]) -> dict[str, Any]:
    return {"notes": notes}


def _change(change: dict[str, str]) -> dict[str, Any]:
    return change


_start_step: Any = DBOS.step(name="start")(_start)
_change_step: Any = DBOS.step(name="change")(_change)


def _run(notes: dict[str, str], changes: list[dict[str, str]], deadline: float) -> list[float]:
    _start_step(notes)
    made = [Change(**change) for change in changes]
    return timed_each(made, deadline, lambda change: _change_step(asdict(change)))


_workflow: Any = DBOS.workflow(name="steps")(_run)


@contextlib.asynccontextmanager
async def dbos_sqlite(folder: Path) -> AsyncIterator[WorkflowSaver]:
    file = folder / "dbos.db"
    with _launched(f"sqlite:///{file}"):
        yield WorkflowSaver(file)


@contextlib.asynccontextmanager
async def dbos_postgres(_folder: Path) -> AsyncIterator[WorkflowSaver]:
    with scratch_database() as database, _launched(database.url()):
        yield WorkflowSaver(database)


@contextlib.contextmanager
def _launched(address: str) -> Iterator[None]:
    DBOS(config={"name": "steps", "system_database_url": address, "log_level": "ERROR", "run_admin_server": False})
    try:
        DBOS.launch()
        yield
    finally:
        DBOS.destroy()


class WorkflowSaver:
    def __init__(self, place: Path | Database) -> None:
        self._place = place
        self.durability = (
            _sqlite_durability(place) if isinstance(place, Path) else f"{place.durability}, a row for each step"
        )
        self._notes: dict[str, str] = {}

    async def start(self, notes: dict[str, str]) -> None:
        self._notes = notes

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        return await asyncio.to_thread(self._write, changes, deadline)

    def _write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        with SetWorkflowID(_WORKFLOW):
            handle: Any = DBOS.start_workflow(_workflow, self._notes, [asdict(each) for each in changes], deadline)
        samples: list[float] = handle.get_result()
        return samples

    async def latest(self) -> State:
        return (await asyncio.to_thread(self._states))[-1]

    async def history(self, limit: int) -> list[State]:
        return (await asyncio.to_thread(self._states))[: -limit - 1 : -1]

    def _states(self) -> list[State]:
        """All states; DBOS returns the steps of a workflow as one list."""
        status, notes, log = "", 0, 0
        states: list[State] = []
        for step in DBOS.list_workflow_steps(_WORKFLOW):
            output = step["output"] or {}
            notes = len(output["notes"]) if "notes" in output else notes
            status = output.get("status", status)
            log += bool(output.get("item"))
            states.append(State(status=status, notes=notes, items=log))
        return states

    async def size(self) -> int:
        return bytes_of(self._place) if isinstance(self._place, Path) else self._place.size()


def _sqlite_durability(file: Path) -> str:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return f"SQLite as DBOS sets it up: journal_mode={mode}, synchronous=FULL (SQLite's default), a row for each step"
