"""A real server in a process of its own, which tests may stop, kill and start again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from support.waiting import eventually
from support.web import web_client

_TESTS = Path(__file__).resolve().parent.parent
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(_TESTS), "NO_COLOR": "1", "COLUMNS": "200"}
_START_SECONDS = 60.0
"""A busy machine takes its time to import everything, and without the shared server all tests fail that use it."""
_ADDRESS = re.compile(r"on http://127\.0\.0\.1:(\d+) ")


class ServerProcess:
    """``crdt-board serve`` over one database. The port is chosen at the first start and kept for later ones.

    Belongs to no event loop, so that tests can share one.
    """

    def __init__(self, database: Path, log: Path, *, command: Sequence[str], options: Sequence[str] = ()) -> None:
        self.database = database
        self.port = 0
        self._log = log
        self._command = (*command, "--db", str(database))
        self._options = tuple(options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it, and return when it says that it is ready."""
        assert not self.is_running
        said = len(self.log())
        with self._log.open("ab") as log:
            command = [*self._command, "--port", str(self.port), *self._options]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=_ENVIRONMENT)
        if self.port == 0:
            self.port = await eventually(
                lambda: self._announced_port(said), "an address in the log of the server", seconds=_START_SECONDS
            )
        async with web_client(self.http) as client:
            await eventually(lambda: self._is_ready(client), "the server is ready", seconds=_START_SECONDS)

    def log(self) -> str:
        """Everything that the server wrote, over all its starts."""
        return self._log.read_text() if self._log.exists() else ""

    def resident_bytes(self) -> int:
        """The memory that the process holds now (Linux only)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not say how much memory a process holds")

    async def kill9(self) -> None:
        """End the process as a power cut would end it."""
        assert self._process is not None
        assert self.is_running
        self._process.kill()
        await self.ended()

    def send_sigterm(self) -> None:
        assert self._process is not None
        assert self.is_running
        self._process.terminate()

    async def terminate(self) -> int:
        """Ask the process to stop, and wait until it has; returns its exit code."""
        self.send_sigterm()
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process is gone; returns its exit code."""
        assert self._process is not None
        try:
            await eventually(lambda: not self.is_running, "the server has ended")
        except AssertionError:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the server did not end by itself: {self.log()}") from None
        return self._process.returncode

    async def stop(self) -> None:
        """What a test leaves behind: nothing that runs, and no traceback in the log."""
        if self.is_running:
            assert await self.terminate() == 0, self.log()
        assert "Traceback" not in self.log(), self.log()

    def _announced_port(self, said: int) -> int | None:
        assert self.is_running, self.log()
        found = _ADDRESS.search(self.log()[said:])
        return int(found[1]) if found else None

    async def _is_ready(self, client: httpx.AsyncClient) -> bool:
        assert self.is_running, self.log()
        try:
            return (await client.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False


def command_line() -> tuple[str, ...]:
    """``crdt-board serve`` as users run it."""
    return (str(Path(sys.executable).with_name("crdt-board")), "serve")
