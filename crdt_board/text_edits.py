"""Edits of the texts of one document by code points, of which adjacent ones are made as one."""

from __future__ import annotations

import pycrdt

from crdt_board.containers import Containers
from crdt_board.text_index import TextIndex
from crdt_board.text_splice import TextSplice


class TextEdits:
    """The edit that is pending, and what is known of where the code points of texts are.

    Invariants:
        1. At most one edit is pending; whoever looks at a text, or at the document as a whole, calls `settle` before.
        2. An index counts the pending edit too. Who changes a text in another way calls `forget`.
    """

    def __init__(self, containers: Containers) -> None:
        self._containers = containers
        self._indexes: dict[str, TextIndex] = {}
        self._pending: TextSplice | None = None
        self._pending_text: pycrdt.Text | None = None

    def knows(self, path: str) -> bool:
        """Whether the index of the text at ``path`` is there."""
        return path in self._indexes

    def index(self, path: str) -> TextIndex:
        """Code point offsets of the text at ``path``; valid until the text is changed by others than `replace`."""
        index = self._indexes.get(path)
        if index is None:
            self.settle()
            text = self._containers.find(path, pycrdt.Text)
            if text is None:
                return TextIndex()
            index = self._indexes[path] = TextIndex(str(text))
        return index

    def replace(self, path: str, start: int, stop: int, inserted: str) -> None:
        """Inside a transaction: replace code points of the text at ``path``, which was made; at once or later."""
        index = self.index(path)
        first, last = index.to_byte(start), index.to_byte(stop)
        index.replace(start, stop, inserted)
        pending, encoded = self._pending, inserted.encode()
        if pending is None or pending.field != path or not pending.join(first, last, encoded):
            self.settle()
            self._pending_text = self._containers.find(path, pycrdt.Text)
            self._pending = TextSplice(path, first, last, encoded)

    def settle(self) -> None:
        """Make the pending edit."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        text, self._pending_text = self._pending_text, None
        assert text is not None
        if pending.removed:
            del text[pending.start : pending.start + pending.removed]
        if pending.inserted:
            text.insert(pending.start, pending.inserted.decode())

    def forget(self, path: str) -> None:
        """The text at ``path``, and those below it, are not what they were."""
        below = f"{path}/"
        for each in [each for each in self._indexes if each == path or each.startswith(below)]:
            del self._indexes[each]

    def forget_text(self, path: str) -> None:
        """The same for ``path`` alone."""
        self._indexes.pop(path, None)

    def forget_all(self) -> None:
        self._indexes.clear()
