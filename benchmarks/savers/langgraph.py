"""LangGraph's checkpointers as savers: a graph's `update_state` for each step, which makes one checkpoint."""

from __future__ import annotations

import contextlib
import operator
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import StateGraph

from benchmarks.savers.contract import Change, State, bytes_of, sqlite_durability, timed_each
from benchmarks.savers.postgres import Database, scratch_database

_CONFIG = {"configurable": {"thread_id": "steps", "checkpoint_ns": ""}}
_SNAPSHOT_EVERY = 1_000


def _merged(state: dict[str, str], writes: Sequence[dict[str, str]]) -> dict[str, str]:
    merged = dict(state)
    for write in writes:
        merged.update(write)
    return merged


def _extended(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class Full(TypedDict):
    """Every checkpoint holds every channel (SQLite), or each channel that changed as a whole (Postgres)."""

    status: str
    notes: dict[str, str]
    log: Annotated[list[str], operator.add]


class Delta(TypedDict):
    """Checkpoints hold what was written; the channels as a whole every 1,000 updates."""

    status: str
    notes: Annotated[dict[str, str], DeltaChannel(_merged, dict, snapshot_frequency=_SNAPSHOT_EVERY)]
    log: Annotated[list[str], DeltaChannel(_extended, list, snapshot_frequency=_SNAPSHOT_EVERY)]


@contextlib.asynccontextmanager
async def sqlite_full(folder: Path) -> AsyncIterator[GraphSaver]:
    with _sqlite(folder / "full.db") as opened:
        yield GraphSaver(Full, *opened)


@contextlib.asynccontextmanager
async def sqlite_delta(folder: Path) -> AsyncIterator[GraphSaver]:
    with _sqlite(folder / "delta.db") as opened:
        yield GraphSaver(Delta, *opened)


@contextlib.asynccontextmanager
async def sqlite_put(folder: Path) -> AsyncIterator[PutSaver]:
    with _sqlite(folder / "put.db") as opened:
        yield PutSaver(*opened)


@contextlib.asynccontextmanager
async def postgres_full(_folder: Path) -> AsyncIterator[GraphSaver]:
    with scratch_database() as database, PostgresSaver.from_conn_string(database.address) as saver:
        saver.setup()
        yield GraphSaver(Full, saver, database, database.durability)


@contextlib.asynccontextmanager
async def postgres_delta(_folder: Path) -> AsyncIterator[GraphSaver]:
    with scratch_database() as database, PostgresSaver.from_conn_string(database.address) as saver:
        saver.setup()
        yield GraphSaver(Delta, saver, database, database.durability)


@contextlib.contextmanager
def _sqlite(file: Path) -> Iterator[tuple[SqliteSaver, Path, str]]:
    """A saver, its file, and what its connection promises once the saver has set it up."""
    with contextlib.closing(sqlite3.connect(file, check_same_thread=False)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        saver = SqliteSaver(connection)
        saver.setup()
        yield saver, file, sqlite_durability(lambda pragma: connection.execute(pragma).fetchone()[0])


class GraphSaver:
    writes_again = True

    def __init__(self, state: type, saver: Any, place: Path | Database, durability: str) -> None:
        self._place = place
        self.durability = durability
        graph = StateGraph(state)
        graph.add_node("step", lambda _state: {})
        graph.set_entry_point("step")
        graph.set_finish_point("step")
        self._graph = graph.compile(checkpointer=saver)

    async def start(self, notes: dict[str, str]) -> None:
        self._graph.update_state(_CONFIG, {"status": "", "notes": notes, "log": []}, as_node="step")

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        return timed_each(changes, deadline, self._step)

    def _step(self, change: Change) -> None:
        written: dict[str, Any] = {"status": change.status}
        if change.item:
            written["log"] = [change.item]
        self._graph.update_state(_CONFIG, written, as_node="step")

    async def latest(self) -> State:
        return _state(self._graph.get_state(_CONFIG).values)

    async def history(self, limit: int) -> list[State]:
        return [_state(found.values) for found in self._graph.get_state_history(_CONFIG, limit=limit)]

    async def size(self) -> int:
        return _size(self._place)


class PutSaver:
    """`SqliteSaver.put` alone, without the graph around it: the least that a step takes."""

    writes_again = True

    def __init__(self, saver: Any, file: Path, durability: str) -> None:
        self._saver = saver
        self._file = file
        self.durability = durability
        self._values: dict[str, Any] = {}
        self._config: Any = _CONFIG
        self._count = 0

    async def start(self, notes: dict[str, str]) -> None:
        self._values = {"status": "", "notes": notes, "log": []}
        self._put()

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        return timed_each(changes, deadline, self._step)

    def _step(self, change: Change) -> None:
        self._values["status"] = change.status
        if change.item:
            self._values["log"] = [*self._values["log"], change.item]
        self._put()

    def _put(self) -> None:
        self._count += 1
        versions = dict.fromkeys(self._values, str(self._count))
        checkpoint = {**empty_checkpoint(), "channel_values": dict(self._values), "channel_versions": versions}
        metadata = {"source": "loop", "step": self._count}
        self._config = self._saver.put(self._config, checkpoint, metadata, versions)

    async def latest(self) -> State:
        return _state(self._saver.get_tuple(_CONFIG).checkpoint["channel_values"])

    async def history(self, limit: int) -> list[State]:
        return [_state(found.checkpoint["channel_values"]) for found in self._saver.list(_CONFIG, limit=limit)]

    async def size(self) -> int:
        return _size(self._file)


def _state(values: dict[str, Any]) -> State:
    return State(status=values["status"], notes=len(values["notes"]), items=len(values["log"]))


def _size(place: Path | Database) -> int:
    return bytes_of(place) if isinstance(place, Path) else place.size()
