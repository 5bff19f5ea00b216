"""CRDT Board as a saver: a commit for each step."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from benchmarks.savers.contract import Change, State, bytes_of
from benchmarks.servers import board_server
from crdt_board import Board, BoardModel, open_board
from crdt_board.history import BoardHistory
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect

_BOARD = "steps"
_NOTES_AT_ONCE = 1_000


class Steps(BoardModel):
    """The board of the suite."""

    status: str = ""
    notes: dict[str, str] = {}
    log: list[str] = []


Opening = Callable[[], contextlib.AbstractAsyncContextManager[Board[Steps]]]


@contextlib.asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[BoardSaver]:
    """In this process, as `open_board` has it."""
    file = folder / "embedded.db"
    async with BoardSaver(file, lambda: open_board(file, _BOARD, Steps, agent="writer")) as saver:
        yield saver


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[BoardSaver]:
    """Through ``crdt-board serve`` and a websocket."""
    file = folder / "served.db"
    async with BoardSaver(file, lambda: _through_a_server(file)) as saver:
        yield saver


@contextlib.asynccontextmanager
async def _through_a_server(file: Path) -> AsyncIterator[Board[Steps]]:
    async with (
        board_server(file, pin=False) as port,
        connect(f"ws://127.0.0.1:{port}", _BOARD, Steps, agent="writer") as board,
    ):
        yield board


class BoardSaver:
    durability = "write-ahead log, synchronous=FULL: synced"
    writes_again = True

    def __init__(self, file: Path, opening: Opening) -> None:
        self._file = file
        self._opening = opening
        self._stack = contextlib.AsyncExitStack()
        self._board: Board[Steps]

    async def __aenter__(self) -> Self:
        await (await SqliteStore.open(self._file)).close()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def start(self, notes: dict[str, str]) -> None:
        """Closed before the steps begin, so that the snapshot of the start is no part of them."""
        async with open_board(self._file, _BOARD, Steps, agent="maker") as board:
            for some in batched(notes.items(), _NOTES_AT_ONCE):
                with board.transaction():
                    board.state.notes.update(some)
                await board.flush()
            await board.commit("start")
        self._board = await self._stack.enter_async_context(self._opening())

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
            found = [state async for _, state in history.snapshots(newest - limit + 1, newest, Steps)]
        finally:
            await store.close()
        return [_state(state) for state in reversed(found)]

    async def size(self) -> int:
        return bytes_of(self._file)


def batched(items: Iterable[tuple[str, str]], size: int) -> Iterator[dict[str, str]]:
    """Runs of ``size`` items; the last may be shorter."""
    source = iter(items)
    while some := dict(itertools.islice(source, size)):
        yield some


def _state(read: Steps) -> State:
    return State(status=read.status, notes=len(read.notes), items=len(read.log))
