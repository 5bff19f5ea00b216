"""Sets of ids as yrs encodes them: for each client ranges of clocks. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from crdt_board.reader import Reader
from crdt_board.varint import write_varuint

Ranges = list[tuple[int, int]]
"""Clocks from the first of a pair to before the second."""


def decode_ids(encoded: bytes) -> dict[int, Ranges]:
    """The ranges of each client, in the order in which they are written.

    Raises:
        MalformedUpdate: it is no set of ids.
    """
    reader = Reader(encoded)
    ids: dict[int, Ranges] = {}
    for _ in range(reader.count()):
        found = ids.setdefault(reader.varuint(), [])
        for _ in range(reader.count(2)):
            start = reader.varuint()
            found.append((start, start + reader.varuint()))
    return ids


def encode_ids(ids: Mapping[int, Ranges]) -> bytes:
    """The reverse of `decode_ids`."""
    written = [write_varuint(len(ids))]
    for client, ranges in ids.items():
        written += [write_varuint(client), write_varuint(len(ranges))]
        written += [write_varuint(start) + write_varuint(stop - start) for start, stop in ranges]
    return b"".join(written)


def cut_ranges(ranges: Iterable[tuple[int, int]], borders: Sequence[int]) -> Ranges:
    """The same clocks, in ranges of which none goes across one of ``borders``, which ascend."""
    pieces: Ranges = []
    for start, stop in ranges:
        begin = start
        for border in borders[bisect_right(borders, start) :]:
            if border >= stop:
                break
            pieces.append((begin, border))
            begin = border
        pieces.append((begin, stop))
    return pieces
