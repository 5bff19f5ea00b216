"""Snapshots loaded back in a process of their own, so that a server goes on serving meanwhile.

A thread would not do: yrs holds the interpreter's lock while it loads a document, some 40 ms for 100,000 items, and
nobody is answered then. The process is a child that reads from its standard input and ends with it, so that it never
outlives the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from crdt_board.layout import Layout
from crdt_board.loading import compress_snapshot
from crdt_board.snapshots import compress_in_thread

_SMALL_BYTES = 64 * 1024
"""Up to here a thread does it, in less than what a way to another process and back takes at worst."""

_PROGRAM = """
import sys
sys.path[:] = {path!r}
import os, signal
for number in signal.SIGTERM, signal.SIGINT:
    signal.signal(number, signal.SIG_IGN)
os.nice(10)
from crdt_board_server.snapshot_process import main
main()
"""
_COMMAND = (sys.executable, "-c", _PROGRAM.format(path=sys.path))
"""It gives way to the server from its first import on, and imports what the server does, not what lies where it was
started. It is the server's to end, which may need it when both are told to stop."""

_IDLE_SECONDS = 60.0
"""After so long without a question it ends, and gives back some 60 MB."""

_LENGTH_BYTES = 8
_END_SECONDS = 2.0


class _Patience(NamedTuple):
    """How long an answer may take. A million bytes of small items take a second of the processor [measured]."""

    seconds: float
    seconds_per_million_bytes: float

    def with_bytes(self, size: int) -> float:
        return self.seconds + self.seconds_per_million_bytes * size / 1_000_000


_PATIENCE = _Patience(20.0, 5.0)
"""Of a machine that has other things to do; beyond it the process hangs, and nobody else's snapshot is taken."""

logger = logging.getLogger(__name__)


class SnapshotProcess:
    """Loads snapshots back, one after the other, in a process that is started for the first large one."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()
        self._asked_at = 0.0
        self._rest: asyncio.Task[None] | None = None
        self._patience = _PATIENCE
        self._closed = False

    async def compress(self, data: bytes, layout: Layout, expected_checksum: str) -> bytes | None:
        """As `compress_snapshot`; None also when the process ended or hung over it. In a thread once this is closed.

        Cancelling ends the process: the next snapshot gets another one.
        """
        if len(data) > _SMALL_BYTES:
            async with self._turn:
                process = await self._started()
                if process is not None:
                    answer = await self._ask(process, data, layout, expected_checksum)
                    if not self._closed:
                        return answer
        return await compress_in_thread(data, layout, expected_checksum)

    async def aclose(self) -> None:
        """End the process, in the middle of a question too: it may get no time, and a server has to stop soon. What is
        asked is answered all the same. Idempotent."""
        self._closed = True
        if self._process is not None:
            _kill(self._process)
        async with self._turn:
            if self._rest is not None:
                self._rest.cancel()
            await self._end()

    async def _started(self) -> Process | None:
        if self._closed:
            return None
        self._asked_at = asyncio.get_running_loop().time()
        if self._process is not None and self._process.returncode is not None:
            logger.warning("the process that loads snapshots back ended with code %d", self._process.returncode)
            await self._end()
        if self._process is None:
            try:
                # In a group of its own: a Ctrl-C is for the server, which then ends it. Not in a session: Linux gives
                # each as much of the processor as any other, however nice its processes are.
                self._process = await asyncio.create_subprocess_exec(
                    *_COMMAND, stdin=PIPE, stdout=PIPE, process_group=0
                )
            except (OSError, NotImplementedError) as error:
                logger.warning("snapshots are loaded back in this process, since no other can be started: %s", error)
                return None
            if self._rest is None or self._rest.done():
                self._rest = asyncio.create_task(self._end_when_idle(), name="snapshot-process-idle")
        return self._process

    async def _end_when_idle(self) -> None:
        while self._process is not None:
            await asyncio.sleep(self._asked_at + _IDLE_SECONDS - asyncio.get_running_loop().time())
            async with self._turn:
                if asyncio.get_running_loop().time() >= self._asked_at + _IDLE_SECONDS:
                    await self._end()

    async def _ask(self, process: Process, data: bytes, layout: Layout, expected_checksum: str) -> bytes | None:
        parts = layout.model_dump_json().encode(), expected_checksum.encode(), data
        size = len(data)
        try:
            async with asyncio.timeout(self._patience.with_bytes(size)):
                return await _answered(process, parts) or None
        except TimeoutError:
            logger.error("the process that loads snapshots back did not answer over %d bytes, and is ended", size)
            _kill(process)
            await self._end()
        except (OSError, EOFError):
            await self._end()
            if not self._closed:
                logger.error("the process that loads snapshots back ended with code %d", process.returncode)
        except BaseException:  # cancelled, perhaps again while it ends
            _kill(process)
            await self._end()
            raise
        return None

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            _kill(process)
        await process.wait()


async def _answered(process: Process, question: Sequence[bytes]) -> bytes:
    """Raises EOFError when it says what is no answer, or nothing any more."""
    assert process.stdin is not None
    assert process.stdout is not None
    for part in question:
        process.stdin.write(len(part).to_bytes(_LENGTH_BYTES))
        process.stdin.write(part)
    length = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES))
    if length > 2 * len(question[-1]):
        raise EOFError(f"an answer of {length} bytes")
    return await process.stdout.readexactly(length)


def _kill(process: Process) -> None:
    """Stopped processes, too. Does nothing to one that has ended."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def serve_snapshots(questions: BinaryIO, answers: BinaryIO) -> None:
    """Answer each question. What cannot be loaded at all is answered like what loads to something else: with nothing.

    Raises:
        EOFError: there are no more questions.
    """
    while True:
        layout, checksum, data = (_part(questions) for _ in range(3))
        try:
            compressed = compress_snapshot(data, Layout.model_validate_json(layout), checksum.decode())
        except Exception as error:  # noqa: BLE001 - the boundary of one question
            print(f"a snapshot cannot be loaded back: {error}", file=sys.stderr)
            compressed = None
        answers.write(len(compressed or b"").to_bytes(_LENGTH_BYTES) + (compressed or b""))
        answers.flush()


def _part(questions: BinaryIO) -> bytes:
    length = int.from_bytes(_exactly(questions, _LENGTH_BYTES))
    return _exactly(questions, length)


def _exactly(questions: BinaryIO, length: int) -> bytes:
    found = questions.read(length)
    if len(found) < length:
        raise EOFError
    return found


def main() -> None:
    """What the process runs, until the server is gone, wherever that was in a question or an answer."""
    with contextlib.suppress(EOFError, BrokenPipeError):
        serve_snapshots(sys.stdin.buffer, sys.stdout.buffer)
