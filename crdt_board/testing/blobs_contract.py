"""The conformance suite of places for artifacts: each promise of `Blobs` as a test.

A place passes when a subclass of `BlobsContract` passes::

    class TestMyPlace(BlobsContract):
        def make_blobs(self): return MyBlobs(...)

The tests are coroutines and need pytest: run them with pytest-asyncio in ``asyncio_mode=auto``, or mark the subclass.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing

import pytest

from crdt_board.artifacts.contract import CHUNK_BYTES, Blobs, Spool
from crdt_board.errors import NotFound

LARGE = 9 * CHUNK_BYTES + 17


class BlobsContract:
    """What every place promises. Subclass it and implement `make_blobs`."""

    def make_blobs(self) -> Blobs:
        """A new, empty place."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Blobs]:
        """A new place that is closed at the end."""
        async with contextlib.AsyncExitStack() as stack:
            blobs = self.make_blobs()
            stack.push_async_callback(blobs.close)
            yield blobs

    @pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 3, b"7" * LARGE], ids=len)
    async def test_what_was_written_is_read(self, content: bytes) -> None:
        """All bytes come back, in chunks that are not large, and the size is told."""
        async with self.opened() as blobs:
            await write(blobs, "sha256/a", content)
            chunks = [chunk async for chunk in blobs.read("sha256/a", 0, len(content))]
            assert b"".join(chunks) == content
            assert all(len(chunk) <= CHUNK_BYTES for chunk in chunks)
            found = await blobs.stat("sha256/a")
            assert found is not None
            assert (found.name, found.size) == ("sha256/a", len(content))

    async def test_a_part_is_read(self) -> None:
        """From the first byte up to the last one, excluded; behind the end there is nothing."""
        async with self.opened() as blobs:
            await write(blobs, "sha256/a", b"0123456789")
            for start, stop, expected in [(0, 10, b"0123456789"), (3, 5, b"34"), (9, 10, b"9"), (4, 4, b"")]:
                assert b"".join([chunk async for chunk in blobs.read("sha256/a", start, stop)]) == expected

    async def test_what_is_not_there(self) -> None:
        """Nothing is told of it, reading says so, and deleting it does nothing."""
        async with self.opened() as blobs:
            assert await blobs.stat("sha256/a") is None
            with pytest.raises(NotFound):
                _ = [chunk async for chunk in blobs.read("sha256/a", 0, 1)]
            await blobs.delete("sha256/a")
            assert [found async for found in blobs.blobs_in("sha256")] == []
            await blobs.tidy(2**53)

    async def test_a_later_write_replaces(self) -> None:
        """The name has the bytes of the last write, and a time that is not earlier."""
        async with self.opened() as blobs:
            await write(blobs, "sha256/a", b"old")
            before = await blobs.stat("sha256/a")
            await write(blobs, "sha256/a", b"newer")
            after = await blobs.stat("sha256/a")
            assert before is not None
            assert after is not None
            assert (after.size, after.modified_ms >= before.modified_ms) == (5, True)
            assert await read(blobs, "sha256/a") == b"newer"

    async def test_a_spool_can_be_written_twice(self) -> None:
        """Also when what it was written to is gone, and under another name."""
        async with self.opened() as blobs:
            with spool(blobs, b"content") as gathered:
                await blobs.write("sha256/a", gathered)
                await blobs.delete("sha256/a")
                await blobs.write("sha256/a", gathered)
                await blobs.write("sha256/b", gathered)
            assert (await read(blobs, "sha256/a"), await read(blobs, "sha256/b")) == (b"content", b"content")

    async def test_a_spool_that_is_closed_leaves_nothing(self) -> None:
        """What was gathered and not written is under no name, and can be closed again."""
        async with self.opened() as blobs:
            with spool(blobs, b"content") as gathered:
                assert gathered.sha256 == hashlib.sha256(b"content").hexdigest()
                gathered.close()
            assert [found async for found in blobs.blobs_in("sha256")] == []

    async def test_names_are_listed_by_prefix(self) -> None:
        """Each with its size; those of other prefixes are not among them, nor those that were deleted."""
        async with self.opened() as blobs:
            for name, content in [("sha256/b", b"22"), ("sha256/a", b"1"), ("sweeping/a", b""), ("sha256/c", b"")]:
                await write(blobs, name, content)
            await blobs.delete("sha256/c")
            found = sorted([(each.name, each.size) async for each in blobs.blobs_in("sha256")])
            assert found == [("sha256/a", 1), ("sha256/b", 2)]

    async def test_writes_of_one_name_at_once(self) -> None:
        """One of them is there, whole."""
        async with self.opened() as blobs:
            contents = [bytes([number]) * 100_000 for number in range(8)]
            await asyncio.gather(*(write(blobs, "sha256/a", content) for content in contents))
            assert await read(blobs, "sha256/a") in contents


@contextlib.contextmanager
def spool(blobs: Blobs, content: bytes) -> Iterator[Spool]:
    """A spool that holds ``content``."""
    with closing(blobs.spool()) as gathered:
        gathered.write(content)
        yield gathered


async def write(blobs: Blobs, name: str, content: bytes) -> None:
    with spool(blobs, content) as gathered:
        await blobs.write(name, gathered)


async def read(blobs: Blobs, name: str) -> bytes:
    """All bytes under a name."""
    found = await blobs.stat(name)
    assert found is not None
    return b"".join([chunk async for chunk in blobs.read(name, 0, found.size)])
