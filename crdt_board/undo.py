"""What one handle did on a replica and can take back: yrs' own undo, for the transactions of one origin.

Knows the document, not agents or links. yrs needs to know of a transaction when it is made: from then on it keeps what
that transaction deleted, for the life of the document, which is why nobody has a history who did not ask for one.
"""

from __future__ import annotations

import itertools
import weakref
from functools import partial
from operator import itemgetter
from typing import Any

import pycrdt

from crdt_board.document import Document, guarded
from crdt_board.reader import Reader
from crdt_board.varint import write_varuint

_Stack = list["pycrdt.StackItem[Any]"]
_origins = itertools.count(1)


class UndoHistory:
    """The last ``depth`` transactions of one handle, and those that were taken back.

    Invariants:
        1. Only transactions under ``origin`` are in it; what others made, here or elsewhere, never is.
        2. It never undoes what was inserted under another client id than the document's: a record that was opened by
           its name belongs to everybody.
        3. Fields with cells are left out, see `crdt_board.cells`.
        4. The stack holds at most ``2 * depth`` steps, and at most ``depth`` whenever one is taken back.
    """

    def __init__(self, document: Document, depth: int, ended: list[object]) -> None:
        """What the history leaves behind when it is freed goes into ``ended``, to be dropped outside of transactions.

        The collector may free it at any moment, and yrs panics when its undo manager goes while the document is in a
        transaction [measured].
        """
        assert depth > 0
        self.origin = next(_origins)
        self.depth = depth
        self._document = document
        self._group: object = None
        self._clock = [1]
        self._made = 0
        self._held = [self._new_manager([], [])]
        weakref.finalize(self, ended.append, self._held).atexit = False

    @property
    def _manager(self) -> pycrdt.UndoManager:
        return self._held[0]

    def begin(self, group: object) -> None:
        """A transaction under ``origin`` begins: one step with the one before if both are of the same ``group``."""
        if group is None or group is not self._group:
            self._group = group
            self._clock[0] += 1
            self._made += 1
            if self._made >= self.depth:
                self._made = 0
                self._trim()

    def undo(self) -> bool:
        """Take back the newest step that still has an effect; False when there is none.

        Outside any transaction.

        Raises:
            DocumentBroken: yrs panicked; the document must not be used any more.
        """
        self._group = None
        undo = self._manager.undo_stack[-self.depth :]
        self._restore([self._own_part(step) for step in undo], self.redoable())
        with guarded():
            return self._manager.undo()

    def redo(self) -> bool:
        """Make the step again that `undo` took back last; False when there is none, or an edit came in between.

        Raises:
            DocumentBroken: as `undo`.
        """
        self._group = None
        with guarded():
            return self._manager.redo()

    def watch_roots(self) -> None:
        """The document has other roots than before: what is done in them from now on counts too."""
        self._restore(self._manager.undo_stack, self.redoable())

    def redoable(self) -> _Stack:
        """What can be redone now, for `forget_newest`."""
        return self._manager.redo_stack if self._manager.can_redo() else []

    def forget_newest(self, redoable: _Stack) -> None:
        """Forget the newest step, because it was taken back otherwise; ``redoable`` is what it could be before it."""
        self._group = None
        self._restore(self._manager.undo_stack[:-1], redoable)

    def _trim(self) -> None:
        undo = self._manager.undo_stack
        if len(undo) > self.depth:
            self._restore(undo[-self.depth :], self.redoable())

    def _restore(self, undo: _Stack, redo: _Stack) -> None:
        self._held[0] = self._new_manager(undo, redo)

    def _new_manager(self, undo: _Stack, redo: _Stack) -> pycrdt.UndoManager:
        manager = pycrdt.UndoManager(
            scopes=[*self._document.undoable_roots()],
            # yrs joins transactions whose "times" are less than this apart: here each step has a time of its own.
            capture_timeout_millis=1,
            timestamp=partial(itemgetter(0), self._clock),  # not self, which the collector could not free then
            undo_stack=undo,
            redo_stack=redo,
        )
        manager.include_origin(self.origin)
        return manager

    def _own_part(self, step: pycrdt.StackItem[Any]) -> pycrdt.StackItem[Any]:
        inserted = step.insertions.encode()
        own = _only_client(inserted, self._document.client_id)
        if own == inserted:
            return step
        return pycrdt.StackItem(self._document.doc._doc, step.deletions, pycrdt.IdSet.decode(own))


def _only_client(ids: bytes, client: int) -> bytes:
    """An encoded set of ids, without those of other clients."""
    reader = Reader(ids)
    for _ in range(reader.varuint()):
        start = reader.position
        found = reader.varuint() == client
        for _ in range(2 * reader.varuint()):
            reader.varuint()
        if found:
            return write_varuint(1) + ids[start : reader.position]
    return write_varuint(0)
