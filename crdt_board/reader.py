"""A bounded reader of bytes in lib0's encoding: it never reads past the end and never trusts a declared count."""

from __future__ import annotations

from crdt_board.errors import MalformedUpdate
from crdt_board.varint import read_varuint


class Reader:
    """Reads one value after another from ``data``; every method raises `MalformedUpdate` when the data ends early."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end = len(data)
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes that were not read yet."""
        return self._end - self.position

    def byte(self) -> int:
        if self.position >= self._end:
            raise MalformedUpdate("the data ends where a byte is expected")
        self.position += 1
        return self._data[self.position - 1]

    def varuint(self) -> int:
        position = self.position
        if position < self._end and (byte := self._data[position]) < 0x80:  # most are of one byte
            self.position = position + 1
            return byte
        value, self.position = read_varuint(self._data, self.position)
        return value

    def count(self, bytes_each: int = 1) -> int:
        """A number of things of at least ``bytes_each`` bytes that follow; refused when they cannot all be there."""
        value = self.varuint()
        if value * bytes_each > self._end - self.position:
            raise MalformedUpdate(f"{value} items are announced in the last {self.remaining} bytes")
        return value

    def skip(self, length: int) -> None:
        if length > self.remaining:
            raise MalformedUpdate(f"{length} bytes are announced where {self.remaining} remain")
        self.position += length

    def chunk(self) -> bytes:
        """Bytes with their length before them."""
        length = self.count()
        self.position += length
        return self._data[self.position - length : self.position]

    def skip_chunk(self) -> None:
        length = self.count()
        self.position += length

    def string(self) -> str:
        """UTF-8 text with its length in bytes before it."""
        try:
            return self.chunk().decode()
        except UnicodeDecodeError as error:
            raise MalformedUpdate(f"text that is not UTF-8: {error.reason}") from None

    def finish(self) -> None:
        """Raise `MalformedUpdate` unless everything was read."""
        if self.remaining:
            raise MalformedUpdate(f"{self.remaining} bytes follow where the data should end")
