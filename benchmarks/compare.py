"""Two revisions side by side: the same benchmarks on another revision and on this tree, in turn, in one run.

The other revision is a worktree of git with an environment of its own, and is measured with the benchmarks of this
tree, so that both are measured alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import PROJECT, run_program
from benchmarks.reporting import number
from benchmarks.run_all import own_programs

_MEASURED = ("crdt_board", "crdt_board_server", "crdt_board_client", "benchmarks")
_Medians = dict[str, tuple[float, str]]
"""Median and unit of each figure."""


@contextlib.contextmanager
def worktree_of(revision: str) -> Iterator[tuple[Path, str]]:
    """A folder with another revision, installed in an environment of its own, and its commit; gone after the block."""
    commit = _git("rev-parse", "--verify", "--short=12", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="bench-compare-") as scratch:
        tree = Path(scratch) / "base"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            print(f"Setting up {commit} (takes a minute)", file=sys.stderr, flush=True)
            shutil.rmtree(tree / "benchmarks", ignore_errors=True)
            shutil.copytree(PROJECT / "benchmarks", tree / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
            subprocess.run([sys.executable, "-m", "venv", str(tree / ".venv")], check=True)
            _install(tree, Path(scratch) / "versions.txt")
            yield tree, commit
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _install(tree: Path, versions: Path) -> None:
    """Install what is in ``tree``, with the versions of everything else that are measured here."""
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check"]
    freeze = [sys.executable, "-m", "pip", "freeze", "--exclude-editable", *quiet]
    versions.write_bytes(subprocess.run(freeze, check=True, stdout=subprocess.PIPE).stdout)
    install = [str(_python(tree)), "-m", "pip", "install", *quiet, "--constraint", str(versions), "-e", ".[server]"]
    subprocess.run(install, cwd=tree, check=True)


def check_imports(tree: Path, python: Path) -> None:
    """Make sure that ``python``, started in ``tree``, measures what is in ``tree``, whatever PYTHONPATH says.

    Raises:
        SystemExit: it does not; says what it would measure.
    """
    for package in _MEASURED:
        code = f"import {package}; print({package}.__path__[0])"
        done = subprocess.run([str(python), "-c", code], cwd=tree / "benchmarks", check=True, stdout=subprocess.PIPE)
        found = Path(done.stdout.decode().strip()).resolve()
        if not found.is_relative_to(tree.resolve()):
            raise SystemExit(f"{tree} would be measured with {package} from {found}; is PYTHONPATH set?")


def measure(tree: Path, program: str, arguments: Sequence[str]) -> _Medians:
    """What one run of a benchmark says in one tree.

    Raises:
        SystemExit: it does not run there; says which and why.
    """
    python = _python_of(tree)
    done = subprocess.run(
        [str(python), str(tree / program), "--repeat", "1", "--json", *arguments],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise SystemExit(f"{program} does not run on {'this tree' if tree == PROJECT else 'the base'}: {reason}")
    figures: list[dict[str, Any]] = json.loads(done.stdout)["figures"]
    return {figure["name"]: (figure["median"], figure["unit"]) for figure in figures}


def table(base: Sequence[_Medians], head: Sequence[_Medians]) -> list[str]:
    """A Markdown table of all figures that both have; a ratio is taken within a round."""
    lines = ["| what | base | head | head / base | least to greatest |", "|---|---:|---:|---:|---:|"]
    for name, (_, unit) in head[0].items():
        rounds = [(b[name][0], h[name][0]) for b, h in zip(base, head, strict=True) if name in b and name in h]
        ratios = sorted(h / b for b, h in rounds if b)
        if not ratios:
            continue
        medians = [statistics.median(values) for values in zip(*rounds, strict=True)]
        cells = [name, *(f"{number(value)} {unit}".rstrip() for value in medians)]
        cells += [f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", metavar="BASE", help="the revision to compare with")
    parser.add_argument(
        "only", nargs="*", default=["bench_micro"], metavar="PART", help="which benchmarks: bench_micro"
    )
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="each revision so often; default 7")
    parser.add_argument("--quick", action="store_true", help="see that it works: no figures")
    options = parser.parse_args()
    chosen = [each.name for each in own_programs(options.only)]
    if not chosen:
        parser.error(f"no benchmark is named like {' or '.join(options.only)}")
    arguments = ["--quick"] if options.quick else []
    with worktree_of(options.base) as (tree, commit):
        print(f"Base {commit}, head {_git('rev-parse', '--short=12', 'HEAD')} with what is not committed")
        for where in (tree, PROJECT):
            check_imports(where, _python_of(where))
        for program in chosen:
            measured: dict[Path, list[_Medians]] = {tree: [], PROJECT: []}
            for turn in range(options.rounds):
                print(f"{program}: round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
                for where in (tree, PROJECT) if turn % 2 else (PROJECT, tree):
                    measured[where].append(measure(where, program, arguments))
            print("\n".join(["", f"## {program}", "", *table(measured[tree], measured[PROJECT])]), flush=True)


def _python_of(tree: Path) -> Path:
    return Path(sys.executable) if tree == PROJECT else _python(tree)


def _python(tree: Path) -> Path:
    return tree / ".venv" / "bin" / "python"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    run_program(main)
