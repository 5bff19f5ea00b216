"""What peers wrote, checked after it was applied and before anybody else sees it (DESIGN §5.3).

An `Audit` belongs to the document of a board's writer. While updates are applied it notes what the events of the
transaction tell, and only that is checked afterwards, so that a change costs as much as it is large. What breaks a rule
is taken back value by value (`crdt_board.compensation`), so that the rest of the update stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pycrdt

from crdt_board.audit_places import Place, place_of
from crdt_board.audit_values import SHARED_NAMES, CheckedRecord, key_problem, misfit
from crdt_board.compensation import MISSING, PutBack, Remove, Undo, reach
from crdt_board.document import Document
from crdt_board.errors import MalformedUpdate
from crdt_board.layout import NO_FIELDS, PLACE_KEY, SINGLE_KINDS, STATE_ROOT, WRITERS_ROOTS, Layout
from crdt_board.limits import Limits
from crdt_board.misplaced import Misplaced, RootKind, find_misplaced
from crdt_board.rules import Problem, Rules, rules_of
from crdt_board.update_walk import has_content, walk
from crdt_board.wire_values import child_path, document_wire

Certain = Callable[[str], bool]
"""Whether a writer surely knew all that is in a field, by the field's name."""

_NESTING = 1_000  # what is merged here has been checked


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that was broken, and what takes the write back."""

    problem: Problem
    undo: Undo


class NotReadable(Exception):
    """Several updates were applied at once, and together they made what cannot be read: apply them one by one."""


@dataclass(slots=True)
class _Keys:
    place: Place
    changes: Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class _Items:
    place: Place
    delta: Sequence[Mapping[str, Any]]
    length: int


@dataclass(slots=True)
class _Characters:
    place: Place
    length: int
    delta: Sequence[Mapping[str, Any]] | None


class Audit:
    """Notes and checks what is written into ``document``."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self._document = document
        self._limits = limits
        self._layout: Layout | None = None
        self._rules = Rules(NO_FIELDS)
        self._written: list[_Keys | _Items | _Characters] = []
        self._updates: Sequence[bytes] = ()
        self._strays = False
        self._key_counts: dict[str, int] = {}
        self._places: dict[str, Place | None] = {}

    def begin(self, *, strays: bool = False) -> None:
        """Note what is written from now on. ``strays``: by one that may have keys of its own beside the model's."""
        self._strays = strays
        if self._document.layout is not self._layout:
            self._layout = self._document.layout
            self._rules = rules_of(self._layout)
            self._key_counts.clear()
            self._places.clear()
        self._written.clear()
        self._document.watch_events(self._note)

    def end(self) -> None:
        """Note no more."""
        self._document.watch_events(None)

    @property
    def has_news(self) -> bool:
        """Whether anything was written that has rules."""
        return bool(self._written)

    def misplaced(self, updates: Sequence[bytes]) -> Misplaced | None:
        """Content that cannot be read or reached by index, which must go before anything is read.

        Raises:
            NotReadable: there is some, and it is not one update that made it.
        """
        unreadable = self._document.take_unreadable()
        sequences = [each for each in self._written if not isinstance(each, _Keys)]
        if not unreadable and not self._is_suspicious(sequences, updates):
            return None
        if len(updates) != 1:
            raise NotReadable
        found = find_misplaced(self._document.encode(), updates[0], roots_of(self._document))
        if found is None and unreadable:
            raise MalformedUpdate("a field was given content that it cannot hold")
        return found

    def refusals(self, updates: Sequence[bytes], certain: Certain, *, removed: bool = False) -> list[Refusal]:
        """What of the writes breaks a rule. ``removed``: what was `misplaced` is gone, and with it the places.

        Raises:
            NotReadable: lists that several updates made together cannot be read.
        """
        found: list[Refusal] = []
        self._updates = updates
        for each in self._written:
            if isinstance(each, _Keys):
                found.extend(self._check_keys(each, certain))
            elif isinstance(each, _Items):
                found.extend(self._check_items(self._all_items(each) if removed else each, certain))
            elif each.delta is not None and not removed:
                found.extend(self._check_characters(each, each.delta, certain))
        return found

    # Inside the transaction.

    def _note(self, root: str, events: Sequence[Any]) -> None:
        for event in events:
            way = event.path
            place = place_of(self._rules, root, way) if way else self._root_place(root)
            if place is None:
                continue
            kind = type(event).__name__
            if kind == "MapEvent":
                if event.keys:
                    self._written.append(_Keys(place, event.keys))
            else:
                length = event.target.len(event.transaction)
                if kind == "ArrayEvent":
                    self._written.append(_Items(place, event.delta, length))
                elif kind == "TextEvent":
                    # The delta of a text of many pieces takes longer than all the rest.
                    delta = event.delta if length > self._characters_max(place) else None
                    self._written.append(_Characters(place, length, delta))

    def _root_place(self, root: str) -> Place | None:
        if root not in self._places:
            self._places[root] = place_of(self._rules, root, ())
        return self._places[root]

    def _characters_max(self, place: Place) -> int:
        if place.rules is None:
            return -1
        size_max = place.rules.size_max
        most = self._limits.text_chars_max
        return most if size_max is None else min(most, size_max)

    # Content of the wrong kind.

    def _is_suspicious(self, sequences: Sequence[_Items | _Characters], updates: Sequence[bytes]) -> bool:
        """Characters that look like items are those of a text; values in a text make it longer than it reads."""
        if not sequences:
            return False
        characters = values = False
        for update in updates:
            has = has_content(update)
            characters, values = characters or has[0], values or has[1]
        for each in sequences:
            if isinstance(each, _Characters):
                if values and not self._reads_whole(each):
                    return True
            elif characters and (not each.delta or any(map(_is_character, _inserted(each.delta)))):
                return True
        return False

    def _reads_whole(self, written: _Characters) -> bool:
        text = reach(self._document, written.place.path)
        return not isinstance(text, pycrdt.Text) or len(text) == len(str(text).encode())

    # Maps.

    def _check_keys(self, written: _Keys, certain: Certain) -> Iterator[Refusal]:
        place, added = written.place, 0
        for key, change in written.changes.items():
            added += {"add": 1, "delete": -1}.get(change["action"], 0)
            if change["action"] == "delete" and not _is_writers(place):
                continue
            old = change.get("oldValue", MISSING)
            undo = PutBack(place.path, key, MISSING if _is_shared(old) else old)
            yield from self._check_key(place, key, change.get("newValue"), undo)
        if place.rules is not None and not place.is_record:
            yield from self._check_count(written, added, certain)

    def _check_key(self, place: Place, key: str, value: Any, undo: PutBack) -> Iterator[Refusal]:
        path = key_path(place, key)
        if _is_writers(place):
            yield Refusal(Problem(path, "read_only", "only the writer of the board changes this"), undo)
            return
        if place.rules is not None and place.rules.has_records and not place.is_record:
            yield from self._check_record(place.rules, path, value, undo)
            return
        rules = place.rules
        if rules is None:
            rules = self._rules.by_name.get(key)
            if rules is None:
                if self._rules.by_name and not self._strays:
                    yield Refusal(Problem(path, "additionalProperties", "the model has no such field"), undo)
                return
            if rules.field.kind != "scalar":
                return  # who has no model wrote it there; the writer of the board brings it to its place
        elif place.is_record:
            inner = rules.inside.get(key)
            if key == PLACE_KEY and rules.field.kind == "record_list":
                return  # one that is none is passed over
            if inner is None or inner.field.kind != "scalar":
                yield from self._check_container(place, key, value, undo)
                return
            rules = inner
        problem = misfit(path, value) or key_problem(rules, document_wire(value), path, key, is_value=place.is_record)
        if problem is not None:
            yield Refusal(problem, undo)

    def _check_record(self, rules: Any, path: str, value: Any, undo: Undo) -> Iterator[Refusal]:
        if type(value).__name__ != "Map":
            yield Refusal(Problem(path, "type", "a value stands where a record belongs"), undo)
            return
        content = reach(self._document, path)
        if isinstance(content, pycrdt.Map):
            yield from self._checked(rules, path, undo).record(content)

    def _check_container(self, place: Place, key: str, value: Any, undo: PutBack) -> Iterator[Refusal]:
        """A container of a record that exists, put there anew."""
        assert place.rules is not None
        path = key_path(place, key)
        content = reach(self._document, path) if _is_shared(value) else value
        yield from self._checked(place.rules, place.path, None).entry(key, content, path, undo)

    def _checked(self, rules: Any, path: str, undo: Undo | None) -> CheckedRecord[Refusal]:
        return CheckedRecord(rules, path, undo, Refusal, self._limits, self._check_lists_readable)

    def _check_lists_readable(self) -> None:
        """Reading a list that holds text never ends; one that was just made holds what these updates put there."""
        if len(self._updates) > 1 and any(has_content(update)[0] for update in self._updates):
            try:
                walk(pycrdt.merge_updates(*self._updates), _NESTING)
            except MalformedUpdate as error:
                raise NotReadable from error

    def _check_count(self, written: _Keys, added: int, certain: Certain) -> Iterator[Refusal]:
        place = written.place
        assert place.rules is not None
        if added <= 0 or place.rules.field.kind in ("counter", "max", "min", "candidates"):
            self._key_counts.pop(place.path, None)
            return
        size_max, most = place.rules.size_max, self._limits.container_items_max
        count = self._key_counts.get(place.path)
        count = None if count is None else count + added
        if count is None or count > most or size_max is not None:
            holder = reach(self._document, place.path)
            count = len(holder) if isinstance(holder, pycrdt.Map) else 0
        self._key_counts[place.path] = count
        additions = sum(change["action"] == "add" for change in written.changes.values())
        problem = self._size_problem(place, count, additions, certain)
        if problem is not None:
            self._key_counts.pop(place.path)
            for key, change in written.changes.items():
                if change["action"] == "add":
                    yield Refusal(problem, PutBack(place.path, key, MISSING))

    # Lists and texts.

    def _check_items(self, written: _Items, certain: Certain) -> Iterator[Refusal]:
        place, position, added, removed = written.place, 0, 0, 0
        ranges: list[tuple[int, int]] = []
        for part in written.delta:
            if "insert" not in part:
                position += part.get("retain", 0)
                removed += part.get("delete", 0)
                continue
            items = part["insert"]
            ranges.append((position, position + len(items)))
            added += len(items)
            for index, item in enumerate(items, start=position):
                yield from self._check_item(place, index, item)
            position += len(items)
        problem = self._size_problem(place, written.length, added, certain) if added > removed else None
        if problem is not None:
            yield Refusal(problem, Remove(place.path, tuple(ranges)))

    def _check_item(self, place: Place, index: int, item: Any) -> Iterator[Refusal]:
        path, undo = child_path(place.path, index), Remove(place.path, ((index, index + 1),))
        if place.rules is None:
            yield Refusal(Problem(path, "read_only", "only the writer of the board changes this"), undo)
        elif place.rules.has_records:
            broken = [each.problem for each in self._check_record(place.rules, path, item, undo)]
            if broken:  # an item of a list is refused whole: its place would move under another undo
                yield Refusal(broken[0], undo)
        else:
            problem = misfit(path, item) or place.rules.check_value(document_wire(item), path)
            if problem is not None:
                yield Refusal(problem, undo)

    def _all_items(self, written: _Items) -> _Items:
        """As if all that is in the list had been written now."""
        content = reach(self._document, written.place.path)
        items = list(content) if isinstance(content, pycrdt.Array) else []
        return _Items(written.place, [{"insert": items}], 0)

    def _check_characters(
        self, written: _Characters, delta: Sequence[Mapping[str, Any]], certain: Certain
    ) -> Iterator[Refusal]:
        place = written.place
        position = added = grown = 0
        ranges: list[tuple[int, int]] = []
        for part in delta:
            if "insert" not in part:
                position += part.get("retain", 0)
                grown -= part.get("delete", 0)
                continue
            inserted = part["insert"] if isinstance(part["insert"], str) else " "
            size = len(inserted.encode())
            ranges.append((position, position + size))
            added += len(inserted)
            grown += size
            position += size
        if not ranges:
            return
        if place.rules is None:
            problem: Problem | None = Problem(place.path, "read_only", "only the writer of the board changes this")
        else:
            text = reach(self._document, place.path)
            count = len(str(text)) if isinstance(text, pycrdt.Text) else 0
            problem = self._size_problem(place, count, added, certain) if grown > 0 else None
        if problem is not None:
            yield Refusal(problem, Remove(place.path, tuple(ranges)))

    def _size_problem(self, place: Place, count: int, added: int, certain: Certain) -> Problem | None:
        """Above the model's own maximum only when the writer knew: otherwise it may be others who filled the field."""
        rules = place.rules
        if rules is None:
            return None
        is_text = rules.field.kind == "text"
        most = self._limits.text_chars_max if is_text else self._limits.container_items_max
        if count > most:
            unit = "characters" if is_text else "items"
            return Problem(place.path, "limit", f"would have {count} {unit}, at most {most} are allowed on a board")
        if rules.size_max is None or count <= rules.size_max:
            return None
        if added > rules.size_max or certain(place.path.partition("/")[0]):
            return rules.check_size(count, place.path)
        return None


def roots_of(document: Document) -> dict[str, RootKind]:
    """The field of each root of a document that has a layout, and its kind."""
    fields = {
        field.place: (field.name, field.kind) for field in document.layout.fields if field.kind not in SINGLE_KINDS
    }
    single: dict[str, RootKind] = {root: (root, "scalar") for root in (STATE_ROOT, *WRITERS_ROOTS)}
    return {**fields, **single}


def key_path(place: Place, key: str) -> str:
    """The path under which a key of a map is known: scalars are fields themselves."""
    return child_path("" if place.path == STATE_ROOT and place.rules is None else place.path, key)


def _is_writers(place: Place) -> bool:
    return place.rules is None and place.path.partition("/")[0] in WRITERS_ROOTS


def _is_shared(value: object) -> bool:
    return type(value).__name__ in SHARED_NAMES


def _inserted(delta: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """What a delta inserts; an insertion of nothing counts as one."""
    for part in delta:
        if "insert" in part:
            yield from part["insert"] or [""]


def _is_character(item: Any) -> bool:
    return isinstance(item, str) and len(item) <= 1
