"""Writes that the writer of a board refused and took back, as whoever made them is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from crdt_board.errors import WriteRejected

_KEPT_MAX = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rejection:
    """One value that was refused and taken back: where, which rule it broke, why, and who wrote it.

    ``rule`` is a keyword of JSON Schema (``maximum``, ``type``, ``additionalProperties`` …); or ``read_only`` for what
    only the writer of the board changes, ``limit`` for a bound of the board, ``bounds``, ``order``, ``key``, ``cell``.
    """

    path: str
    rule: str
    message: str
    agent: str


OnRejected = Callable[[Rejection], None]


class Rejections:
    """What was refused of one replica: handed to its owner's callback, or kept until it is raised."""

    def __init__(self, on_rejected: OnRejected | None = None) -> None:
        self._on_rejected = on_rejected
        self._kept: list[Rejection] = []
        self._left_out = 0

    def take_in(self, rejections: Sequence[Rejection]) -> None:
        for each in rejections:
            if self._on_rejected is None:
                if len(self._kept) < _KEPT_MAX:
                    self._kept.append(each)
                else:
                    self._left_out += 1
                continue
            try:
                self._on_rejected(each)
            except Exception:  # the boundary to the caller's own function: the replica goes on
                logger.exception("on_rejected failed for %s", each)

    def check(self, consequence: str = "", **data: Any) -> None:
        """Raise once what was refused since the last call.

        Raises:
            WriteRejected: something was; ``consequence`` ends its message.
        """
        kept, left_out = self._kept, self._left_out
        if not kept:
            return
        self._kept, self._left_out = [], 0
        first, more = kept[0], len(kept) - 1 + left_out
        others = f" (and {more} more)" if more else ""
        raise WriteRejected(
            f"{first.path}: {first.message}{others}; the board's writer took it back, everything else is durable"
            + consequence,
            path=first.path,
            rule=first.rule,
            reason=first.message,
            agent=first.agent,
            rejected=[{"path": each.path, "rule": each.rule, "message": each.message} for each in kept],
            **data,
        )
