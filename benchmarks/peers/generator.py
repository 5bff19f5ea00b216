"""Driving a server with the load generator, a program of its own (``loadgen/``): Python would be what is measured."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.histories import Kind, history_file
from benchmarks.peers.processes import Neighbours, Server

NEIGHBOURS_MAX = 0.25
"""Cores. A run during which others used more is repeated once."""

_QUIET_SECONDS = 10.0
_LOOK_SECONDS = 0.3
_LEAVE_SECONDS = 30.0
_HOLD_SECONDS = 600
_rooms = itertools.count()


@dataclass(frozen=True, slots=True)
class Drive:
    """Clients of one or more rooms, of which the first ``senders`` of each send ``count`` updates."""

    clients: int
    count: int = 0
    senders: int | None = None
    """None for all."""
    rooms: int = 1
    rate: float = 0.0
    """Updates a second of each sender; 0 for as fast as the server takes them."""
    kind: Kind = "keys"
    room: str | None = None
    """None for one that nobody was in."""
    updates_file: int = 0
    """The count of the file that the updates are taken from, where several drives share one."""
    drain_seconds: float = 10.0
    seconds: float = 60.0
    """Bounds on waiting for what was sent to arrive, and on both together."""

    @property
    def senders_in_all(self) -> int:
        return self.rooms * (self.clients if self.senders is None else self.senders)


@dataclass(frozen=True, slots=True)
class Driven:
    """What came of a drive. Latencies run from when an update was due, or sent, to its arrival at each other."""

    drive: Drive
    connected: int
    wanted: int
    sent: int
    send_s: float
    converged: bool
    elapsed_s: float
    """From the first send to the last arrival."""
    drain_s: float
    delivered: int
    malformed: int
    closed: int
    generator_cpu_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    server_cpu_s: float = 0.0
    neighbours: float = 0.0
    """Cores that other processes used meanwhile."""

    @property
    def updates_per_second(self) -> float:
        """Updates that all others had, by the second from the first send to the last arrival."""
        return self.delivered / (self.drive.clients - 1) / max(self.elapsed_s, 1e-6)


class Generator:
    """The compiled program and where its updates are."""

    def __init__(self, program: Path, cache: Path, *, is_patient: bool) -> None:
        self._program = program
        self._cache = cache
        self._is_patient = is_patient

    def run(self, server: Server, drive: Drive, *, kills: bool = False) -> Driven:
        """Drive the server. One that is patient waits for a quiet moment, and repeats once what others disturbed.

        ``kills``: end the server with ``kill -9`` in the moment in which all have everything.
        """
        tries = 2 if self._is_patient and not kills else 1
        while True:
            tries -= 1
            if self._is_patient:
                _wait_for_quiet(server)
            neighbours, cpu = Neighbours(server), server.cpu_seconds()
            limit = drive.seconds + drive.drain_seconds + 60
            with self._process(server, drive, ["--kill", str(server.pid)] if kills else []) as process:
                said, _ = process.communicate(timeout=limit)
            outcome = _outcome(said) | {"neighbours": neighbours.cores(), "server_cpu_s": server.cpu_seconds() - cpu}
            if outcome["neighbours"] <= NEIGHBOURS_MAX or tries <= 0 or not server.is_alive:
                return Driven(drive=drive, **outcome)

    @contextlib.contextmanager
    def holding(self, server: Server, drive: Drive) -> Iterator[Driven]:
        """Drive the server, and keep the connections open for the block."""
        with self._process(server, drive, ["--hold", str(_HOLD_SECONDS)]) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield Driven(drive=drive, **_outcome(process.stdout.readline()))
            process.stdin.close()
            process.wait(_LEAVE_SECONDS)

    @contextlib.contextmanager
    def _process(self, server: Server, drive: Drive, more: list[str]) -> Iterator[subprocess.Popen[str]]:
        contestant = server.contestant
        command = [str(self._program), "--port", str(server.port), "--path", contestant.path]
        command += ["--named"] if contestant.is_named else []
        command += ["--room", drive.room or f"room-{os.getpid()}-{next(_rooms)}", "--rooms", str(drive.rooms)]
        command += ["--clients", str(drive.clients), "--count", str(drive.count), "--rate", str(drive.rate)]
        command += ["--senders", str(drive.senders_in_all // drive.rooms)]
        command += ["--drain", str(drive.drain_seconds), "--seconds", str(drive.seconds)]
        if drive.count:
            senders = drive.senders_in_all // drive.rooms
            file = history_file(self._cache, drive.kind, senders=senders, count=max(drive.count, drive.updates_file))
            command += ["--updates", str(file)]
        with subprocess.Popen(
            [*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def _outcome(said: str) -> dict[str, Any]:
    if not said:
        raise RuntimeError("the load generator failed; what it said is above")
    outcome: dict[str, Any] = json.loads(said)
    return outcome


def _wait_for_quiet(server: Server) -> None:
    end = time.monotonic() + _QUIET_SECONDS
    while time.monotonic() < end:
        neighbours = Neighbours(server)
        time.sleep(_LOOK_SECONDS)
        if neighbours.cores() <= NEIGHBOURS_MAX:
            return
