"""How long a request about a board, or a command, waits for a store that fails.

Agents wait for as long as they like, and know why. Who sent a request over HTTP or typed a command does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from crdt_board.errors import BoardError, Unavailable

_Answer = TypeVar("_Answer")


async def patiently(work: Awaitable[_Answer], failure: Callable[[], BoardError | None], seconds: float) -> _Answer:
    """What ``work`` returns. Gives it up when there is no answer within ``seconds`` and ``failure`` says why boards
    cannot be written; what is being written at that moment may be done nevertheless.

    Raises:
        Unavailable: it was given up.
    """
    working = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([working], timeout=seconds))[0]:
            reason = failure()
            if reason is not None:
                raise Unavailable(
                    f"no answer within {seconds:g} s, since the board cannot be written: {reason}. Look whether it was "
                    "done before you ask again"
                )
        return working.result()
    finally:
        if not working.done():
            working.cancel()
            working.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody waits for it
