"""Processes that die between any two turns of their event loop, all inside the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from crdt_board.testing.faults import FaultyStore

T = TypeVar("T")


class Died(Exception):
    """The process was killed before its work was done."""


class MortalLoop(asyncio.SelectorEventLoop):
    """Runs ``turns_left`` callbacks, which is every stretch of code between two awaits, and nothing after them.

    What it leaves are suspended coroutines that never go on: no ``finally`` and no ``except`` of them runs, as after
    ``kill -9``.
    """

    def __init__(self, turns_left: int) -> None:
        super().__init__()
        self.turns_left = turns_left

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        return super().call_soon(self._turn, callback, args, context=context)

    def die(self) -> None:
        self.stop()

    def _turn(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.turns_left <= 0:
            self.die()
            return
        self.turns_left -= 1
        callback(*args)


class Cemetery:
    """Keeps what dead processes left until the test has looked, so that the garbage collector does not wake it."""

    def __init__(self) -> None:
        self._left: list[tuple[MortalLoop, list[asyncio.Task[Any]]]] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], turns: int) -> tuple[T, int]:
        """What ``work`` gives, and how many turns it took. Raises Died when these are more than ``turns``."""
        loop = MortalLoop(turns)
        asyncio.set_event_loop(loop)
        try:
            task = loop.create_task(work())
            task.add_done_callback(lambda _task: loop.stop())
            loop.run_forever()
            if loop.turns_left <= 0:
                self._left.append((loop, list(asyncio.all_tasks(loop))))
                raise Died
            assert not asyncio.all_tasks(loop), "everything that was started has ended"
            loop.close()
            return task.result(), turns - loop.turns_left
        finally:
            asyncio.set_event_loop(None)

    def clear(self) -> None:
        """Let go of what is left; it is woken for that by GeneratorExit, whatever it says then means nothing."""
        logging.disable()
        hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
        try:
            self._bury()
        finally:
            sys.unraisablehook = hook
            logging.disable(logging.NOTSET)

    def _bury(self) -> None:
        for loop, tasks in self._left:
            loop.set_exception_handler(lambda _loop, _context: None)
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError):  # it awaits in a ``finally``, on a loop that is no more
                    task.get_coro().close()  # type: ignore[union-attr]
            loop.close()
        self._left.clear()
        gc.collect()


class PausingStore(FaultyStore):
    """A store in memory that waits before and after each call, as one on a disk does: so a process can die there."""

    async def _through(self, method: str, inner: Callable[[], Awaitable[T]]) -> T:
        await asyncio.sleep(0)
        result = await super()._through(method, inner)
        await asyncio.sleep(0)
        return result
