"""Open files: a connection is one, and a process may have so many."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from typing import Any

_OUT_OF_RESOURCES = "socket.accept() out of system resource"
_SECONDS_BETWEEN_WARNINGS = 60.0

logger = logging.getLogger(__name__)


def raise_limit() -> None:
    """Let this process have as many open files as its hard limit allows; many systems begin with 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class AcceptWarnings:
    """An exception handler for an event loop that cannot accept connections: one line a minute.

    asyncio reports that for each connection that it could accept at once, 2,048 times a second; with a traceback for
    each nobody else was served any more [measured]. It tries again after a second by itself.
    """

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != _OUT_OF_RESOURCES:
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + _SECONDS_BETWEEN_WARNINGS
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            logger.warning(
                "new connections wait: %s. This process may have %d open files (ulimit -n); raise that limit",
                context.get("exception"),
                limit,
            )
