"""What differs between two states of a board, by path, and for people to read. Pure.

States are in wire form; how a field is compared is decided by its kind, so that the model is not needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.diffs import Splice, splices
from crdt_board.item_matching import items_to_move
from crdt_board.layout import ITEM_KEY, PLACE_KEY, FieldKind, FieldLayout, Layout
from crdt_board.wire_values import child_path, element_key, same_wire

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")
_GAP_CHARS_MAX = 3
"""Unchanged characters between two changed words up to which both are shown as one change."""

_SHOWN_CHARS_MAX = 200

_EMPTY: dict[FieldKind, JsonValue] = {"text": "", "list": [], "record_list": [], "set": [], "dict": {}, "records": {}}
"""What a field of such a kind holds when a state does not name it."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hunk(_Frozen):
    """A stretch that was replaced: at ``start`` (code points of a text, items of a list; in the state before),
    ``removed`` by ``added``; both are text, or lists of items.

    ``line`` is that of ``start`` in a text, from 1; 0 in a list.
    """

    start: int
    removed: JsonValue
    added: JsonValue
    line: int = 0


class Difference(_Frozen):
    """One path that differs. ``before`` and ``after`` are in wire form, and None where there is nothing.

    A text or list that is there both before and after has ``hunks`` in their place, in order.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    before: JsonValue = None
    after: JsonValue = None
    hunks: tuple[Hunk, ...] = ()

    def __str__(self) -> str:
        if self.hunks:
            return "\n".join([self.path, *(_show_hunk(hunk) for hunk in self.hunks)])
        if self.kind == "changed":
            return f"{self.path}: {_show(self.before)} -> {_show(self.after)}"
        sign, value = ("+", self.after) if self.kind == "added" else ("-", self.before)
        return f"{sign} {self.path}: {_show(value)}"


class StateDiff(_Frozen):
    """What differs between two versions of a board, in alphabetical order of the paths.

    ``after_version`` None is the state that was newest when it was asked for. ``str()`` is for people to read.
    """

    before_version: int
    after_version: int | None
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.differences))

    def __bool__(self) -> bool:
        return bool(self.differences)


def state_differences(
    before: Mapping[str, JsonValue], after: Mapping[str, JsonValue], layouts: tuple[Layout, Layout]
) -> tuple[Difference, ...]:
    """What differs between two states in wire form, each read by its own of the two layouts."""
    found: list[Difference] = []
    for name in before.keys() | after.keys():
        old, new = (layout.by_name.get(name) for layout in layouts)
        field = new or old
        if old is None or new is None or old.kind == new.kind:
            found += _field_differences(field, name, (before, after), name)
        else:
            found += _whole(name, (before, after), name)
    return tuple(sorted(found, key=lambda each: each.path))


def value_differences(field: FieldLayout, path: str, before: JsonValue, after: JsonValue) -> list[Difference]:
    """What differs between two values of a field, both of which are there."""
    if same_wire(before, after):
        return []
    compare = _COMPARISONS.get(field.kind)
    if compare is not None:
        return compare(path, before, after)
    if field.kind == "records":
        return _records(field, path, cast(dict[str, Any], before), cast(dict[str, Any], after))
    if field.kind == "record_list":
        return _items(field, path, cast(list[Any], before), cast(list[Any], after))
    return [Difference(path=path, kind="changed", before=before, after=after)]


def text_hunks(before: str, after: str) -> list[Hunk]:
    """What differs between two texts, in whole words; changes that only spaces part are one."""
    hunks: list[Hunk] = []
    lines = [side.splitlines(keepends=True) for side in (before, after)]
    starts = _offsets(lines[0])
    for block in splices(cast(list[Hashable], lines[0]), cast(list[Hashable], lines[1])):
        old = _WORDS.findall("".join(lines[0][block.start : block.stop]))
        new = _WORDS.findall("".join(cast(list[str], block.new)))
        first = starts[block.start]
        places = _offsets(old)
        for edit in _joined(splices(cast(list[Hashable], old), cast(list[Hashable], new)), old):
            start = first + places[edit.start]
            removed, added = "".join(old[edit.start : edit.stop]), "".join(cast(list[str], edit.new))
            hunks.append(Hunk(start=start, removed=removed, added=added, line=before.count("\n", 0, start) + 1))
    return hunks


def _text(path: str, before: Any, after: Any) -> list[Difference]:
    return [Difference(path=path, kind="changed", hunks=tuple(text_hunks(before, after)))]


def _list(path: str, before: Any, after: Any) -> list[Difference]:
    old, new = ([canonical_json(item) for item in side] for side in (before, after))
    hunks = [
        Hunk(
            start=edit.start,
            removed=before[edit.start : edit.stop],
            added=[json.loads(cast(bytes, item)) for item in edit.new],
        )
        for edit in splices(cast(list[Hashable], old), cast(list[Hashable], new))
    ]
    return [Difference(path=path, kind="changed", hunks=tuple(hunks))]


def _set(path: str, before: Any, after: Any) -> list[Difference]:
    return _by_key(path, *({element_key(item): item for item in side} for side in (before, after)))


def whole_difference(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What differs in a value that is replaced as a whole; each side has it under ``value``, or is empty."""
    return _whole(path, (before, after), "value")


