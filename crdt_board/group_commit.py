"""Group commit: the appends of all boards that are waiting go to the store as one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from crdt_board.errors import BoardClosed, BoardError
from crdt_board.store.contract import Append, AppendResult, Store

logger = logging.getLogger(__name__)


class GroupCommit:
    """One task that writes. While it waits for the disk, the next group gathers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Append, asyncio.Future[AppendResult]]] = []
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="group-commit")

    async def append(self, request: Append) -> AppendResult:
        """Append one board's entries; see `Store.append`. Durable on return.

        A board must not have two appends under way. Cancelling leaves it unknown whether the entries were written.

        Raises:
            StoreUnavailable: nothing is known to have been written.
            BoardClosed: the group commit was closed.
        """
        if self._task.done():
            raise BoardClosed("the store of this board was closed")
        result: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, result))
        self._wake.set()
        return await result

    async def close(self) -> None:
        """Let the group that is being written finish; refuse the rest. Idempotent."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        for _, result in self._waiting:
            if not result.done():
                result.set_exception(BoardClosed("the store of this board was closed"))
        self._waiting.clear()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            group, self._waiting = self._waiting, []
            if group:
                await self._write(group)

    async def _write(self, group: list[tuple[Append, asyncio.Future[AppendResult]]]) -> None:
        try:
            answers = await self._store.append([request for request, _ in group])
        except asyncio.CancelledError:
            self._fail(group, BoardClosed("the store of this board was closed"))
            raise
        except BoardError as error:
            self._fail(group, error)
            return
        except Exception as error:  # the boundary of this task: a fault of the store must not end it
            logger.exception("the store failed in an unforeseen way")
            self._fail(group, error)
            return
        for (_, result), answer in zip(group, answers, strict=True):
            if not result.done():
                result.set_result(answer)

    def _fail(self, group: list[tuple[Append, asyncio.Future[AppendResult]]], error: Exception) -> None:
        for _, result in group:
            if not result.done():
                result.set_exception(error)
