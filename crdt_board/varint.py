"""Variable-length unsigned integers as lib0 (the encoding library of Yjs) writes them: 7 bits a byte, low first.

Source: https://github.com/dmonad/lib0, ``encoding.writeVarUint``.
"""

from __future__ import annotations

from crdt_board.errors import MalformedUpdate

_BITS_MAX = 63  # Yjs stays below 2^53; more is noise or an attack


def write_varuint(value: int) -> bytes:
    """Encode ``0 <= value < 2**63``."""
    assert 0 <= value < 1 << _BITS_MAX, value
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varuint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the integer at ``position``; return it and the position after it.

    Raises:
        MalformedUpdate: the data ends inside the integer, or it needs more than 63 bits.
    """
    value = 0
    shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift >= _BITS_MAX:
                raise MalformedUpdate("an integer of more than 63 bits")
    except IndexError:
        raise MalformedUpdate("the data ends inside an integer") from None
