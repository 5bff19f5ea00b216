"""What artifacts stand on: access to them, which every board has, and the places that keep their bytes.

A place (`Blobs`) keeps bytes under names and knows nothing of hashes, boards or limits: all of that is decided once, in
`ArtifactStore`. The suite in ``crdt_board.testing.blobs_contract`` states what a place promises; errors of its driver
become `StoreUnavailable`.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pydantic import BaseModel, ConfigDict

from crdt_board.artifacts.pointer import Artifact, pointer_of

CHUNK_BYTES = 1024 * 1024
"""How much of an artifact is in memory at a time; reading and writing run in threads, a chunk each."""


class StoredArtifact(BaseModel):
    """What is stored of an artifact: its hash, its size in bytes, and when it was put last."""

    model_config = ConfigDict(frozen=True)

    sha256: str
    size: int
    stored_ms: int

    @property
    def pointer(self) -> str:
        return pointer_of(self.sha256)


class ArtifactAccess(Protocol):
    """Artifacts as a board reaches them: in this process, or at a server."""

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> Artifact:
        """Store what ``chunks`` yields; durable on return. After an error or a cancellation nothing is stored.

        Raises:
            LimitExceeded: it is more than ``artifact_bytes_max``.
            StoreUnavailable, ConnectionFailed: it was not stored, or it is not known whether it was.
        """
        ...

    async def stat(self, digest: str) -> StoredArtifact | None:
        """What is stored under this hash, or None."""
        ...

    def read(self, digest: str) -> AsyncGenerator[bytes]:
        """The content, in chunks of about a mebibyte at most; the last one comes when the hash of all is right.

        Raises:
            NotFound: there is none.
            ArtifactCorrupt: what is stored has another hash. What was yielded before is not the artifact.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """Bytes under a name, last written at ``modified_ms`` by the clock of the place."""

    name: str
    size: int
    modified_ms: int


class Spool:
    """Bytes that are gathered before they are stored, with their hash; on disk where there may be many.

    ``path`` is where they are, when `close` has to remove that. All methods block: they are called in threads.
    """

    def __init__(self, file: BinaryIO, path: Path | None = None) -> None:
        self.file = file
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self._hash.update(chunk)
        self.size += len(chunk)

    def copy_to(self, file: BinaryIO) -> None:
        self.file.seek(0)
        shutil.copyfileobj(self.file, file, CHUNK_BYTES)

    def close(self) -> None:
        """Remove what was gathered; idempotent."""
        with contextlib.suppress(OSError):  # what could not be written when the disk was full is tried again
            self.file.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class Blobs(Protocol):
    """A place for bytes under names: a folder, a bucket, memory. Names are made of ``a-z 0-9 /``.

    Reads see every write that has returned. Every method may raise `StoreUnavailable`; cancelling a write leaves the
    old bytes or the new ones under the name, never a part. All methods may be called concurrently.
    """

    def spool(self) -> Spool:
        """A new one, near where its bytes will be. Blocks: called in a thread."""
        ...

    async def write(self, name: str, spool: Spool) -> None:
        """Put all bytes of a spool under ``name``, in place of what was there; durable on return.

        The same spool can be written again, also when what it was written to is gone.
        """
        ...

    def read(self, name: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        """The bytes from ``start`` up to ``stop``, excluded, in chunks. Yields fewer when there are no more.

        Raises:
            NotFound: there is nothing under the name.
        """
        ...

    async def stat(self, name: str) -> Blob | None: ...

    async def delete(self, name: str) -> None:
        """Durable on return. Nothing happens when there is nothing under the name."""
        ...

    def blobs_in(self, prefix: str) -> AsyncIterator[Blob]:
        """All blobs in ``prefix``, a name before a slash, in no order."""
        ...

    async def tidy(self, before_ms: int) -> None:
        """Remove what writes left behind that were cut off before ``before_ms``."""
        ...

    async def close(self) -> None:
        """Idempotent."""
        ...
