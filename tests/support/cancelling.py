"""Cancelling a coroutine at any place where it waits."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any


async def is_cancelled_at(place: int, coroutine: Coroutine[Any, Any, object]) -> bool:
    """Run a coroutine, and cancel it when it waits for the ``place``-th time; False when it ends before that.

    Asserts that it does not go on after it was cancelled.
    """
    driven = _Driven(place, coroutine)
    task = asyncio.create_task(driven.run())
    await asyncio.wait([task])
    assert task.cancelled() == driven.reached, task
    if not driven.reached:
        task.result()
    return driven.reached


class _Driven:
    def __init__(self, place: int, coroutine: Coroutine[Any, Any, object]) -> None:
        self.reached = False
        self._place = place
        self._coroutine = coroutine

    async def run(self) -> None:
        await self._steps()

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, None]:
        steps, waited, error = self._coroutine.__await__(), 0, None
        while True:
            try:
                future = steps.send(None) if error is None else steps.throw(error)  # type: ignore[attr-defined]
            except StopIteration:
                return
            waited += 1
            error = None
            if waited == self._place:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield future
            except BaseException as raised:  # noqa: BLE001 - it goes on into the coroutine
                error = raised
