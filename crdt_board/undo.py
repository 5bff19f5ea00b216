"""Taking back what one handle did on a replica, or what failed, by yrs' own undo.

Knows the document, not agents or links. yrs needs to know of a transaction when it is made: from then on it keeps what
that transaction deleted, for the life of the document, which is why nobody has a history who did not ask for one.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pycrdt

from crdt_board.document import Document
from crdt_board.guarding import guarded
from crdt_board.id_sets import cut_ranges, decode_ids, encode_ids
from crdt_board.records import SharedType

_Item = pycrdt.StackItem[Any]
_origins = itertools.count(1)


@dataclass(slots=True)
class _Step:
    """One step: what yrs noted of each of its parts, in the order in which they were made."""

    number: int
    parts: list[_Item]


@dataclass(slots=True)
class _Recording:
    """What is being made: the number of the step, and a time of its own for each part of it."""

    number: int = 0
    clock: int = 1
    steps: list[tuple[int, int]] = field(default_factory=list)
    """By the parts that yrs has noted: their time, and the step that they belong to."""

    def now(self) -> int:
        """The time of a transaction that yrs notes; it joins transactions of one time."""
        if not self.steps or self.steps[-1][0] != self.clock:
            self.steps.append((self.clock, self.number))
        return self.clock


class UndoHistory:
    """The last ``depth`` steps of one handle, and those that were taken back.

    Invariants:
        1. Only transactions under ``origin`` are in it; what others made, here or elsewhere, never is.
        2. It never undoes what was inserted under another client id than the document's: a record that was opened by
           its name belongs to everybody.
        3. Fields with cells are left out, see `crdt_board.cells`.
        4. The manager that notes what is made has nothing to make again. When yrs drops such a step it lets go of what
           the step deleted *and of the records around it*, even if other steps need these. A record that is then
           deleted is freed, and what is kept in it still points at it: encoding that crashes the process [measured].
        5. A removal of a record is the beginning of a part, see `Document.local_transaction`.
        6. At most ``2 * depth`` steps are held, and at most ``depth`` whenever one is taken back.
    """

    def __init__(self, document: Document, depth: int, ended: list[object], histories: Iterable[UndoHistory]) -> None:
        """``histories`` are all of the replica, which come and go.

        What this one leaves behind when it is freed goes into ``ended``, to be dropped outside of transactions. The
        collector may free it at any moment, and yrs panics when its undo manager goes while the document is in a
        transaction [measured].
        """
        assert depth > 0
        self.origin = next(_origins)
        self.depth = depth
        self._document = document
        self._histories = histories
        self._group: object = None
        self._made = 0
        self._done: deque[_Step] = deque()
        self._undone: list[_Step] = []
        self._recording = _Recording()
        self._held = [self._new_recorder()]
        weakref.finalize(self, ended.append, self._held).atexit = False

    def begin(self, group: object) -> None:
        """A transaction under ``origin`` begins: one step with the one before if both are of the same ``group``."""
        if group is None or group is not self._group:
            self._group = group
            self._recording.number += 1
            self.begin_part()
            self._made += 1
            if self._made >= self.depth:
                self._take_over()

    def begin_part(self) -> None:
        """What follows in this step is taken back before what came until now, and apart from it."""
        self._recording.clock += 1

    def undo(self) -> bool:
        """Take back the newest step that still has an effect; False when there is none.

        Outside any transaction.

        Raises:
            DocumentBroken: yrs panicked; the document must not be used any more.
        """
        self._group = None
        self._take_over()
        return self._play(self._done, self._undone)

    def redo(self) -> bool:
        """Make the step again that `undo` took back last; False when there is none, or an edit came in between.

        Raises:
            DocumentBroken: as `undo`.
        """
        self._group = None
        self._take_over()
        return self._play(self._undone, self._done)

    def watch_roots(self) -> None:
        """The document has other roots than before: what is done in them from now on counts too."""
        self._take_over()
        self._held[0] = self._new_recorder()

    def forget_newest(self) -> None:
        """Forget the step that was begun last, because it was taken back otherwise."""
        self._group = None
        self._take_over(forget=self._recording.number)

    def _take_over(self, forget: int = 0) -> None:
        """Make steps of what yrs has noted, but for the step ``forget``; what was made ends what can be made again."""
        self._made = 0
        noted, self._recording.steps = self._recording.steps, []
        if noted:
            for (_, number), part in zip(noted, self._held[0].undo_stack, strict=True):
                if number != forget:
                    self._undone.clear()
                    self._add(number, part)
            self._held[0] = self._new_recorder()
        while len(self._done) > self.depth:
            self._done.popleft()

    def _add(self, number: int, part: _Item) -> None:
        if not self._done or self._done[-1].number != number:
            self._done.append(_Step(number, []))
        self._done[-1].parts.append(part)

    def _play(self, source: MutableSequence[_Step], target: MutableSequence[_Step]) -> bool:
        """Take back the newest step of ``source`` that has an effect, and put the way back into ``target``."""
        roots = self._document.undoable_roots()
        while source:
            step = source.pop()
            own = [self._own_part(part) for part in step.parts]
            others = [part for other in (*source, *target) for part in other.parts]
            made = take_back(self._document, roots, own, others, self._histories)
            if made:
                target.append(_Step(step.number, made))
                return True
        return False

    def borders(self) -> set[int]:
        """The clocks, under the document's client id, at which begins or ends what one of the parts inserted."""
        parts = [part for step in (*self._done, *self._undone) for part in step.parts]
        parts += self._held[0].undo_stack
        client = self._document.client_id
        return {
            clock for part in parts for pair in decode_ids(part.insertions.encode()).get(client, ()) for clock in pair
        }

    def _own_part(self, part: _Item) -> _Item:
        inserted = decode_ids(part.insertions.encode())
        client = self._document.client_id
        own = {client: inserted[client]} if client in inserted else {}
        if own == inserted:
            return part
        return pycrdt.StackItem(self._document.doc._doc, part.deletions, pycrdt.IdSet.decode(encode_ids(own)))

    def _new_recorder(self) -> pycrdt.UndoManager:
        recorder = pycrdt.UndoManager(
            scopes=[*self._document.undoable_roots()],
            capture_timeout_millis=1,
            timestamp=partial(_Recording.now, self._recording),  # not self, which the collector could not free then
        )
        recorder.include_origin(self.origin)
        return recorder


