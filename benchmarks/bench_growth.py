"""Growth: memory, disk and the slowest commits of a board as one quantity after another grows; the slope is the result.

A slope of 0 in a log-log plot is a cost that does not grow, 1 one that grows in proportion.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import create_model

from benchmarks import long_journals
from benchmarks.harness import Figure, Run, in_fresh_process, percentile, require, run_program
from benchmarks.long_journals import BOARD, Past
from benchmarks.reporting import Plot, Table
from crdt_board import Board, BoardHost, BoardModel, open_board
from crdt_board.store.sqlite import SqliteStore

_COMMITS = 300
_QUICK_COMMITS = 5
_WARM = 3
_LEAST_MEMORY = 1 << 16
"""Less cannot be told from what the process had at hand, and nothing has no place on a log-log plot."""
_QUANTITIES = {"memory": "MiB", "disk": "MiB", "p50 of a commit": "ms", "p99 of a commit": "ms"}


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that grows: its sizes, and what makes a board of one size in a file."""

    name: str
    sizes: Sequence[int]
    make: Callable[[Path, int], Coroutine[Any, Any, None]]


async def make_entries(file: Path, size: int) -> None:
    await long_journals.make(file)
    await long_journals.append_updates(file, long_journals.edits(), size)
    await long_journals.snapshot(file)


async def make_versions(file: Path, size: int) -> None:
    await long_journals.make(file)
    await long_journals.append_versions(file, size)
    await long_journals.snapshot(file)


async def make_past_clients(file: Path, size: int) -> None:
    await long_journals.make(file)
    await long_journals.append_updates(file, long_journals.edits_of_clients(), size)
    await long_journals.snapshot(file)


async def make_fields(file: Path, size: int) -> None:
    model = wide_model(size)
    async with open_board(file, BOARD, model, agent="maker") as board:
        await board.commit("fill", patch=dict.fromkeys(model.model_fields, "text of a field"))


async def make_clients(file: Path, _size: int) -> None:
    await long_journals.make(file)


AXES = (
    Axis("entries", (1_000, 3_000, 10_000, 30_000, 100_000), make_entries),
    Axis("versions", (1_000, 3_000, 10_000, 30_000, 100_000), make_versions),
    Axis("past clients", (100, 300, 1_000, 3_000, 10_000), make_past_clients),
    Axis("fields", (10, 30, 100, 300, 1_000), make_fields),
    Axis("clients", (1, 3, 10, 30, 100), make_clients),
)


def wide_model(fields: int) -> type[BoardModel]:
    """A model with so many texts, of which one is ``status``."""
    names: dict[str, Any] = {f"field_{number}": (str, "") for number in range(fields - 1)}
    model: type[BoardModel] = create_model("Wide", __base__=BoardModel, status=(str, ""), **names)
    return model


def measure_board(axis: str, size: str, file: str, commits: str) -> dict[str, float]:
    """MiB and milliseconds by quantity; for a process of its own."""
    return asyncio.run(_measure(axis, int(size), Path(file), int(commits)))


async def _measure(axis: str, size: int, file: Path, commits: int) -> dict[str, float]:
    model = wide_model(size) if axis == "fields" else Past
    await long_journals.make(file.with_name("first.db"))  # what the first board of a process takes is not its own
    store = await SqliteStore.open(file)
    before = _memory()
    async with BoardHost(store) as host, contextlib.AsyncExitStack() as stack:
        boards = [
            await stack.enter_async_context(open_board(host, BOARD, model, agent=f"agent-{number}"))
            for number in range(size if axis == "clients" else 1)
        ]
        memory = _memory() - before
        took = await _commit(boards, commits)
    return {
        "memory": max(memory, _LEAST_MEMORY) / (1 << 20),
        "disk": sum(path.stat().st_size for path in file.parent.glob(f"{file.name}*")) / (1 << 20),
        "p50 of a commit": percentile(took, 0.5),
        "p99 of a commit": percentile(took, 0.99),
    }


