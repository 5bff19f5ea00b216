"""Positions in one text: code points, as Python counts, to and from UTF-8 bytes, as pycrdt counts.

Knows only how wide each code point is, not which one it is, and must be told of every edit.
"""

from __future__ import annotations

from typing import NamedTuple

_CHUNK_CHARS_MAX = 1024
_CHUNK_CHARS = 512


class _Chunk(NamedTuple):
    """``widths`` is None when all is ASCII; otherwise a text with code points as wide as those it stands for."""

    chars: int
    bytes: int
    widths: str | None


class TextIndex:
    """The two lengths of a text, and where each code point starts.

    Invariants:
        1. A text of ASCII only has no chunks; there both positions are the same.
        2. Otherwise the chunks add up to ``chars`` and ``bytes``, and none is empty. Those with ``widths`` have at
           most ``_CHUNK_CHARS_MAX`` code points; no two without are neighbours.
        3. Chunk ``_at`` starts at code point ``_at_char`` and byte ``_at_byte``: edits come close to each other, so
           the next search starts there.
        4. ``edits`` grows with every edit: as long as it does not, every position is where it was.
    """

    __slots__ = ("_at", "_at_byte", "_at_char", "_chunks", "bytes", "chars", "edits")

    def __init__(self, text: str = "", edits: int = 0) -> None:
        self.edits = edits
        self.chars = len(text)
        self.bytes = self.chars if text.isascii() else len(text.encode())
        self._chunks = [] if self.bytes == self.chars else _cut(text)
        self._at = self._at_char = self._at_byte = 0

    def to_byte(self, char: int) -> int:
        """The byte position of code point ``char``; ``0 <= char <= chars``."""
        if not self._chunks:
            return char
        self._seek_char(char)
        inside = char - self._at_char
        widths = self._chunks[self._at].widths
        return self._at_byte + (inside if widths is None else len(widths[:inside].encode()))

    def to_char(self, byte: int) -> int:
        """The code point that byte ``byte`` is a part of; ``0 <= byte <= bytes``."""
        if not self._chunks:
            return byte
        self._seek_byte(byte)
        inside = byte - self._at_byte
        widths = self._chunks[self._at].widths
        if widths is None:
            return self._at_char + inside
        return self._at_char + len(widths.encode()[:inside].decode(errors="ignore"))

    def replace(self, char_start: int, char_stop: int, inserted: str) -> None:
        """Take in that ``inserted`` now stands in place of the code points from ``char_start`` to ``char_stop``."""
        self.edits += 1
        if not self._chunks:
            if inserted.isascii():
                self.chars += len(inserted) - (char_stop - char_start)
                self.bytes = self.chars
                return
            if self.chars:
                self._chunks.append(_Chunk(self.chars, self.chars, None))
                self._at = self._at_char = self._at_byte = 0
            else:
                self.__init__(inserted, self.edits)  # type: ignore[misc]
                return
        self._replace_chunks(char_start, char_stop, inserted)

    def _replace_chunks(self, char_start: int, char_stop: int, inserted: str) -> None:
        self._seek_char(char_start)
        first = last = self._at
        head = _part(self._chunks[first], 0, char_start - self._at_char)
        removed_bytes = removed_chars = 0
        while self._at_char + removed_chars + self._chunks[last].chars < char_stop:
            removed_chars += self._chunks[last].chars
            removed_bytes += self._chunks[last].bytes
            last += 1
        end = self._chunks[last]
        tail = _part(end, char_stop - self._at_char - removed_chars, end.chars)
        fresh = _merged(head, inserted, tail)
        self.chars += sum(chunk.chars for chunk in fresh) - removed_chars - end.chars
        self.bytes += sum(chunk.bytes for chunk in fresh) - removed_bytes - end.bytes
        self._chunks[first : last + 1] = fresh
        self._restore(first, first + len(fresh))

    def _restore(self, first: int, after: int) -> None:
        """Join chunks of ASCII where the new ones meet their neighbours, and leave the cursor valid."""
        for border in (after, first):
            if 0 < border < len(self._chunks):
                before, behind = self._chunks[border - 1 : border + 1]
                if before.widths is None and behind.widths is None:
                    if border <= self._at:
                        self._at -= 1
                        self._at_char -= before.chars
                        self._at_byte -= before.bytes
                    chars = before.chars + behind.chars
                    self._chunks[border - 1 : border + 1] = [_Chunk(chars, chars, None)]
        if self.chars == self.bytes:
            self._chunks.clear()
        if self._at >= len(self._chunks):
            self._at = self._at_char = self._at_byte = 0

    def _seek_char(self, char: int) -> None:
        while char < self._at_char:
            self._back()
        while char > self._at_char + self._chunks[self._at].chars:
            self._forward()

    def _seek_byte(self, byte: int) -> None:
        while byte < self._at_byte:
            self._back()
        while byte > self._at_byte + self._chunks[self._at].bytes:
            self._forward()

    def _back(self) -> None:
        self._at -= 1
        self._at_char -= self._chunks[self._at].chars
        self._at_byte -= self._chunks[self._at].bytes

    def _forward(self) -> None:
        self._at_char += self._chunks[self._at].chars
        self._at_byte += self._chunks[self._at].bytes
        self._at += 1


def _cut(text: str) -> list[_Chunk]:
    """A text as chunks of a size at which scanning one and walking over all cost about the same."""
    step = _CHUNK_CHARS if len(text) > _CHUNK_CHARS_MAX else _CHUNK_CHARS_MAX
    chunks: list[_Chunk] = []
    for start in range(0, len(text), step):
        piece = text[start : start + step]
        if not piece.isascii():
            chunks.append(_Chunk(len(piece), len(piece.encode()), piece))
        elif chunks and chunks[-1].widths is None:
            chars = chunks.pop().chars + len(piece)
            chunks.append(_Chunk(chars, chars, None))
        else:
            chunks.append(_Chunk(len(piece), len(piece), None))
    return chunks


def _part(chunk: _Chunk, start: int, stop: int) -> int | str:
    """A stretch of a chunk: how many code points of ASCII, or a text of their widths."""
    return stop - start if chunk.widths is None else chunk.widths[start:stop]


def _merged(head: int | str, inserted: str, tail: int | str) -> list[_Chunk]:
    """The chunks for ``inserted`` between what is left of the chunks before and behind it.

    Where ASCII borders on something else, only as much of it as fits into a chunk is taken along, so that many
    scattered wide characters do not make as many chunks.
    """
    if isinstance(head, int) and isinstance(tail, int) and inserted.isascii():
        chars = head + len(inserted) + tail
        return [_Chunk(chars, chars, None)] if chars else []
    before = behind = 0
    if isinstance(head, int):
        before = max(0, head - _CHUNK_CHARS // 2)
        head = "a" * (head - before)
    if isinstance(tail, int):
        behind = max(0, tail - _CHUNK_CHARS // 2)
        tail = "a" * (tail - behind)
    chunks = _cut(head + inserted + tail)
    if before:
        chunks.insert(0, _Chunk(before, before, None))
    if behind:
        chunks.append(_Chunk(behind, behind, None))
    for border in (len(chunks) - 1, 1):
        if 0 < border < len(chunks) and chunks[border - 1].widths is None and chunks[border].widths is None:
            chars = chunks[border - 1].chars + chunks[border].chars
            chunks[border - 1 : border + 1] = [_Chunk(chars, chars, None)]
    return chunks
