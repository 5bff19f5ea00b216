"""Runs every benchmark, one after the other, and writes `RESULTS.md` from what is in `results/`."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import summary
from benchmarks.harness import PROJECT, run_program
from benchmarks.summary import HERE, RESULTS

_STOP_SECONDS = 20.0


def programs(parts: Sequence[str] = ()) -> list[Path]:
    """All benchmarks, or those whose path holds one of ``parts``, in alphabetical order."""
    found = sorted([*HERE.glob("bench_*.py"), *HERE.glob("*/bench_*.py")])
    return [file for file in found if not parts or any(part in str(file.relative_to(HERE)) for part in parts)]


def run_one(program: Path, arguments: Sequence[str], *, minutes: float) -> str | None:
    """Run one program; why it failed, or None. It is interrupted, and cleans up, when its time is over."""
    process = subprocess.Popen([sys.executable, str(program), *arguments], cwd=PROJECT)
    try:
        code = process.wait(minutes * 60)
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
    parser.add_argument("--minutes", type=float, default=10, metavar="N", help="at most so long for each; default 10")
    options = parser.parse_args()
    chosen = programs(options.only)
    if not chosen:
        parser.error(f"no benchmark is named like {' or '.join(options.only)}; --list names them")
    if options.list:
        print("\n".join(str(file.relative_to(PROJECT)) for file in chosen))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "results" if options.quick else RESULTS
        failed = run_programs(chosen, folder, quick=options.quick, minutes=options.minutes)
        if not options.quick and folder.is_dir():
            summary.write(folder, HERE / "RESULTS.md")
    if failed:
        raise SystemExit("\n".join(["not measured:", *failed]))


def run_programs(chosen: Sequence[Path], folder: Path, *, quick: bool, minutes: float) -> list[str]:
    """Run programs, one after the other; which failed, and why."""
    failed: list[str] = []
    for count, program in enumerate(chosen, 1):
        name = program.relative_to(PROJECT)
        print(f"\n== {name} ({count} of {len(chosen)})", flush=True)
        began = time.monotonic()
        problem = run_one(program, ["--out", str(folder), *(["--quick"] if quick else [])], minutes=minutes)
        print(f"({time.monotonic() - began:.0f} s)", flush=True)
        if problem:
            failed.append(f"  {name}: {problem}")
    return failed


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    run_program(main)
