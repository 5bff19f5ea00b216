"""Yjs relative positions: how a patch names places in texts and lists, so that they follow their neighbours.

A position sticks to one item, the client and clock of which it names, and is before or after it. pycrdt makes and
resolves them, with two faults of yrs 0.28 that are worked around here:

* it panics on bytes that are no position, on unknown items and on the very end of a text [measured];
* in a text it takes offsets in UTF-8 bytes for clocks, which count UTF-16 units: wherever a block of text is not ASCII,
  it names another item than it should, or one that does not exist [measured]. There the block is read from the
  document's own encoding, which costs about 3 µs for each block of the client that wrote it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, NamedTuple

import pycrdt

from crdt_board.errors import MalformedUpdate
from crdt_board.reader import Reader
from crdt_board.text_blocks import all_text_blocks, is_item, text_blocks
from crdt_board.updates import decode_state_vector, encode_state_vector
from crdt_board.varint import write_varuint
from crdt_board.wire_values import invalid_value

Root = pycrdt.Text | pycrdt.Array[Any]

_AT_ITEM = b"\x00"
_AFTER, _BEFORE = b"\x00", b"A"  # lib0's varint of 0 and -1: on which side of the position the item is


class TextBlock(NamedTuple):
    """Characters that one client inserted, adjacent in their text, with consecutive clocks (UTF-16 units)."""

    client: int
    clock: int
    content: str


class _Position(NamedTuple):
    client: int
    clock: int
    before: bool
    """The item is before the position, which therefore stays behind it."""

    def encode(self) -> bytes:
        return _AT_ITEM + write_varuint(self.client) + write_varuint(self.clock) + (_BEFORE if self.before else _AFTER)


def position_behind(root: Root, index: int) -> str:
    """A position that stays behind the item before ``index``; ``0 < index <= length``, in pycrdt's units."""
    last = index - 1
    width = 1
    if isinstance(root, pycrdt.Text):
        character = _character_before(str(root).encode(), index)
        last = index - len(character.encode())
        width = _units(character)
    item = _item_at(root, last)
    return _to_text(_Position(item.client, item.clock + width - 1, before=True))


def position_in_front(root: Root, index: int) -> str:
    """A position that stays in front of the item at ``index``; ``0 <= index < length``, in pycrdt's units."""
    return _to_text(_item_at(root, index))


def position_behind_newest(root: Root, units: int = 0) -> str:
    """A position that stays behind the character, or item, that this replica inserted last, wherever that is.

    ``units`` counts back from it, in clocks. Costs a look at the state vector, and none at the text.
    """
    client = root.doc.client_id
    clock = decode_state_vector(root.doc.get_state())[client] - 1 - units
    return _to_text(_Position(client, clock, before=True))


def check_position(root: Root, text: str, path: str) -> None:
    """Return when ``text`` is a position at an item that this document has.

    Raises:
        InvalidValue: it is not.
    """
    position = _parse(text, path)
    if position.clock >= decode_state_vector(root.doc.get_state()).get(position.client, 0):
        raise invalid_value(path, "a position in the patch is at an item that the board does not have")


def index_of(root: Root, text: str, path: str) -> int:
    """Where a position that `check_position` accepted is now, in pycrdt's units; 0 <= index <= length.

    Raises:
        InvalidValue: it is at an item of another field.
    """
    index = _found_index(root, text, path)
    if not isinstance(root, pycrdt.Text):
        return min(index, len(root))
    encoded = str(root).encode()
    if index > len(encoded) or (index < len(encoded) and encoded[index] & 0xC0 == 0x80):
        raise invalid_value(path, "a position in the patch is at an item of another field")
    return index


def nearest_index(root: pycrdt.Text, text: str, path: str) -> int:
    """As `index_of`, but always at the start of a character.

    yrs follows an item that an undo in this document brought back to the new one, where the offsets within it are not
    known. There the index is near the character that the position was at.
    """
    encoded = str(root).encode()
    index = min(_found_index(root, text, path), len(encoded))
    while 0 < index < len(encoded) and encoded[index] & 0xC0 == 0x80:
        index -= 1
    return index


