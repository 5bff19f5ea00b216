"""A quick look at updates of the shapes that agents and editors send all day: few structs, of the common kinds.

It answers what `crdt_board.update_walk` answers for the same bytes, at a fraction of the cost, or None: then the walk
must be made. It never takes what the walk refuses. The patterns repeat nothing without a small bound and never read
anything twice (no two alternatives begin with the same byte), so that hostile bytes end them as quickly as others.
"""

from __future__ import annotations

import re
from functools import lru_cache

from crdt_board.errors import MalformedUpdate
from crdt_board.reader import Reader
from crdt_board.update_walk import skip_value

_CLOCK_END = 1 << 31
_CLIENTS_REMEMBERED = 4096


def _one_of(*patterns: bytes) -> bytes:
    return b"(?:" + b"|".join(patterns) + b")"


def _number(bytes_max: int) -> bytes:
    return rb"[\x80-\xff]{0,%d}+[\x00-\x7f]" % (bytes_max - 1)


_CLIENT, _CLOCK = _number(8), _number(4)
_ID = _CLIENT + _CLOCK
_CHUNK = _one_of(*(rb"\x%02x.{%d}" % (length, length) for length in range(128)))
_PARENT = _one_of(rb"\x01" + _CHUNK, rb"\x00" + _ID)
_VALUE = _one_of(
    rb"\x77" + _CHUNK,  # text
    rb"\x7d" + _number(10),  # an integer
    rb"[\x7a\x7b].{8}",  # a large integer, a number
    rb"\x7c.{4}",  # a short number
    rb"[\x78\x79\x7e\x7f]",  # true, false, null, undefined
)


def _item(kind: int, *, keyed: bool = True) -> bytes:
    """How an item begins: its kind, and its neighbours; or where it is, when it has none."""
    flags = (0, 0x20) if keyed else (0,)
    beside_one = b"".join(rb"\x%02x" % (kind | flag | side) for flag in flags for side in (0x40, 0x80))
    beside_two = b"".join(rb"\x%02x" % (kind | flag | 0xC0) for flag in flags)
    places = [b"[" + beside_one + b"]" + _ID, b"[" + beside_two + b"]" + _ID + _ID, rb"\x%02x" % kind + _PARENT]
    if keyed:
        places.append(rb"\x%02x" % (kind | 0x20) + _PARENT + _CHUNK)
    return _one_of(*places)


_TEXT = _item(4, keyed=False) + b"(" + _CHUNK + b")"
_VALUES = _item(8)
_TYPE = _item(7)
_GONE = _one_of(_item(1), rb"[\x00\x0a]")  # deleted, collected, or left out

_RANGE = _CLOCK + _CLOCK
_RANGES = _CLIENT + _one_of(*(rb"\x%02x" % count + _RANGE * count for count in range(1, 5)))
_DELETIONS = _one_of(rb"\x00", *(rb"\x%02x" % count + _RANGES * count for count in (1, 2)))

_ONE_STRUCT = re.compile(
    rb"\x01\x01(" + _CLIENT + b")(" + _CLOCK + b")" + _one_of(_TEXT, _VALUES + rb"\x01" + _VALUE) + _DELETIONS,
    re.DOTALL,
)
_SECTION = re.compile(rb"([\x01-\x7f])(" + _CLIENT + b")(" + _CLOCK + b")", re.DOTALL)
_STRUCT = re.compile(
    _one_of(
        _TEXT,
        _VALUES + rb"([\x01-\x7f])",
        _TYPE + rb"([\x00-\x02])",  # a list, a map, a text
        _GONE + b"(" + _CLOCK + b")",
    ),
    re.DOTALL,
)
_ONE_VALUE = re.compile(_VALUE, re.DOTALL)
_END = re.compile(_DELETIONS, re.DOTALL)


def usual_ends(update: bytes, depth_max: int) -> dict[int, int] | None:
    """What `walk(update, depth_max)` returns, or None when only the walk can tell.

    Costs 0.6 µs for one struct, 1 µs for each of several.
    """
    match = _ONE_STRUCT.fullmatch(update)
    try:
        if match is None or depth_max < 1:
            return _several(update, depth_max)
        client, clock, text = match.groups()
        return {_client(client): _value(clock) + (1 if text is None else _ticks(text))}
    except (MalformedUpdate, UnicodeDecodeError):
        return None


def _several(update: bytes, depth_max: int) -> dict[int, int] | None:
    ends: dict[int, int] = {}
    position, left = 1, depth_max  # no chain of fewer structs than that is too deep
    texts = lists = False
    for _ in range(update[0] if update else 0):
        section = _SECTION.match(update, position)
        if section is None:
            return None
        structs, client, clock = section[1][0], _client(section[2]), _value(section[3])
        left -= structs
        if left < 0 or client in ends:
            return None
        position = section.end()
        for _ in range(structs):
            match = _STRUCT.match(update, position)
            if match is None:
                return None
            position = match.end()
            text, values, made, gone = match.groups()
            if text is not None:
                texts = True
                clock += _ticks(text)
            elif values is not None:
                position = _skip_values(update, position, values[0], depth_max)
                clock += values[0]
            elif made is not None:
                lists = lists or made == b"\x00"
                clock += 1
            else:
                clock += _value(gone)
        if clock >= _CLOCK_END:
            return None
        ends[client] = clock
    is_safe = not (texts and lists)  # no text is inside a list
    return ends if is_safe and _END.fullmatch(update, position) else None


def _skip_values(update: bytes, position: int, count: int, depth_max: int) -> int:
    """The position behind ``count`` values."""
    for _ in range(count):
        match = _ONE_VALUE.match(update, position)
        if match is not None:
            position = match.end()
        else:
            reader = Reader(update)
            reader.position = position
            skip_value(reader, depth_max)
            position = reader.position
    return position


def _ticks(chunk: bytes) -> int:
    """How many clocks a text takes: its length in UTF-16. ``chunk`` has one byte of length before it."""
    if chunk.isascii():
        return len(chunk) - 1
    return len(chunk[1:].decode().encode("utf-16-le")) // 2


def _value(encoded: bytes) -> int:
    value = 0
    for byte in reversed(encoded):
        value = value << 7 | byte & 0x7F
    return value


_client = lru_cache(_CLIENTS_REMEMBERED)(_value)
