"""A process that puts 8 MiB: it says when it is half way, and goes on when it is told to."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from crdt_board.artifacts import Artifacts, open_artifacts

_PART = b"x" * 4 * 1024 * 1024


async def parts(folder: Path) -> AsyncIterator[bytes]:
    yield _PART
    assert list((folder / "incoming").iterdir())
    print(json.dumps("half"), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    yield _PART


async def main() -> None:
    folder = Path(sys.argv[1])
    ref = await Artifacts(open_artifacts(folder)).put(parts(folder))
    print(json.dumps(ref.pointer), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
