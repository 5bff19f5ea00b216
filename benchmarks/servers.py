"""Servers to measure, each a process of its own, and which core runs what."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from benchmarks.harness import PROJECT

SERVER_CORE = 0
CLIENT_CORE = 1
_ADDRESS = re.compile(rb"ws://127\.0\.0\.1:(\d+)")
_START_SECONDS = 60.0
_STOP_SECONDS = 15.0


_cores_at_start = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()


def can_pin() -> bool:
    """Whether this system lets a process choose its cores, and this one was started where it may use both.

    The answer stays the same inside `pinned_to`, which is where most servers are started.
    """
    return {SERVER_CORE, CLIENT_CORE} <= _cores_at_start


@contextlib.contextmanager
def pinned_to(core: int, wanted: bool) -> Iterator[None]:
    """Run the block, the threads and the processes that it starts, on one core; does nothing unless ``wanted``."""
    if not wanted:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.asynccontextmanager
async def board_server(
    database: Path, *, pin: bool, module: str = "crdt_board_server", kill: bool = False
) -> AsyncIterator[int]:
    """``crdt-board serve`` on a file; gives its port. As users run it: durability on, nothing tuned.

    ``module`` is the program, where another one takes its place. At the end it is stopped, or with ``kill`` killed.
    """
    arguments = ["-m", module, "serve", "--db", str(database), "--port", "0", "--log-level", "warning"]
    async with _server(arguments, pin=pin, kill=kill) as port:
        yield port


@contextlib.asynccontextmanager
async def echo_server(*, pin: bool) -> AsyncIterator[int]:
    """A server that hands each message to the other connections and does nothing else; gives its port."""
    async with _server(["-m", "benchmarks.echo"], pin=pin) as port:
        yield port


@contextlib.asynccontextmanager
async def floor_server(folder: Path, *, pin: bool) -> AsyncIterator[int]:
    """The least that a durable server of the Yjs protocol does; gives its port. A board is a path."""
    async with _server(["-m", "benchmarks.peers.floor", "0", str(folder)], pin=pin) as port:
        yield port


@contextlib.asynccontextmanager
async def classic_server(database: Path, *, pin: bool) -> AsyncIterator[int]:
    """A server of boards as optimistic concurrency has them; gives its port."""
    async with _server(["-m", "benchmarks.contention.classic", str(database)], pin=pin) as port:
        yield port


@contextlib.asynccontextmanager
async def _server(arguments: list[str], *, pin: bool, kill: bool = False) -> AsyncIterator[int]:
    with pinned_to(SERVER_CORE, pin):
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=PROJECT, stderr=asyncio.subprocess.PIPE
        )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            port = await _announced_port(process.stderr)
        rest = asyncio.create_task(process.stderr.read())
        yield port
        if kill:
            rest.cancel()
            return
        process.terminate()
        async with asyncio.timeout(_STOP_SECONDS):
            said = await rest
            code = await process.wait()
        complaints = [line for line in said.decode(errors="replace").splitlines() if not line.startswith("CRDT Board ")]
        if code != 0 or complaints:
            raise SystemExit(f"the server ended with code {code}: {' '.join(complaints)}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _announced_port(output: asyncio.StreamReader) -> int:
    said = b""
    while line := await output.readline():
        said += line
        if found := _ADDRESS.search(line):
            return int(found[1])
    raise SystemExit(f"the server did not start: {said.decode(errors='replace')}")
