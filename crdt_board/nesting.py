"""How deep the shared types of one document are nested, over all its updates.

The gate bounds the nesting within one update. Updates that each nest a little more would pass it, and deleting or
reading a chain of some ten thousand types overflows yrs' stack and ends the process; one of a thousand cannot be read
in Python. So nested types are counted, and when there are enough of them for a long chain the document is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from crdt_board.document import Document
from crdt_board.errors import MalformedUpdate
from crdt_board.misplaced import Structs, read_structs
from crdt_board.update_walk import GC, KIND, SKIP, struct_bytes

_TYPE_KIND = 7
_TYPE_BYTE = re.compile(rb"[\x07\x27\x47\x67\x87\xa7\xc7\xe7]")
_LOOK_AFTER = 500

_Id = tuple[int, int]


class Nesting:
    """Watches the document of a board's writer.

    Invariant: no chain of types is longer than the limit by more than `_LOOK_AFTER`, and what waits for others.
    """

    def __init__(self) -> None:
        self._perhaps = _LOOK_AFTER  # no chain can be longer; of what was loaded nothing is known

    def check(self, document: Document, updates: Sequence[bytes], depth_max: int) -> None:
        """After ``updates`` were applied. Costs 3 µs for each struct of the document, once in 500 types made.

        Raises:
            MalformedUpdate: they hold a type that is nested deeper than ``depth_max``.
        """
        made = sum(map(_types_in, updates))
        if not made:
            return
        self._perhaps += made
        if self._perhaps < _LOOK_AFTER:
            return
        depths = _depths(read_structs(document.encode()))
        if any(depths.get(each, 0) > depth_max for update in updates for each in _types(read_structs(update))):
            raise MalformedUpdate(f"shared types are nested deeper than {depth_max}")
        self._perhaps = max(depths.values(), default=0)


def _types_in(update: bytes) -> int:
    if not _TYPE_BYTE.search(update):
        return 0
    return sum(info & KIND == _TYPE_KIND and info not in (GC, SKIP) for info in struct_bytes(update))


def _types(structs: Structs) -> list[_Id]:
    return [
        (client, struct.clock)
        for client, section in structs.by_client.items()
        for struct in section
        if struct.kind == _TYPE_KIND
    ]


def _depths(structs: Structs) -> dict[_Id, int]:
    """For each type how many there are from its root down to it."""
    depths: dict[_Id, int] = {}
    for start in _types(structs):
        way: list[_Id] = []
        node: _Id | None = start
        while node is not None and node not in depths:
            depths[node] = 0  # ends a circle
            way.append(node)
            holder = structs.holder(node)
            node = holder if isinstance(holder, tuple) else None
        depth = depths[node] if node is not None else 0
        for step in reversed(way):
            depth += 1
            depths[step] = depth
    return depths
