"""The modes in which agents share a CRDT Board: optimistic, with leases, last writer wins, and merging."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contention.work import Mode, Operation, Over, Sight
from crdt_board import Board, BoardHost, BoardModel, Counter, LeaseHeld, Text, VersionConflict, open_board
from crdt_board.store.sqlite import SqliteStore
from crdt_board.team.leases import Lease
from crdt_board_client import connect

FIELDS = 16
_ATTEMPTS_MAX = 100
_WORD = "word "

# Fields of a board and not keys of one: that is what `reads=` names.
Values: Any = type(
    "Values",
    (BoardModel,),
    {
        "__annotations__": {**{f"v{at}": int for at in range(FIELDS)}, "mark": int},
        "__module__": __name__,
        **{f"v{at}": 0 for at in range(FIELDS)},
        "mark": 0,
    },
)
Merging: Any = type(
    "Merging",
    (BoardModel,),
    {
        "__annotations__": {
            **{f"c{at}": Counter for at in range(FIELDS)},
            **{f"s{at}": set[str] for at in range(FIELDS)},
            **{f"l{at}": list[str] for at in range(FIELDS)},
            **{f"t{at}": Text for at in range(FIELDS)},
            "mark": int,
        },
        "__module__": __name__,
        **{f"s{at}": set() for at in range(FIELDS)},
        **{f"l{at}": [] for at in range(FIELDS)},
        "mark": 0,
    },
)

Work = Callable[[Board[Any], Operation], Awaitable[None]]


async def whole_optimistic(board: Board[Any], operation: Operation) -> None:
    """A commit that is refused when any other came in between; at once again then."""
    while not await _committed(board, operation, reads=None):
        pass


async def field_optimistic(board: Board[Any], operation: Operation) -> None:
    """A commit that is refused when its field was written in between; at once again then."""
    while not await _committed(board, operation, reads=[f"v{operation.field}"]):
        pass


async def attempt(board: Board[Any], operation: Operation) -> None:
    """The same by the loop of the library, which pauses after a conflict, for longer from one to the next."""

    async def work(seen: Any) -> dict[str, int]:
        await operation.think()
        return _increment(seen, operation)

    await board.attempt(work, step="edit", reads=[f"v{operation.field}"], attempts=_ATTEMPTS_MAX)


async def lease_after_conflict(board: Board[Any], operation: Operation) -> None:
    """Optimistic at first; whoever was refused takes the lease of the field, and tries again."""
    name = f"v{operation.field}"
    if not await _committed(board, operation, reads=[name]):
        async with operation.clock.turn(name), _lease(board, operation, name):
            while not await _committed(board, operation, reads=[name]):
                pass


async def one_lease(board: Board[Any], operation: Operation) -> None:
    """One agent at a time."""
    await _leased(board, operation, "board")


async def field_lease(board: Board[Any], operation: Operation) -> None:
    """One agent at a time for each field."""
    await _leased(board, operation, f"v{operation.field}")


async def last_writer_wins(board: Board[Any], operation: Operation) -> None:
    """What was read plus one, over whatever is there."""
    name = f"v{operation.field}"
    seen = getattr(board.state, name)
    await operation.think()
    with _edit(board, operation):
        setattr(board.state, name, seen + 1)
    await board.flush()


async def counter(board: Board[Any], operation: Operation) -> None:
    """An increment, whatever the value is by then."""
    name = f"c{operation.field}"
    int(getattr(board.state, name))
    await operation.think()
    with _edit(board, operation):
        count = getattr(board.state, name)
        count += 1
        setattr(board.state, name, count)
    await board.flush()


async def set_of_items(board: Board[Any], operation: Operation) -> None:
    """One more item."""
    items = getattr(board.state, f"s{operation.field}")
    len(items)
    await operation.think()
    with _edit(board, operation):
        items.add(f"{board.agent}-{operation.clock.now:.9f}-{operation.number}")
    await board.flush()


async def list_of_items(board: Board[Any], operation: Operation) -> None:
    """One more item, at the end."""
    items = getattr(board.state, f"l{operation.field}")
    len(items)
    await operation.think()
    with _edit(board, operation):
        items.append(f"{board.agent}-{operation.number}")
    await board.flush()


async def text(board: Board[Any], operation: Operation) -> None:
    """One more word, at the end."""
    written = getattr(board.state, f"t{operation.field}")
    len(written)
    await operation.think()
    with _edit(board, operation):
        written.append(_WORD)
    await board.flush()


ATTEMPT = "OCC per field, `attempt`"
ON_VALUES: dict[str, Work] = {
    "whole-board OCC": whole_optimistic,
    "OCC per field (`reads=`)": field_optimistic,
    ATTEMPT: attempt,
    "OCC per field, a lease after a conflict": lease_after_conflict,
    "one lease": one_lease,
    "a lease per field": field_lease,
    "last writer wins": last_writer_wins,
}
NOT_VIRTUAL = (ATTEMPT, "set", "list")
"""The pauses of the one would stop a virtual clock; where only thinking takes time, all that merges is alike."""
ON_MERGING: dict[str, tuple[str, Work]] = {
    "Counter": ("c", counter),
    "set": ("s", set_of_items),
    "list": ("l", list_of_items),
    "Text": ("t", text),
}


@dataclass(frozen=True, slots=True)
class Team:
    """The agents' boards of values and of what merges; served, with one more each, of somebody who only looks on."""

    values: Sequence[Board[Any]]
    merging: Sequence[Board[Any]]

    def modes(self) -> Iterator[Mode]:
        """All modes of this module."""
        for name, work in ON_VALUES.items():
            yield Mode(name, _for_each(self.values, work), _counting(self.values[0], "v"), work is not last_writer_wins)
        for name, (kind, work) in ON_MERGING.items():
            yield Mode(name, _for_each(self.merging, work), _counting(self.merging[0], kind))


