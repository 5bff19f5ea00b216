"""``board.artifacts``: what agents call, the same in process and at a server."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from pathlib import Path
from typing import BinaryIO

from crdt_board.artifacts.contract import CHUNK_BYTES, ArtifactAccess, StoredArtifact
from crdt_board.artifacts.pointer import OCTETS, Artifact, check_media_type, digest_of
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import BadRequest, LimitExceeded, NotFound
from crdt_board.limits import DEFAULT_LIMITS, Limits

Content = bytes | bytearray | memoryview | Path | AsyncIterable[bytes]


class Artifacts:
    """Content outside of boards, by its hash. ``ref`` is an `Artifact`, or the text of a pointer."""

    def __init__(self, access: ArtifactAccess, limits: Limits = DEFAULT_LIMITS) -> None:
        self._access = access
        self._limits = limits

    async def put(self, content: Content, *, media_type: str | None = None) -> Artifact:
        """Store content, durable on return, and give the pointer to write into a field, a patch or ``trace``.

        ``content`` is bytes, the path of a file, or an async iterator of bytes, which is never in memory as a whole.
        The same content is stored once. Without ``media_type`` that of a path goes by the file's name.

        After an error or a cancellation nothing is stored under the content's name. Write the pointer to the board
        soon: what no board refers to is swept when it is older than the grace period of the sweep.

        Raises:
            BadRequest: ``content`` is something else, or ``media_type`` is none.
            LimitExceeded: it is more than ``artifact_bytes_max``.
            StoreUnavailable, ConnectionFailed: it was not stored, or it is not known whether it was; put it again.
        """
        guessed = mimetypes.guess_type(content.name)[0] if isinstance(content, Path) else None
        media_type = check_media_type(media_type or guessed or OCTETS)
        chunks = _chunks(content)
        try:
            return await self._access.put(chunks, media_type)
        finally:
            if isinstance(chunks, AsyncGenerator) and chunks is not content:
                await chunks.aclose()

    async def get(self, ref: Artifact | str) -> bytes:
        """All of the content, with the hash that the pointer names.

        Raises:
            NotFound: it is not there: it was never put into this store, or was swept.
            ArtifactCorrupt: what is stored has another hash.
            LimitExceeded: it has more than ``artifact_memory_bytes_max``; use `stream`.
        """
        maximum, content = self._limits.artifact_memory_bytes_max, bytearray()
        async for chunk in self.stream(ref):
            content += chunk
            if len(content) > maximum:
                raise LimitExceeded(
                    f"{ref} has more than {maximum} bytes: use `async for chunk in board.artifacts.stream(ref)`",
                    limit="artifact_memory_bytes_max",
                    value=len(content),
                    maximum=maximum,
                )
        return bytes(content)

    def stream(self, ref: Artifact | str) -> AsyncIterator[bytes]:
        """The content in chunks of a mebibyte at most; the last one comes when the hash of all of them is right.

        Use what you got only when the loop has ended well.

        Raises:
            NotFound, ArtifactCorrupt: as `get`, where the loop is.
        """
        return self._access.read(digest_of(ref))

    async def stat(self, ref: Artifact | str) -> StoredArtifact:
        """What is stored; its content is not looked at.

        Raises:
            NotFound: nothing is.
        """
        digest = digest_of(ref)
        found = await self._access.stat(digest)
        if found is None:
            raise NotFound(f"there is no artifact {digest}; it was never put here, or was swept", sha256=digest)
        return found

    async def exists(self, ref: Artifact | str) -> bool:
        """Whether something is stored for this pointer; its content is not looked at."""
        return await self._access.stat(digest_of(ref)) is not None


def _chunks(content: object) -> AsyncIterable[bytes]:
    if isinstance(content, bytes | bytearray | memoryview):
        return _of_bytes(memoryview(content).cast("B"))
    if isinstance(content, Path):
        return _of_file(content)
    if isinstance(content, AsyncIterable):
        return content
    what = "a str: give text.encode(), or Path(…) for a file" if isinstance(content, str) else type(content).__name__
    raise BadRequest(f"an artifact is bytes, a pathlib.Path or an async iterator of bytes, not {what}")


async def _of_bytes(content: memoryview) -> AsyncGenerator[bytes]:
    for begin in range(0, len(content), CHUNK_BYTES):
        yield bytes(content[begin : begin + CHUNK_BYTES])


async def _of_file(path: Path) -> AsyncGenerator[bytes]:
    try:
        file: BinaryIO = await in_thread(path.open, "rb")
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        while chunk := await in_thread(file.read, CHUNK_BYTES):
            yield chunk
    finally:
        file.close()
