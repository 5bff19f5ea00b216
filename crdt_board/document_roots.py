"""The roots of one document, by the names of the fields that are in them, and the observers on them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import pycrdt

from crdt_board.cells import CELL_KINDS
from crdt_board.layout import BOARD_ROOT, RECORD_KINDS, SINGLE_KINDS, STATE_ROOT, TEAM_ROOT, FieldKind, FieldLayout
from crdt_board.records import DeepEvent, SharedType
from crdt_board.touched import Touched

_Root = TypeVar("_Root", pycrdt.Text, "pycrdt.Array[Any]", "pycrdt.Map[Any]")


_Note = Callable[[Touched, str, Sequence[DeepEvent]], None]


class Roots:
    """Makes the roots that a layout names, and tells ``touched`` of every transaction in them.

    Invariant: every field of the layout has its root, created before anything is read or written.
    """

    def __init__(self, doc: pycrdt.Doc[Any], types: dict[str, SharedType]) -> None:
        """``types`` is filled: the roots by the names of their fields."""
        self._doc = doc
        self._types = types
        self._declared: dict[str, tuple[FieldKind, str]] = {}
        self._subscriptions: dict[str, pycrdt.Subscription] = {}

    def observe_own(self, touched: Touched) -> None:
        """Make the roots that every board has."""
        self._observe(STATE_ROOT, STATE_ROOT, pycrdt.Map, touched, Touched.note_state)
        self._observe(BOARD_ROOT, BOARD_ROOT, pycrdt.Map, touched, Touched.note_board)
        self._observe(TEAM_ROOT, TEAM_ROOT, pycrdt.Map, touched, Touched.note_team)

    def declare(self, field: FieldLayout, touched: Touched) -> bool:
        """Have the field in the root that its layout names; True when it was in another one."""
        wanted = None if field.kind in SINGLE_KINDS else (field.kind, field.place)
        if self._declared.get(field.name) == wanted:
            return False
        was_elsewhere = self._declared.pop(field.name, None) is not None
        if was_elsewhere:
            self._subscriptions.pop(field.name).drop()
            del self._types[field.name]
        if wanted is not None:
            self._make(field, touched)
            self._declared[field.name] = wanted
        return was_elsewhere

    def _make(self, field: FieldLayout, touched: Touched) -> None:
        name, place, kind = field.name, field.place, field.kind
        if kind == "text":
            self._observe(name, place, pycrdt.Text, touched, Touched.note_whole)
        elif kind == "list":
            self._observe(name, place, pycrdt.Array, touched, Touched.note_list)
        elif kind in RECORD_KINDS:
            self._observe(name, place, pycrdt.Map, touched, Touched.note_records)
        else:
            is_whole = kind == "counter" or kind in CELL_KINDS
            self._observe(name, place, pycrdt.Map, touched, Touched.note_whole if is_whole else Touched.note_keys)

    def _observe(self, name: str, place: str, kind: type[_Root], touched: Touched, note: _Note) -> None:
        root = self._doc.get(place, type=kind)
        # yrs holds the callback where the garbage collector does not see it: were the document in it, it would never
        # be freed.
        call = partial(_tell, weakref.ref(touched), note, name)
        # pycrdt's own wrapper works out every attribute of an event, the delta of a text too, which takes longer than
        # applying the update; on the inner type they are worked out when they are asked for.
        self._subscriptions[name] = root.integrated.observe_deep(cast(Any, call))
        self._types[name] = root


def _tell(reference: weakref.ref[Touched], note: _Note, name: str, events: Sequence[DeepEvent]) -> None:
    touched = reference()
    if touched is not None:
        note(touched, name, events)
        touched.note_content(name, events)
