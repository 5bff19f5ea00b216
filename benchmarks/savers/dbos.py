"""DBOS as a saver: a workflow whose every step returns what it changed; a state is the fold of what steps returned."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import sqlalchemy
from dbos import DBOS, SetWorkflowID

from benchmarks.savers.contract import Change, State, bytes_of, sqlite_durability, timed_each
from benchmarks.savers.postgres import Database, scratch_database

_WORKFLOW = "steps"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Desk:
    """How the workflow is given its work: what it is called with DBOS would keep, and so count."""

    notes: SimpleQueue[dict[str, str]] = field(default_factory=SimpleQueue)
    changes: SimpleQueue[tuple[Sequence[Change], float]] = field(default_factory=SimpleQueue)
    began: SimpleQueue[None] = field(default_factory=SimpleQueue)
    milliseconds: SimpleQueue[list[float]] = field(default_factory=SimpleQueue)


_desks: dict[str, _Desk] = {}
"""By the name of the workflow."""


def _start(notes: dict[str, str]) -> dict[str, Any]:
    return {"notes": notes}


def _change(change: dict[str, str]) -> dict[str, Any]:
    return change


_start_step: Any = DBOS.step(name="start")(_start)
_change_step: Any = DBOS.step(name="change")(_change)


def _run() -> None:
    desk = _desks[_WORKFLOW]
    _start_step(desk.notes.get())
    desk.began.put(None)
    changes, deadline = desk.changes.get()
    desk.milliseconds.put(timed_each(changes, deadline, lambda change: _change_step(asdict(change))))


_workflow: Any = DBOS.workflow(name="steps")(_run)


@contextlib.asynccontextmanager
async def dbos_sqlite(folder: Path) -> AsyncIterator[WorkflowSaver]:
    file = folder / "dbos.db"
    with _launched(f"sqlite:///{file}") as launched:
        yield WorkflowSaver(file, _sqlite_durability(launched))


@contextlib.asynccontextmanager
async def dbos_postgres(_folder: Path) -> AsyncIterator[WorkflowSaver]:
    with scratch_database() as database, _launched(database.url()):
        yield WorkflowSaver(database, f"{database.durability}, a row for each step")


@contextlib.contextmanager
def _launched(address: str) -> Iterator[Any]:
    launched = DBOS(
        config={"name": "steps", "system_database_url": address, "log_level": "ERROR", "run_admin_server": False}
    )
    desk = _desks[_WORKFLOW] = _Desk()
    try:
        DBOS.launch()
        yield launched
    finally:
        desk.notes.put({})  # a workflow that still waits comes to its end
        desk.changes.put(([], 0.0))
        DBOS.destroy()


class WorkflowSaver:
    writes_again = False
    """The workflow ends with its steps."""

    def __init__(self, place: Path | Database, durability: str) -> None:
        self._place = place
        self.durability = durability
        self._handle: Any = None

    async def start(self, notes: dict[str, str]) -> None:
        await asyncio.to_thread(self._start, notes)

    def _start(self, notes: dict[str, str]) -> None:
        with SetWorkflowID(_WORKFLOW):
            self._handle = DBOS.start_workflow(_workflow)
        _desks[_WORKFLOW].notes.put(notes)
        _desks[_WORKFLOW].began.get(timeout=_START_SECONDS)

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        return await asyncio.to_thread(self._write, changes, deadline)

    def _write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        _desks[_WORKFLOW].changes.put((changes, deadline))
        self._handle.get_result()
        return _desks[_WORKFLOW].milliseconds.get_nowait()

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


def _sqlite_durability(launched: Any) -> str:
    """As DBOS's own connections have it."""
    with launched._sys_db.engine.connect() as connection:
        found = sqlite_durability(lambda pragma: connection.execute(sqlalchemy.text(pragma)).scalar())
    return f"as DBOS sets it up, {found}, a row for each step"
