"""The demo as a user runs it: a process that starts and kills others, judged by what it reports."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_DEADLINE_SECONDS = 90
_COMMAND = [sys.executable, "-P", "-m", "crdt_board_server", "demo"]


@pytest.mark.long
def test_a_killed_server_and_a_killed_agent_lose_and_repeat_nothing() -> None:
    """The demo passes every one of its checks, and its exit code says so."""
    done = subprocess.run([*_COMMAND, "--json"], capture_output=True, timeout=_DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, (done.stdout.decode(), done.stderr.decode())
    result = json.loads(done.stdout)
    failed = {check["name"]: check["detail"] for check in result["checks"] if not check["passed"]}
    assert not failed
    assert {check["name"] for check in result["checks"]} >= {"edits", "duplicates", "versions", "replicas equal"}
    assert [made["version"] for made in result["checkpoints"]] == list(range(1, len(result["checkpoints"]) + 1))


def test_a_file_that_is_no_database_ends_the_demo_with_one_clear_error(tmp_path: Path) -> None:
    """A foreign file is named in the error, left as it is, and the exit code is 1."""
    foreign = tmp_path / "notes.txt"
    foreign.write_bytes(b"shopping list\n" * 100)
    done = subprocess.run(
        [*_COMMAND, "--db", str(foreign)], capture_output=True, timeout=_DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 1
    assert str(foreign) in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert foreign.read_bytes() == b"shopping list\n" * 100


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_and_no_file(number: signal.Signals, tmp_path: Path) -> None:
    """After Ctrl-C or SIGTERM the processes of the demo are gone, and so is its temporary folder."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(_COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as demo:
        assert demo.stdout is not None
        started: set[int] = set()
        while len(started) < 6:  # the server and five agents
            line = demo.stdout.readline()
            assert line, "the demo ended by itself"
            started |= {int(pid) for pid in re.findall(rb"pid (\d+)", line)}
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=_DEADLINE_SECONDS)
    assert demo.returncode == 130
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
