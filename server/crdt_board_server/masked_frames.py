"""Whole binary frames of a client, read where they arrive at a fourth of what a general parser takes for them."""

from __future__ import annotations

from collections.abc import Callable

from websockets.frames import apply_mask  # type: ignore[attr-defined]  # the one in C where there is one

_WHOLE_BINARY = 0x82
_MASKED = 0x80
_MASK_BYTES = 4


class MaskedFrames:
    """Follows where the frames of one client begin (RFC 6455, 5.2), from the first byte after its handshake on.

    Only what is usual is handled here. All else, and what is wrong, is left to the parser of websockets, which is
    given whole headers and nothing of the frames that were handled.
    """

    __slots__ = ("_begun", "_bytes_max", "_owed")

    def __init__(self, bytes_max: int) -> None:
        """Frames of more than ``bytes_max`` are left."""
        self._bytes_max = bytes_max
        self._begun = b""  # of a header
        self._owed = 0  # bytes that belong to a frame of which the beginning was left

    def take(self, data: bytes, handle: Callable[[bytes], bool] | None) -> bytes:
        """Hand the content of the whole binary frames at the front of ``data`` to ``handle``, as far as it takes them,
        and return what is left, in order. None for ``handle`` leaves everything."""
        data, self._begun = self._begun + data, b""
        left, position = 0, min(self._owed, len(data))
        self._owed -= position
        is_usual = handle is not None and position == 0
        while position < len(data):
            content, end = _bounds(data, position)
            if content > len(data):
                self._begun = data[position:]
                return data[left:position]
            if is_usual and end <= len(data) and self._is_usual(data, position, end - content):
                masked, mask = data[content:end], data[content - _MASK_BYTES : content]
                is_usual = handle is not None and handle(apply_mask(masked, mask))
            else:
                is_usual = False
            position = end
            if is_usual:
                left = end
        self._owed = position - len(data) if position > len(data) else self._owed
        return data[left:]

    def _is_usual(self, data: bytes, position: int, length: int) -> bool:
        return data[position] == _WHOLE_BINARY and data[position + 1] >= _MASKED and length <= self._bytes_max


def _bounds(data: bytes, position: int) -> tuple[int, int]:
    """Where the content of the frame begins, and where it ends; the content begins behind ``data`` when its header is
    not whole."""
    if position + 2 > len(data):
        return position + 2, position + 2
    second = data[position + 1]
    content, length = position + 2, second & 0x7F
    if length >= 126:
        size = 2 if length == 126 else 8
        length = int.from_bytes(data[content : content + size])
        content += size
    if second & _MASKED:
        content += _MASK_BYTES
    return content, content + length
