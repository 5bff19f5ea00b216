"""Waiting until something is so, at what it costs while nobody waits: `asyncio.Event` keeps a queue of 760 bytes."""

from __future__ import annotations

import asyncio


class Signal:
    """As `asyncio.Event`, for the few that each open board keeps. To be used in one event loop."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Let everybody go on who waits, and nobody wait from now on."""
        if not self._is_set:
            self._is_set = True
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Return at once when it is set, else when it will have been. Cancelling it disturbs nobody else."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
