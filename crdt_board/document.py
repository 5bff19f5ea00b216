"""The typed layout of a board over one pycrdt Doc: applying updates safely, reading roots, knowing what changed.

A `Document` knows nothing of models, agents, journals or networks. Replicas and the engine each own one.
"""

from __future__ import annotations

import json
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import isfinite
from typing import Any, Protocol, TypeVar, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.cells import CELL_KINDS, reading
from crdt_board.containers import Containers
from crdt_board.coordination.ledger import Ledger
from crdt_board.errors import MalformedUpdate
from crdt_board.item_lists import ItemIndex, ItemLists
from crdt_board.layout import (
    BOARD_ROOT,
    ITEM_KEY,
    RECORD_KINDS,
    SINGLE_KINDS,
    STATE_ROOT,
    STRICT_PREFIX,
    TEAM_ROOT,
    VIOLATION_PREFIX,
    FieldKind,
    FieldLayout,
    Layout,
)
from crdt_board.readiness import Extent, is_ready
from crdt_board.record_creation import creation_end
from crdt_board.record_hashes import RecordHashes, digest
from crdt_board.records import SharedType, changed_paths, record_wire, records_wire, split_path
from crdt_board.standing import Standing
from crdt_board.text_index import TextIndex
from crdt_board.text_splice import TextSplice
from crdt_board.update_walk import first_clocks, walk
from crdt_board.updates import EMPTY_UPDATE, clock_of, decode_state_vector, encode_state_vector

_Root = TypeVar("_Root", pycrdt.Text, "pycrdt.Array[Any]", "pycrdt.Map[Any]")


_OPENING_DEPTH_MAX = 1_000
_CLOCK_MAX = 1 << 32


class _DeepEvent(Protocol):
    """What pycrdt's inner types hand to a deep observer; ``keys`` exists on events of maps only."""

    @property
    def path(self) -> list[str | int]: ...

    @property
    def keys(self) -> dict[str, Any]: ...

    @property
    def delta(self) -> list[dict[str, Any]]: ...


class DocumentBroken(Exception):
    """yrs panicked while it held the document: its content is no longer to be trusted and must be rebuilt."""


class NotReady(Exception):
    """An update builds on something that the document lacks; it was not given to yrs."""


def _nothing() -> None:
    pass


def escape_path(part: str) -> str:
    """One part of a touched path, with ``~`` and ``/`` escaped as in JSON Pointer (RFC 6901)."""
    return part.replace("~", "~0").replace("/", "~1") if "~" in part or "/" in part else part


def field_of(path: str) -> str:
    """The name of the field that a touched path lies in."""
    return path.partition("/")[0]


