"""CRDT Board as a saver: a commit for each step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.savers.contract import Change, State, bytes_of
from benchmarks.servers import board_server
from crdt_board import Board, BoardModel, open_board
from crdt_board.history import BoardHistory
from crdt_board.live.snapshots import snapshot_from_wire
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect

_BOARD = "steps"
_NOTES_AT_ONCE = 1_000


class Steps(BoardModel):
    """The board of the suite."""

    status: str = ""
    notes: dict[str, str] = {}
    log: list[str] = []


@contextlib.asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[BoardSaver]:
    """In this process, as `open_board` has it."""
    file = folder / "embedded.db"
    async with open_board(file, _BOARD, Steps, agent="writer") as board:
        yield BoardSaver(board, file)


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[BoardSaver]:
    """Through ``crdt-board serve`` and a websocket."""
    file = folder / "served.db"
    async with (
        board_server(file, pin=False) as port,
        connect(f"ws://127.0.0.1:{port}", _BOARD, Steps, agent="writer") as board,
    ):
        yield BoardSaver(board, file)


class BoardSaver:
    durability = "write-ahead log, synchronous=FULL: synced"

    def __init__(self, board: Board[Steps], file: Path) -> None:
        self._board = board
        self._file = file

    async def start(self, notes: dict[str, str]) -> None:
        for some in batched(notes.items(), _NOTES_AT_ONCE):
            with self._board.transaction():
                self._board.state.notes.update(some)
            await self._board.flush()
        await self._board.commit("start")

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        samples: list[float] = []
        for change in changes:
            began = time.perf_counter()
            if began >= deadline:
                break
            if change.item:
                self._board.state.log.append(change.item)
            await self._board.commit("step", patch={"status": change.status})
            samples.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(0)
        return samples

    async def latest(self) -> State:
        return _state(self._board.snapshot())

    async def history(self, limit: int) -> list[State]:
        """Read beside the writer, from the file, with every state checked against its checksum."""
        store = await SqliteStore.open(self._file)
        try:
            history, newest = await BoardHistory.open(store, _BOARD), self._board.version
            found = [state async for _, state in history.states(newest - limit + 1, newest)]
        finally:
            await store.close()
        return [_state(snapshot_from_wire(state, Steps)) for state in reversed(found)]

    async def size(self) -> int:
        return bytes_of(self._file)


def batched(items: Iterable[tuple[str, str]], size: int) -> Iterator[dict[str, str]]:
    """Runs of ``size`` items; the last may be shorter."""
    source = iter(items)
    while some := dict(itertools.islice(source, size)):
        yield some


def _state(read: Steps) -> State:
    return State(status=read.status, notes=len(read.notes), items=len(read.log))