def _by_key(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    found: list[Difference] = []
    for key in sorted(before.keys() | after.keys()):
        found += _whole(child_path(path, key), (before, after), key)
    return found


_COMPARISONS: dict[FieldKind, Callable[[str, Any, Any], list[Difference]]] = {
    "text": _text,
    "list": _list,
    "set": _set,
    "dict": _by_key,
}
"""How fields are compared that hold parts; all others are compared as a whole."""


def _records(field: FieldLayout, path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    found: list[Difference] = []
    for key in sorted(before.keys() | after.keys()):
        there = child_path(path, key)
        if key in before and key in after:
            for name in sorted(before[key].keys() | after[key].keys()):
                inner = field.by_name.get(name)
                found += _field_differences(inner, child_path(there, name), (before[key], after[key]), name)
        else:
            found += _whole(there, (before, after), key)
    return found


def _items(field: FieldLayout, path: str, before: list[Any], after: list[Any]) -> list[Difference]:
    """As for records, by the ids of the items; of those that were moved also the indexes, as ``$place``."""
    sides = tuple({item[ITEM_KEY]: item for item in side} for side in (before, after))
    found = _records(field, path, *({key: _without_id(item) for key, item in side.items()} for side in sides))
    old, new = (list(side) for side in sides)
    for key in items_to_move(old, new):
        there = child_path(path, key, PLACE_KEY)
        found.append(Difference(path=there, kind="changed", before=old.index(key), after=new.index(key)))
    return found


def _without_id(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != ITEM_KEY}


def _field_differences(
    field: FieldLayout | None, path: str, sides: tuple[Mapping[str, Any], Mapping[str, Any]], name: str
) -> list[Difference]:
    """What differs in one field of two states, or of two records; a container that is not named is an empty one."""
    if field is not None and field.kind in _EMPTY:
        before, after = (side.get(name, _EMPTY[field.kind]) for side in sides)
        return value_differences(field, path, before, after)
    if field is not None and all(name in side for side in sides):
        return value_differences(field, path, sides[0][name], sides[1][name])
    return _whole(path, sides, name)


def _whole(path: str, sides: tuple[Mapping[str, Any], Mapping[str, Any]], key: str) -> list[Difference]:
    """A value that is replaced as a whole."""
    before, after = sides
    if key in before and key in after:
        if same_wire(before[key], after[key]):
            return []
        return [Difference(path=path, kind="changed", before=before[key], after=after[key])]
    return [
        Difference(path=path, kind="added" if key in after else "removed", before=before.get(key), after=after.get(key))
    ]


def _offsets(parts: list[str]) -> list[int]:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return offsets


def _joined(edits: list[Splice[list[Hashable]]], old: list[str]) -> Iterator[Splice[list[Hashable]]]:
    """Edits with nothing but a few spaces between them as one, since words are read together."""
    waiting: Splice[list[Hashable]] | None = None
    for edit in edits:
        between = "" if waiting is None else "".join(old[waiting.stop : edit.start])
        if waiting is not None and not between.strip() and len(between) <= _GAP_CHARS_MAX:
            new = [*waiting.new, *cast(list[Hashable], old[waiting.stop : edit.start]), *edit.new]
            waiting = Splice(waiting.start, edit.stop, new)
            continue
        if waiting is not None:
            yield waiting
        waiting = edit
    if waiting is not None:
        yield waiting


def _show_hunk(hunk: Hunk) -> str:
    where = f"line {hunk.line}" if hunk.line else f"item {hunk.start}"
    lines = [f"  @ {where}"]
    for sign, content in (("-", hunk.removed), ("+", hunk.added)):
        parts = content.splitlines() if isinstance(content, str) else [_show(item) for item in cast(list[Any], content)]
        lines += [f"  {sign} {part}" for part in parts]
    return "\n".join(lines)


def _show(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
