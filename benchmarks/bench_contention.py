"""Contention: agents that read, think and write on one board: optimistic, with locks, last writer wins, and merging."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contention import board_modes, other_modes
from benchmarks.contention.classic import ClassicStore, LocalClient
from benchmarks.contention.clocks import RealClock, VirtualClock
from benchmarks.contention.work import Cell, Mode, Sight, Tally, Think, run_agents
from benchmarks.harness import Figure, Run, in_turn, percentile, require, run_program
from benchmarks.reporting import Plot, Table
from benchmarks.servers import CLIENT_CORE, board_server, can_pin, classic_server, pinned_to

NO_THINK = Think("no", 0.0)
SHORT = Think("20 ms", 0.02)
MODEL_CALL = Think("2 s ± 50 %", 2.0, 0.5)
_JOB_SECONDS_MAX = 60.0
_PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "psycopg")
_COLUMNS = (
    "time, s",
    "done/s",
    "retries per success",
    "lost, %",
    "an operation, p50 ms",
    "p99 ms",
    "visible to all, p50 ms",
    "p99 ms",
)
_PLOTTED = (
    other_modes.CLASSIC,
    "OCC per field (`reads=`)",
    "one lease",
    "a lease per field",
    "last writer wins",
    "Counter",
    "LangGraph SQLite: latest, put",
    "Postgres: a row per field, FOR UPDATE",
)
_RETRIES_AT_MOST = {"OCC per field (`reads=`)": 1.0} | dict.fromkeys(board_modes.ON_MERGING, 0.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured. Every combination is one cell."""

    agents: Sequence[int]
    fields: Sequence[int]
    seconds: float
    """How long agents begin operations, in a cell and mode."""
    virtual_seconds: float
    job: Cell
    """Work with an end; figures and targets are about it."""

    def cells(self, agents: int, *thinks: Think) -> list[Cell]:
        """Those of so many agents."""
        return [Cell(agents, fields, think) for think in thinks for fields in self.fields]


FULL = Grid((1, 4, 20, 50), (1, board_modes.FIELDS), 0.2, 20.0, Cell(20, board_modes.FIELDS, SHORT, 5))
QUICK = Grid((1, 3), (2,), 0.05, 6.0, Cell(3, 2, SHORT, 2))


@dataclass(slots=True)
class Samples:
    """Of one mode in one cell, one value a round; in the order of the columns."""

    columns: tuple[list[float], ...] = field(default_factory=lambda: tuple([] for _ in _COLUMNS))
    tallies: list[Tally] = field(default_factory=list)

    def add(self, tally: Tally, visible: list[float]) -> None:
        """Take in one round."""
        self.tallies.append(tally)
        seconds, rate, retries, lost, p50, p99, seen_p50, seen_p99 = self.columns
        seconds.append(tally.seconds)
        rate.append(tally.done / tally.seconds)
        if tally.done:  # of nothing there is no share
            retries.append(tally.retries)
            lost.append(100 * tally.lost / tally.done)
        for half, most, samples in ((p50, p99, tally.latencies), (seen_p50, seen_p99, visible)):
            if samples:
                half.append(percentile(sorted(samples), 0.50))
                most.append(percentile(sorted(samples), 0.99))


Measured = defaultdict[Cell, dict[str, Samples]]


class Suite:
    """All rounds; what was measured so far."""

    def __init__(self, run: Run, grid: Grid, postgres: str | None, *, langgraph: bool) -> None:
        self.measured: Measured = defaultdict(dict)
        self._run = run
        self._grid = grid
        self._postgres = postgres
        self._langgraph = langgraph

    async def round(self, number: int) -> None:
        """Every mode once in every cell."""
        pin = can_pin()
        for agents in self._grid.agents:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                async with (
                    board_server(folder / "boards.db", pin=pin) as port,
                    classic_server(folder / "classic.db", pin=pin) as classic_port,
                ):
                    await self._served(number, agents, folder, ports=(port, classic_port))
            with tempfile.TemporaryDirectory() as name:
                await self._embedded(number, agents, Path(name))

    async def _served(self, number: int, agents: int, folder: Path, *, ports: tuple[int, int]) -> None:
        board_sight, classic_sight = Sight(), Sight()
        async with contextlib.AsyncExitStack() as stack:
            team = await stack.enter_async_context(board_modes.served(ports[0], "job", agents, board_sight))
            classic = await stack.enter_async_context(
                other_modes.classic_served(ports[1], "job", agents, classic_sight)
            )
            modes = [(classic, classic_sight), *((mode, board_sight) for mode in team.modes())]
            modes += [(mode, Sight()) async for mode in self._others(stack, folder, agents)]
            job = [self._grid.job] if self._grid.job.agents == agents else []
            for cell in [*self._grid.cells(agents, NO_THINK, SHORT), *job]:
                seconds = self._grid.seconds if cell.operations is None else _JOB_SECONDS_MAX
                for mode, sight in in_turn(modes, number - 1, self._run.options.repeat):
                    self._run.progress(f"round {number}: {cell}: {mode.name}")
                    sight.begin(agents + 1 if sight in (board_sight, classic_sight) else 0)
                    await self._measure(mode, cell, RealClock(seconds), number, sight)

    async def _others(self, stack: contextlib.AsyncExitStack, folder: Path, agents: int) -> AsyncIterator[Mode]:
        fields = max(self._grid.fields)
        if self._langgraph:
            opening = other_modes.langgraph_modes(folder / "langgraph.db", fields)
            for mode in await stack.enter_async_context(opening):
                yield mode
        if self._postgres is not None:
            for mode in await stack.enter_async_context(other_modes.postgres_modes(self._postgres, agents, fields)):
                yield mode

    async def _embedded(self, number: int, agents: int, folder: Path) -> None:
        store = ClassicStore(folder / "classic.db")
        with contextlib.closing(store):
            classic = other_modes.classic_mode([LocalClient(store, "job")] * agents)
            async with board_modes.embedded(folder / "boards.db", "job", agents) as team:
                for cell in self._grid.cells(agents, MODEL_CALL):
                    for mode in (classic, *(mode for mode in team.modes() if mode.name not in board_modes.NOT_VIRTUAL)):
                        self._run.progress(f"round {number}: {cell}: {mode.name}")
                        await self._measure(mode, cell, VirtualClock(self._grid.virtual_seconds), number, Sight())

    async def _measure(
        self, mode: Mode, cell: Cell, clock: RealClock | VirtualClock, number: int, sight: Sight
    ) -> None:
        tally = await run_agents(mode, cell, clock, seed=number, sight=sight)
        if cell.operations is not None:
            wanted = cell.agents * cell.operations
            require(tally.done == wanted, f"{cell}: {mode.name}: only {tally.done} of {wanted} done in time")
        require(not mode.keeps_all or tally.lost == 0, f"{cell}: {mode.name}: {tally.lost} of {tally.done} were lost")
        self.measured[cell].setdefault(mode.name, Samples()).add(tally, sight.milliseconds)


