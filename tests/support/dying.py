"""A process that is killed while it works on a file: ``python -m support.dying <module> <function> <file> <moments>``.

``function`` is a coroutine of the file's path. It runs once to its end; then again and again, each time in a child on
a copy of the file. So many of them the kernel ends at moments spread over the time that it took, and as many more end
as they begin one of its SQL statements, spread over all of these. Prints the name of each copy.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

_Work = Callable[[Path], Awaitable[None]]

_DEATHS = (signal.SIGALRM, signal.SIGKILL)


class _Statements:
    """Counts the statements of a process, which ends as it begins the ``last`` one."""

    def __init__(self, last: float) -> None:
        self.count = 0
        self._last = last

    def watch(self) -> None:
        connect = sqlite3.connect

        def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
            made = connect(*arguments, **options)
            made.set_trace_callback(self._begun)
            return made

        sqlite3.connect = connected  # type: ignore[assignment]

    def _begun(self, _statement: str) -> None:
        self.count += 1
        if self.count >= self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def _run(work: _Work, copy: Path, *, seconds: float = 0, last: float = float("inf")) -> int:
    """Until its end, or for ``seconds`` if that is not 0, or up to its ``last`` statement; how many it made."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # The kernel ends the process then, at whatever instruction it is, as with SIGKILL: nobody handles this signal.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        statements = _Statements(last)
        statements.watch()
        asyncio.run(work(copy))
        os.write(writing, str(statements.count).encode())
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with open(reading, "rb") as said:
        made = int(said.read() or 0)
    assert status == 0 or (made == 0 and os.WTERMSIG(status) in _DEATHS), status
    return made


def main(module: str, function: str, file: str, moments: str) -> None:
    work: _Work = getattr(importlib.import_module(module), function)
    count = int(moments)
    copies = [Path(f"{file}.{number}") for number in range(2 * count + 1)]
    for copy in copies:
        shutil.copy(file, copy)
    begun = time.monotonic()
    statements = _run(work, copies[-1])
    seconds = time.monotonic() - begun
    for number, copy in enumerate(copies[:count]):
        _run(work, copy, seconds=seconds * (number + 0.5) / count)
    for number, copy in enumerate(copies[count:-1]):
        _run(work, copy, last=1 + statements * number // count)
    for copy in copies:
        print(copy)


if __name__ == "__main__":
    main(*sys.argv[1:])
