"""A process that is killed while it works on a file: ``python -m support.dying <module> <function> <file> <moments>``.

``function`` is a coroutine of the file's path. It runs once to its end, and is timed; then again and again, each time
in a child on a copy of the file, where the kernel ends it at one of so many moments spread over that time. Prints the
name of each copy.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

_Work = Callable[[Path], Awaitable[None]]


def _seconds_of(work: _Work, copy: Path) -> float:
    begun = time.monotonic()
    _run(work, copy, 0)
    return time.monotonic() - begun


def _run(work: _Work, copy: Path, seconds: float) -> None:
    """Until its end, or for ``seconds`` if that is not 0."""
    child = os.fork()
    if child == 0:
        # The kernel ends the process then, at whatever instruction it is, as with SIGKILL: nobody handles this signal.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        asyncio.run(work(copy))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or (seconds and os.WTERMSIG(status) == signal.SIGALRM), status


def main(module: str, function: str, file: str, moments: str) -> None:
    work: _Work = getattr(importlib.import_module(module), function)
    count = int(moments)
    copies = [Path(f"{file}.{number}") for number in range(count + 1)]
    for copy in copies:
        shutil.copy(file, copy)
    seconds = _seconds_of(work, copies[-1])
    for number, copy in enumerate(copies[:-1]):
        _run(work, copy, seconds * (number + 0.5) / count)
    for copy in copies:
        print(copy)


if __name__ == "__main__":
    main(*sys.argv[1:])
