"""Opening a record as one and the same operation on every replica, so that edits of all who open it at once live.

A value under a key of a Yjs map is one item, and of two items for one key one wins. Two replicas that each make a map
under a new key therefore lose the work of one of them [measured]. Here both make the *same* item instead: its client id
is a hash of what is made and of where it goes, and its content is nothing but empty containers. Who receives it a
second time knows it already.

Where an item goes is a part of Yjs' operation: behind the item that was last under its key, also when that one is
deleted. A replica that knows of no such item writes the operation without looking. Everywhere else it is read from a
copy of the document, which costs about 1 ms for each MB.

Pure: from the bytes of a document to the bytes of an update.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pycrdt

from crdt_board.canonical import canonical_json
from crdt_board.layout import FieldKind, FieldLayout
from crdt_board.reader import Reader
from crdt_board.update_walk import read_place
from crdt_board.varint import write_varuint

_ARRAY, _MAP, _TEXT = 0, 1, 2
_TYPES: dict[FieldKind, int] = {"text": _TEXT, "list": _ARRAY}
_SHARED_TYPE = 7
_HAS_ORIGIN, _HAS_KEY = 0x80, 0x20
_ID_BITS = 52

Neighbourhood = tuple[tuple[int, int], int] | None
"""Where an item goes: behind another (its id, 0), as the first in another (its id, 1), or in a root (None)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is made: a shared type, and the empty ones in it under their keys, in alphabetical order."""

    type: int
    inside: tuple[tuple[str, int], ...] = ()


def container_shape(kind: FieldKind) -> Shape:
    """The shape of an empty container."""
    return Shape(_TYPES.get(kind, _MAP))


def record_shape(fields: Iterable[FieldLayout]) -> Shape:
    """The shape of a record in which nothing was written yet."""
    inside = ((field.name, _TYPES.get(field.kind, _MAP)) for field in fields if field.kind != "scalar")
    return Shape(_MAP, tuple(sorted(inside)))


def creation_update(parts: Sequence[str], shape: Shape, place: Neighbourhood = None) -> bytes:
    """The update that makes ``shape`` under the path ``parts``, equal wherever it is made.

    ``place`` is what `place_of_new` found; None says that the path is a key of a root map, and the first of its name.
    """
    client = creation_id(parts, shape, place)
    here = write_varuint(client) + b"\x00"
    root = b"\x01" + _string(parts[0]) + _string(parts[-1])
    if place is None:
        first = bytes([_SHARED_TYPE | _HAS_KEY]) + root
    elif place[1]:
        first = bytes([_SHARED_TYPE | _HAS_KEY]) + b"\x00" + _id(place[0]) + _string(parts[-1])
    else:
        first = bytes([_SHARED_TYPE | _HAS_KEY | _HAS_ORIGIN]) + _id(place[0])
    below = bytes([_SHARED_TYPE | _HAS_KEY]) + b"\x00" + here
    structs = [first + bytes([shape.type]), *(below + _string(name) + bytes([kind]) for name, kind in shape.inside)]
    return b"\x01" + write_varuint(len(structs)) + here + b"".join(structs) + b"\x00"


def creation_end(update: bytes) -> tuple[int, int]:
    """The client id of what `creation_update` made, and the clock at which it ends."""
    reader = Reader(update)
    reader.varuint()
    structs = reader.varuint()
    return reader.varuint(), structs


def creation_id(parts: Sequence[str], shape: Shape, place: Neighbourhood) -> int:
    """The client id of a creation: 53 bits with the highest set.

    It depends on all that the update holds, since one id may never stand for two contents: on the path, on the shape
    (two versions of a model differ in it) and on the place.
    """
    content = canonical_json([list(parts), shape.type, list(shape.inside), place])
    digest = hashlib.sha256(content).digest()
    return int.from_bytes(digest[:8]) >> (64 - _ID_BITS) | 1 << _ID_BITS


def place_of_new(document: bytes, parts: Sequence[str]) -> Neighbourhood:
    """Where a new item under the path ``parts`` goes in a document, given as one update.

    Equal on all replicas that have seen the same items under the key.

    Raises:
        KeyError: what holds the last of ``parts`` is not in the document.
    """
    copy: pycrdt.Doc[Any] = pycrdt.Doc()
    holder = copy.get(parts[0], type=pycrdt.Map)
    copy.apply_update(document)
    for part in parts[1:-1]:
        holder = cast("pycrdt.Map[Any]", holder[part])
    made: list[bytes] = []
    subscription = copy.observe(lambda event: made.append(event.update))
    holder[parts[-1]] = True
    copy.unobserve(subscription)
    reader = Reader(made[0])
    for _ in range(4):  # clients, structs, client, clock
        reader.varuint()
    return read_place(reader, reader.byte())


def _string(text: str) -> bytes:
    encoded = text.encode()
    return write_varuint(len(encoded)) + encoded


def _id(item: tuple[int, int]) -> bytes:
    return write_varuint(item[0]) + write_varuint(item[1])
