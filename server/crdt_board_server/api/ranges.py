"""The header ``Range``: which part of some bytes a request asks for (RFC 9110 §14)."""

from __future__ import annotations

import re

_ONE_RANGE = re.compile(r"bytes=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", re.IGNORECASE)


def range_of(header: str | None, size: int) -> tuple[int, int] | None:
    """The first byte and the one behind the last; None for all of it, also where the header asks for several parts or
    is not understood, which a server may pass over.

    Raises:
        IndexError: there is no such part of ``size`` bytes.
    """
    match = None if header is None else _ONE_RANGE.fullmatch(header)
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= stop:
        raise IndexError(header)
    return start, stop
