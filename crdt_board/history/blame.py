"""Who wrote each stretch of a text: from the items of the document and from the entries that brought them. Pure.

Every character of a Yjs text is an item with the id of the replica that inserted it and a clock. An entry of the
journal brings stretches of clocks; so the entry, and with it the agent, of every character that is there is known,
whoever deleted or inserted what around it since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from crdt_board.positions import TextBlock
from crdt_board.update_walk import first_clocks, walk

_DEPTH_MAX = 1_000  # the journal holds it already, so that nothing is refused here


class Stretch(BaseModel):
    """Adjacent characters, ``start <= position < stop`` in code points, that one entry of the journal brought.

    ``agent`` wrote them, at ``time_ms`` (milliseconds since 1970-01-01 UTC, by the writer's clock). ``version`` is the
    first checkpoint that holds them and ``step`` its name; both None when no commit has been made since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: int
    stop: int
    text: str
    agent: str
    seq: int
    time_ms: int
    version: int | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What of an entry `blame` tells."""

    seq: int
    author: str
    time_ms: int


class Origins:
    """Which entry brought which clock of which client."""

    def __init__(self) -> None:
        self._ends: dict[int, list[int]] = {}
        self._origins: dict[int, list[Origin]] = {}

    def add(self, updates: Iterable[bytes], origin: Origin) -> None:
        """Note what these updates of the next entry bring that none before has brought.

        Raises:
            MalformedUpdate: the bytes are not updates.
        """
        for update in updates:
            starts = first_clocks(update)
            for client, end in walk(update, _DEPTH_MAX).items():
                ends = self._ends.setdefault(client, [0])
                if end > ends[-1] and end > starts.get(client, 0):
                    ends.append(end)
                    self._origins.setdefault(client, []).append(origin)

    def of(self, client: int, clock: int) -> tuple[Origin, int]:
        """What brought this clock, and the clock up to which that holds."""
        ends = self._ends[client]
        index = bisect_right(ends, clock)
        return self._origins[client][index - 1], ends[index]


def attribute(blocks: Iterable[TextBlock], origins: Origins) -> Iterator[tuple[str, Origin]]:
    """The text of ``blocks``, which are in the order of the text, in pieces with the entry that brought each."""
    pending, whose = "", None
    for block in blocks:
        for piece, origin in _pieces(block, origins):
            if whose is not None and origin.seq != whose.seq:
                yield pending, whose
                pending = ""
            pending, whose = pending + piece, origin
    if whose is not None:
        yield pending, whose


def _pieces(block: TextBlock, origins: Origins) -> Iterator[tuple[str, Origin]]:
    encoded = block.content.encode("utf-16-le")
    clock, end = block.clock, block.clock + len(encoded) // 2
    while clock < end:
        origin, until = origins.of(block.client, clock)
        stop = min(until, end)
        piece = encoded[2 * (clock - block.clock) : 2 * (stop - block.clock)]
        yield piece.decode("utf-16-le"), origin
        clock = stop
