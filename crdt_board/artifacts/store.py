"""Content-addressed artifacts over a place for bytes: hashing, limits, verification, and removal that loses no put.

A put and a removal of the same artifact may meet, in one process or in several, and a place offers no lock. So whoever
removes says so first, under ``sweeping``, and looks then whether the artifact was put again meanwhile; and whoever has
put an artifact looks, when nobody says so any more, whether it is there, and puts it again if not. Whatever the order
of their steps, either the remover sees the newer time, or the putter that it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

from crdt_board.artifacts.contract import CHUNK_BYTES, Blob, Blobs, Spool, StoredArtifact
from crdt_board.artifacts.pointer import OCTETS, Artifact, is_digest, pointer_of
from crdt_board.artifacts.threads import in_thread
from crdt_board.clock import Clock, SystemClock
from crdt_board.errors import ArtifactCorrupt, BadRequest, LimitExceeded, NotFound, StoreUnavailable
from crdt_board.limits import DEFAULT_LIMITS, Limits

_ARTIFACTS = "sha256"
_SWEEPING = "sweeping"
_POLL_SECONDS = 0.05
_REMOVAL_SECONDS_MAX = 60.0
_NOTICE_MS_MAX = 5 * 60 * 1000
"""After how long a notice is that of a removal which was cut off; far longer than a removal may take."""


class ArtifactStore:
    """The artifacts of one place. One place belongs to the boards of one database: a sweep knows of no others."""

    def __init__(self, blobs: Blobs, *, clock: Clock | None = None, limits: Limits = DEFAULT_LIMITS) -> None:
        self._blobs = blobs
        self._clock = clock or SystemClock()
        self._limits = limits
        self._damaged: dict[str, int] = {}
        """When those were stored that were found to be damaged: they are refused before a byte of them is given."""

    async def put(self, chunks: AsyncIterable[bytes], media_type: str = OCTETS) -> Artifact:
        """See `ArtifactAccess.put`. What is there already is written again, so that a sweep finds it new, and whole."""
        async with self._spool() as spool, contextlib.aclosing(_pieces(chunks)) as pieces:
            async for piece in pieces:
                self._check_size(spool.size + len(piece))
                await _gather(spool, piece)
            await self._keep(spool)
            return Artifact(pointer=pointer_of(spool.sha256), size=spool.size, media_type=media_type)

    async def stat(self, digest: str) -> StoredArtifact | None:
        found = await self._blobs.stat(f"{_ARTIFACTS}/{digest}")
        return None if found is None else _stored(found)

    async def read(self, digest: str) -> AsyncGenerator[bytes]:
        """See `ArtifactAccess.read`."""
        found = await self._existing(digest)
        sha256 = hashlib.sha256()
        held: bytes | None = None
        async with contextlib.aclosing(self._blobs.read(f"{_ARTIFACTS}/{digest}", 0, found.size)) as chunks:
            async for chunk in chunks:
                if held is not None:
                    yield held
                held = chunk
                await in_thread(sha256.update, chunk)
        if sha256.hexdigest() != digest:
            self._damaged[digest] = found.stored_ms
            raise _damaged(digest)
        if held is not None:
            yield held

    async def read_range(self, digest: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        """The bytes from ``start`` up to ``stop``, excluded. A part has no hash: who has all parts can verify them.

        Raises:
            NotFound: there is no such artifact.
            ArtifactCorrupt: it was read before, and found to be damaged.
        """
        await self._existing(digest)
        async with contextlib.aclosing(self._blobs.read(f"{_ARTIFACTS}/{digest}", start, stop)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def all(self) -> AsyncIterator[StoredArtifact]:
        """Every artifact, in no order. What somebody else has put there under other names is passed over."""
        async for found in self._blobs.blobs_in(_ARTIFACTS):
            if is_digest(found.name.removeprefix(f"{_ARTIFACTS}/")):
                yield _stored(found)

    async def page(self, *, after: str = "", limit: int) -> list[StoredArtifact]:
        """Up to ``limit`` artifacts whose hash sorts after ``after``, in that order."""
        found = [each async for each in self.all() if each.sha256 > after]
        return heapq.nsmallest(limit, found, key=lambda each: each.sha256)

    async def remove(self, digest: str, *, before_ms: int) -> bool:
        """Remove an artifact, unless it was put at ``before_ms`` or later; False when it stays, or is not there."""
        notice, is_under_way = f"{_SWEEPING}/{digest}", False
        try:
            async with asyncio.timeout(_REMOVAL_SECONDS_MAX):
                async with self._spool() as spool:
                    await self._blobs.write(notice, spool)
                found = await self.stat(digest)
                if found is None or found.stored_ms >= before_ms:
                    return False
                is_under_way = True
                await self._blobs.delete(f"{_ARTIFACTS}/{digest}")
                is_under_way = False
                return True
        except TimeoutError:
            raise StoreUnavailable(f"artifact {digest} was not removed within {_REMOVAL_SECONDS_MAX:g} s") from None
        finally:
            if not is_under_way:  # else it may still take place, and the notice stays until it is old
                await self._blobs.delete(notice)

    async def tidy(self, before_ms: int) -> None:
        """Remove what puts and removals left behind that were cut off before ``before_ms``."""
        await self._blobs.tidy(before_ms)
        dead_ms = min(before_ms, self._clock.now_ms() - _NOTICE_MS_MAX)
        for notice in [each async for each in self._blobs.blobs_in(_SWEEPING) if each.modified_ms < dead_ms]:
            await self._blobs.delete(notice.name)

    async def close(self) -> None:
        """Idempotent."""
        await self._blobs.close()

    @contextlib.asynccontextmanager
    async def _spool(self) -> AsyncIterator[Spool]:
        opening = asyncio.ensure_future(asyncio.to_thread(self._blobs.spool))
        try:
            await asyncio.shield(opening)
            yield opening.result()
        finally:
            await asyncio.wait([opening])
            if opening.exception() is None:
                await in_thread(opening.result().close)

    async def _keep(self, spool: Spool) -> None:
        digest = spool.sha256
        while True:
            await self._blobs.write(f"{_ARTIFACTS}/{digest}", spool)
            while await self._is_being_removed(digest):  # noqa: ASYNC110 - perhaps by another process
                await asyncio.sleep(_POLL_SECONDS)
            if await self.stat(digest) is not None:
                self._damaged.pop(digest, None)
                return

    async def _is_being_removed(self, digest: str) -> bool:
        notice = await self._blobs.stat(f"{_SWEEPING}/{digest}")
        return notice is not None and notice.modified_ms > self._clock.now_ms() - _NOTICE_MS_MAX

    async def _existing(self, digest: str) -> StoredArtifact:
        found = await self.stat(digest)
        if found is None:
            raise NotFound(f"there is no artifact {digest}; it was never put here, or was swept", sha256=digest)
        if self._damaged.get(digest) == found.stored_ms:
            raise _damaged(digest)
        return found

    def _check_size(self, size: int) -> None:
        maximum = self._limits.artifact_bytes_max
        if size > maximum:
            raise LimitExceeded(
                f"an artifact has at most {maximum} bytes; split this one into several",
                limit="artifact_bytes_max",
                value=size,
                maximum=maximum,
            )


async def _gather(spool: Spool, piece: bytes) -> None:
    try:
        await in_thread(spool.write, piece)
    except OSError as error:
        raise StoreUnavailable(
            f"an artifact cannot be written ({error.strerror or error}); check the space on the disk"
        ) from error


async def _pieces(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes in pieces that are worth a call to a thread each, however small the chunks are."""
    gathered = bytearray()
    async for chunk in chunks:
        if not isinstance(chunk, bytes | bytearray | memoryview):
            raise BadRequest(f"an artifact is made of bytes, and the iterator gave a {type(chunk).__name__}")
        gathered += chunk
        while len(gathered) >= CHUNK_BYTES:
            yield bytes(gathered[:CHUNK_BYTES])
            del gathered[:CHUNK_BYTES]
    if gathered:
        yield bytes(gathered)


def _damaged(digest: str) -> ArtifactCorrupt:
    return ArtifactCorrupt(
        f"artifact {digest} is damaged: its content has another hash; put the content again, or restore it from a "
        "backup",
        sha256=digest,
    )


def _stored(blob: Blob) -> StoredArtifact:
    digest = blob.name.removeprefix(f"{_ARTIFACTS}/")
    return StoredArtifact(sha256=digest, size=blob.size, stored_ms=blob.modified_ms)
