"""The comparison of sync servers runs, in its smallest form and with our server and its floor only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.metrics import FULL, Sample, metrics
from benchmarks.peers.processes import serving
from benchmarks.peers.results import Results
from benchmarks.servers import CLIENT_CORE, SERVER_CORE, can_pin, pinned_to

_PROJECT = Path(__file__).resolve().parent.parent
_INTERRUPTED = 130
_DEADLINE_SECONDS = 90.0
"""It takes a few seconds, and starts six processes: a busy machine may take much longer."""


@pytest.fixture(autouse=True)
def _tools() -> None:
    """A C compiler and Linux are needed: skipped on a laptop, a failure in CI."""
    missing = None if sys.platform == "linux" and shutil.which("cc") else "needs Linux and a C compiler (cc)"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@contextlib.asynccontextmanager
async def _comparison(folder: Path, only: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A small comparison that keeps all its files in ``folder``, for a bounded time."""
    options = ["--quick", "--repeat", "1", "--servers", "crdt-board,floor", "--only", only, "--json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.peers", *options, "--cache", str(folder), "--out", str(folder)),
        cwd=_PROJECT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


@pytest.mark.long
async def test_a_comparison_measures_and_says_what_survived(tmp_path: Path) -> None:
    """Figures come out as JSON and as Markdown, and all that a reader saw before ``kill -9`` is still there."""
    async with _comparison(tmp_path, "bursts,survival") as process:
        said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    results = [json.loads(line) for line in said.splitlines()]
    assert [each["failures"] for each in results] == [[], []]
    figures = [figure for each in results for figure in each["figures"]]
    for server in ("crdt-board", "floor"):
        medians = {each["name"]: each["servers"][server]["median"] for each in figures}
        assert medians["kept after kill -9, of 50 at once"] == 50
        assert medians["10 clients, 50 updates each at once"] > 0
    assert "| kept after kill -9, of 50 at once |" in (tmp_path / "peers-survival.md").read_text()
    assert json.loads((tmp_path / "peers-bursts.json").read_text()) == results[0]


def test_the_floor_is_no_peer() -> None:
    """The best server is marked among peers, however good the floor is, which stands beside ours in a table below."""
    ours, peer, floor = (each for each in CONTESTANTS if each.name in ("crdt-board", "y-websocket", "floor"))
    results = Results([ours, peer, floor], metrics(FULL))
    for contestant, p50 in ((ours, 1.5), (peer, 3.0), (floor, 1.0)):
        results.add(contestant, Sample(("latency", "p50"), p50))
    text = results.to_markdown("Title", {})
    assert "|  | target | crdt-board | y-websocket |" in text
    assert "| one of 10 writes 50/s, p50 (ms) | ≤ 1.30 | **1.50** | 3 |" in text
    assert "| one of 10 writes 50/s, p50 (ms) | 1.50 | 1 | 1.50 |" in text


@pytest.mark.long
async def test_an_interrupted_comparison_leaves_nothing_running(tmp_path: Path) -> None:
    """Ctrl-C ends the server too, removes its files, and still reports, but not over what was kept before."""
    async with _comparison(tmp_path, "latency") as process:
        while not list(tmp_path.glob("peer-*/data/boards.db")):
            await asyncio.sleep(0)
        process.send_signal(signal.SIGINT)
        said, _ = await process.communicate()
    assert process.returncode == _INTERRUPTED
    assert json.loads(said)["failures"] == []
    assert list(tmp_path.glob("peer*")) == []
    assert not _processes_on(tmp_path)


def _processes_on(folder: Path) -> list[str]:
    found: list[str] = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.skipif(not can_pin(), reason="this machine lets no process choose between two cores")
def test_a_server_has_a_core_of_its_own(tmp_path: Path) -> None:
    """It is started from a harness that is pinned to the clients' core, and runs on the other one all the same."""
    floor = next(each for each in CONTESTANTS if each.is_floor)
    with pinned_to(CLIENT_CORE, can_pin()), serving(floor, tmp_path) as server:
        assert os.sched_getaffinity(server.pid) == {SERVER_CORE}
        assert os.sched_getaffinity(0) == {CLIENT_CORE}