async def _commit(boards: Sequence[Board[Any]], commits: int) -> list[float]:
    """Milliseconds of commits of one field by the first of ``boards``, sorted. At the end all of them have the last."""
    took: list[float] = []
    for number in range(_WARM + commits):
        began = time.perf_counter()
        await boards[0].commit("step", patch={"status": f"step {number}"})
        took.append((time.perf_counter() - began) * 1e3)
    for board in boards:
        await board.wait_for(lambda state: state.status == f"step {_WARM + commits - 1}", timeout=30)
    return sorted(took[_WARM:])


def _memory() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law that fits best."""
    xs, ys = ([math.log(each) for each in values] for values in zip(*points, strict=True))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


Samples = dict[str, dict[str, dict[int, list[float]]]]
"""By axis, quantity and size."""


def measure_all(run: Run, axes: Sequence[Axis], commits: int) -> Samples:
    samples: Samples = {axis.name: {quantity: {} for quantity in _QUANTITIES} for axis in axes}
    for turn in range(run.options.repeat):
        for axis in axes:
            for size in axis.sizes:
                run.progress(f"round {turn + 1} of {run.options.repeat}: {size:,} {axis.name}")
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "board.db"
                    asyncio.run(axis.make(file, size))
                    found = in_fresh_process("bench_growth", "measure_board", axis.name, size, file, commits)
                for quantity in _QUANTITIES:
                    samples[axis.name][quantity].setdefault(size, []).append(found[quantity])
    return samples


def _slopes(by_size: Mapping[int, Sequence[float]]) -> list[float]:
    """One for each round."""
    rounds = zip(*by_size.values(), strict=True)
    return [slope(list(zip(by_size, values, strict=True))) for values in rounds]


def figures_of(samples: Samples) -> list[Figure]:
    figures: list[Figure] = []
    for axis, quantities in samples.items():
        for quantity, by_size in quantities.items():
            figures.append(Figure(f"{quantity} by {axis}: slope", "", _slopes(by_size)))
            figures += [
                Figure(f"{quantity} at {size:,} {axis}", _QUANTITIES[quantity], by_size[size])
                for size in (min(by_size), max(by_size))
            ]
    return figures


def tables_of(samples: Samples) -> list[Table]:
    """The slopes, and what they are the slopes of."""
    slopes = {axis: [_slopes(quantities[quantity]) for quantity in _QUANTITIES] for axis, quantities in samples.items()}
    values = {
        f"{size:,} {axis}": [quantities[quantity][size] for quantity in _QUANTITIES]
        for axis, quantities in samples.items()
        for size in quantities["disk"]
    }
    units = [f"{quantity}, {unit}" for quantity, unit in _QUANTITIES.items()]
    return [
        Table("Slopes: 0 does not grow, 1 grows in proportion", list(_QUANTITIES), slopes),
        Table("What was measured", units, values),
    ]


def plots_of(samples: Samples) -> list[Plot]:
    def medians(by_size: Mapping[int, Sequence[float]]) -> list[tuple[float, float]]:
        return [(size, Figure("", "", values).median) for size, values in by_size.items()]

    return [
        Plot(
            quantity.replace(" ", "-"),
            f"{quantity.capitalize()} as a board grows",
            "how many",
            unit,
            {f"by {axis}": medians(quantities[quantity]) for axis, quantities in samples.items()},
        )
        for quantity, unit in _QUANTITIES.items()
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [axis.name for axis in AXES]
    parser.add_argument("--only", choices=names, metavar="AXIS", help="one of " + ", ".join(names))
    run = Run.begin("Growth: what a board costs as it grows", parser, repeat=3)
    require(Path("/proc/self/statm").exists(), "memory is read from /proc, which this system has not")
    axes = [axis for axis in AXES if run.options.only in (None, axis.name)]
    if run.options.quick:
        axes = [Axis(axis.name, axis.sizes[:2], axis.make) for axis in axes]
    samples = measure_all(run, axes, _QUICK_COMMITS if run.options.quick else _COMMITS)
    facts = [
        "memory is what opening the board adds to a process that had another one open, "
        f"{_LEAST_MEMORY >> 10} KiB where it is less; disk is after closing",
        "a commit changes one field, synced; clients are replicas in the same process, which all get it",
    ]
    run.finish(figures_of(samples), facts, plots_of(samples), tables_of(samples))


if __name__ == "__main__":
    run_program(main)
