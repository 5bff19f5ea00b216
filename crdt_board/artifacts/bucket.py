"""Artifacts in a bucket of S3, Google Cloud Storage, Azure or what speaks like them, through obstore."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

from crdt_board.artifacts.contract import CHUNK_BYTES, Blob, Spool
from crdt_board.errors import BadRequest, NotFound, StoreUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_IN_MEMORY_BYTES = 8 * 1024 * 1024
_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 2


class BucketBlobs:
    """Objects of one store of obstore. An object is there when its upload has ended, and not before.

    An upload that was cut off may leave parts that no listing shows: let a lifecycle rule of the bucket remove those.
    """

    def __init__(self, store: ObjectStore, place: str) -> None:
        """``place`` names it in messages, without secrets."""
        self._store = store
        self._place = place

    @classmethod
    def at(cls, url: str) -> BucketBlobs:
        """The bucket and prefix at ``url``; credentials come from the environment, as for the provider's own tools.

        Raises:
            BadRequest: it is no address of a bucket, or obstore is not installed.
        """
        try:
            from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra, which only buckets need
            from obstore.store import from_url  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise BadRequest(f"artifacts in {url} need {error.name}: pip install 'crdt-board[artifacts]'") from None
        try:
            return cls(from_url(url), url.partition("?")[0])
        except (BaseError, ValueError) as error:
            raise BadRequest(f"artifacts cannot be kept at {url}: {_first_line(error)}") from error

    def spool(self) -> Spool:
        return Spool(cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)))

    async def write(self, name: str, spool: Spool) -> None:
        spool.file.seek(0)
        with self._bucket_errors():
            await self._store.put_async(name, spool.file, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    async def read(self, name: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        if start >= stop:
            return
        with self._errors(name):
            found = await self._store.get_async(name, options={"range": (start, stop)})
            async for part in found.stream(CHUNK_BYTES):
                content = bytes(part)
                for begin in range(0, len(content), CHUNK_BYTES):
                    yield content[begin : begin + CHUNK_BYTES]

    async def stat(self, name: str) -> Blob | None:
        with contextlib.suppress(NotFound), self._errors(name):
            found = await self._store.head_async(name)
            return Blob(name=name, size=found["size"], modified_ms=int(found["last_modified"].timestamp() * 1000))
        return None

    async def delete(self, name: str) -> None:
        with contextlib.suppress(NotFound), self._errors(name):
            await self._store.delete_async(name)

    async def blobs_in(self, prefix: str) -> AsyncIterator[Blob]:
        with self._bucket_errors():
            async for page in self._store.list(prefix):
                for each in page:
                    modified_ms = int(each["last_modified"].timestamp() * 1000)
                    yield Blob(name=each["path"], size=each["size"], modified_ms=modified_ms)

    async def tidy(self, before_ms: int) -> None:
        pass

    async def close(self) -> None:
        pass

    @contextlib.contextmanager
    def _bucket_errors(self) -> Iterator[None]:
        """Of the bucket as a whole: where it is missing, nothing is known."""
        from obstore.exceptions import BaseError  # noqa: PLC0415 - an extra, which only buckets need

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise StoreUnavailable(f"artifacts in {self._place}: {_first_line(error)}") from error

    @contextlib.contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Of one object: it may not be there."""
        with self._bucket_errors():
            try:
                yield
            except FileNotFoundError:
                raise NotFound(f"there is no {name} in {self._place}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]
