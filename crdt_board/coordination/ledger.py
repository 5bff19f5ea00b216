"""The records of one document, parsed, and a draft of what they are to become."""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pycrdt
from pydantic import JsonValue, ValidationError

from crdt_board.coordination.approvals import ApprovalRecord
from crdt_board.coordination.cursors import CursorRecord
from crdt_board.coordination.effects import EffectRecord
from crdt_board.coordination.leases import FenceRecord, LeaseRecord
from crdt_board.coordination.reactions import ReactionRecord
from crdt_board.coordination.records import Index, Record, stored
from crdt_board.coordination.steps import StepRecord
from crdt_board.coordination.task_record import TaskRecord
from crdt_board.coordination.watching import Watching
from crdt_board.wire_values import document_wire

RECORDS: dict[str, type[Record]] = {
    kind.prefix: kind
    for kind in (
        ApprovalRecord,
        CursorRecord,
        FenceRecord,
        LeaseRecord,
        ReactionRecord,
        TaskRecord,
        EffectRecord,
        StepRecord,
    )
}
"""Every kind of record by its prefix."""

_DEADLINES_SPARE = 64

R = TypeVar("R", bound=Record)

_Kind = dict[str, Record]

logger = logging.getLogger(__name__)


class Ledger:
    """What the root map ``$team`` of a document holds.

    Invariant: what is read is that of the document now, as long as its owner calls `touch` for every key that changes.
    What stands there and is no record, which only a faulty version of this program writes, is passed over.
    """

    def __init__(self) -> None:
        self._kinds: dict[type[Record], _Kind] = {}  # made as records come: most boards have none
        self._indexes: dict[type[Record], Index] = {}
        self._stale: set[str] = set()
        self._decided_ms: float = math.inf
        self._deadlines: list[tuple[int, str]] = []
        self._moved: set[str] = set()
        self.watching = Watching()
        """The records that a change of the board's fields may concern."""
        self.busy: set[str] = set()
        """The keys of the records that an agent is at, or should be."""

    def touch(self, key: str) -> None:
        self._stale.add(key)
        self._moved.add(key)

    def take_moved(self) -> list[str]:
        """The keys that were touched since the last call, in alphabetical order."""
        if not self._moved:
            return []
        moved, self._moved = sorted(self._moved), set()
        return moved

    def refresh(self, content: pycrdt.Map[Any]) -> Ledger:
        """Read again what was touched."""
        if not self._stale:
            return self
        stale, self._stale = self._stale, set()
        for key in stale:
            prefix, _, name = key.partition(":")
            kind = RECORDS.get(prefix)
            if kind is None:
                continue
            self._replace(kind, name, _read(kind, key, content.get(key)))
        if len(self._deadlines) > _DEADLINES_SPARE + 2 * len(self):
            self._forget_former_deadlines()
        return self

    def _replace(self, kind: type[Record], name: str, record: Record | None) -> None:
        key = f"{kind.prefix}:{name}"
        self.watching.replace(key, record.watches if record is not None else ())
        self.busy.discard(key)
        records = self._kinds.setdefault(kind, {})
        if kind.index is not None:
            self.index(kind).replace(records.get(name), record)
        if record is None:
            records.pop(name, None)
            return
        records[name] = record
        if record.is_busy:
            self.busy.add(key)
        if record.deadline_ms is not None:
            heapq.heappush(self._deadlines, (record.deadline_ms, key))

    def _forget_former_deadlines(self) -> None:
        """Each renewal leaves one behind, and only those of an earlier time come up by themselves."""
        records = (record for kind in self._kinds.values() for record in kind.values())
        self._deadlines = [(each.deadline_ms, each.key) for each in records if each.deadline_ms is not None]
        heapq.heapify(self._deadlines)

    def index(self, kind: type[Record]) -> Index:
        """The index of a kind that has one; true of the records as they are now."""
        if kind not in self._indexes:
            assert kind.index is not None, kind
            self._indexes[kind] = kind.index()
        return self._indexes[kind]

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def get(self, kind: type[R], name: str) -> R | None:
        return self.all(kind).get(name)

    def all(self, kind: type[R]) -> Mapping[str, R]:
        """The records of a kind by name, in no order."""
        return self._kinds.get(kind, {})  # type: ignore[return-value]

    def everything(self) -> dict[str, Record]:
        """All records by key, in no order."""
        return {record.key: record for records in self._kinds.values() for record in records.values()}

    def next_deadline_ms(self) -> int | None:
        """The earliest of all records; None when there is none."""
        while self._deadlines and self._deadline_of(self._deadlines[0][1]) != self._deadlines[0][0]:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def run_out(self, now_ms: int) -> Iterator[Record]:
        """The records whose deadline has passed."""
        for deadline_ms, key in sorted(set(_up_to(self._deadlines, now_ms))):
            record = self._find(key)
            if record is not None and record.deadline_ms == deadline_ms:
                yield record

    def set_back(self, now_ms: int) -> Iterator[Record]:
        """The records with a deadline, when the clock shows less than at the last decision, or none was made yet."""
        if now_ms < self._decided_ms:
            for key in sorted({key for _, key in self._deadlines}):
                record = self._find(key)
                if record is not None and record.deadline_ms is not None:
                    yield record

    def decided_at(self, now_ms: int) -> None:
        """All that was to change at this time has been written."""
        self._decided_ms = now_ms

    def has(self, key: str) -> bool:
        return self._find(key) is not None

    def _find(self, key: str) -> Record | None:
        prefix, _, name = key.partition(":")
        return self.all(RECORDS[prefix]).get(name)

    def _deadline_of(self, key: str) -> int | None:
        record = self._find(key)
        return record.deadline_ms if record is not None else None


