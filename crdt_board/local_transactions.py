"""Local edits of one document, grouped into transactions of yrs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pycrdt

from crdt_board.document_clocks import DocumentClocks
from crdt_board.guarding import guarded
from crdt_board.text_edits import TextEdits


def _nothing() -> None:
    pass


class LocalTransactions:
    """The local transaction that is open, and the part of it that yrs has open.

    A part begins before each removal or replacement of a record. Taken back at once, a change of a key in the record
    and its removal have the key in the new record here, but in the old one on other replicas [measured].
    """

    def __init__(self, doc: pycrdt.Doc[Any], edits: TextEdits, clocks: DocumentClocks) -> None:
        self._doc = doc
        self._edits = edits
        self._clocks = clocks
        self.is_open = False
        """Whether edits go on that keep the text indexes themselves."""
        self._part: pycrdt.Transaction
        self._on_part: Callable[[], None] = _nothing
        self._origin: int | None = None

    @contextmanager
    def open(self, origin: int | None, on_part: Callable[[], None] | None) -> Iterator[None]:
        """``origin`` tells an `UndoHistory` that the transaction belongs to it; ``on_part`` is called before each part
        but the first."""
        self.is_open = True
        self._on_part, self._origin = on_part or _nothing, origin
        try:
            with guarded():
                self._open_part()
                try:
                    yield
                finally:
                    self._close_part()
        finally:
            self.is_open = False
            self._clocks.lag = True

    def begin_part(self) -> None:
        """Go on in a transaction of its own, if one is open."""
        if self.is_open:
            self._close_part()
            self._on_part()
            self._open_part()

    def _open_part(self) -> None:
        self._part = self._doc.transaction(origin=self._origin)
        self._part.__enter__()

    def _close_part(self) -> None:
        try:
            self._edits.settle()
        finally:
            self._part.__exit__(None, None, None)
