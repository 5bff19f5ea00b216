"""A server over an older copy of its database, while clients hold more than that."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from crdt_board import BoardModel, Text
from crdt_board.history import BoardHistory
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS


class Job(BoardModel):
    draft: Text
    status: str = ""


async def test_a_commit_that_waits_comes_with_the_edits_that_the_copy_lacks(server: ServerProcess) -> None:
    """The replica's edits build on what was lost; they and the commit made meanwhile are all there in the end."""
    database, copy = server.database, Path(f"{server.database}.copy")
    async with connect(server.url, "job", Job, agent="ann") as ann:
        ann.state.draft.append("one;")
        await ann.flush(DEADLINE_SECONDS)
        assert await server.terminate() == 0
        shutil.copy(database, copy)
        await server.start()
        ann.state.draft.append("two;")
        await ann.flush(DEADLINE_SECONDS)
        await server.kill9()
        for suffix in ("-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        shutil.copy(copy, database)
        ann.state.draft.append("three;")
        committing = asyncio.create_task(ann.commit("made", patch={"status": "DONE"}))
        ann.state.draft.append("four;")
        await server.start()
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert (await committing).version == 1
            await ann.flush()
        async with connect(server.url, "job", Job, agent="bob") as bob:
            assert (str(bob.snapshot().draft), bob.snapshot().status) == ("one;two;three;four;", "DONE")
    store = await SqliteStore.open(database)
    assert (await (await BoardHistory.open(store, "job")).verify()).ok
    await store.close()
