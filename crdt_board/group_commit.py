"""Group commit: the appends of all boards that are waiting go to the store as one transaction."""

from __future__ import annotations

import asyncio
import logging

from crdt_board.errors import BoardClosed, BoardError, StoreUnavailable
from crdt_board.store.contract import Append, AppendResult, Store

logger = logging.getLogger(__name__)


class GroupCommit:
    """Writes one group at a time.

    Whoever finds nobody writing writes at once; when the last group was of several, together with all who come in the
    same turn of the event loop. While that waits for the disk, the next group gathers, and is written by a task, so
    that nobody is held up by more than one group of others.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Append, asyncio.Future[AppendResult]]] = []
        self._writing = False
        self._has_company = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False

    async def append(self, request: Append) -> AppendResult:
        """Append one board's entries; see `Store.append`. Durable on return.

        A board must not have two appends under way. Cancelling leaves it unknown whether the entries were written.

        Raises:
            StoreUnavailable: nothing is known to have been written.
            BoardClosed: the group commit was closed.
        """
        if self._closed:
            raise BoardClosed("the store of this board was closed")
        result: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, result))
        try:
            if not self._writing:
                if self._has_company:
                    self._begin_group()
                else:
                    await self._write_group()
            return await result
        except asyncio.CancelledError:
            if not result.cancel():
                result.exception()  # nobody asks for it any more
            raise

    async def close(self) -> None:
        """Let the group that is being written finish; refuse the rest. Idempotent."""
        self._closed = True
        _fail(self._waiting, BoardClosed("the store of this board was closed"))
        self._waiting = []
        await self._idle.wait()

    async def _write_group(self) -> None:
        group, self._waiting = self._waiting, []
        self._writing = self._has_begun = True
        self._idle.clear()
        try:
            answers = await self._store.append([request for request, _ in group])
        except BoardError as error:
            _fail(group, error)
        except asyncio.CancelledError:
            _fail(group, StoreUnavailable("the append was given up by another board in its group"))
            raise
        except Exception as error:  # the boundary to a store: a fault of it must not leave others waiting
            logger.exception("the store failed in an unforeseen way")
            _fail(group, error)
        else:
            for (_, result), answer in zip(group, answers, strict=True):
                if not result.done():
                    result.set_result(answer)
        finally:
            self._writing = False
            self._has_company = len(group) > 1 or bool(self._waiting)
            if self._waiting:
                self._begin_group()
            else:
                self._idle.set()

    def _begin_group(self) -> None:
        self._writing = True
        self._idle.clear()
        self._has_begun = False
        self._task = asyncio.create_task(self._write_group(), name="group-commit")
        self._task.add_done_callback(self._begin_again)

    def _begin_again(self, ended: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first turn, as at the end of its loop, has run nothing at all."""
        if ended is self._task and not self._has_begun:
            self._begin_group()


def _fail(group: list[tuple[Append, asyncio.Future[AppendResult]]], error: Exception) -> None:
    for _, result in group:
        if not result.done():
            result.set_exception(error)
