"""All results on a few screens: one table of ours, the best of the others, and what is aimed at, taken from the JSON.

``python -m benchmarks.summary`` writes the long tables in ``results/`` and `RESULTS.md` anew from the JSON in there,
and measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.measurements import MEASUREMENTS
from benchmarks.reporting import cell, number, write_markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
_SUITES = ("contention", "drafting", "checkpoints", "recovery", "growth", "micro")
"""Those that come first; the others after them, by name."""
_PEERS, _OURS = "peers", "crdt-board"
_HEAD = """# Results

Written by `make bench` from the JSON in `results/`, and by `make bench-results` without measuring. What is expected,
and how each is measured, stands in [README.md](README.md). Every figure is a median; the spread, and everything else
that was measured, stands where the suite's name leads. In bold is the better one of ours and the best of the others.
"""

Result = Mapping[str, Any]
Place = str | tuple[str, str, str]
"""Where a figure stands in a result: its name; or the title of a table, a row and a column."""


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. ``unit`` is that of figures in tables; others say theirs."""

    program: str
    what: str
    ours: Place
    others: Mapping[str, Place] = field(default_factory=dict)
    unit: str = ""
    is_more_better: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """A median, and what was aimed at, in words."""

    median: float
    unit: str = ""
    target: str = ""
    is_reached: bool | None = None

    def __str__(self) -> str:
        return f"{number(self.median)} {self.unit}".rstrip()


def _contention() -> Iterator[Row]:
    program, classic = "bench_contention", "classic store: whole-board OCC"
    per_field, one_row = "Postgres: a row per field, FOR UPDATE", "Postgres: one row, FOR UPDATE"
    put, reducers = "LangGraph SQLite: latest, put", "LangGraph SQLite: reducers"
    many, one, model = (
        f"20 agents, {where}" for where in ("16 fields, 20 ms", "1 field, 20 ms", "16 fields, 2 s ± 50 %")
    )

    def places(where: str, column: str, *rows: str) -> dict[str, Place]:
        return {row: (f"{where} think", row, column) for row in rows}

    for where, column, unit, more, others in (
        (many, "done/s", "/s", True, (classic, per_field, one_row)),
        (one, "done/s", "/s", True, (classic, per_field, one_row)),
        (many, "visible to all, p50 ms", "ms", False, (classic,)),
        (model, "retries per success", "", False, (classic,)),
        (one, "lost, %", "%", False, (put, reducers)),
    ):
        ours: Place = (f"{where} think", "Counter", column)
        what = f"a Counter, {where} think: {column.removesuffix(' ms').removesuffix(', %')}"
        yield Row(program, what, ours, places(where, column, *others), unit, more)
    job, field_occ = "20 agents, 16 fields, 20 ms think, 5 operations each", "OCC per field (`reads=`)"
    yield Row(
        program, f"{field_occ}, {job}: retries", f"{job}: {field_occ}: retries", {classic: f"{job}: {classic}: retries"}
    )


def _drafting() -> Iterator[Row]:
    occ, last = "whole document, OCC", "whole document, last writer wins"
    draft, saves = "16 writers and a reviewer", "friendsforever, 2,000 saves"
    yield Row("bench_drafting", f"{draft}: time", f"{draft}: Text: time", {occ: f"{draft}: {occ}: time"})
    lost = {name: f"{draft}: {name}: words lost" for name in (occ, last)}
    yield Row("bench_drafting", f"{draft}: words lost", f"{draft}: Text: words lost", dict(lost))
    yield Row("bench_drafting", f"{saves}, each durable", f"{saves}: Text", {occ: f"{saves}: {occ}"})


def _checkpoints() -> Iterator[Row]:
    lang, dbos = "LangGraph", "DBOS"
    others = [f"{lang} SQLite, {kind}" for kind in ("put alone", "full", "delta")]
    others += [f"{lang} Postgres, {kind}" for kind in ("full", "delta")]
    others += [f"{dbos} {store}" for store in ("SQLite", "Postgres")]
    small, medium, large, growing = (
        "10 kB, one field",
        "1 MB, one field",
        "10 MB, one field",
        "growing by 800 B a step",
    )
    for work, what in (
        *((small, what) for what in ("a step", "disk for a step", "history(1)", "history(100)")),
        *((medium, what) for what in ("a step", "disk for a step", "history(100)")),
        *((large, what) for what in ("a step", "disk for a step", "history(1)")),
        *((growing, what) for what in ("a step", "disk in all", "history(100)")),
    ):
        yield Row(
            "bench_checkpoints",
            f"{work}: {what}",
            f"{work}: CRDT Board, embedded: {what}",
            {name: f"{work}: {name}: {what}" for name in others},
        )


def _alone() -> Iterator[Row]:
    """What has nobody beside it, or a floor."""
    for what in ("embedded", "server answers"):
        for length in ("100,000", "1,000,000"):
            name = f"{what}: {length} entries, snapshot, 1,000 entries after it"
            yield Row("bench_recovery", name, name)
    for axis in ("entries", "versions", "past clients", "fields", "clients"):
        name = f"p99 of a commit by {axis}: slope"
        yield Row("bench_growth", name, name)
    yield Row("bench_growth", "memory by versions: slope", "memory by versions: slope")
    name = "commit one field beside 1 MB, in memory"
    yield Row("bench_micro", name, name)
    bare = "bare: a pycrdt map set and a SQLite transaction"
    yield Row("bench_commit", "a commit that sets one field", "the only field, set by the commit", {bare: bare})
    for share in ("p50", "p99"):
        floor: dict[str, Place] = {"floor: durable, bare clients": f"floor: durable, bare clients: {share}"}
        yield Row("bench_paced_writer", f"one writes, nine read: {share}", f"board, bare clients: {share}", floor)


