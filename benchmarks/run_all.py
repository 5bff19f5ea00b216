"""Runs every benchmark, one after the other, and writes `RESULTS.md` from what is in `results/`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import summary
from benchmarks.harness import PROJECT, run_program
from benchmarks.peers.measurements import MEASUREMENTS
from benchmarks.summary import HERE, RESULTS

_STOP_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Program:
    """One of the benchmarks. ``is_bounded``: it is ended after the minutes that each may take; others see to that."""

    name: str
    words: tuple[str, ...]
    """What Python is given to run it, in the project's folder."""
    is_bounded: bool = True


def own_programs(parts: Sequence[str] = ()) -> list[Program]:
    """The benchmarks that are files, or those of them whose name holds one of ``parts``, in alphabetical order."""
    files = sorted([*HERE.glob("bench_*.py"), *HERE.glob("*/bench_*.py")])
    return _named(parts, [Program(name, (name,)) for name in (str(file.relative_to(PROJECT)) for file in files)])


def programs(parts: Sequence[str] = ()) -> list[Program]:
    """`own_programs`, and then the measurements of sync servers."""
    peers = [
        Program(f"peers-{each.name}", ("-m", "benchmarks.peers", "--only", each.name), is_bounded=False)
        for each in MEASUREMENTS
    ]
    return own_programs(parts) + _named(parts, peers)


def run_one(program: Program, arguments: Sequence[str], *, minutes: float) -> str | None:
    """Run one program; why it failed, or None. It is interrupted, and cleans up, when its time is over."""
    process = subprocess.Popen([sys.executable, *program.words, *arguments], cwd=PROJECT)
    try:
        code = process.wait(minutes * 60 if program.is_bounded else None)
    except subprocess.TimeoutExpired:
        _interrupt(process)
        return f"took longer than {minutes:g} minutes"
    except KeyboardInterrupt:  # the terminal has told the program too
        _interrupt(process)
        raise
    return f"ended with code {code}" if code else None


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", metavar="PART", help="only programs whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="say which programs there are, and run none")
    parser.add_argument("--quick", action="store_true", help="see that all work; RESULTS.md stays as it is")
    parser.add_argument("--repeat", type=int, metavar="N", help="rounds of each; its own number unless told")
    parser.add_argument(
        "--minutes", type=float, default=10, metavar="N",
        help="at most so long for each but those of sync servers, which bound each step; default 10",
    )  # fmt: skip
    options = parser.parse_args()
    chosen = programs(options.only)
    if not chosen:
        parser.error(f"no benchmark is named like {' or '.join(options.only)}; --list names them")
    if options.list:
        print("\n".join(each.name for each in chosen))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "results" if options.quick else RESULTS
        arguments = ["--out", str(folder), *(["--quick"] if options.quick else [])]
        arguments += ["--repeat", str(options.repeat)] if options.repeat else []
        failed = run_programs(chosen, arguments, minutes=options.minutes)
        if not options.quick and folder.is_dir():
            summary.write(folder, HERE / "RESULTS.md")
    if failed:
        raise SystemExit("\n".join(["not measured:", *failed]))


def run_programs(chosen: Sequence[Program], arguments: Sequence[str], *, minutes: float) -> list[str]:
    """Run programs, one after the other; which failed, and why."""
    failed: list[str] = []
    for count, program in enumerate(chosen, 1):
        print(f"\n== {program.name} ({count} of {len(chosen)})", flush=True)
        began = time.monotonic()
        problem = run_one(program, arguments, minutes=minutes)
        print(f"({time.monotonic() - began:.0f} s)", flush=True)
        if problem:
            failed.append(f"  {program.name}: {problem}")
    return failed


def _named(parts: Sequence[str], found: Sequence[Program]) -> list[Program]:
    return [each for each in found if not parts or any(part in each.name for part in parts)]


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    run_program(main)
