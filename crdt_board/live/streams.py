"""A text that arrives piece by piece, as from a language model, while others edit around it.

Knows no event loop: it is told how to have something called at the end of the present turn.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from crdt_board.errors import BadRequest, BoardError
from crdt_board.live.anchors import Anchor, place_at, place_behind_newest, stretch_of
from crdt_board.live.editor import Editor
from crdt_board.text_index import TextIndex
from crdt_board.wire_values import check_text

_GUARD = "\n"
_CallSoon = Callable[[Callable[[], None]], object]


class EditStream:
    """Writes at an end of its own, which stays behind what it has written wherever that goes.

    Invariants:
        1. What was written stands in the order in which it was written, and what others insert is inside of it only
           where they put it there.
        2. While the stream is open and writes at the end of the text, a line end stands behind it. Without it, what
           others append meanwhile would be at the stream's own end, and of two insertions at one place either may come
           first: half of the time the rest of a sentence would end up behind another agent's paragraph. The same
           happens, rarely, when somebody deletes what stands right behind the stream while another agent inserts there.
        3. ``_at`` is where the stream's end is, as long as ``_index`` is the text's index and has no more than
           ``_edits``. Otherwise ``_end`` says so, which costs a look through the text.
    """

    def __init__(self, editor: Editor, path: str, start: int, call_soon: _CallSoon) -> None:
        """Use ``edit_stream()`` of a live text. ``0 <= start <= chars``."""
        self._editor = editor
        self._path = path
        self._call_soon = call_soon
        document = editor.document
        at_end = start == document.text_index(path).chars
        self._end = place_at(document, path, start, "after" if at_end else "before")
        self._guard: Anchor | None = None
        self._waiting: list[str] = []
        self._scheduled = self._begun = self._closed = False
        self._index: TextIndex | None = None
        self._edits = self._at = 0
        self._error: BoardError | None = None

    def write(self, token: str) -> None:
        """Append ``token``; everything that was written in one turn of the event loop becomes one update.

        Raises:
            InvalidValue: ``token`` is no str, or holds a lone surrogate; or there would be more than the text may have.
            BadRequest: the stream was closed.
            Unavailable: the board was closed; what was written before may not be on it.
        """
        self._check()
        if self._closed:
            raise BadRequest(f"{self._path}: the stream was closed")
        if check_text(token, self._path):
            self._editor.document.check_change(self._path, sum(map(len, self._waiting)) + len(token))
            self._waiting.append(token)
            if not self._scheduled:
                self._scheduled = True
                self._call_soon(self._end_of_turn)

    def flush(self) -> None:
        """Make what was written a part of the text now, rather than at the end of the turn.

        Raises:
            Unavailable: the board was closed.
        """
        self._check()
        if self._waiting:
            # Taken only when it is in the text: when the board cannot be edited it is not lost without a word.
            with self._editor.edit(group=self):
                self._insert("".join(self._waiting))
                self._waiting.clear()

    def close(self) -> None:
        """Flush, and end the stream; what was written stays. Idempotent.

        Raises:
            Unavailable: the board was closed.
        """
        if self._closed:
            return
        self._closed = True
        self.flush()
        guard, self._guard = self._guard, None
        if guard is not None and guard.quote == _GUARD:
            with self._editor.edit(group=self):
                self._editor.document.edit_text(self._path, guard.start, guard.stop, "")

    async def __aenter__(self) -> EditStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also when the block failed or was cancelled: what had been written by then stays."""
        try:
            self.close()
        except BoardError:
            if error is None:
                raise

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _end_of_turn(self) -> None:
        self._scheduled = False
        try:
            self.flush()
        except BoardError as error:  # nobody would see it here: the next call raises it
            self._error = error

    def _insert(self, text: str) -> None:
        document = self._editor.document
        index = document.text_index(self._path)
        unmoved = index is self._index and index.edits == self._edits
        start = self._at if unmoved else self._end.index
        guarded = not self._begun and start == index.chars
        document.settle()  # so that this edit is made by itself, and its end is the newest there is
        document.edit_text(self._path, start, start, text + _GUARD if guarded else text)
        document.settle()
        self._begun = True
        self._at = start + len(text)
        self._end = place_behind_newest(document, self._path, len(_GUARD) if guarded else 0)
        if guarded:
            self._guard = stretch_of(document, self._path, self._at, self._at + len(_GUARD))
        self._index = document.text_index(self._path)
        self._edits = self._index.edits
