"""Who wrote each stretch of a text: from the items of the document and from the entries that brought them. Pure.

Every character of a Yjs text is an item with the id of the replica that inserted it and a clock. An entry of the
journal brings stretches of clocks; so the entry, and with it the agent, of every character that is there is known,
whoever deleted or inserted what around it since.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
            for client, end in walk(update, _DEPTH_MAX).ends.items():
                ends = self._ends.setdefault(client, [0])
                if end > ends[-1] and end > starts.get(client, 0):
                    ends.append(end)
                    self._origins.setdefault(client, []).append(origin)

    def encode(self) -> bytes:
        """All of it in few bytes, for when the entries are gone: columns of small numbers, as compressed JSON."""
        known = sorted({origin for origins in self._origins.values() for origin in origins}, key=lambda each: each.seq)
        authors = {author: index for index, author in enumerate(dict.fromkeys(each.author for each in known))}
        places = {origin: index for index, origin in enumerate(known)}
        content = {
            "authors": list(authors),
            "seqs": _steps(each.seq for each in known),
            "by": [authors[each.author] for each in known],
            "times": _steps(each.time_ms for each in known),
            "clients": [
                [client, _steps(self._ends[client][1:]), _steps(places[each] for each in origins)]
                for client, origins in self._origins.items()
            ],
        }
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)

    @classmethod
    def decode(cls, data: bytes) -> Origins:
        """The inverse of `encode`.

        Raises:
            ValueError, KeyError, TypeError, IndexError, zlib.error: ``data`` was not made by `encode`.
        """
        content = json.loads(zlib.decompress(data))
        authors = content["authors"]
        known = [
            Origin(seq, authors[author], time_ms)
            for seq, author, time_ms in zip(
                accumulate(content["seqs"]), content["by"], accumulate(content["times"]), strict=True
            )
        ]
        origins = cls()
        for client, ends, places in content["clients"]:
            origins._ends[client] = [0, *accumulate(ends)]
            origins._origins[client] = [known[place] for place in accumulate(places)]
        return origins

    def of(self, client: int, clock: int) -> tuple[Origin, int]:
        """What brought this clock, and the clock up to which that holds."""
        ends = self._ends[client]
        index = bisect_right(ends, clock)
        return self._origins[client][index - 1], ends[index]


def _steps(numbers: Iterable[int]) -> Sequence[int]:
    """Each number as the step from the one before it."""
    last = 0
    steps: list[int] = []
    for number in numbers:
        steps.append(number - last)
        last = number
    return steps


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
