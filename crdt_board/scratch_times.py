"""When the values of scratch fields were last written, and so when each runs out. Pure; a part of the `Fold`.

Times are those of journal entries, and never go back: an entry that was written under a clock set back counts as
written at the newest time seen before it. So nothing runs out early when a clock errs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from crdt_board.journal import Entry
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.paths import split_path


@dataclass(slots=True)
class FieldTimes:
    """One scratch field. Invariant: ``keys`` is in the order of its times, the oldest first."""

    ttl_ms: int
    rest_ms: int = 0
    """The last write of whatever is not in ``keys``, as far as is known: of the field as a whole, where it has no keys
    of its own. 0 when nothing is left that could run out."""
    keys: dict[str, int] = field(default_factory=dict)

    def due_at(self) -> int | None:
        """When something runs out next."""
        times = [self.rest_ms] if self.rest_ms else []
        times += islice(self.keys.values(), 1)
        return min(times) + self.ttl_ms if times else None


@dataclass(frozen=True, slots=True)
class Due:
    """What has run out of one field: the given keys, and with ``rest`` all that are not ``kept``."""

    field: str
    keys: Sequence[str]
    rest: bool = False
    kept: frozenset[str] = frozenset()


@dataclass(slots=True)
class ScratchTimes:
    """The times of all scratch fields of one board, kept from the moment at which they are known to be scratch.

    ``now_ms`` is the greatest time of any entry, of whatever field.
    """

    now_ms: int = 0
    fields: dict[str, FieldTimes] = field(default_factory=dict)

    def track(self, ttls_ms: Mapping[str, int]) -> None:
        """Follow exactly these fields. What one that is new holds already counts as written by the newest entry."""
        for name in self.fields.keys() - ttls_ms.keys():
            del self.fields[name]
        for name, ttl_ms in ttls_ms.items():
            known = self.fields.setdefault(name, FieldTimes(ttl_ms, rest_ms=self.now_ms))
            known.ttl_ms = ttl_ms

    def advance(self, entry: Entry, keys_max: int = DEFAULT_LIMITS.scratch_keys_max) -> None:
        """Take in an entry. One that removed what had run out writes nothing."""
        self.now_ms = max(self.now_ms, entry.time_ms)
        if not self.fields or entry.kind == "expiry":
            return
        for path in entry.paths:
            name, _, key = path.partition("/")
            times = self.fields.get(name)
            if times is None:
                continue
            if not key:  # the field itself, or more of its keys than an entry lists
                times.rest_ms = self.now_ms
                times.keys.clear()
            else:
                key = split_path(key)[0]
                times.keys.pop(key, None)
                times.keys[key] = self.now_ms
                _bound(times, keys_max)

    def due_at(self) -> int | None:
        """When something runs out next, in milliseconds since 1970; None when nothing does."""
        if not self.fields:
            return None
        return min((due for times in self.fields.values() if (due := times.due_at()) is not None), default=None)

    def due(self, now_ms: int, limit: int) -> list[Due]:
        """What has run out, at most ``limit`` of the keys that are known by name; ends with what was oldest."""
        return [due for name, times in self.fields.items() for due in _due_of(name, times, now_ms, limit)]

    def forget(self, gone: Sequence[Due]) -> None:
        """These are not there any more."""
        for due in gone:
            times = self.fields[due.field]
            for key in due.keys:
                times.keys.pop(key, None)
            if due.rest:
                times.rest_ms = 0

    def to_meta(self) -> dict[str, Any]:
        """As JSON, without the fields' times to live, which are the layout's."""
        fields = {name: [times.rest_ms, times.keys] for name, times in self.fields.items()}
        return {"now_ms": self.now_ms, "fields": fields}

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> ScratchTimes:
        """The inverse of `to_meta`; `track` must be called before anything is asked."""
        fields = {name: FieldTimes(0, rest_ms, dict(keys)) for name, (rest_ms, keys) in dict(meta["fields"]).items()}
        return cls(meta["now_ms"], fields)


def _due_of(name: str, times: FieldTimes, now_ms: int, limit: int) -> Iterator[Due]:
    until = now_ms - times.ttl_ms
    if times.rest_ms and times.rest_ms <= until:
        yield Due(name, (), rest=True, kept=frozenset(times.keys))
    keys = [key for key, time in islice(times.keys.items(), limit) if time <= until]
    if keys:
        yield Due(name, keys)


def _bound(times: FieldTimes, keys_max: int) -> None:
    """Beyond so many keys the older half counts as one, written when its newest was: it lives longer, never shorter."""
    if len(times.keys) > keys_max:
        for key in list(islice(times.keys, keys_max // 2)):
            times.rest_ms = max(times.rest_ms, times.keys.pop(key))
