"""Artifacts in a folder beside bare files: putting and reading large ones, and what one small one costs."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks.harness import Figure, Run, require, run_program
from crdt_board.artifacts import Artifacts, open_artifacts

_MEBIBYTE = 1024 * 1024
_PARTS = 200
_SMALL = 100


async def parts(part: bytes) -> AsyncIterator[bytes]:
    for _ in range(_PARTS):
        yield part


def write_bare(file: Path, part: bytes) -> float:
    """Seconds to hash the same bytes and write them to a file, synced: what cannot be saved."""
    began = time.perf_counter()
    sha256 = hashlib.sha256()
    with file.open("wb") as opened:
        for _ in range(_PARTS):
            sha256.update(part)
            opened.write(part)
        opened.flush()
        os.fsync(opened.fileno())
    return time.perf_counter() - began


def read_bare(file: Path) -> float:
    """Seconds to read a file and hash it."""
    began = time.perf_counter()
    with file.open("rb") as opened:
        hashlib.file_digest(opened, "sha256")
    return time.perf_counter() - began


async def measure(folder: Path) -> tuple[list[float], list[float], list[float]]:
    """Ratios of putting and of reading to the bare files, and milliseconds of each small put."""
    artifacts, part = Artifacts(open_artifacts(folder / "artifacts")), os.urandom(_MEBIBYTE)
    bare = write_bare(folder / "bare", part)
    began = time.perf_counter()
    ref = await artifacts.put(parts(part))
    put = (time.perf_counter() - began) / bare
    bare, began, size = read_bare(folder / "bare"), time.perf_counter(), 0
    async for chunk in artifacts.stream(ref):
        size += len(chunk)
    read = (time.perf_counter() - began) / bare
    require(size == ref.size == _PARTS * _MEBIBYTE, "an artifact is not whole")
    small: list[float] = []
    for number in range(_SMALL):
        began = time.perf_counter()
        await artifacts.put(b"%d" % number)
        small.append((time.perf_counter() - began) * 1e3)
    return [put], [read], small


def main() -> None:
    """Run from the command line."""
    run = Run.begin(f"Artifacts: {_PARTS} MiB in a folder, and small ones", argparse.ArgumentParser(), repeat=5)
    put: list[float] = []
    read: list[float] = []
    small: list[float] = []
    for number in range(run.options.repeat):
        run.progress(f"round {number + 1} of {run.options.repeat}")
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measure(Path(folder)))
        put, read, small = put + found[0], read + found[1], small + found[2]
    run.finish(
        [
            Figure("put, beside hashing and a bare synced file", "times", put),
            Figure("read, beside a bare file and hashing", "times", read),
            Figure("one small put", "ms", small),
        ],
        ["a put is synced, file and folder; what was written just before is in the system's cache"],
    )


if __name__ == "__main__":
    run_program(main)
