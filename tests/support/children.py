"""Child processes that take one JSON value a line and answer each with one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

_ANSWER_SECONDS = 60.0
_LINE_BYTES_MAX = 64 * 1024 * 1024
_TESTS = Path(__file__).resolve().parent.parent


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, *command: Any) -> Any:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        return await self.answer()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        async with asyncio.timeout(_ANSWER_SECONDS):
            line = await self._process.stdout.readline()
            if not line:
                raise AssertionError(f"the process ended: {(await self._process.stderr.read()).decode()}")
        return json.loads(line)

    def pause(self) -> None:
        """Let the process stand still until `resume`, as under a debugger or on a machine that swaps."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


@contextlib.asynccontextmanager
async def child(command: Sequence[str], *, folder: Path = _TESTS) -> AsyncIterator[Child]:
    """A process that ends when its input ends, and else is killed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
    )
    try:
        yield Child(process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, errors = await process.communicate()
        assert process.returncode in (0, -9), errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
