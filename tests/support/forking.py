"""Programs in processes of their own that need not import the packages first: ``python -m support.forking``.

It takes a folder, a Python file and its arguments a line, as JSON, and forks: the child runs the file there as a
program. The answer is the exit status, negative for the signal that ended it, and what was said on either output.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import crdt_board_client  # noqa: F401 - it takes longer than what most programs do after it

_TESTS = Path(__file__).resolve().parent.parent
_SECONDS = 60
"""What a program takes on a busy machine; after that it is ended by SIGALRM."""


class Forking:
    """The process that imported the packages, and forks off the others, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, file: Path, *arguments: str, folder: Path) -> tuple[int, str, str]:
        """Run a program until it ends: its exit status, and what it said on standard output and standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), str(file), *arguments]), file=self._process.stdin, flush=True)
        status, said, errors = json.loads(self._process.stdout.readline())
        return status, said, errors


@contextlib.contextmanager
def forking() -> Iterator[Forking]:
    """A process that forks, until the end of the block. Its children, as itself, take warnings as errors."""
    command = [sys.executable, "-W", "error", "-m", "support.forking"]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_TESTS, env=environment
    ) as process:
        yield Forking(process)


def main() -> None:
    gc.freeze()  # else each child walks all modules when it ends, and has to copy them: 0.2 s [measured]
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
            if os.fork() == 0:
                signal.alarm(_SECONDS)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(said.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                folder, *sys.argv = json.loads(line)
                os.chdir(folder)
                sys.path[0] = str(Path(sys.argv[0]).parent)
                runpy.run_path(sys.argv[0], run_name="__main__")
                return
            _, status = os.wait()
            for output in (said, errors):
                output.seek(0)
            print(
                json.dumps([os.waitstatus_to_exitcode(status), said.read().decode(), errors.read().decode()]),
                flush=True,
            )


if __name__ == "__main__":
    main()
