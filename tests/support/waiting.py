"""Waiting for something to become true, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

DEADLINE_SECONDS = 15.0
_PAUSE_SECONDS = 0.01


async def eventually(look: Callable[[], Any], what: str, *, seconds: float = DEADLINE_SECONDS) -> Any:
    """The first true value of ``look``, which is called, and awaited, again and again; fails after ``seconds``."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        found = look()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        await asyncio.sleep(_PAUSE_SECONDS)