@contextlib.asynccontextmanager
async def served(port: int, board: str, agents: int, sight: Sight) -> AsyncIterator[Team]:
    """Everybody with a connection of their own; the marks that they see are told to ``sight``."""
    async with contextlib.AsyncExitStack() as stack:
        teams: list[list[Board[Any]]] = [[], []]
        for team, model in zip(teams, (Values, Merging), strict=True):
            for agent in range(agents + 1):
                opening = connect(f"ws://127.0.0.1:{port}", f"{board}-{model.__name__}", model, agent=f"agent-{agent}")
                team.append(await stack.enter_async_context(opening))
        watching = [
            asyncio.create_task(_watch(board, number, sight)) for team in teams for number, board in enumerate(team)
        ]
        stack.push_async_callback(_end, watching)
        yield Team(*teams)


@contextlib.asynccontextmanager
async def embedded(file: Path, board: str, agents: int) -> AsyncIterator[Team]:
    """Everybody in this process, each with a replica of their own."""
    async with contextlib.AsyncExitStack() as stack:
        store = await SqliteStore.open(file)
        host = await stack.enter_async_context(BoardHost(store, idle_seconds=60))
        teams: list[list[Board[Any]]] = [[], []]
        for team, model in zip(teams, (Values, Merging), strict=True):
            for agent in range(agents):
                opening = open_board(host, f"{board}-{model.__name__}", model, agent=f"agent-{agent}")
                team.append(await stack.enter_async_context(opening))
        yield Team(*teams)


def _for_each(boards: Sequence[Board[Any]], work: Work) -> Callable[[int, Operation], Awaitable[None]]:
    return lambda agent, operation: work(boards[agent], operation)


def _counting(board: Board[Any], kind: str) -> Callable[[], Awaitable[int]]:
    async def count() -> int:
        stored = await board.at(await board.commit("count"))  # read from the store, not from this replica
        values = [getattr(stored, f"{kind}{at}") for at in range(FIELDS)]
        if kind == "t":
            return sum(len(value) // len(_WORD) for value in values)
        return sum(int(value) if kind in "vc" else len(value) for value in values)

    return count


async def _committed(board: Board[Any], operation: Operation, *, reads: list[str] | None) -> bool:
    version, seen = board.version, board.snapshot()
    await operation.think()
    try:
        await board.commit("edit", patch=_increment(seen, operation), expected_version=version, reads=reads)
    except VersionConflict as conflict:
        current = conflict.current_version
        await board.wait_for(lambda _: board.version >= current)
        return False
    return True


def _increment(seen: Any, operation: Operation) -> dict[str, int]:
    name = f"v{operation.field}"
    return {name: getattr(seen, name) + 1, **operation.marked()}


@contextlib.asynccontextmanager
async def _lease(board: Board[Any], operation: Operation, name: str) -> AsyncIterator[Lease]:
    lease = board.lease(name, timeout=operation.clock.patience)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(lease)
        except LeaseHeld:
            raise Over from None
        yield lease


async def _leased(board: Board[Any], operation: Operation, lease: str) -> None:
    async with operation.clock.turn(lease), _lease(board, operation, lease) as held:
        name = f"v{operation.field}"
        seen = getattr(board.state, name)
        await operation.think()
        await board.commit("edit", patch={name: seen + 1, **operation.marked()}, lease=held)


@contextlib.contextmanager
def _edit(board: Board[Any], operation: Operation) -> Iterator[None]:
    with board.transaction():
        yield
        if operation.mark is not None:
            board.state.mark = operation.mark


async def _watch(board: Board[Any], number: int, sight: Sight) -> None:
    async for _ in board.changes("mark"):
        sight.seen(number, board.state.mark)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
