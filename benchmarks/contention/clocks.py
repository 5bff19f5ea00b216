"""The time in which agents think: real, or virtual, where only thinking takes time. Knows nothing of boards."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from typing import Protocol


class Clock(Protocol):
    """Runs from `begin`. Nothing new is begun once it `is_over`."""

    seconds: float
    """From `begin` until it is over."""

    @property
    def now(self) -> float:
        """Seconds since `begin`."""
        ...

    @property
    def is_over(self) -> bool: ...

    @property
    def patience(self) -> float | None:
        """How long to wait for a lock or a lease inside of a `turn`; None for as long as it takes."""
        ...

    def begin(self, agents: int) -> None:
        """So many agents run from now on; each calls `leave` when it ends."""
        ...

    def leave(self) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    def turn(self, name: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Wait here, where waiting for a lock or a lease would be waiting for another agent's thinking."""
        ...


class RealClock:
    """The time that passes. Whoever waits for a lock waits at the lock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = 0.0

    @property
    def now(self) -> float:
        return time.perf_counter() - self._began

    @property
    def is_over(self) -> bool:
        return self.now >= self.seconds

    @property
    def patience(self) -> float | None:
        return max(0.0, self.seconds - self.now)

    def begin(self, agents: int) -> None:
        self._began = time.perf_counter()

    def leave(self) -> None:
        pass

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        yield


class VirtualClock:
    """Stands still while any agent works, and jumps to the next end of a thought when all think or wait.

    A turn goes to whoever has waited longest, so that a lease that is taken inside of it is always free.
    """

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.patience: float | None = None
        self._working = 0
        self._numbers = itertools.count()
        self._thoughts: list[tuple[float, int, asyncio.Future[None]]] = []
        self._held: set[str] = set()
        self._waiting: defaultdict[str, deque[asyncio.Future[None]]] = defaultdict(deque)

    @property
    def is_over(self) -> bool:
        return self.now >= self.seconds

    def begin(self, agents: int) -> None:
        self._working = agents

    def leave(self) -> None:
        self._rest()

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._thoughts, (self.now + seconds, next(self._numbers), woken))
        self._rest()
        await woken

    @contextlib.asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        if name in self._held:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[name].append(called)
            self._rest()
            await called
        self._held.add(name)
        try:
            yield
        finally:
            if self._waiting[name]:
                self._wake(self._waiting[name].popleft())
            else:
                self._held.discard(name)

    def _rest(self) -> None:
        self._working -= 1
        if self._working == 0 and self._thoughts:
            self.now, _, woken = heapq.heappop(self._thoughts)
            self._wake(woken)

    def _wake(self, sleeper: asyncio.Future[None]) -> None:
        self._working += 1
        if not sleeper.done():
            sleeper.set_result(None)
