"""What of a received update the writer of a board gives to yrs: what yrs takes now as it does when the board is loaded.

yrs takes the structs of an update as they are said to be. Two things that no client says make what it holds depend on
what else was in the same transaction, and memory that is used after it was freed [measured]:

1. A struct that begins inside what is known, and says of its beginning otherwise than what is known: the rest of it
   ends up beside the one and inside the other. So what is known is cut off, and the rest follows what is there.
2. Something inside a struct that is not a shared type: refused, but taken once that was deleted and collected. So it is
   refused always; and what is inside something that is gone, of which nobody knows what it was, is replaced by as many
   clocks of collected content, which is what yrs makes of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pycrdt

from crdt_board.errors import MalformedUpdate
from crdt_board.misplaced import read_structs
from crdt_board.reader import Reader
from crdt_board.readiness import Extent
from crdt_board.update_walk import GC, KIND, SKIP, read_content, read_place, walk
from crdt_board.updates import decode_state_vector, encode_state_vector
from crdt_board.varint import write_varuint

_DELETED, _TYPE = 1, 7
_DEPTH_MAX = 1_000  # what is looked at here has passed the gate
_TYPES_REMEMBERED = 100_000

_Id = tuple[int, int]


class Intake:
    """The door of one document. Invariant: what it remembers as shared types was inserted as such."""

    def __init__(self, doc: pycrdt.Doc[Any]) -> None:
        self._doc = doc
        self._types: set[_Id] = set()

    def is_sound(self, extent: Extent, known: Mapping[int, int]) -> bool:
        """Whether an update, which is ready, can be given to yrs as it is: it begins where ``known`` ends, and what it
        puts something inside is made by it or remembered."""
        ends, needs, parents, _ = extent
        assert needs is not None
        for client, end in ends.items():
            if needs[client] < known.get(client, 0) < end:
                return False
        return not parents or not self._unknown(extent, known)

    def remember(self, extent: Extent, known: Mapping[int, int]) -> None:
        """The types that an update makes which is applied as it is, to a document that has reached these clocks."""
        if len(self._types) > _TYPES_REMEMBERED:
            self._types.clear()
        self._types.update(_new_types(extent, known))

    def sound(self, update: bytes, known: Mapping[int, int]) -> bytes:
        """``update``, which is ready, without what is known already and with nothing inside what is no shared type.

        Costs some 10 µs a struct, and for a parent that is not remembered what its client wrote since, encoded.

        Raises:
            MalformedUpdate: it puts something inside what is no shared type; it is not to be applied.
        """
        begins = {client: known.get(client, 0) for client in walk(update, _DEPTH_MAX).ends}
        news = pycrdt.get_update(update, encode_state_vector(begins))
        extent = walk(news, _DEPTH_MAX)
        unknown = self._unknown(extent, known)
        return _with_dead(news, self._dead(unknown, news, known)) if unknown else news

    def _unknown(self, extent: Extent, known: Mapping[int, int]) -> set[_Id]:
        """The parents that an update names which are neither made by it nor remembered."""
        unknown = {parent for parent in extent.parents if parent not in self._types}
        return unknown - _new_types(extent, known) if unknown else unknown

    def _dead(self, parents: Collection[_Id], news: bytes, known: Mapping[int, int]) -> set[_Id]:
        """Those that are gone; the others are remembered."""
        made, dead = read_structs(news), set[_Id]()
        for client, clock in parents:
            found = made.find((client, clock)) if clock >= known.get(client, 0) else None
            kind = self._kind_of(client, clock) if found is None else found[1].kind
            if kind == _TYPE:
                self._types.add((client, clock))
            elif kind in (GC, _DELETED):
                dead.add((client, clock))
            else:
                raise MalformedUpdate("something inside what is no shared type")
        return dead

    def _kind_of(self, client: int, clock: int) -> int:
        """Of what the document holds there, inside a transaction or outside."""
        state = {**decode_state_vector(self._doc.get_state()), client: clock}
        reader = Reader(self._doc.get_update(encode_state_vector(state)))
        for _ in range(4):  # one client, its structs, its id, where they begin
            reader.varuint()
        info = reader.byte()
        return info if info in (GC, SKIP) else info & KIND


def _new_types(extent: Extent, known: Mapping[int, int]) -> set[_Id]:
    return {made for made in extent.types if made[1] >= known.get(made[0], 0)}


def _with_dead(update: bytes, dead: Collection[_Id]) -> bytes:
    """``update`` with collected content in place of the structs inside ``dead``."""
    if not dead:
        return update
    reader, parts, done = Reader(update), list[bytes](), 0
    for _ in range(reader.varuint()):
        structs = reader.varuint()
        for _ in range(2):  # the client, where its structs begin
            reader.varuint()
        for _ in range(structs):
            start, info = reader.position, reader.byte()
            if info in (GC, SKIP):
                reader.varuint()
                continue
            place = read_place(reader, info)
            length = read_content(reader, info & KIND, _DEPTH_MAX)
            if place is not None and place[1] and place[0] in dead:
                parts += update[done:start], bytes([GC]), write_varuint(length)
                done = reader.position
    return b"".join([*parts, update[done:]])
