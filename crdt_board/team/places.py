"""Places of a board that agents react to: ``draft``, ``findings/f1``, or with ``*`` every key of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crdt_board.errors import BadRequest, NotFound
from crdt_board.live.record_list import LiveRecordList
from crdt_board.paths import split_path
from crdt_board.wire_values import child_path

_ANY = "*"


class Pattern:
    """A path, in which the part after the field may be ``*``."""

    def __init__(self, text: object) -> None:
        if not isinstance(text, str) or not text or text.startswith("/"):
            raise BadRequest(f"a reaction names a place like 'findings/*' or 'draft', got {text!r}")
        self.text = text
        self._parts = split_path(text)
        if _ANY in (self._parts[0], *self._parts[2:]):
            raise BadRequest(f"in {text!r}, * stands for the keys of a field, as in 'findings/*'")
        self._is_any = len(self._parts) > 1 and self._parts[1] == _ANY

    @property
    def field(self) -> str:
        return self._parts[0]

    def something(self, value: Any) -> bool:
        """Whether there is something at one of its places: any key counts, a field as a whole when it is not empty."""
        return len(self._parts) > 1 or bool(value)

    def touched(self, path: str) -> str | None:
        """The place that a change at ``path`` concerns, None when it is none.

        It is `text` itself when that may be any of them.
        """
        parts = split_path(path)
        common = min(len(parts), len(self._parts))
        for own, changed in zip(self._parts[:common], parts[:common], strict=True):
            if own not in (_ANY, changed):
                return None
        if not self._is_any or len(parts) < 2:
            return self.text
        return child_path(self._parts[0], parts[1], *self._parts[2:])

    def places(self, state: Any) -> Iterator[str]:
        """All places that there are now."""
        if not self._is_any:
            yield self.text
            return
        content = _child(state, self.field)
        if isinstance(content, LiveRecordList):
            keys = content.ids
        elif isinstance(content, Mapping):
            keys = list(content)
        else:
            raise BadRequest(f"{self.field} has no keys that {self.text!r} could stand for")
        for key in keys:
            yield child_path(self.field, key, *self._parts[2:])


def value_at(state: Any, path: str) -> Any:
    """The live value at a place, None when there is none."""
    value = state
    for part in split_path(path):
        value = _child(value, part)
        if value is None:
            return None
    return value


def _child(value: Any, part: str) -> Any:
    if isinstance(value, LiveRecordList):
        try:
            return value.by_id(part)
        except NotFound:
            return None
    if isinstance(value, Mapping):
        return value.get(part)
    return getattr(value, part, None)
