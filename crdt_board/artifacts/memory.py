"""Artifacts in memory, for boards that end with their process."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator, AsyncIterator

from crdt_board.artifacts.contract import CHUNK_BYTES, Blob, Spool
from crdt_board.clock import Clock, SystemClock
from crdt_board.errors import NotFound


class MemoryBlobs:
    """Bytes in a dict. They are gone when the process ends."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._content: dict[str, tuple[bytes, int]] = {}

    def spool(self) -> Spool:
        return Spool(io.BytesIO())

    async def write(self, name: str, spool: Spool) -> None:
        whole = io.BytesIO()
        spool.copy_to(whole)
        self._content[name] = whole.getvalue(), self._clock.now_ms()

    async def read(self, name: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        if name not in self._content:
            raise NotFound(f"there is no {name}")
        content, _ = self._content[name]
        for begin in range(start, min(stop, len(content)), CHUNK_BYTES):
            yield content[begin : min(begin + CHUNK_BYTES, stop)]

    async def stat(self, name: str) -> Blob | None:
        if name not in self._content:
            return None
        content, modified_ms = self._content[name]
        return Blob(name=name, size=len(content), modified_ms=modified_ms)

    async def delete(self, name: str) -> None:
        self._content.pop(name, None)

    async def blobs_in(self, prefix: str) -> AsyncIterator[Blob]:
        for name in [each for each in self._content if each.startswith(f"{prefix}/")]:
            found = await self.stat(name)
            if found is not None:
                yield found

    async def tidy(self, before_ms: int) -> None:
        pass

    async def close(self) -> None:
        pass
