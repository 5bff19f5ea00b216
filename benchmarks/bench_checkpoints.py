"""Checkpoints: what a step costs in time and disk, and reading old ones back, beside LangGraph's savers and DBOS."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.harness import Figure, Run, in_turn, require, run_program
from benchmarks.reporting import Plot, Table
from benchmarks.savers.boards import embedded, served
from benchmarks.savers.contract import Saver, State, changes_of, notes_of

T = TypeVar("T")
Opener = Callable[[Path], contextlib.AbstractAsyncContextManager[Saver]]

_STEPS = 500
_HISTORY = 100
_HISTORY_SECONDS_MAX = 30.0
_READS = 10
_ITEM_CHARS = 800
_KILO, _MEGA = 1_000, 1_000_000
_PACKAGES = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langgraph-checkpoint-postgres",
    "dbos",
)
OURS = "CRDT Board, embedded"


@dataclass(frozen=True, slots=True)
class Work:
    """One board and what its steps change."""

    name: str
    board_bytes: int
    item_chars: int = 0


WORKS = (
    Work("10 kB, one field", 10 * _KILO),
    Work("1 MB, one field", _MEGA),
    Work("10 MB, one field", 10 * _MEGA),
    Work("growing by 800 B a step", 0, _ITEM_CHARS),
)


@dataclass(slots=True)
class Samples:
    """Of one saver at one work."""

    step_ms: list[float] = field(default_factory=list)
    step_bytes: list[float] = field(default_factory=list)
    latest_ms: list[float] = field(default_factory=list)
    stored_s: list[float] = field(default_factory=list)
    history_s: list[float] = field(default_factory=list)
    disk_mb: list[float] = field(default_factory=list)
    left_out: bool = False
    """Whether `history` would have taken too long, going by ten states."""
    steps: list[int] = field(default_factory=list)
    durability: str = ""


def savers(only: str) -> tuple[dict[str, Opener], list[str]]:
    """What can be measured here, and what is missing."""
    found: dict[str, Opener] = {OURS: embedded, "CRDT Board, served": served}
    missing: list[str] = []
    try:
        from benchmarks.savers import dbos, langgraph  # noqa: PLC0415 - only the `bench` extra has them
        from benchmarks.savers.postgres import why_not  # noqa: PLC0415
    except ImportError as error:
        missing.append(f"not measured: LangGraph and DBOS ({error}); install the extra: pip install -e '.[bench]'")
    else:
        found["LangGraph SQLite, put alone"] = langgraph.sqlite_put
        found["LangGraph SQLite, full"] = langgraph.sqlite_full
        found["LangGraph SQLite, delta"] = langgraph.sqlite_delta
        found["DBOS SQLite"] = dbos.dbos_sqlite
        if problem := why_not():
            missing.append(f"not measured: LangGraph and DBOS on Postgres: {problem}")
        else:
            found["LangGraph Postgres, full"] = langgraph.postgres_full
            found["LangGraph Postgres, delta"] = langgraph.postgres_delta
            found["DBOS Postgres"] = dbos.dbos_postgres
    return {name: opener for name, opener in found.items() if only.lower() in name.lower()}, missing


async def measure(opener: Opener, work: Work, samples: Samples, *, steps: int, seconds: float) -> None:
    """One saver from its first step to its history."""
    notes, changes = notes_of(work.board_bytes, work.board_bytes), changes_of(steps + _READS, work.item_chars)
    with tempfile.TemporaryDirectory() as folder:
        async with opener(Path(folder)) as saver:
            samples.durability = saver.durability
            empty = await saver.size()
            await saver.start(notes)
            before = await saver.size()
            gc.collect()  # what the one before left behind
            made = await saver.write(changes[:steps], time.perf_counter() + seconds)
            require(len(made) > 0, "not one step was made")
            disk = await saver.size()
            samples.steps.append(len(made))
            samples.step_ms += made
            samples.step_bytes.append((disk - before) / len(made))
            items = bool(work.item_chars)
            written = [State(change.status, len(notes), items * n) for n, change in enumerate(changes, 1)]
            count = len(made)
            for _ in range(_READS):
                if saver.writes_again:  # so that nothing is read twice
                    await saver.write(changes[count : count + 1], math.inf)
                    count += 1
                began = time.perf_counter()
                read = await saver.latest()
                samples.latest_ms.append((time.perf_counter() - began) * 1e3)
                require(read == written[count - 1], f"the newest state is {read}, not {written[count - 1]}")
            await _read_history(saver, samples, written[:count])
        closed = sum(file.stat().st_size for file in Path(folder).iterdir())
        samples.disk_mb.append(((closed or disk) - empty) / _MEGA)


async def _read_history(saver: Saver, samples: Samples, written: list[State]) -> None:
    """The newest state, ten, and a hundred; not the hundred when ten show that it would take too long."""
    seconds = 0.0
    for limit in (1, 10, _HISTORY):
        if limit > len(written):
            return
        if limit == _HISTORY and seconds * limit / 10 > _HISTORY_SECONDS_MAX:
            samples.left_out = True
            return
        began = time.perf_counter()
        found = await saver.history(limit)
        seconds = time.perf_counter() - began
        require(found == written[: -limit - 1 : -1], "the history is another")
        if limit != 10:
            (samples.stored_s if limit == 1 else samples.history_s).append(seconds)


def figures_of(measured: dict[Work, dict[str, Samples]]) -> Iterator[Figure]:
    for work, by_saver in measured.items():
        for name, samples in by_saver.items():
            is_target = name == OURS
            small, growing = is_target and work is WORKS[0], is_target and work is WORKS[-1]
            what = f"{work.name}: {name}"
            yield Figure(f"{what}: a step", "ms", samples.step_ms, at_most=0.3 if small else None)
            kib = [each / 1024 for each in samples.step_bytes]
            yield Figure(f"{what}: disk for a step", "KiB", kib, at_most=0.6 if small else None)
            yield Figure(f"{what}: latest state", "ms", samples.latest_ms)
            yield Figure(f"{what}: history(1)", "s", samples.stored_s)
            if samples.history_s:
                target = 0.3 if growing else None
                yield Figure(f"{what}: history({_HISTORY})", "s", samples.history_s, at_most=target)
            if work.item_chars:
                yield Figure(f"{what}: disk in all", "MB", samples.disk_mb, at_most=3 if growing else None)


def tables_of(measured: dict[Work, dict[str, Samples]]) -> Iterator[Table]:
    """One for each work, with a row for each saver."""
    columns = (
        *("a step, ms", "disk for a step, KiB", "latest state, ms", "history(1), s"),
        *(f"history({_HISTORY}), s", "disk in all, MB"),
    )
    for work, by_saver in measured.items():
        rows = {
            name: (
                samples.step_ms,
                [each / 1024 for each in samples.step_bytes],
                samples.latest_ms,
                samples.stored_s,
                samples.history_s,
                samples.disk_mb,
            )
            for name, samples in by_saver.items()
        }
        yield Table(work.name, columns, rows)


def plots_of(measured: dict[Work, dict[str, Samples]]) -> list[Plot]:
    """Time and disk of a step against the size of the board."""
    times: dict[str, list[tuple[float, float]]] = defaultdict(list)
    sizes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for work, by_saver in measured.items():
        for name, samples in by_saver.items() if not work.item_chars else ():
            times[name].append((work.board_bytes, Figure("", "", samples.step_ms).median))
            sizes[name].append((work.board_bytes, max(1.0, Figure("", "", samples.step_bytes).median)))
    return [
        Plot("time", "One field changed: time of a durable step", "bytes of the board", "ms", times),
        Plot("disk", "One field changed: disk for a step", "bytes of the board", "bytes", sizes),
    ]


def _shortcomings(samples: Samples, steps: int, seconds: float) -> Iterator[str]:
    if min(samples.steps) < steps:
        fewest, most = min(samples.steps), max(samples.steps)
        yield f"made {fewest}{'' if most == fewest else f' to {most}'} of {steps} steps in {seconds:g} s"
    if samples.left_out:
        yield f"history({_HISTORY}) left out: it would have taken more than {_HISTORY_SECONDS_MAX:g} s"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="PART", help="only savers whose name holds this, like langgraph")
    parser.add_argument("--steps", type=int, default=_STEPS, metavar="N", help=f"steps of each; {_STEPS} unless told")
    parser.add_argument(
        "--seconds", type=float, default=4.0, metavar="N", help="a saver stops after so long, with fewer steps; 4"
    )
    run = Run.begin("Checkpoints: a board kept step by step", parser, repeat=3, packages=_PACKAGES)
    quick = run.options.quick
    steps, works = (5, [WORKS[0], WORKS[-1]]) if quick else (run.options.steps, list(WORKS))
    openers, facts = savers(run.options.only)
    if not openers:
        parser.error(f"no saver is named like {run.options.only!r}: " + ", ".join(savers("")[0]))
    measured = {work: {name: Samples() for name in openers} for work in works}
    for turn in range(run.options.repeat):
        for work in works:
            for name in in_turn(list(openers), turn, run.options.repeat):
                run.progress(f"round {turn + 1} of {run.options.repeat}: {work.name}: {name}")
                samples = measured[work][name]
                asyncio.run(measure(openers[name], work, samples, steps=steps, seconds=run.options.seconds))
    facts += ["latest state: of CRDT Board the writer's replica, of the others from the store; history: from the store"]
    facts += [f"{name}: {samples.durability}" for name, samples in measured[works[0]].items()]
    facts += [
        f"{work.name}: {name}: {said}"
        for work, by_saver in measured.items()
        for name, samples in by_saver.items()
        for said in _shortcomings(samples, steps, run.options.seconds)
    ]
    run.finish(list(figures_of(measured)), facts, plots_of(measured), list(tables_of(measured)))


if __name__ == "__main__":
    run_program(main)
