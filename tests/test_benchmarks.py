"""The benchmarks: that they run, report what they measured, and leave nothing behind. No figure is judged here."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import bench_audit, bench_checkpoints, bench_recovery, compare, reporting, run_all, summary
from benchmarks.bench_growth import slope
from benchmarks.harness import PROJECT, Figure, Run, file_system_of, in_turn, percentile
from benchmarks.savers.contract import changes_of, notes_of, sqlite_durability
from benchmarks.servers import CLIENT_CORE, SERVER_CORE, can_pin, echo_server, pinned_to
from benchmarks.unaudited import unaudited

_SECONDS = 120

PROGRAMS = {
    "bench_micro": [],
    "bench_recovery": [],
    "bench_growth": ["--only", "entries"],
    "bench_checkpoints": ["--only", "embedded"],
    "bench_contention": [],
    "bench_drafting": [],
    "bench_commit": [],
    "bench_effects": [],
    "bench_first_commit": [],
    "bench_paced_writer": ["--seconds", "1"],
    "bench_sessions": [],
}
SLOW_PROGRAMS = {"bench_recovery", "bench_contention", "bench_drafting", "bench_paced_writer", "bench_first_commit"}
"""Those of the programs that start many processes."""

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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW_PROGRAMS else []) for name in PROGRAMS]
)
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
    assert "](bench_x-time.svg)" in files[1].read_text()


def test_all_programs_are_found() -> None:
    """`make bench` runs every program whose name begins with ``bench_`` and all of sync servers, or those named."""
    found = {Path(program.name).stem for program in run_all.programs()}
    assert {*PROGRAMS, "peers-bursts", "peers-hostile"} <= found
    assert [program.name for program in run_all.programs(["micro"])] == ["benchmarks/bench_micro.py"]
    assert [program.words[-1] for program in run_all.programs(["peers-r"])] == ["rates", "rooms"]


def test_ctrl_c_is_one_thing_to_all_programs() -> None:
    """Each program is run by `run_program`, which ends it quietly when it is interrupted."""
    files = [PROJECT / program.name for program in run_all.own_programs()]
    assert [file.name for file in files if "run_program(main)" not in file.read_text()] == []


def test_a_program_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    """A benchmark whose time is over is interrupted, cleans up, and is reported; the next one can run."""
    program = tmp_path / "bench_endless.py"
    program.write_text(
        "import pathlib, signal\n"
        "try:\n    signal.pause()\n"
        "finally:\n    pathlib.Path(__file__).with_name('cleaned').touch()\n"
    )
    problem = run_all.run_one(run_all.Program(program.name, (str(program),)), [], minutes=2 / 60)
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


def test_a_base_that_would_be_measured_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """A comparison ends before it begins when the interpreter of a tree would import the packages of another one."""
    (tmp_path / "benchmarks").mkdir()
    with pytest.raises(SystemExit, match="would be measured with crdt_board from"):
        compare.check_imports(tmp_path, Path(sys.executable))
    compare.check_imports(PROJECT, Path(sys.executable))


def test_rounds_begin_at_places_far_apart() -> None:
    """In each round everything is measured once, and what comes first is another, half a round away with two rounds."""
    assert in_turn("abcd", 0, 2) == ["a", "b", "c", "d"]
    assert in_turn("abcd", 1, 2) == ["c", "d", "a", "b"]
    assert {in_turn("abcd", turn, 4)[0] for turn in range(4)} == set("abcd")


def test_a_percentile_is_a_sample() -> None:
    """The least that so large a share of the samples is not above: the middle, the 99th of 100, the longest of few."""
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1.0, 50.0, 99.0, 100.0]
    assert percentile([1.0, 2.0, 3.0], 0.99) == 3.0


def test_a_folder_in_memory_is_told() -> None:
    """The kind of file system is that of the nearest mount above."""
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n"
    assert file_system_of(Path("/tmp/x/y"), mounts) == "tmpfs"
    assert file_system_of(Path("/tmpfile"), mounts) == "ext4"
    assert file_system_of(Path("/tmp"), "") == ""


@pytest.mark.skipif(not can_pin(), reason="needs two cores that a process may choose from")
async def test_a_server_has_its_core_while_the_harness_has_the_other() -> None:
    """Asked and started inside of `pinned_to`, a server is on its own core, and the harness stays on the other."""
    with pinned_to(CLIENT_CORE, can_pin()):
        before = _children()
        async with echo_server(pin=can_pin()):
            (server,) = _children() - before
            assert os.sched_getaffinity(server) == {SERVER_CORE}
            assert os.sched_getaffinity(0) == {CLIENT_CORE}


def _children() -> set[int]:
    of_threads = (file.read_text() for file in Path("/proc/self/task").glob("*/children"))
    return {int(child) for children in of_threads for child in children.split()}


@pytest.mark.parametrize("name", ["CRDT Board, embedded", "LangGraph SQLite, delta", "DBOS SQLite"])
async def test_what_a_saver_is_given_at_the_start_is_no_part_of_its_steps(name: str, tmp_path: Path) -> None:
    """Steps of a few bytes take little disk, however much was written before and whatever is done about that later."""
    openers, missing = bench_checkpoints.savers(name)
    if not openers:
        pytest.skip("; ".join(missing))
    async with openers[name](tmp_path) as saver:
        await saver.start(notes_of(1, 1_100_000))
        before = await saver.size()
        made = await saver.write(changes_of(20, 0), time.perf_counter() + _SECONDS)
        assert len(made) == 20
        assert 0 < await saver.size() - before < 100_000
        assert before > 1_000_000
        assert "FULL" in saver.durability


def test_a_connection_that_does_not_sync_is_not_measured(tmp_path: Path) -> None:
    """What a connection to SQLite promises is read from it, and one that does not wait for the disk is refused."""
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        assert sqlite_durability(lambda pragma: connection.execute(pragma).fetchone()[0]) == (
            "SQLite, journal_mode=delete, synchronous=FULL"
        )
        connection.execute("PRAGMA synchronous = NORMAL")
        with pytest.raises(ValueError, match="does not wait"):
            sqlite_durability(lambda pragma: connection.execute(pragma).fetchone()[0])


async def test_recovery_has_the_snapshot_that_it_says(tmp_path: Path) -> None:
    """A journal has its snapshot 1,000 entries before the end or none, and who misses its last entry is found out."""
    kinds = await bench_recovery.make_files(tmp_path, (1_000, 2_000), cast(Run, SimpleNamespace(progress=print)))
    bare, saved = kinds.values()
    assert [length for length, _ in bare] == [1_000, 2_000]
    assert [length for length, _ in saved] == [2_000]
    assert await bench_recovery._open_once(saved[0][1], 2_000)
    with pytest.raises(SystemExit, match="the last of 3,000 entries"):
        await bench_recovery._open_once(bare[0][1], 3_000)


RESULTS: dict[str, Any] = {
    "bench_effects": {
        **RESULT,
        "machine": "a machine, load 0.3 at the start",
        "figures": [Figure("slow", "ms", [2.0], at_most=1).to_json(), Figure("untold", "ms", [7.0]).to_json()],
    },
    "bench_commit": {
        **RESULT,
        "machine": "a machine, load 0.4 at the start",
        "figures": [
            Figure("the only field, set by the commit", "ms", [1.0]).to_json(),
            Figure("bare: a pycrdt map set and a SQLite transaction", "ms", [0.5]).to_json(),
        ],
    },
    "peers-rates": {
        **RESULT,
        "machine": "a machine, load 0.4 at the start",
        "commit": "another",
        "servers": {name: {"is_floor": name == "floor"} for name in ("crdt-board", "a", "b", "floor")},
        "figures": [
            {
                "name": "rate",
                "unit": "updates/s",
                "target": 40.0,
                "better": "more",
                "servers": {
                    name: {"median": value} for name, value in {"crdt-board": 30, "a": 10, "b": 20, "floor": 90}.items()
                },
            }
        ],
    },
}


def test_the_summary_has_ours_the_best_of_the_others_and_the_target(tmp_path: Path) -> None:
    """Comparisons, and figures with a target, are one line each, from the JSON; a floor is none of the others."""
    folder = tmp_path / "results"
    folder.mkdir()
    for name, result in RESULTS.items():
        (folder / f"{name}.json").write_text(json.dumps(result))
    (folder / "unfinished.json").write_text("{}")
    summary.write(folder, tmp_path / "RESULTS.md")
    text = (tmp_path / "RESULTS.md").read_text()
    assert "| [effects](results/bench_effects.md) | slow | 2.00 ms |  | at most 1 | **not reached** |" in text
    assert "untold" not in text
    assert "| a commit that sets one field | 1.00 ms | **0.50 ms** (bare: a pycrdt map set and a SQLite" in text
    assert "| rate | **30.0 updates/s** | 20.0 updates/s (b) | at least 40 | **not reached** |" in text
    assert "these results are of 2 commits" in text
    assert "**without a result**: artifacts, audit," in text
    assert "| untold | 7.00 ms |" in (folder / "bench_effects.md").read_text()
    assert not (folder / "peers-rates.md").exists()


@pytest.mark.parametrize("row", summary.ROWS, ids=str)
def test_a_comparison_is_found_in_what_was_measured(row: summary.Row) -> None:
    """What the summary looks for has the name that its program gives it."""
    result = summary.load(summary.RESULTS).get(row.program)
    if result is None:
        pytest.skip(f"{row.program} was not measured")
    assert summary.value_at(result, row.ours) is not None
    assert not row.others or any(summary.value_at(result, place) for place in row.others.values())


async def test_without_the_audit_nothing_is_refused() -> None:
    """What `bench_audit` and its server leave out is what refuses a write, and it is back after the block."""
    wrong = bench_audit.edits(0, bench_audit.put_wrong, 1)
    refused = []
    for wanted in (False, True, False):
        with unaudited(wanted):
            async with bench_audit.opened() as engine:
                refused.append(bool((await bench_audit.submitted(engine, object(), wrong)).rejected))
    assert refused == [True, False, True]


async def test_the_slowest_of_a_paced_writer_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure of `bench_audit` beside another peer is of every update that was sent, late ones included."""
    monkeypatch.setattr(bench_audit, "_SECONDS", 0.2)
    assert len(await bench_audit.beside(bench_audit.put, pin=False)) == 10
