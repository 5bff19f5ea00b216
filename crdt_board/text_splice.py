"""Adjacent edits of one text as a single one. Pure; positions are UTF-8 bytes, as pycrdt counts."""

from __future__ import annotations


class TextSplice:
    """One replacement in a text that has not been made yet, and grows by the edits that touch it.

    In the text as it was, ``removed`` bytes from ``start`` on give way to ``inserted``. Positions of `join` are those
    of the text as if the replacement had been made. Looking up a position costs yrs some 20 µs, joining costs less
    than 1 µs; a person or a model that writes makes one edit next to the other.
    """

    __slots__ = ("field", "inserted", "removed", "start")

    def __init__(self, field: str, start: int, stop: int, inserted: bytes) -> None:
        self.field = field
        self.start = start
        self.removed = stop - start
        self.inserted = bytearray(inserted)

    def join(self, start: int, stop: int, inserted: bytes) -> bool:
        """Take in that ``inserted`` replaces the bytes from ``start`` to ``stop``; False when it lies elsewhere."""
        end = self.start + len(self.inserted)
        if start > end or stop < self.start:
            return False
        self.removed += max(0, self.start - start) + max(0, stop - end)
        self.inserted[max(0, start - self.start) : min(stop, end) - self.start] = inserted
        self.start = min(self.start, start)
        return True
