"""What every benchmark shares: its options, the machine it ran on, its table. Knows nothing of what is measured."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import shlex
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.reporting import Plot, Table, number, rows_of, write_result

PROJECT = Path(__file__).resolve().parent.parent
_DATA = Path(os.environ.get("CRDT_BOARD_DATA") or PROJECT.parent / "shared" / "data")
_SYNCS = 50
_APART_SECONDS = 0.02
_SYNC_BYTES = 8192
_IN_MEMORY = {"tmpfs", "ramfs"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was measured, once or several times. ``at_most``: the median that is aimed at."""

    name: str
    unit: str
    samples: Sequence[float]
    at_most: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def is_reached(self) -> bool | None:
        """None when nothing is aimed at."""
        return None if self.at_most is None else self.median <= self.at_most

    def to_json(self) -> dict[str, Any]:
        """The figure with everything that its row in the table says."""
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.samples),
            "max": max(self.samples),
            "samples": len(self.samples),
            "at_most": self.at_most,
            "reached": self.is_reached,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one benchmark: prints the command and the machine at once, and the figures at the end."""

    title: str
    options: argparse.Namespace
    conditions: Mapping[str, str]
    """The command, the machine and the versions, as they were at the start."""

    @classmethod
    def begin(cls, title: str, parser: argparse.ArgumentParser, *, repeat: int, packages: Sequence[str] = ()) -> Run:
        """Read the command line; ``repeat`` is the default of ``--repeat``, which ``--quick`` makes 1.

        ``packages`` are measured too: their versions are printed beside those that every benchmark uses.
        """
        parser.add_argument("--repeat", type=_at_least_one, metavar="N", help=f"rounds; {repeat} unless told")
        parser.add_argument("--quick", action="store_true", help="one small round, to see that it works: no figures")
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
        parser.add_argument("--out", type=Path, metavar="FOLDER", help="write JSON, a Markdown table and plots there")
        options = parser.parse_args()
        if options.repeat is None:
            options.repeat = 1 if options.quick else repeat
        run = cls(title, options, _conditions(packages))
        if not options.json:
            print(title)
            for name, value in run.conditions.items():
                print(f"  {name:<9} {value}")
            print(flush=True)
        return run

    def progress(self, what: str) -> None:
        """Say on stderr what is going on, where somebody is watching."""
        if sys.stderr.isatty():
            print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)

    def finish(
        self,
        figures: Sequence[Figure],
        facts: Sequence[str] = (),
        plots: Sequence[Plot] = (),
        tables: Sequence[Table] = (),
    ) -> None:
        """Print the figures, and ``facts`` that were checked or counted on the way; with ``--out`` write them too."""
        self.progress("")
        if self.options.quick:
            facts = ["a quick run: it shows that the program works, and measures nothing", *facts]
        result: dict[str, Any] = {
            "title": self.title,
            **self.conditions,
            "figures": [figure.to_json() for figure in figures],
            "facts": list(facts),
            "plots": [plot.to_json() for plot in plots],
            "tables": [table.to_json() for table in tables],
        }
        if self.options.out is not None:
            write_result(self.options.out, Path(sys.argv[0]).stem, result)
        if self.options.json:
            print(json.dumps(result, indent=2, ensure_ascii=False))
            return
        _print_aligned([("", "median", "spread", "n", "target", ""), *(_row(figure) for figure in figures)])
        for fact in facts:
            print(f"- {fact}")
        for table in result["tables"]:
            print(f"\n{table['title']}")
            _print_aligned([["", *table["columns"]], *rows_of(table)])


def run_program(main: Callable[[], None]) -> None:
    """Run ``main``. Ctrl-C ends the process quietly with 130, after everything that was opened has been closed."""
    try:
        main()
    except KeyboardInterrupt:
        print("\nstopped: nothing reported", file=sys.stderr)
        raise SystemExit(130) from None


def recording(name: str) -> dict[str, Any]:
    """A recorded editing session. Where there is none, ends the process in good order, and says what is missing."""
    recorded = recording_if_any(name)
    if recorded is None:
        print(f"Nothing measured: there is no {name} in {_DATA}. Name the folder that has it in CRDT_BOARD_DATA.")
        raise SystemExit(0)
    return recorded


def recording_if_any(name: str) -> dict[str, Any] | None:
    """A recorded editing session; None where there is none."""
    file = _DATA / name
    if not file.is_file():
        return None
    with gzip.open(file, "rt", encoding="utf-8") as content:
        recorded: dict[str, Any] = json.load(content)
    return recorded


def in_turn(items: Sequence[T], turn: int, turns: int) -> list[T]:
    """``items`` in the order of round ``turn`` of ``turns``, from 0: each begins at a place far from the others'.

    So none is always the first to be measured, or always the last.
    """
    at = turn * len(items) // turns
    return [*items[at:], *items[:at]]


def require(holds: bool, what: str) -> None:
    """End the process with an error unless ``holds``: a figure of a wrong result says nothing."""
    if not holds:
        raise SystemExit(f"wrong result, nothing reported: {what}")


def in_fresh_process(module: str, function: str, *arguments: object) -> dict[str, float]:
    """What ``benchmarks.<module>.<function>(*arguments)``, which returns seconds by name, says in a new process.

    ``process`` is added: the seconds from the start of the process to its end.
    """
    code = f"import json, sys; from benchmarks.{module} import {function} as f; print(json.dumps(f(*sys.argv[1:])))"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=PROJECT, check=True, stdout=subprocess.PIPE
    )
    seconds: dict[str, float] = json.loads(done.stdout)
    return {**seconds, "process": time.perf_counter() - began}


def percentile(sorted_samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least ``share`` of all are not above."""
    return sorted_samples[max(0, -int(-share * len(sorted_samples) // 1) - 1)]


def _print_aligned(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *cells]).rstrip())


def _row(figure: Figure) -> tuple[str, ...]:
    spread = f"{number(min(figure.samples))} to {number(max(figure.samples))}" if len(figure.samples) > 1 else ""
    target = "" if figure.at_most is None else f"at most {figure.at_most:g}"
    verdict = {None: "", True: "reached", False: "NOT REACHED"}[figure.is_reached]
    median = f"{number(figure.median)} {figure.unit}".rstrip()
    return figure.name, median, spread, str(len(figure.samples)), target, verdict


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _conditions(packages: Sequence[str]) -> dict[str, str]:
    versions = ["pycrdt", "websockets", "uvicorn", "aiosqlite", *packages]
    return {
        "command": shlex.join(["python", *(word.removeprefix(f"{PROJECT}/") for word in sys.orig_argv[1:])]),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"load {os.getloadavg()[0]:.1f} at the start",
        "disk": _disk(),
        "versions": ", ".join(
            [f"Python {platform.python_version()}", *map(_version, versions), f"SQLite {sqlite3.sqlite_version}"]
        ),
        "commit": _commit(),
    }


def _version(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no {package}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _disk() -> str:
    """Where the files of a benchmark are, and what a synced write takes there: most of what durability costs."""
    kind = file_system_of(Path(tempfile.gettempdir()), _mounts())
    where = f"{tempfile.gettempdir()}" + (f" ({kind})" if kind else "")
    warning = ", WHICH IS MEMORY: nothing is durable there" if kind in _IN_MEMORY else ""
    at_once, apart = (
        f"{percentile(samples, 0.5):.2f} ms (at most {samples[-1]:.2f} of {_SYNCS})"
        for samples in (_synced_writes(0), _synced_writes(_APART_SECONDS))
    )
    after = f"{_APART_SECONDS * 1e3:g} ms after the one before"
    return f"{where}{warning}; a synced write of 8 kB takes {at_once}, {after} {apart}"


def _synced_writes(pause_seconds: float) -> list[float]:
    """What each of some took, in ms, the fastest first."""
    samples: list[float] = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(_SYNCS):
            time.sleep(pause_seconds)
            began = time.perf_counter()
            os.pwrite(file.fileno(), os.urandom(_SYNC_BYTES), 0)
            os.fsync(file.fileno())
            samples.append((time.perf_counter() - began) * 1e3)
    return sorted(samples)


def file_system_of(folder: Path, mounts: str) -> str:
    """The kind of file system that a folder is on, by a list as in ``/proc/mounts``; empty where that does not tell."""
    found = {point: kind for _, point, kind, *_ in map(str.split, mounts.splitlines())}
    return next((found[str(each)] for each in (folder, *folder.parents) if str(each) in found), "")


def _mounts() -> str:
    try:
        return Path("/proc/mounts").read_text(encoding="utf-8")
    except OSError:
        return ""


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=PROJECT, check=True, capture_output=True, text=True).stdout

    try:
        results = (f":(exclude)benchmarks/{name}" for name in ("results", "RESULTS.md"))  # of the suites before
        changed = " with uncommitted changes" if git("status", "--porcelain", "--", ".", *results).strip() else ""
        return git("rev-parse", "--short=12", "HEAD").strip() + changed
    except (OSError, subprocess.CalledProcessError):
        return "not in a git checkout"