def in_order(samples: dict[str, Samples]) -> dict[str, Samples]:
    """Rows in the same order in each table, whatever was measured first."""
    first = [other_modes.CLASSIC, *board_modes.ON_VALUES, *board_modes.ON_MERGING]
    return {name: samples[name] for name in [*first, *sorted(set(samples) - set(first))] if name in samples}


def figures_of(job: Cell, samples: dict[str, Samples], *, targets: bool) -> Iterator[Figure]:
    """Retries and losses where the targets are."""
    for name, of_mode in in_order(samples).items():
        retries = of_mode.columns[_COLUMNS.index("retries per success")]
        yield Figure(f"{job}: {name}: retries", "", retries, at_most=_RETRIES_AT_MOST.get(name) if targets else None)
    for name, of_mode in in_order(samples).items():
        yield Figure(f"{job}: {name}: lost updates", "%", of_mode.columns[_COLUMNS.index("lost, %")])


def plots_of(measured: Measured, fields: int) -> Iterator[Plot]:
    """Some modes against the number of agents, with most fields."""
    for think, label in ((SHORT, "20ms"), (MODEL_CALL, "model-call")):
        cells = [cell for cell in measured if (cell.fields, cell.think, cell.operations) == (fields, think, None)]
        for name, what, log in (("rate", "done/s", True), ("retries", "retries per success", False)):
            series: dict[str, list[tuple[float, float]]] = defaultdict(list)
            for cell in cells:
                for mode in _PLOTTED:
                    samples = measured[cell].get(mode, Samples()).columns[_COLUMNS.index(what)]
                    middle = Figure("", "", samples).median if samples else 0.0
                    if samples and (middle > 0 or not log):
                        series[mode].append((cell.agents, middle))
            yield Plot(f"{name}-{label}", f"{fields} fields, {think.name} think: {what}", "agents", what, series, log)


def _place(cell: Cell) -> tuple[bool, float, int, int]:
    return cell.operations is None, -cell.think.seconds, -cell.fields, cell.agents


async def measure(run: Run, grid: Grid) -> tuple[Measured, list[str]]:
    """All rounds, and what has to be said about them."""
    said: list[str] = []
    with contextlib.ExitStack() as stack:
        postgres: str | None = None
        try:
            from benchmarks.savers import postgres as server  # noqa: PLC0415 - only the `bench` extra has these

            importlib.import_module("langgraph.checkpoint.sqlite.aio")
        except ImportError as error:
            said.append(f"not measured: LangGraph, Postgres ({error}); install the extra: pip install -e '.[bench]'")
            with_langgraph = False
        else:
            with_langgraph = True
            if problem := server.why_not():
                said.append(f"not measured: row locks: {problem}")
            else:
                database = stack.enter_context(server.scratch_database())
                postgres = database.address
                said.append(f"row locks: {database.durability}; everything else: SQLite, synchronous=FULL")
        suite = Suite(run, grid, postgres, langgraph=with_langgraph)
        for number in range(1, run.options.repeat + 1):
            await suite.round(number)
    return suite.measured, said


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    run = Run.begin("Contention: read, think, write on one board", parser, repeat=2, packages=_PACKAGES)
    grid = QUICK if run.options.quick else FULL
    with pinned_to(CLIENT_CORE, can_pin()):
        measured, facts = asyncio.run(measure(run, grid))
    facts += [
        f"agents begin operations for {grid.seconds:g} s in each cell and mode, and for {grid.virtual_seconds:g} s on "
        "the virtual clock; a retry is a thought that came to nothing",
        "a mode that promises to lose nothing and did would have ended this run",
        "an operation: from its first read to being durable, thoughts, retries and waiting included",
        "p99 is the longest where fewer than a hundred were done or seen",
        "visible to all: from the write that succeeded to the last of all agents and one who only looks on; one write "
        "at a time is watched. LangGraph and Postgres tell nobody",
        "2 s ± 50 %: embedded, on a virtual clock, on which only thinking takes time",
        "one core for the server, one for all agents; Postgres on both" if can_pin() else "all on any core",
    ]
    tables = [
        Table(str(cell), _COLUMNS, {name: of_mode.columns for name, of_mode in in_order(samples).items()})
        for cell, samples in sorted(measured.items(), key=lambda item: _place(item[0]))
    ]
    figures = figures_of(grid.job, measured[grid.job], targets=not run.options.quick)
    run.finish(list(figures), facts, list(plots_of(measured, max(grid.fields))), tables)


if __name__ == "__main__":
    run_program(main)
