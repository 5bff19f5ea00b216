"""What agents do in every mode: read a field, think, write it, until the time is over; and what is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from benchmarks.contention.clocks import Clock


@dataclass(frozen=True, slots=True)
class Think:
    """How long an agent thinks between reading and writing: ``seconds``, more or less by ``spread`` of it."""

    name: str
    seconds: float
    spread: float = 0.0

    def draw(self, chance: random.Random) -> float:
        """The length of one thought."""
        return self.seconds * (1 + chance.uniform(-self.spread, self.spread))


@dataclass(frozen=True, slots=True)
class Cell:
    """One place in the grid that is measured."""

    agents: int
    fields: int
    think: Think
    operations: int | None = None
    """Of each agent; None for as many as there is time for."""

    def __str__(self) -> str:
        each = "" if self.operations is None else f", {self.operations} operations each"
        return f"{_count(self.agents, 'agent')}, {_count(self.fields, 'field')}, {self.think.name} think{each}"


class Over(Exception):
    """The time is over: what is not written yet stays unwritten."""


class Sight:
    """From a write to everybody's seeing it. One at a time carries a mark, or watching would be most of the work."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self._viewers = 0
        self._number = 0
        self._missing: set[int] = set()
        self._placed = 0.0

    def begin(self, viewers: int) -> None:
        """Anew, with so many who have to see a mark; 0 where nobody is watched."""
        self.milliseconds = []
        self._viewers = viewers
        self._missing.clear()

    def place(self) -> int | None:
        """A mark to write now, or None when one is on its way."""
        if self._missing or not self._viewers:
            return None
        self._number += 1
        self._missing = set(range(self._viewers))
        self._placed = time.perf_counter()
        return self._number

    def withdraw(self, mark: int) -> None:
        """It was not written after all."""
        if mark == self._number:
            self._missing.clear()

    def seen(self, viewer: int, mark: int) -> None:
        """This one can read it now."""
        if mark == self._number and viewer in self._missing:
            self._missing.discard(viewer)
            if not self._missing:
                self.milliseconds.append((time.perf_counter() - self._placed) * 1e3)


@dataclass(slots=True)
class Tally:
    """What came of one mode in one cell; times in the clock's seconds."""

    done: int = 0
    attempts: int = 0
    seconds: float = 0.0
    """Until the last was done, and as long as the clock ran."""
    last: float = 0.0
    lost: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def retries(self) -> float:
        """Attempts that came to nothing, for each that was a success."""
        return (self.attempts - self.done) / max(1, self.done)


class Operation:
    """One change that an agent wants to make; it counts its attempts."""

    def __init__(self, number: int, at: int, *, clock: Clock, cell: Cell, chance: random.Random, sight: Sight) -> None:
        self.number = number
        self.field = at
        self.clock = clock
        self.attempts = 0
        self.mark: int | None = None
        self._cell = cell
        self._chance = chance
        self._sight = sight

    async def think(self) -> None:
        """What costs money. After it comes the write. Raises Over."""
        self.withdraw()
        if self.clock.is_over:
            raise Over
        self.attempts += 1
        await self.clock.sleep(self._cell.think.draw(self._chance))
        self.mark = self._sight.place()

    def marked(self) -> dict[str, int]:
        """What a write has to carry beside the change itself."""
        return {} if self.mark is None else {"mark": self.mark}

    def withdraw(self) -> None:
        """Before a repetition."""
        if self.mark is not None:
            self._sight.withdraw(self.mark)
            self.mark = None


Operate = Callable[[int, Operation], Awaitable[None]]
Count = Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of changing fields that others change too."""

    name: str
    operate: Operate
    """Carry out an operation for the agent of a number; durable on return."""
    count: Count
    """How many operations the stored state shows."""
    keeps_all: bool = True
    """Whether it promises to lose nothing."""


async def run_agents(mode: Mode, cell: Cell, clock: Clock, *, seed: int, sight: Sight) -> Tally:
    """Let the agents of a cell work until the time is over."""
    tally, before = Tally(), await mode.count()
    clock.begin(cell.agents)
    async with asyncio.TaskGroup() as group:
        for agent in range(cell.agents):
            chance = random.Random(f"{seed} {agent} {cell}")
            group.create_task(_run_agent(mode, agent, tally, cell=cell, clock=clock, chance=chance, sight=sight))
    tally.seconds = tally.last if cell.operations is not None else max(tally.last, clock.seconds)
    tally.lost = tally.done - (await mode.count() - before)
    return tally


async def _run_agent(
    mode: Mode, agent: int, tally: Tally, *, cell: Cell, clock: Clock, chance: random.Random, sight: Sight
) -> None:
    number = 0
    try:
        while not clock.is_over and number != cell.operations:
            number += 1
            at = chance.randrange(cell.fields)
            operation = Operation(number, at, clock=clock, cell=cell, chance=chance, sight=sight)
            began = clock.now
            try:
                await mode.operate(agent, operation)
            except Over:
                operation.withdraw()
                tally.attempts += operation.attempts
                return
            tally.done += 1
            tally.last = clock.now
            tally.attempts += operation.attempts
            tally.latencies.append((clock.now - began) * 1e3)
            await asyncio.sleep(0)
    finally:
        clock.leave()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