ROWS = (*_contention(), *_drafting(), *_checkpoints(), *_alone())


def load(folder: Path) -> dict[str, Result]:
    """The results in a folder by the name of their program; the suites first. Those that did not end are left out."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}

    def place(name: str) -> tuple[bool, int, str]:
        suite = name.removeprefix("bench_")
        return name.startswith(_PEERS), _SUITES.index(suite) if suite in _SUITES else len(_SUITES), name

    return {name: found[name] for name in sorted(found, key=place) if "title" in found[name]}


def value_at(result: Result, place: Place) -> Value | None:
    """What stands at a place of a result; None where nothing does."""
    if isinstance(place, str):
        return next((_of_figure(each) for each in result["figures"] if each["name"] == place), None)
    title, row, column = place
    for table in result.get("tables", ()):
        if table["title"] == title and row in table["rows"]:
            found = table["rows"][row][table["columns"].index(column)]
            return None if found is None else Value(found["median"])
    return None


def lines_of(program: str, result: Result) -> Iterator[list[str]]:
    """Cells after the suite's name: what, ours, the best of the others, the target, and whether it is reached."""
    if program.startswith(_PEERS):
        yield from _lines_of_peers(result)
        return
    shown: set[Place] = set()
    for row in ROWS:
        ours = value_at(result, row.ours) if row.program == program else None
        if ours is None:
            continue
        shown.add(row.ours)
        others = {name: value for name, at in row.others.items() if (value := value_at(result, at)) is not None}
        yield _line(row.what, ours, others, unit=row.unit, is_more_better=row.is_more_better)
    for each in result["figures"]:
        if each["at_most"] is not None and each["name"] not in shown:
            yield _line(each["name"], _of_figure(each), {})


def to_markdown(results: Mapping[str, Result], folder: str) -> str:
    """The summary of results whose long tables are in ``folder``."""
    lines = [_HEAD, "| suite | what | ours | best of the others | target | |", "|---|---|---:|---:|---|---|"]
    for program, result in results.items():
        suite = f"[{_name(program)}]({folder}/{program}.md)"
        lines += ["| " + " | ".join([suite, *map(cell, cells)]) + " |" for cells in lines_of(program, result)]
    machines = {result["machine"].partition(", load ")[0] for result in results.values()}
    commits = {result["commit"].split()[0] for result in results.values()}
    lines += ["", "## What was measured where", ""]
    lines += [f"- machine: {machine}" for machine in sorted(machines)]
    if len(commits) > 1:
        lines.append(
            f"- **these results are of {len(commits)} commits**: one that is of another was not measured again"
        )
    measured = {*(file.stem for file in HERE.glob("bench_*.py")), *(f"{_PEERS}-{each.name}" for each in MEASUREMENTS)}
    missing = sorted(measured - set(results))
    if missing:
        lines.append(f"- **without a result**: {', '.join(map(_name, missing))}")
    lines += ["", "| suite | commit | load at the start | command |", "|---|---|---:|---|"]
    for program, result in results.items():
        at_start = result["machine"].partition(", load ")[2].partition(" ")[0]
        told = (result["commit"], at_start, f"`{result['command']}`")
        lines.append("| " + " | ".join([f"[{result['title']}]({folder}/{program}.md)", *map(cell, told)]) + " |")
    return "\n".join(lines) + "\n"


def write(folder: Path, target: Path) -> None:
    """Write the long tables beside the JSON in ``folder``, and ``target``."""
    results = load(folder)
    for program, result in results.items():
        if not program.startswith(_PEERS):
            write_markdown(folder, program, result)
    target.write_text(to_markdown(results, folder.name), encoding="utf-8")


def _name(program: str) -> str:
    return program.removeprefix("bench_").replace("_", " ")


def _of_figure(figure: Mapping[str, Any]) -> Value:
    target = "" if figure["at_most"] is None else f"at most {figure['at_most']:g}"
    return Value(figure["median"], figure["unit"], target, figure["reached"])


def _lines_of_peers(result: Result) -> Iterator[list[str]]:
    floors = {name for name, about in result["servers"].items() if about["is_floor"]}
    for figure in result["figures"]:
        medians = {name: Value(each["median"], figure["unit"]) for name, each in figure["servers"].items()}
        if _OURS not in medians:
            continue
        ours, target, more = medians.pop(_OURS), figure["target"], figure["better"] == "more"
        if target is not None:
            reached = ours.median >= target if more else ours.median <= target
            ours = Value(ours.median, ours.unit, f"at {'least' if more else 'most'} {target:g}", reached)
        others = {name: value for name, value in medians.items() if name not in floors}
        yield _line(figure["name"], ours, others, is_more_better=more)


def _line(
    what: str, ours: Value, others: Mapping[str, Value], *, unit: str = "", is_more_better: bool = False
) -> list[str]:
    mine, best = f"{ours} {unit}".rstrip(), ""
    if others:
        choose = max if is_more_better else min
        who = choose(others, key=lambda name: others[name].median)
        best = f"{others[who]} {unit}".rstrip()
        better = choose(ours.median, others[who].median)
        mine = f"**{mine}**" if ours.median == better else mine
        best = f"**{best}** ({who})" if others[who].median == better else f"{best} ({who})"
    verdict = {None: "", True: "reached", False: "**not reached**"}[ours.is_reached]
    return [what, mine, best, ours.target, verdict]


if __name__ == "__main__":
    write(RESULTS, HERE / "RESULTS.md")