def take_back(
    document: Document,
    roots: Sequence[SharedType],
    parts: Sequence[_Item],
    others: Sequence[_Item],
    histories: Iterable[UndoHistory],
) -> list[_Item]:
    """Take back ``parts`` of one step, the newest of which is last; returns what makes them again, newest last.

    Outside any transaction. Without what had no effect. yrs looks into ``others`` of the handle: a value may come back
    in place of one that they deleted. ``histories`` are all of the replica.

    Raises:
        DocumentBroken: yrs panicked; the document must not be used any more.
    """
    made: list[_Item] = []
    for number in reversed(range(len(parts))):
        redo = [*others, *parts[:number], *made]
        part = _apart(document, parts[number], histories)
        manager = pycrdt.UndoManager(scopes=[*roots], undo_stack=[part], redo_stack=redo)
        with guarded():
            manager.undo()
        made += manager.redo_stack[len(redo) :]
    return made


def _apart(document: Document, part: _Item, histories: Iterable[UndoHistory]) -> _Item:
    """``part``, so that what two handles of a replica wrote comes back as two things.

    yrs keeps text as one thing that was typed right behind other text under one client id, also by another handle. If
    that came back as one, taking back what the first had typed would take the whole, since yrs then follows it to
    where it came back, but not to its end [measured].
    """
    client, deleted = document.client_id, decode_ids(part.deletions.encode())
    if all(stop - start == 1 for start, stop in deleted.get(client, ())):
        return part
    borders = sorted(set().union(*(history.borders() for history in histories)))
    deleted[client] = cut_ranges(deleted[client], borders)
    return pycrdt.StackItem(document.doc._doc, pycrdt.IdSet.decode(encode_ids(deleted)), part.insertions)