def is_stored(root: Root, text: str) -> bool:
    """Whether the document still stores the item of a position that `check_position` accepted.

    It does not when the record that held the item was deleted, and yrs would panic. Reads everything that the client
    who made the item wrote.
    """
    position = _parse(text, "")
    state = decode_state_vector(root.doc.get_state())
    state[position.client] = position.clock
    return is_item(root.doc.get_update(encode_state_vector(state)), position.client, position.clock)


def blocks_in_order(root: pycrdt.Text) -> Iterator[TextBlock]:
    """The text as the blocks that it is stored in, in order. Costs a look at the whole document, and one for each."""
    contents = all_text_blocks(root.doc.get_update())
    index, length = 0, len(str(root).encode())
    while index < length:
        # At the start of a block the offset within it is 0, in whatever unit.
        item = _parse(base64.b64encode(pycrdt.StickyIndex.new(root, index, pycrdt.Assoc.AFTER).encode()).decode(), "")
        content = contents[item.client, item.clock]
        yield TextBlock(item.client, item.clock, content)
        index += len(content.encode())


def _found_index(root: Root, text: str, path: str) -> int:
    position = _parse(text, path)
    if not isinstance(root, pycrdt.Text) or str(root).isascii():
        return _index(root, position)
    return _text_index(root, position)


def _to_text(position: _Position) -> str:
    return base64.b64encode(position.encode()).decode()


def _parse(text: str, path: str) -> _Position:
    try:
        reader = Reader(base64.b64decode(text, validate=True))
        kind, client, clock, side = reader.varuint(), reader.varuint(), reader.varuint(), reader.byte()
        reader.finish()
    except (binascii.Error, ValueError, MalformedUpdate) as error:
        raise invalid_value(path, "a position in the patch cannot be read") from error
    if kind != 0 or side not in (_AFTER[0], _BEFORE[0]):
        raise invalid_value(path, "a position in the patch is not at an item")
    return _Position(client, clock, side == _BEFORE[0])


def _index(root: Root, position: _Position) -> int:
    return pycrdt.StickyIndex.decode(position.encode(), root).get_index()


def _item_at(root: Root, index: int) -> _Position:
    """The item at ``index``, as the position in front of it."""
    named = _parse(base64.b64encode(pycrdt.StickyIndex.new(root, index, pycrdt.Assoc.AFTER).encode()).decode(), "")
    if not isinstance(root, pycrdt.Text) or str(root).isascii():
        return named
    for start, content in _blocks(root, named.client):
        # yrs named the start of the block plus the offset in bytes; the block is right if it begins that far back.
        offset = named.clock - start
        encoded = content.encode()
        if not 0 <= offset < len(encoded) or not _is_live(root, named.client, start):
            continue
        if _index(root, _Position(named.client, start, before=False)) == index - offset:
            return _Position(named.client, start + _units(encoded[:offset].decode()), before=False)
    raise AssertionError("a live item is in no block of its client")


def _text_index(root: pycrdt.Text, position: _Position) -> int:
    for start, content in _blocks(root, position.client):
        units = position.clock - start
        if 0 <= units < _units(content):
            first = _index(root, _Position(position.client, start, before=False))
            if not _is_live(root, position.client, start):
                return first
            utf16 = content.encode("utf-16-le")
            end = units + 1 if position.before else units
            return first + len(utf16[: 2 * end].decode("utf-16-le", errors="ignore").encode())
    return _index(root, position._replace(before=False))  # its text is deleted and no longer stored


def _is_live(root: Root, client: int, clock: int) -> bool:
    """Whether the item is still there: only then the places on both sides of it differ."""
    return _index(root, _Position(client, clock, before=True)) != _index(root, _Position(client, clock, before=False))


def _blocks(root: Root, client: int) -> list[tuple[int, str]]:
    """The stretches of text that ``client`` wrote, as the document stores them: first clock and content."""
    state = decode_state_vector(root.doc.get_state())
    state.pop(client, None)
    return text_blocks(root.doc.get_update(encode_state_vector(state)), client)


def _character_before(encoded: bytes, index: int) -> str:
    start = index - 1
    while encoded[start] & 0xC0 == 0x80:
        start -= 1
    return encoded[start:index].decode()


def _units(text: str) -> int:
    """Clocks that a text takes: UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
