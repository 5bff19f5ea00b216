"""The processes of the demo: started, read, killed and ended by their handles."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from crdt_board_demo import messages

_ADDRESS = re.compile(r"\bws://(?P<host>[^\s:]+):(?P<port>\d+)")
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
_LINE_BYTES_MAX = 1 << 20
_ERRORS_KEPT = 20


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


class ChildProcess:
    """A Python process in a group of its own, so that a Ctrl-C in the terminal reaches only the demo itself."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._errors: deque[str] = deque(maxlen=_ERRORS_KEPT)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def _start(cls, module: str, arguments: list[str]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
            process_group=0,
        )

    @property
    def last_words(self) -> str:
        """The newest line of its standard error."""
        return self._errors[-1].removeprefix("error: ") if self._errors else "it said nothing"

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self.ended()

    async def ended(self) -> int:
        """Wait for its end and for all its output; return its code, negative for a signal."""
        code = await self._process.wait()
        await asyncio.wait(self._tasks)
        return code

    def _read(self, name: str, take: Callable[[bytes], None]) -> None:
        stream = self._process.stdout if name == "stdout" else self._process.stderr
        assert stream is not None
        self._tasks.append(asyncio.create_task(_each_line(stream, take), name=f"{name} of {self.name}"))

    def _take_error(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()
        if text:
            self._errors.append(text)


class ServerProcess(ChildProcess):
    """``crdt-board serve``, with its address once it has one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__("server", process)
        self.port = 0
        self._listening = asyncio.Event()
        self._read("stdout", lambda _line: None)
        self._read("stderr", self._take_error)

    @classmethod
    async def start(cls, database: Path, port: int) -> ServerProcess:
        """``port`` 0 takes a free one, which is known after `listening`."""
        arguments = ["serve", "--db", str(database), "--port", str(port), "--log-level", "warning"]
        return cls(await cls._start("crdt_board_server", arguments))

    async def listening(self) -> None:
        """Wait until it has its port.

        Raises:
            DemoFailed: it ended instead, or took too long.
        """
        waiting = [asyncio.create_task(self.ended()), asyncio.create_task(self._listening.wait())]
        try:
            await asyncio.wait(waiting, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if not self._listening.is_set():
            raise DemoFailed(f"the server did not start: {self.last_words}")

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def stop(self) -> int:
        """SIGTERM; return its exit code.

        Raises:
            DemoFailed: it did not end in time.
        """
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                return await self.ended()
        except TimeoutError:
            raise DemoFailed(f"the server did not stop within {_STOP_SECONDS:g} s of SIGTERM") from None

    def _take_error(self, line: bytes) -> None:
        super()._take_error(line)
        address = _ADDRESS.search(line.decode(errors="replace"))
        if address is not None and not self._listening.is_set():
            self.port = int(address["port"])
            self._listening.set()


class AgentProcess(ChildProcess):
    """An agent; ``take`` is called with each message of it."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, take: Callable[[messages.Message], None]
    ) -> None:
        super().__init__(name, process)
        self._take = take
        self._read("stdout", self._take_line)
        self._read("stderr", self._take_error)

    @classmethod
    async def start(cls, name: str, arguments: list[str], take: Callable[[messages.Message], None]) -> AgentProcess:
        return cls(name, await cls._start("crdt_board_demo.agent", ["--agent", name, *arguments]), take)

    def _take_line(self, line: bytes) -> None:
        try:
            message = messages.decode(line)
        except ValueError:  # the last line of a killed process may be a part of one
            self._take_error(line)
            return
        self._take(message)


async def _each_line(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    while line := await stream.readline():
        take(line)