class Document:
    """One board's content.

    With ``strays``, the keys of the root map ``state`` that no field is named after count as scalar fields: a board
    need not have a model, and agents without one write beside it.

    Invariants:
        1. Every field of ``layout`` has its root, created before anything is read or written.
        2. A path is in the touched set from the end of the transaction that changed it until `take_touched`.
        3. A cached hash of a field or of a record is never older than its last change; a text index counts pending
           edits too.
        4. What is known of a list of records holds for the present state, inside a transaction too.
        5. An edit of a text may be pending only inside `local_transaction`, and only until that text, or the document
           as a whole, is looked at.
        6. Nothing in the document waits for anything: what it is given is ready. No client has come less far than
           `_clocks` says, and none but this document's own further, unless they lag.
    """

    def __init__(
        self,
        layout: Layout | None = None,
        *,
        client_id: int | None = None,
        strays: bool = False,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        """``new_id`` gives ids for new items of lists of records; they are random when it is None."""
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=client_id)
        self.layout = Layout(title="", fields=())
        self.standing = Standing()
        self._ledger = Ledger()
        self.strays = strays
        self._roots: dict[str, pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any]] = {}  # by the field's name
        self._declared: dict[str, tuple[FieldKind, str]] = {}
        self._subscriptions: dict[str, pycrdt.Subscription] = {}
        self._misplaced: set[str] = set()
        self._stray_names: list[str] | None = None  # None: not known
        self._touched: set[str] = set()
        self._hashes: dict[str, str | None] = {}
        self._record_hashes: defaultdict[str, RecordHashes] = defaultdict(RecordHashes)
        self._text_indexes: dict[str, TextIndex] = {}
        self._pending: TextSplice | None = None
        self._pending_text: pycrdt.Text | None = None
        self._containers = Containers(self.doc, self._roots, new_id)
        self._items = ItemLists(self._containers)
        self._clocks: dict[int, int] = {}
        self._clocks_lag = True
        self._local = False
        self._part: pycrdt.Transaction
        self._on_part: Callable[[], None] = _nothing
        self._origin: int | None = None
        self._put_cells: dict[str, dict[str, JsonValue]] = {}
        self._deepest = (0, "")
        self._unreadable: str | None = None
        self.on_events: Callable[[str, Sequence[Any]], None] | None = None
        """Called inside each transaction with the events of each root; only the writer of a board listens."""
        self._observe(STATE_ROOT, STATE_ROOT, pycrdt.Map, Document._on_state)
        self._observe(BOARD_ROOT, BOARD_ROOT, pycrdt.Map, Document._on_board)
        self._observe(TEAM_ROOT, TEAM_ROOT, pycrdt.Map, Document._on_team)
        if layout is not None:
            self.declare(layout)

    @property
    def client_id(self) -> int:
        return self.doc.client_id

    @property
    def kinds(self) -> dict[str, FieldKind]:
        return self.layout.kinds

    def declare(self, layout: Layout) -> None:
        """Make the roots of ``layout``. Outside any transaction.

        Fields that are there already and have another root now are in that one from now on.
        """
        self._settle()
        for field in layout.fields:
            declared = None if field.kind in SINGLE_KINDS else (field.kind, field.place)
            if self._declared.get(field.name) == declared:
                continue
            self._forget_root(field.name)
            if declared is not None:
                self._declare_root(field)
                self._declared[field.name] = declared
        self.layout = self._containers.layout = layout
        self._misplaced.update(self._misplaced_keys())
        self.standing.declare(layout)
        self._hashes.clear()
        self._record_hashes.clear()
        self._stray_names = None

    def _forget_root(self, name: str) -> None:
        if self._declared.pop(name, None) is not None:
            self._subscriptions.pop(name).drop()
            del self._roots[name]
            self._drop_indexes(name)
            self._items.touch(name)

    def _misplaced_keys(self) -> list[str]:
        named = [name for name, kind in self.kinds.items() if kind != "scalar"]
        return [name for name in named if name in self.state_map]

    @property
    def has_misplaced(self) -> bool:
        return bool(self._misplaced)

    def take_misplaced(self) -> list[str]:
        """The fields whose name is a key in ``state`` although they have another place, since the last call.

        Who writes there does not know the field's kind, because it has no model.
        """
        if not self._misplaced:
            return []
        found, self._misplaced = sorted(name for name in self._misplaced if name in self.state_map), set()
        return found

    @property
    def state_map(self) -> pycrdt.Map[Any]:
        return cast("pycrdt.Map[Any]", self._roots[STATE_ROOT])

    @property
    def board_map(self) -> pycrdt.Map[Any]:
        """What only the writer of the board may change; strict fields are here under ``field:`` and their name."""
        return cast("pycrdt.Map[Any]", self._roots[BOARD_ROOT])

    @property
    def ledger(self) -> Ledger:
        """The records of leases, tasks and their like, as they are now."""
        return self._ledger.refresh(self.map(TEAM_ROOT))

    def take_moved_records(self) -> list[str]:
        """The keys of the records that were changed since the last call."""
        return self._ledger.take_moved()

    def write_records(self, changes: Mapping[str, JsonValue]) -> None:
        """Inside a transaction: put records under these keys of ``$team``; None takes one away."""
        content = self.map(TEAM_ROOT)
        for key, record in changes.items():
            if record is not None:
                content[key] = record
            elif key in content:
                del content[key]

    def cells(self, field: str) -> dict[str, JsonValue]:
        """The cells of a field, those of `put_cell` included."""
        content: dict[str, JsonValue] = json.loads(str(self.map(field)))
        for key, wire in self._put_cells.get(field, {}).items():
            if wire is None:
                content.pop(key, None)
            else:
                content[key] = wire
        return content

    def put_cell(self, field: str, key: str, wire: JsonValue, replaced: Iterable[str]) -> None:
        """Write a cell in place of others, which are not read any more from now on.

        The document itself is changed by `write_cells`, when the transaction cannot be taken back any more: taking back
        would write the cells of other replicas, and could win over what these write meanwhile.
        """
        self._put_cells.setdefault(field, {}).update({**dict.fromkeys(replaced), key: wire})
        self._hashes.pop(field, None)

    def write_cells(self) -> None:
        """At the end of a transaction that will not be taken back: make what `put_cell` did lasting."""
        for field, cells in self._put_cells.items():
            content = self.map(field)
            for key, wire in cells.items():
                if wire is not None:
                    content[key] = wire
                elif key in content:
                    del content[key]
        self._put_cells.clear()

    def forget_cells(self) -> None:
        """After a transaction was taken back: as if `put_cell` had not been called."""
        for field in self._put_cells:
            self._hashes.pop(field, None)
        self._put_cells.clear()

    def root(self, field: str) -> pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any]:
        """The root of a field that has one of its own."""
        self._settle()
        return self._roots[field]

    def clear(self, field: str) -> None:
        """Inside a transaction: remove everything from the root of a field."""
        self._forget(field)
        self._roots[field].clear()

    def text(self, field: str) -> pycrdt.Text:
        self._settle()
        return cast(pycrdt.Text, self._roots[field])

    def array(self, field: str) -> pycrdt.Array[Any]:
        return cast("pycrdt.Array[Any]", self._roots[field])

    def map(self, field: str) -> pycrdt.Map[Any]:
        return cast("pycrdt.Map[Any]", self._roots[field])

    def find(self, path: str, kind: type[_Root]) -> _Root | None:
        """The shared type at ``field``, or in a record at ``field/key/name``; ``field/key`` is the record's own map.

        None when it was not made yet. It must not be kept beyond the next change.
        """
        self._settle()
        return self._containers.find(path, kind)

    def make(self, path: str) -> SharedType:
        """Inside a transaction: the same, made when it is missing.

        All replicas that make a record at once make the same one, and the edits of all of them live.
        """
        self._settle()
        if self._local:
            self.standing.check_opening(self, path)
        return self._containers.make(path)

    def put_record(self, path: str, wire: Mapping[str, JsonValue]) -> None:
        """Inside a transaction: replace the record at ``path`` by one that holds ``wire``, which has been checked."""
        self._forget(path)
        self._begin_part()
        self._containers.put(path, wire)

    def read_record(self, path: str) -> JsonValue:
        """The record at ``path`` in wire form; None when it is not there."""
        record = self.find(path, pycrdt.Map)
        if record is None:
            return None
        return record_wire(json.loads(str(record)), self.field_at(path.rpartition("/")[0]), path, self._items.ids_at)

    def read_records(self, path: str) -> JsonValue:
        """All records of the field at ``path`` in wire form; empty when it was not made yet."""
        records = self.find(path, pycrdt.Map)
        content = {} if records is None else json.loads(str(records))
        return records_wire(content, self.field_at(path), path, self._items.ids_at)

    def new_id(self) -> str:
        """An id for a new item of a list of records."""
        return self._containers.new_id()

    def items(self, path: str) -> ItemIndex:
        """The items of the list of records at ``path``, in their order. Not to be kept beyond the next change."""
        self._settle()
        return self._items.of(path)

    def insert_items(self, path: str, gap: int, items: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Inside a transaction: put new items, by their ids, in front of the one at index ``gap``."""
        self._settle()
        self._items.insert(path, gap, items)

    def move_item(self, path: str, item: str, gap: int) -> None:
        """Inside a transaction: move an item in front of the one that is at index ``gap`` now."""
        self._settle()
        self._items.move(path, item, gap)

    def drop_key(self, path: str, key: str) -> None:
        """Inside a transaction: remove a key of the map at ``path``, and everything below it, if it is there."""
        self._forget(f"{path}/{escape_path(key)}")
        holder = self.find(path, pycrdt.Map)
        if holder is not None and key in holder:
            self._begin_part()
            holder = self.find(path, pycrdt.Map)
            assert holder is not None
            del holder[key]

    def field_at(self, path: str) -> FieldLayout:
        """The layout of the field at ``path``, which may be inside a record.

        Raises:
            KeyError: there is none.
        """
        try:
            return self._containers.field_at(path)
        except KeyError:
            if self.strays and "/" not in path:
                return FieldLayout.model_construct(name=split_path(path)[0], kind="scalar")
            raise

    def read_text(self, path: str) -> str:
        """The text at ``path``; empty when it was not made yet."""
        text = self.find(path, pycrdt.Text)
        return "" if text is None else str(text)

    def roots(self) -> list[pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any]]:
        return list(self._roots.values())

    def undoable_roots(self) -> list[pycrdt.Text | pycrdt.Array[Any] | pycrdt.Map[Any]]:
        """The roots whose edits may be taken back later: all but those with cells, see `crdt_board.cells`."""
        return [root for name, root in self._roots.items() if self.kinds.get(name) not in CELL_KINDS]

    def text_index(self, field: str) -> TextIndex:
        """Code point offsets of a text, by its path; valid until somebody else's change reaches that text."""
        index = self._text_indexes.get(field)
        if index is None:
            text = self.find(field, pycrdt.Text)
            if text is None:
                return TextIndex()
            index = self._text_indexes[field] = TextIndex(str(text))
        return index

    def drop_text_indexes(self) -> None:
        """Forget cached offsets, after a change that did not go through them."""
        self._text_indexes.clear()

    @contextmanager
    def local_transaction(self, origin: int | None = None, on_part: Callable[[], None] = _nothing) -> Iterator[None]:
        """Group local edits, which keep the text indexes themselves, into one transaction.

        ``origin`` tells an `UndoHistory` that the transaction belongs to it.

        For yrs it is a transaction for each part, of which one begins before each removal or replacement of a record;
        ``on_part`` is called before. Taken back at once, a change of a key in the record and its removal have the key
        in the new record here, but in the old one on other replicas [measured].
        """
        self._local = True
        self._on_part, self._origin = on_part, origin
        try:
            with guarded():
                self._open_part()
                try:
                    yield
                finally:
                    self._close_part()
        finally:
            self._local = False
            self._clocks_lag = True

    def _begin_part(self) -> None:
        if self._local:
            self._close_part()
            self._on_part()
            self._open_part()

    def _open_part(self) -> None:
        self._part = self.doc.transaction(origin=self._origin)
        self._part.__enter__()

    def _close_part(self) -> None:
        try:
            self._settle()
        finally:
            self._part.__exit__(None, None, None)

    def edit_text(self, field: str, start: int, stop: int, inserted: str) -> None:
        """Inside `local_transaction`: replace the code points from ``start`` to ``stop`` of the text at a path.

        ``0 <= start <= stop <= text_index(field).chars``. Adjacent edits become one (invariant 5).
        """
        assert self._local, "an edit of a text outside a local transaction"
        if field not in self._text_indexes:
            self.make(field)
        index = self.text_index(field)
        first, last = index.to_byte(start), index.to_byte(stop)
        index.replace(start, stop, inserted)
        pending, encoded = self._pending, inserted.encode()
        if pending is None or pending.field != field or not pending.join(first, last, encoded):
            self._pending_text = self.find(field, pycrdt.Text)
            self._pending = TextSplice(field, first, last, encoded)

    def check_change(self, path: str, change: int) -> None:
        """Before a local edit makes the field at ``path`` larger or smaller by ``change``, measured as its bounds are.

        Raises:
            InvalidValue: it would go beyond the bounds of the field, or further beyond.
        """
        self.standing.check_change(self, path, change)

    def settle(self) -> None:
        """Make the edit that is pending, so that it is not joined with the next one."""
        self._settle()

    def _settle(self) -> None:
        """Make the pending edit."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        text, self._pending_text = self._pending_text, None
        assert text is not None
        if pending.removed:
            del text[pending.start : pending.start + pending.removed]
        if pending.inserted:
            text.insert(pending.start, pending.inserted.decode())

    def apply(self, updates: Iterable[bytes]) -> list[MalformedUpdate | None]:
        """Apply updates in one transaction; answer for each whether it was malformed (then it changed nothing).

        They must be ready, as is what the journal and other documents hold.

        Raises:
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        with guarded(), self.doc.transaction():
            answers = [self._apply_one(update) for update in updates]
        self._clocks_lag = True
        return answers

    def apply_ready(self, updates: Sequence[tuple[bytes, Extent]]) -> list[MalformedUpdate | NotReady | None]:
        """Apply those updates that are ready when their turn comes; answer for each why it changed nothing.

        In one transaction, or two.

        Raises:
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        answers = self._apply_ready(updates)
        late = [index for index, answer in enumerate(answers) if isinstance(answer, NotReady)]
        if late and self._catch_up_clocks(updates[late[0]][1]):
            for index, answer in zip(late, self._apply_ready([updates[index] for index in late]), strict=True):
                answers[index] = answer
        return answers

    def _apply_ready(self, updates: Sequence[tuple[bytes, Extent]]) -> list[MalformedUpdate | NotReady | None]:
        answers: list[MalformedUpdate | NotReady | None] = []
        clocks = self._clocks
        with guarded(), self.doc.transaction():
            for update, extent in updates:
                if not is_ready(extent, clocks):
                    answers.append(NotReady())
                    continue
                answer = self._apply_one(update)
                answers.append(answer)
                if answer is None:
                    for client, end in extent.ends.items():
                        if end > clocks.get(client, 0):
                            clocks[client] = end
        return answers

    def is_ready(self, extent: Extent) -> bool:
        """Whether the document holds everything that an update of this extent builds on."""
        return is_ready(extent, self._clocks) or self._catch_up_clocks(extent)

    def clocks(self) -> dict[int, int]:
        """How far each client has come."""
        self._clocks = decode_state_vector(self.state_vector())
        self._clocks_lag = False
        return self._clocks

    def _catch_up_clocks(self, extent: Extent) -> bool:
        """Whether an update that did not seem to be ready is; the own clock is looked up first, which costs less."""
        if extent.needs is None:
            return False
        if self.client_id in extent.needs:
            self._clocks[self.client_id] = clock_of(self.client_id, self.state_vector())
            if is_ready(extent, self._clocks):
                return True
        return self._clocks_lag and is_ready(extent, self.clocks())

    def apply_or_raise(self, updates: Iterable[bytes]) -> None:
        """Apply updates that must be well-formed, as those from the journal are.

        Raises:
            MalformedUpdate: one is not; those before it are applied.
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        for problem in self.apply(updates):
            if problem is not None:
                raise problem

    def capture(self, change: Callable[[], None]) -> bytes:
        """Run ``change`` in one transaction and return the update that it made (``EMPTY_UPDATE`` when none).

        The observer is there only meanwhile: it copies the state vector in every transaction, which costs
        milliseconds on a document that many clients have written.
        """
        captured: list[bytes] = []
        subscription = self.doc.observe(lambda event: captured.append(event.update))
        try:
            with guarded(), self.doc.transaction():
                change()
        finally:
            self.doc.unobserve(subscription)
        self._clocks_lag = True
        return captured[0] if captured else EMPTY_UPDATE

    def apart(self, update: bytes) -> list[bytes]:
        """``update``, which was made here just now, as it is to travel: before it and one by one, what opens records.

        So what opens a record waits for nothing else that this replica wrote; unless it goes where something was
        removed by the same update, which then stays whole.
        """
        opened = self._containers.opened
        if not opened:
            return [update]
        clocks = first_clocks(update)
        apart: list[bytes] = []
        for opening in opened:
            client, end = creation_end(opening)
            if client in clocks:  # else it was known already
                needs = walk(opening, _OPENING_DEPTH_MAX).needs or {}
                if needs.get(self.client_id, 0) > clocks.get(self.client_id, _CLOCK_MAX):
                    opened.clear()
                    return [update]
                clocks[client] = end
                apart.append(opening)
        opened.clear()
        rest = pycrdt.get_update(update, encode_state_vector(clocks))
        return apart if rest == EMPTY_UPDATE else [*apart, rest]

    def news_in(self, update: bytes) -> bytes:
        """Apply ``update`` and return only what was new in it (``EMPTY_UPDATE`` when nothing was).

        Raises:
            MalformedUpdate: it is not an update; nothing changed.
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        problems: list[MalformedUpdate | None] = []
        news = self.capture(lambda: problems.append(self._apply_one(update)))
        if problems[0] is not None:
            raise problems[0]
        return news

    def state_vector(self) -> bytes:
        self._settle()
        return self.doc.get_state()

    def encode(self, since: bytes | None = None) -> bytes:
        """Everything that is not in the state vector ``since``, as one update.

        Raises:
            MalformedUpdate: ``since`` is not a state vector.
        """
        self._settle()
        try:
            with guarded():
                return self.doc.get_update(since)
        except ValueError as error:
            raise MalformedUpdate(f"not a state vector: {error}") from error

    def take_touched(self) -> tuple[str, ...]:
        """The paths that were touched since the last call, in alphabetical order."""
        if not self._touched:
            return ()
        touched = tuple(sorted(self._touched))
        self._touched.clear()
        return touched

    def take_misfit(self, depth_max: int) -> str | None:
        """The field that others gave what cannot be read, since the last call: text in a list, or too deep a nest.

        After such a find the document must be rebuilt without it, and nothing may be read before.
        """
        deepest, self._deepest = self._deepest, (0, "")
        unreadable, self._unreadable = self._unreadable, None
        return unreadable or (deepest[1] if deepest[0] > depth_max else None)

    def take_unreadable(self) -> str | None:
        """The field that others gave text where a list is, since the last call; it must be removed unread."""
        unreadable, self._unreadable = self._unreadable, None
        return unreadable

    def field_wire(self, name: str) -> JsonValue:
        """A field that has a root of its own, in wire form; empty, zero or None (with cells) when it holds nothing."""
        return self._wire_container(name, self.kinds[name])

    def wire_state(self, only: Collection[str] | None = None) -> dict[str, JsonValue]:
        """Every field that holds something, in wire form; sets are lists in the order of their canonical JSON.

        ``only`` names fields to leave out all others, which are not read then.
        """
        assert not isinstance(only, str), only
        names = self.kinds if only is None else [name for name in self.kinds if name in only]
        values = self._single_values() if only is None else self._values_of(only)
        state = {name: wire for name, wire in values.items() if name not in self.kinds}
        for name in names:
            kind = self.kinds[name]
            if kind in SINGLE_KINDS:
                if name in values:
                    state[name] = values[name]
            else:
                value = self._wire_container(name, kind)
                if _is_something(value, kind) or kind == "counter":
                    state[name] = value
        return state

    def wire_at(self, path: str) -> JsonValue:
        """What is at a path as changes name them, in wire form; None when nothing is."""
        name, *keys = split_path(path)
        if keys and self.kinds.get(name) in RECORD_KINDS:
            value = self.read_record("/".join(path.split("/")[:2]))
            keys = keys[1:]
        else:
            value = self.wire_state((name,)).get(name)
        for key in keys:
            value = _value_below(value, key)
        return value

    def checksum(self) -> str:
        """A hash over the hashes of the fields that hold something; costs only what changed since the last call.

        Fields that were added to the layout and never written do not change it.
        """
        present: dict[str, JsonValue] = {name: each for name, each in self._fresh_hashes().items() if each is not None}
        return digest(present)

    def written_fields(self) -> tuple[str, ...]:
        """The names of the fields that hold something, in alphabetical order; costs as much as `checksum`."""
        return tuple(sorted(name for name, each in self._fresh_hashes().items() if each is not None))

    def _fresh_hashes(self) -> dict[str, str | None]:
        strays = self._strays()
        stale = [name for name in (*self.kinds, *strays) if name not in self._hashes]
        if stale:
            values = self._some_values([name for name in stale if self._kind_of(name) in SINGLE_KINDS])
            for name in stale:
                self._hashes[name] = self._field_hash(name, values)
        return self._hashes

    def _single_values(self) -> dict[str, JsonValue]:
        """The scalars, strict fields and strays that were written."""
        scalars, strict = json.loads(str(self.state_map)), json.loads(str(self.board_map))
        values: dict[str, JsonValue] = {}
        if self.strays:
            values.update((name, wire) for name, wire in scalars.items() if name not in self.kinds)
        for name, kind in self.kinds.items():
            if kind == "scalar" and name in scalars:
                values[name] = scalars[name]
            elif kind == "strict" and STRICT_PREFIX + name in strict:
                values[name] = strict[STRICT_PREFIX + name]
        return values

    def _values_of(self, names: Collection[str]) -> dict[str, JsonValue]:
        """Those of `_single_values` that are named, and texts, null and booleans without reading the others."""
        singles = [
            name for name in names if (name in self.kinds or self.strays) and self._kind_of(name) in SINGLE_KINDS
        ]
        values = self._some_values(singles)
        if any(type(value) is float for value in values.values()):
            values = self._single_values()  # as JSON, which tells 5 from 5.0
        return {name: values[name] for name in singles if name in values}

    def _strays(self) -> list[str]:
        if self._stray_names is None:
            names = self.state_map.keys() if self.strays else ()
            self._stray_names = [name for name in names if name not in self.kinds]
        return self._stray_names

    def _kind_of(self, name: str) -> FieldKind:
        return self.kinds.get(name, "scalar")

    def _some_values(self, names: Sequence[str]) -> dict[str, JsonValue]:
        """`_single_values` of some fields, each read by itself where that gives what all of them read as JSON would."""
        values: dict[str, JsonValue] = {}
        for name in names:
            try:
                value = (
                    self.state_map[name] if self._kind_of(name) == "scalar" else self.board_map[STRICT_PREFIX + name]
                )
            except KeyError:
                continue
            if value is None or isinstance(value, str | bool) or (isinstance(value, float) and isfinite(value)):
                values[name] = value
            else:
                return self._single_values()
        return values

    def _field_hash(self, name: str, values: dict[str, JsonValue]) -> str | None:
        kind = self._kind_of(name)
        if kind in SINGLE_KINDS:
            if name not in values:
                return None
            value = values[name]
        elif kind == "records":
            self._settle()
            return self._record_hashes[name].field_hash(self.map(name), self.layout.by_name[name], self._items.ids_at)
        else:
            value = self._wire_container(name, kind)
            if not _is_something(value, kind):
                return None
        return digest(value)

    def _wire_container(self, name: str, kind: FieldKind) -> JsonValue:
        if kind == "text":
            return str(self.text(name))
        if kind in RECORD_KINDS:
            return self.read_records(name)
        if kind == "list":
            return cast(JsonValue, json.loads(str(self.array(name))))
        if kind in CELL_KINDS:
            return reading(self.layout.by_name[name], self.cells(name))
        content = json.loads(str(self.map(name)))
        if kind == "set":
            return [content[key] for key in sorted(content)]
        return sum(cell for cell in content.values() if isinstance(cell, int)) if kind == "counter" else content

    def _declare_root(self, field: FieldLayout) -> None:
        name, place, kind = field.name, field.place, field.kind

        def whole(document: Document, _events: Sequence[_DeepEvent]) -> None:
            document._on_whole(name)

        def keys(document: Document, events: Sequence[_DeepEvent]) -> None:
            document._on_keys(name, events)

        def records(document: Document, events: Sequence[_DeepEvent]) -> None:
            document._on_records(name, events)

        if kind == "text":
            self._observe(name, place, pycrdt.Text, whole)
        elif kind == "list":
            self._observe(name, place, pycrdt.Array, whole)
        elif kind in RECORD_KINDS:
            self._observe(name, place, pycrdt.Map, records)
        else:
            self._observe(name, place, pycrdt.Map, whole if kind == "counter" or kind in CELL_KINDS else keys)

    def _observe(
        self, name: str, place: str, kind: type[_Root], on_change: Callable[[Document, Sequence[_DeepEvent]], None]
    ) -> None:
        root = self.doc.get(place, type=kind)
        # yrs holds the callback where the garbage collector does not see it: were the document in it, it would never
        # be freed.
        reference = weakref.ref(self)

        def call(events: Sequence[_DeepEvent]) -> None:
            document = reference()
            if document is not None:
                on_change(document, events)
                if not document._local:
                    document._note_misfits(name, events)
                if document.on_events is not None:
                    document.on_events(name, events)

        # pycrdt's own wrapper works out every attribute of an event, the delta of a text too, which takes longer than
        # applying the update; on the inner type they are worked out when they are asked for.
        self._subscriptions[name] = root.integrated.observe_deep(cast(Any, call))
        self._roots[name] = root

    def _note_misfits(self, root: str, events: Sequence[_DeepEvent]) -> None:
        for event in events:
            depth = len(event.path)
            if depth > self._deepest[0]:
                self._deepest = (depth, root)
            # [measured] text beyond ASCII in a list shows as an insertion of nothing, and reading the list never ends.
            parts = event.delta if type(event).__name__ == "ArrayEvent" else []
            if any(part.get("insert") == [] for part in parts):
                self._unreadable = root

    def _on_state(self, events: Sequence[_DeepEvent]) -> None:
        for event in events:
            for key in _changed_keys(event):
                kind = self.kinds.get(str(key))
                if kind is None and not self.strays:
                    continue  # what the model does not know is kept, but is no field that changed
                self._touched.add(escape_path(str(key)))
                self._hashes.pop(str(key), None)
                if kind is None:
                    self._stray_names = None
                if kind not in (None, "scalar"):
                    self._misplaced.add(str(key))

    def _on_board(self, events: Sequence[_DeepEvent]) -> None:
        for event in events:
            for key in _changed_keys(event):
                name = str(key)
                if name.startswith(STRICT_PREFIX):
                    self._touched.add(escape_path(name.removeprefix(STRICT_PREFIX)))
                    self._hashes.pop(name.removeprefix(STRICT_PREFIX), None)
                elif name.startswith(VIOLATION_PREFIX):
                    self.standing.touch_recorded()

    def _on_team(self, events: Sequence[_DeepEvent]) -> None:
        for event in events:
            for key in _changed_keys(event):
                self._ledger.touch(str(key))

    def _on_keys(self, field: str, events: Sequence[_DeepEvent]) -> None:
        self._hashes.pop(field, None)
        self.standing.touch(field)
        for event in events:
            for key in _changed_keys(event):
                self._touched.add(f"{field}/{escape_path(str(key))}")

    def _on_records(self, field: str, events: Sequence[_DeepEvent]) -> None:
        self._hashes.pop(field, None)
        for event in events:
            for parts in changed_paths(self._observed_field(field), event.path, getattr(event, "keys", ())):
                self._record_hashes[field].forget(parts[0])
                path = "/".join([field, *map(escape_path, parts)])
                self._touched.add(path)
                self._items.touch(path)
                self.standing.touch(field, parts[0])
                if not self._local:
                    self._drop_indexes(path)

    def _observed_field(self, name: str) -> FieldLayout:
        """The field of a root, also when the layout that is declared now lacks it."""
        return self.layout.by_name.get(name) or FieldLayout(name=name, kind="records")

    def _forget(self, path: str) -> None:
        """Nothing that was known of what is at a path and below it holds any longer."""
        self._settle()
        self._drop_indexes(path)
        self._items.touch(path)

    def _drop_indexes(self, path: str) -> None:
        below = f"{path}/"
        for each in [each for each in self._text_indexes if each == path or each.startswith(below)]:
            del self._text_indexes[each]

    def _on_whole(self, field: str) -> None:
        self._hashes.pop(field, None)
        self.standing.touch(field)
        self._touched.add(field)
        if not self._local:
            self._text_indexes.pop(field, None)

    def _apply_one(self, update: bytes) -> MalformedUpdate | None:
        try:
            self.doc.apply_update(update)
        except ValueError as error:
            return MalformedUpdate(f"not a Yjs update: {error}")
        except RuntimeError as error:
            # yrs could not integrate a block, and may have integrated others before it.
            raise DocumentBroken(str(error)) from error
        return None


def _value_below(value: JsonValue, key: str) -> JsonValue:
    """What a JSON value has under a key; a list of items, under an id."""
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list):
        return next((item for item in value if isinstance(item, dict) and item.get(ITEM_KEY) == key), None)
    return None


def _is_something(value: JsonValue, kind: FieldKind) -> bool:
    """Whether a field holds something: cells hold values that may be false or zero, containers are not empty."""
    return value is not None if kind in CELL_KINDS else bool(value)


def _changed_keys(event: _DeepEvent) -> Iterable[str | int]:
    """The keys of a root map that an event is about."""
    path = event.path
    return path[:1] if path else event.keys


@contextmanager
def _guard() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        # pyo3 raises panics as a BaseException whose class cannot be imported; [measured] a caught one leaves the
        # interpreter sound, but not the document.
        if type(error).__name__ == "PanicException":
            raise DocumentBroken(str(error)) from error
        raise


def guarded() -> AbstractContextManager[None]:
    """Turn a panic of yrs inside the block into `DocumentBroken`."""
    return _guard()
