"""Updates that no client writes: structs cut in other ways, overlaps, gaps, references across clients, deletes ahead.

All of it follows from a seed. What is forged decodes; nothing else is right about it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise

from crdt_board.varint import write_varuint

CLIENTS = (1, 2, 3, 2**31 + 7, 2**32 + 5, 2**53 - 1)
ROOTS = ("state", "draft", "plan", "tags", "findings", "tasks", "$board", "new")
KEYS = ("title", "f", "g", "notes", "plan", "steps", "what", "scores")

_HAS_ORIGIN, _HAS_RIGHT_ORIGIN, _HAS_KEY = 0x80, 0x40, 0x20
_AHEAD = 4
_TYPE = 7
_OF_TEXTS = (4, 5, 6)


def _string(text: str) -> bytes:
    return write_varuint(len(text.encode())) + text.encode()


def _id(client: int, clock: int) -> bytes:
    return write_varuint(client) + write_varuint(clock)


class Forger:
    """Forges updates against a board that has reached some clocks."""

    def __init__(self, source: random.Random, *, gaps: float = 0.1, deletions: float = 0.4) -> None:
        self.source = source
        self.gaps = gaps
        """How often something refers to what is not there."""
        self.deletions = deletions
        """How many of the updates delete something."""
        self._types: list[bytes] = []

    def update(self, known: Mapping[int, int]) -> bytes:
        """One update. Often it continues what is known, often it overlaps."""
        source = self.source
        clients = source.sample(CLIENTS, source.choice((0, 1, 1, 1, 2, 3)))
        begins = {client: self._begin(known.get(client, 0)) for client in clients}
        reach = {**known, **{client: begin + 3 for client, begin in begins.items()}}
        sections = [self._section(client, begins[client], reach) for client in clients]
        return write_varuint(len(sections)) + b"".join(sections) + self._deletions(reach)

    def _begin(self, known: int) -> int:
        source = self.source
        if source.random() < self.gaps:
            return known + source.randint(1, _AHEAD)
        return known if source.random() < 0.5 else source.randint(max(0, known - 12), known)

    def _section(self, client: int, begin: int, reach: Mapping[int, int]) -> bytes:
        structs: list[bytes] = []
        clock = begin
        for _ in range(self.source.randint(1, 4)):
            length, struct = self._struct({**reach, client: clock})
            if struct[0] & 0x1F == _TYPE:
                self._types.append(_id(client, clock))
            structs.append(struct)
            clock += length
        return write_varuint(len(structs)) + _id(client, begin) + b"".join(structs)

    def _struct(self, reach: Mapping[int, int]) -> tuple[int, bytes]:
        source = self.source
        if source.random() < 0.08:
            length = source.randint(1, 4)
            return length, bytes([0 if source.random() < 0.8 else 10]) + write_varuint(length)
        kind, length, content = self._content()
        info, place = self._place(reach)
        if kind in _OF_TEXTS:
            while info & _HAS_KEY and source.random() < 0.95:
                info, place = self._place(reach)
        return length, bytes([kind | info]) + place + content

    def _place(self, reach: Mapping[int, int]) -> tuple[int, bytes]:
        source = self.source
        shape = source.random()
        reach = {client: clock for client, clock in reach.items() if clock}
        if reach and shape < 0.55:
            info = source.choice((_HAS_ORIGIN, _HAS_RIGHT_ORIGIN, _HAS_ORIGIN | _HAS_RIGHT_ORIGIN))
            ids = [self._known_id(reach) for bit in (_HAS_ORIGIN, _HAS_RIGHT_ORIGIN) if info & bit]
            return info | source.choice((0, _HAS_KEY)), b"".join(ids)
        if reach and shape < 0.75:
            of_type = self._types and source.random() < 0.97
            parent = b"\x00" + (source.choice(self._types) if of_type else self._known_id(reach))
        else:
            parent = b"\x01" + _string(source.choice(ROOTS))
        return (_HAS_KEY, parent + _string(source.choice(KEYS))) if source.random() < 0.5 else (0, parent)

    def _known_id(self, reach: Mapping[int, int]) -> bytes:
        source = self.source
        client = source.choice(list(reach))
        end = reach[client] + (_AHEAD if source.random() < self.gaps else 0)
        return _id(client, source.randint(max(0, end - 15), max(0, end - 1)))

    def _content(self) -> tuple[int, int, bytes]:
        """Its kind, its length in clocks, and its bytes."""
        source = self.source
        length = source.randint(1, 5)
        match source.randrange(9):
            case 0:
                return 1, length, write_varuint(length)
            case 1 | 2 | 3:
                text = "".join(source.choice("abcé") for _ in range(length))
                return 4, length, _string(text)
            case 4 | 5:
                values = b"".join(
                    source.choice((b"\x7e", b"\x7d\x05", b"\x77\x01x", b"\x75\x01\x78")) for _ in range(length)
                )
                return 8, length, write_varuint(length) + values
            case 6:
                return 3, 1, _string("raw")
            case 7:
                return (6, 1, _string("bold") + _string("true")) if source.random() < 0.5 else (5, 1, _string("{}"))
            case _:
                kind = source.choice((0, 1, 1, 2, 2, 4, 6))
                return 7, 1, bytes([kind])

    def _deletions(self, reach: Mapping[int, int]) -> bytes:
        source = self.source
        if not reach or source.random() >= self.deletions:
            return b"\x00"
        clients = source.sample(list(reach), min(len(reach), source.randint(1, 2)))
        parts = [write_varuint(len(clients))]
        for client in clients:
            count = source.randint(1, 3)
            parts += [write_varuint(client), write_varuint(count)]
            for _ in range(count):
                end = reach[client] + (_AHEAD if source.random() < self.gaps else 0)
                start = source.randint(max(0, end - 12), max(0, end - 1))
                parts.append(
                    _id(start, source.randint(1, 5) if source.random() < self.gaps else min(5, max(1, end - start)))
                )
        return b"".join(parts)


def slices(source: random.Random, client: int, *, length: int = 40) -> list[bytes]:
    """One client's text in overlapping pieces, cut at random and in any order: most wait for others."""
    made: list[bytes] = []
    for _ in range(source.randint(6, 20)):
        begin = source.randrange(length)
        cuts = sorted({begin, *source.choices(range(begin + 1, begin + 12), k=source.randint(1, 3))})
        structs = [_slice(client, start, stop) for start, stop in pairwise(cuts)]
        made.append(b"\x01" + write_varuint(len(structs)) + _id(client, begin) + b"".join(structs) + b"\x00")
    return made


def _slice(client: int, start: int, stop: int) -> bytes:
    place = b"\x04\x01" + _string("draft") if start == 0 else b"\x84" + _id(client, start - 1)
    return place + _string("".join(chr(ord("a") + clock % 26) for clock in range(start, stop)))
