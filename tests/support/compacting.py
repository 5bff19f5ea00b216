"""A process that compacts a board and is killed on the way: ``python -m support.compacting <file> <board>``.

For every call of the store that a compaction makes it begins one in a child that kills itself with SIGKILL at that
call, on a copy of the file, and prints the copy's name; it ends with the first compaction that gets through.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from crdt_board.history import BoardHistory, Retention
from crdt_board.store.sqlite import SqliteStore


class _DeadlyStore:
    """Kills its process when it is called for the ``last``-th time."""

    def __init__(self, inner: SqliteStore, last: int) -> None:
        self._inner = inner
        self._left = last

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._inner, name)


async def compact(file: Path, board_id: str, last: int) -> None:
    store = await SqliteStore.open(file)
    history = await BoardHistory.open(_DeadlyStore(store, last), board_id)  # type: ignore[arg-type]
    await history.compact(Retention(keep_versions=2))
    await store.close()


def main(file: str, board_id: str) -> None:
    for last in range(1, 1000):
        copy = Path(f"{file}.{last}")
        shutil.copy(file, copy)
        child = os.fork()
        if child == 0:
            asyncio.run(compact(copy, board_id, last))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(copy, flush=True)
        if status == 0:
            return
        assert os.WTERMSIG(status) == signal.SIGKILL, status
    raise AssertionError("no compaction got through")


if __name__ == "__main__":
    main(*sys.argv[1:])
