"""The benchmarks: that they run, report what they measured, and leave nothing behind. No figure is judged here."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, reporting, run_all
from benchmarks.bench_growth import slope
from benchmarks.harness import PROJECT, Figure

_SECONDS = 120

PROGRAMS = {
    "bench_micro": [],
    "bench_recovery": [],
    "bench_growth": ["--only", "entries"],
    "bench_checkpoints": ["--only", "embedded"],
    "bench_contention": [],
    "bench_drafting": [],
    "bench_commit": [],
    "bench_paced_writer": ["--seconds", "1"],
}

RESULT: dict[str, Any] = {
    "title": "Title",
    **dict.fromkeys(reporting.CONDITIONS, "a | b"),
    "figures": [
        Figure("fast | slow", "ms", [1.0, 3.0, 2.0], at_most=2.5).to_json(),
        Figure("slope", "", [0.003]).to_json(),
    ],
    "facts": ["a fact"],
    "plots": [reporting.Plot("time", "Time", "size", "ms", {"ours": [(1, 2.0), (10, 4.0)]}).to_json()],
}


def run_program(name: str, *arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", *arguments],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_suite_runs_and_reports(name: str, tmp_path: Path) -> None:
    """A quick run of a suite ends well, says the same as JSON and as Markdown, and leaves no file behind."""
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    done = run_program(name, "--quick", "--json", "--out", str(out), *PROGRAMS[name], scratch=scratch)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == json.loads((out / f"{name}.json").read_text())
    assert result["figures"]
    assert all(math.isfinite(figure["median"]) for figure in result["figures"])
    assert "a quick run" in result["facts"][0]
    markdown = (out / f"{name}.md").read_text()
    listed = [each["name"] for each in result["figures"] if each["at_most"] is not None or not result["tables"]]
    assert all(
        f"| {name} |" in markdown for name in [*listed, *(row for each in result["tables"] for row in each["rows"])]
    )
    assert not list(scratch.iterdir())


def test_ctrl_c_ends_a_suite_without_a_trace(tmp_path: Path) -> None:
    """After Ctrl-C a suite ends with 130, without a traceback, and its files are gone."""
    process = subprocess.Popen(
        [sys.executable, "benchmarks/bench_recovery.py"],
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + _SECONDS
        while not list(tmp_path.glob("*/growing.db")):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "it does not begin"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "stopped" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_markdown_says_what_the_json_says() -> None:
    """Each figure is a row with its median, spread and verdict, and what would break a table is escaped."""
    text = reporting.to_markdown(RESULT, ["x-time.svg"])
    assert "| fast \\| slow | 2.00 ms | 1.00 to 3.00 | 3 | at most 2.5 | reached |" in text
    assert "| slope | 0.003 |  | 1 |  |  |" in text
    assert "- machine: a \\| b" in text
    assert "- a fact" in text
    assert "![x-time.svg](x-time.svg)" in text


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    """With matplotlib each plot is an SVG beside the results, which the collected results show."""
    pytest.importorskip("matplotlib", reason="the extra `bench` has it")
    folder = tmp_path / "results"
    files = reporting.write_result(folder, "bench_x", RESULT)
    assert [file.name for file in files] == ["bench_x.json", "bench_x.md", "bench_x-time.svg"]
    assert files[2].read_text().startswith("<?xml")
    run_all.collect(folder, tmp_path / "RESULTS.md")
    assert "](results/bench_x-time.svg)" in (tmp_path / "RESULTS.md").read_text()


def test_all_programs_are_found() -> None:
    """`make bench` runs every program whose name begins with ``bench_``, or those that are named."""
    found = {program.name for program in run_all.programs()}
    assert {f"{name}.py" for name in PROGRAMS} <= found
    assert [program.name for program in run_all.programs(["micro"])] == ["bench_micro.py"]


def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """A benchmark whose time is over is interrupted, cleans up, and is reported; the next one can run."""
    program = tmp_path / "bench_endless.py"
    program.write_text(
        "import pathlib, signal\n"
        "try:\n    signal.pause()\n"
        "finally:\n    pathlib.Path(__file__).with_name('cleaned').touch()\n"
    )
    problem = run_all.run_one(program, [], minutes=2 / 60)
    assert problem is not None
    assert "took longer" in problem
    assert (tmp_path / "cleaned").exists()


def test_a_power_law_has_its_exponent_as_slope() -> None:
    """The slope of c·x^k is k, whatever c."""
    assert slope([(x, 5.0 * x**0.5) for x in (10.0, 100.0, 1000.0)]) == pytest.approx(0.5)
    assert slope([(x, 7.0) for x in (1.0, 2.0)]) == pytest.approx(0.0)


def test_ratios_are_taken_within_a_round() -> None:
    """Two revisions are compared round by round, by the figures that both have."""
    base = [{"encode": (10.0, "µs"), "gone": (1.0, "µs")}, {"encode": (20.0, "µs"), "gone": (1.0, "µs")}]
    head = [{"encode": (5.0, "µs"), "new": (1.0, "µs")}, {"encode": (10.0, "µs"), "new": (1.0, "µs")}]
    assert compare.table(base, head)[2:] == ["| encode | 15.00 µs | 7.50 µs | 0.50 | 0.50 to 0.50 |"]


def test_comparing_with_no_revision_is_refused() -> None:
    """A base that git does not know ends the comparison before anything is set up, and says which it was."""
    with pytest.raises(SystemExit, match="git rev-parse"), compare.worktree_of("no-such-revision"):
        pass