@dataclass(slots=True)
class Draft:
    """The records as they will be when an entry is appended: those of a ledger, with changes on top.

    ``agent`` is who asks, ``now_ms`` the time on the store's clock. ``version`` and ``checkpoint_hash`` are those of
    the board's newest checkpoint. ``digest`` gives a hash over what is at some paths now, and ``find`` what is at one:
    None when nothing is; it raises InvalidValue when the board has no such field.
    """

    ledger: Ledger
    agent: str
    now_ms: int
    version: int
    checkpoint_hash: str
    digest: Callable[[Sequence[str]], str]
    find: Callable[[str], JsonValue]
    commits: bool = False
    """Whether the entry is a commit, which makes the next version."""
    changes: dict[str, JsonValue] = field(default_factory=dict)
    """What is to be written under which key; None takes a key away."""
    _records: dict[str, Record | None] = field(default_factory=dict)
    _put: dict[str, Record] = field(default_factory=dict)
    """Those of ``_records`` that are there; so that taking away many costs no look at what is gone, each time."""

    def get(self, kind: type[R], name: str) -> R | None:
        key = f"{kind.prefix}:{name}"
        return self._records[key] if key in self._records else self.ledger.get(kind, name)  # type: ignore[return-value]

    def all(self, kind: type[R]) -> Iterator[R]:
        """The records of a kind, in no order."""
        for name, record in self.ledger.all(kind).items():
            if f"{kind.prefix}:{name}" not in self._records:
                yield record
        yield from self.changed(kind)

    def put(self, record: Record) -> None:
        if self.get(type(record), record.name) != record:
            self._records[record.key] = self._put[record.key] = record
            self.changes[record.key] = stored(record)

    def drop(self, record: Record) -> None:
        self._records[record.key] = None
        self._put.pop(record.key, None)
        self.changes[record.key] = None

    def put_or_drop(self, record: R, after: R | None) -> None:
        """What ``record`` is from now on; None when it is no more."""
        if after is None:
            self.drop(record)
        else:
            self.put(after)

    def changed(self, kind: type[R]) -> Iterator[R]:
        """The records of a kind that were put into this draft."""
        return (record for record in self._put.values() if isinstance(record, kind))

    def differs(self, kind: type[R], name: str) -> bool:
        """Whether a record is another one than in the ledger."""
        return f"{kind.prefix}:{name}" in self._records

    def growth(self) -> int:
        """How many records there are more than in the ledger."""
        before = sum(self.ledger.has(key) for key in self._records)
        return sum(record is not None for record in self._records.values()) - before

    def let_run_out(self) -> None:
        """Bring every record whose deadline has passed to what it is now. Comes before any decision."""
        for record in self.ledger.set_back(self.now_ms):
            self.put(record.when_set_back(self.now_ms))
        for record in self.ledger.run_out(self.now_ms):
            now = self.get(type(record), record.name)
            if now is not None:
                now.end(self)


def _up_to(deadlines: list[tuple[int, str]], now_ms: int) -> Iterator[tuple[int, str]]:
    """Those of a heap that are not later; looks at these and their neighbours only."""
    waiting = [0]
    while waiting:
        at = waiting.pop()
        if at < len(deadlines) and deadlines[at][0] <= now_ms:
            yield deadlines[at]
            waiting += (2 * at + 1, 2 * at + 2)


def _read(kind: type[Record], key: str, value: Any) -> Record | None:
    if value is None:
        return None
    try:
        record = kind.model_validate(document_wire(value))
    except ValidationError as error:
        logger.warning("%s is no record, and is passed over: %s", key, error)
        return None
    return record if record.key == key else None
