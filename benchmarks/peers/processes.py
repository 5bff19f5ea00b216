"""The server that is measured: started, looked at from outside through ``/proc``, ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.contestants import Contestant
from benchmarks.servers import SERVER_CORE, can_pin, pinned_to

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_READY_SECONDS = 30.0
_END_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_LOG_TAIL = 500
_IGNORED_ENVIRONMENT = ("NODE_OPTIONS", "PYTHONPATH", "UV_")


class Server:
    """A contestant as a process on an empty folder. Made by `serving`, which ends it whatever happens."""

    def __init__(self, contestant: Contestant, cache: Path, folder: Path) -> None:
        self.contestant = contestant
        self.data = folder / "data"
        self.port = 0
        self._cache = cache
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.data.mkdir()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, on what its folder holds, and wait until it takes connections."""
        self.port = _free_port()
        filling = {"port": self.port, "data": self.data, "cache": self._cache}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_IGNORED_ENVIRONMENT)}
        added = {name: value.format(**filling) for name, value in self.contestant.environment.items()}
        with self._log.open("ab") as log, pinned_to(SERVER_CORE, can_pin()):
            self._process = subprocess.Popen(
                [word.format(**filling) for word in self.contestant.command],
                cwd=self.data,
                env=kept | added,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for the harness, which then ends the server
            )
        end = time.monotonic() + _READY_SECONDS
        while not self._takes_connections():
            if not self.is_alive or time.monotonic() > end:
                raise RuntimeError(f"{self.contestant.name} did not start: {self._log.read_text()[-_LOG_TAIL:]}")
            time.sleep(_LOOK_SECONDS / 5)

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself in this time, or has ended."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.is_alive

    def stop(self) -> None:
        """Ask it to end, and make it end after ten seconds."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """``kill -9``."""
        self._end(signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """What it and its children used since it was started, in all threads; 0 once it is gone."""
        return sum(map(_cpu_seconds, self._family()))

    def resident_kib(self) -> float:
        """Its resident memory, and that of its children."""
        if not self.is_alive:
            raise RuntimeError(f"{self.contestant.name} is gone")
        return sum(map(_resident_kib, self._family()))

    def _family(self) -> list[int]:
        family = [self.pid]
        for pid in family:
            with contextlib.suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    family += map(int, (thread / "children").read_text().split())
        return family

    def wait_until_idle(self, quiet_seconds: float, *, timeout: float) -> None:
        """Return when it used no processor and changed no file for so long, or is gone, or after ``timeout``."""
        end, since, before = time.monotonic() + timeout, time.monotonic(), (-1, -1.0)
        while self.is_alive and time.monotonic() < end and time.monotonic() - since < quiet_seconds:
            now = (_bytes_in(self.data), round(self.cpu_seconds(), 1))
            if now != before:
                since, before = time.monotonic(), now
            time.sleep(_LOOK_SECONDS)

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self.is_alive:
            self._process.send_signal(how)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def serving(contestant: Contestant, cache: Path) -> Iterator[Server]:
    """A server that was started on an empty folder; afterwards neither it nor the folder is left."""
    folder = Path(tempfile.mkdtemp(prefix=f"peer-{contestant.name}-"))
    server = Server(contestant, cache, folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


class Neighbours:
    """How many cores other processes than the server and this one with its children use, on the average."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._began = self._now()

    def cores(self) -> float:
        """Since this was made."""
        began, now = self._began, self._now()
        wall, busy, own = (after - before for after, before in zip(now, began, strict=True))
        return max(0.0, (busy - own) / max(wall, 0.01))

    def _now(self) -> tuple[float, float, float]:
        user, nice, system, _, _, hard, soft, stolen = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
        used = os.times()
        own = used.user + used.system + used.children_user + used.children_system + self._server.cpu_seconds()
        return time.monotonic(), (user + nice + system + hard + soft + stolen) / _TICKS, own


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it was there a moment ago
            total += file.stat().st_size
    return total


def _cpu_seconds(pid: int) -> float:
    """Of a process, and of its children that have ended."""
    with contextlib.suppress(OSError, IndexError):
        used = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, used[11:15])) / _TICKS
    return 0.0


def _resident_kib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return float(line.split()[1])
    return 0.0
