"""Artifacts in a folder: one file each, synced to disk before a put returns."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from crdt_board.artifacts.contract import CHUNK_BYTES, Blob, Spool
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import NotFound, StoreUnavailable

_INCOMING = "incoming"


class FolderBlobs:
    """Files below ``root``, which is made when the first one is written.

    A file is written under a random name in ``incoming``, synced, and then renamed: a name has all of its bytes or is
    not there. Several processes may use one folder.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)

    def spool(self) -> Spool:
        with self._errors("written"):
            _make_durably(self._root / _INCOMING)
            path = self._root / _INCOMING / secrets.token_hex(16)
            return Spool(path.open("x+b"), path)

    async def write(self, name: str, spool: Spool) -> None:
        await in_thread(self._write, self._root / name, spool)

    async def read(self, name: str, start: int, stop: int) -> AsyncGenerator[bytes]:
        file = await in_thread(self._open, name)
        try:
            file.seek(start)
            while start < stop and (chunk := await in_thread(self._read, file, min(CHUNK_BYTES, stop - start))):
                start += len(chunk)
                yield chunk
        finally:
            file.close()

    async def stat(self, name: str) -> Blob | None:
        return await in_thread(self._stat, name)

    async def delete(self, name: str) -> None:
        await in_thread(self._delete, self._root / name)

    async def blobs_in(self, prefix: str) -> AsyncIterator[Blob]:
        for name in await in_thread(self._names, prefix):
            found = await self.stat(f"{prefix}/{name}")
            if found is not None:
                yield found

    async def tidy(self, before_ms: int) -> None:
        for name in await in_thread(self._names, _INCOMING):
            found = await self.stat(f"{_INCOMING}/{name}")
            if found is not None and found.modified_ms < before_ms:
                await self.delete(found.name)

    async def close(self) -> None:
        pass

    def _write(self, target: Path, spool: Spool) -> None:
        with self._errors("written"):
            _make_durably(target.parent)
            assert spool.path is not None
            if not spool.path.exists():  # it was written already, and what it became was deleted
                with contextlib.closing(self.spool()) as copy:
                    spool.copy_to(copy.file)
                    self._write(target, copy)
                return
            spool.file.flush()
            now = time.time_ns()  # the kernel's own is some milliseconds behind
            os.utime(spool.file.fileno(), ns=(now, now))
            os.fsync(spool.file.fileno())
            spool.path.replace(target)
            _sync(target.parent)

    def _open(self, name: str) -> BinaryIO:
        try:
            with self._errors("read"):
                return (self._root / name).open("rb")
        except FileNotFoundError:
            raise NotFound(f"there is no {name} in {self._root}") from None

    def _read(self, file: BinaryIO, count: int) -> bytes:
        with self._errors("read"):
            return file.read(count)

    def _stat(self, name: str) -> Blob | None:
        with contextlib.suppress(FileNotFoundError), self._errors("read"):
            found = (self._root / name).stat()
            return Blob(name=name, size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000)
        return None

    def _names(self, folder: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._errors("read"):
            return os.listdir(self._root / folder)
        return []

    def _delete(self, file: Path) -> None:
        with contextlib.suppress(FileNotFoundError), self._errors("written"):
            file.unlink()
            _sync(file.parent)

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailable(
                f"artifacts in {self._root} cannot be {what} ({error.strerror or error}); check the space on the disk "
                "and the permissions of the folder"
            ) from error


def _make_durably(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_durably(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Let names that were made, renamed or removed in a folder survive the loss of power."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
