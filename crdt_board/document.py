"""The typed layout of a board over one pycrdt Doc: applying updates safely, reading roots, knowing what changed.

A `Document` knows nothing of models, agents, journals or networks. Replicas and the engine each own one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import pycrdt
from pydantic import JsonValue

from crdt_board.cells import CELL_KINDS
from crdt_board.checksums import Checksums
from crdt_board.containers import Containers
from crdt_board.coordination.ledger import Ledger
from crdt_board.document_clocks import DocumentClocks, NotReady
from crdt_board.document_roots import Roots
from crdt_board.errors import MalformedUpdate
from crdt_board.field_wires import FieldWires
from crdt_board.guarding import apply_update, guarded
from crdt_board.intake import Intake
from crdt_board.item_lists import ItemIndex, ItemLists
from crdt_board.layout import BOARD_ROOT, STATE_ROOT, TEAM_ROOT, FieldKind, FieldLayout, Layout
from crdt_board.local_transactions import LocalTransactions
from crdt_board.openings import apart
from crdt_board.paths import escape_path
from crdt_board.put_cells import PutCells
from crdt_board.readiness import Extent
from crdt_board.records import SharedType
from crdt_board.standing import Standing
from crdt_board.text_edits import TextEdits
from crdt_board.text_index import TextIndex
from crdt_board.touched import Touched
from crdt_board.updates import EMPTY_UPDATE

_Root = TypeVar("_Root", pycrdt.Text, "pycrdt.Array[Any]", "pycrdt.Map[Any]")


class Document:
    """One board's content.

    With ``strays``, the keys of the root map ``state`` that no field is named after count as scalar fields: a board
    need not have a model, and agents without one write beside it.

    The parts that it owns remember what is costly to find out, each under invariants of its own. These keep them true:

        1. Everything that changes the document passes its roots, so `Touched` tells the parts of it.
        2. An edit of a text may be pending only inside `local_transaction`, and only until that text, or the document
           as a whole, is looked at: whoever does so settles it before.
        3. Nothing in the document waits for anything: what it is given is ready.
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
        self.standing = Standing()
        self.strays = strays
        self._ledger = Ledger()
        roots = self._roots = dict[str, SharedType]()  # by the field's name
        containers = self._containers = Containers(self.doc, roots, new_id)
        items = self._items = ItemLists(containers)
        edits = self._edits = TextEdits(containers)
        self._cells = PutCells(roots)
        clocks = self._clocks = DocumentClocks(self.doc, edits)
        self._transactions = LocalTransactions(self.doc, edits, clocks)
        self._wires = FieldWires(
            roots,
            containers,
            edits=edits,
            items=items,
            cells=self._cells,
            transactions=self._transactions,
            strays=strays,
        )
        self._checksums = Checksums(roots, containers, wires=self._wires, edits=edits, items=items)
        self._touched = Touched(
            containers,
            checksums=self._checksums,
            wires=self._wires,
            edits=edits,
            items=items,
            standing=self.standing,
            ledger=self._ledger,
            transactions=self._transactions,
        )
        self._observed = Roots(self.doc, roots)
        self._observed.observe_own(self._touched)
        if layout is not None:
            self.declare(layout)

    @property
    def client_id(self) -> int:
        return self.doc.client_id

    @property
    def layout(self) -> Layout:
        """The one that was declared last; without fields before."""
        return self._containers.layout

    @property
    def kinds(self) -> dict[str, FieldKind]:
        return self._containers.layout.kinds

    def declare(self, layout: Layout) -> None:
        """Make the roots of ``layout``. Outside any transaction.

        Fields that are there already and have another root now are in that one from now on.
        """
        self._edits.settle()
        for field in layout.fields:
            if self._observed.declare(field, self._touched):
                self._edits.forget(field.name)
                self._items.touch(field.name)
        self._containers.layout = layout
        self._touched.misplaced.update(self._misplaced_keys())
        self.standing.declare(layout)
        self._checksums.forget_all()
        self._wires.forget_all()

    def watch_events(self, watch: Callable[[str, Sequence[Any]], None] | None) -> None:
        """Call ``watch`` inside each transaction with the events of each root, in place of the one before."""
        self._touched.on_events = watch

    def _misplaced_keys(self) -> list[str]:
        named = [name for name, kind in self.kinds.items() if kind != "scalar"]
        return [name for name in named if name in self.state_map]

    @property
    def has_misplaced(self) -> bool:
        return bool(self._touched.misplaced)

    def take_misplaced(self) -> list[str]:
        """The fields whose name is a key in ``state`` although they have another place, since the last call.

        Who writes there does not know the field's kind, because it has no model.
        """
        found, self._touched.misplaced = self._touched.misplaced, set()
        return sorted(name for name in found if name in self.state_map)

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
        return self._cells.cells(field)

    def put_cell(self, field: str, key: str, wire: JsonValue, replaced: Iterable[str]) -> None:
        """Put a cell in place of others, which are not read any more from now on.

        The document itself is changed by `write_cells`, when the transaction cannot be taken back any more.
        """
        self._cells.put(field, key, wire, replaced)
        self._checksums.forget(field)
        self._wires.forget(field)

    def write_cells(self) -> None:
        """At the end of a transaction that will not be taken back: make what `put_cell` did lasting."""
        self._cells.write()

    def forget_cells(self) -> None:
        """After a transaction was taken back: as if `put_cell` had not been called."""
        for field in self._cells.forget():
            self._checksums.forget(field)
            self._wires.forget(field)

    def root(self, field: str) -> SharedType:
        """The root of a field that has one of its own."""
        self._edits.settle()
        return self._roots[field]

    def clear(self, field: str) -> None:
        """Inside a transaction: remove everything from the root of a field."""
        self._forget(field)
        self._roots[field].clear()

    def text(self, field: str) -> pycrdt.Text:
        self._edits.settle()
        return cast(pycrdt.Text, self._roots[field])

    def array(self, field: str) -> pycrdt.Array[Any]:
        return cast("pycrdt.Array[Any]", self._roots[field])

    def map(self, field: str) -> pycrdt.Map[Any]:
        return cast("pycrdt.Map[Any]", self._roots[field])

    def find(self, path: str, kind: type[_Root]) -> _Root | None:
        """The shared type at ``field``, or in a record at ``field/key/name``; ``field/key`` is the record's own map.

        None when it was not made yet. It must not be kept beyond the next change.
        """
        self._edits.settle()
        return self._containers.find(path, kind)

    def make(self, path: str) -> SharedType:
        """Inside a transaction: the same, made when it is missing.

        All replicas that make a record at once make the same one, and the edits of all of them live.
        """
        self._edits.settle()
        if self._transactions.is_open:
            self.standing.check_opening(self, path)
        return self._containers.make(path)

    def put_record(self, path: str, wire: Mapping[str, JsonValue]) -> None:
        """Inside a transaction: replace the record at ``path`` by one that holds ``wire``, which has been checked."""
        self._forget(path)
        self._transactions.begin_part()
        self._containers.put(path, wire)

    def read_record(self, path: str) -> JsonValue:
        """The record at ``path`` in wire form; None when it is not there."""
        return self._wires.record(path)

    def read_records(self, path: str) -> JsonValue:
        """All records of the field at ``path`` in wire form; empty when it was not made yet."""
        return self._wires.records(path)

    def new_id(self) -> str:
        """An id for a new item of a list of records."""
        return self._containers.new_id()

    def items(self, path: str) -> ItemIndex:
        """The items of the list of records at ``path``, in their order. Not to be kept beyond the next change."""
        self._edits.settle()
        return self._items.of(path)

    def insert_items(self, path: str, gap: int, items: Mapping[str, Mapping[str, JsonValue]]) -> None:
        """Inside a transaction: put new items, by their ids, in front of the one at index ``gap``."""
        self._edits.settle()
        self._items.insert(path, gap, items)

    def move_item(self, path: str, item: str, gap: int) -> None:
        """Inside a transaction: move an item in front of the one that is at index ``gap`` now."""
        self._edits.settle()
        self._items.move(path, item, gap)

    def drop_key(self, path: str, key: str) -> None:
        """Inside a transaction: remove a key of the map at ``path``, and everything below it, if it is there."""
        self._forget(f"{path}/{escape_path(key)}")
        holder = self.find(path, pycrdt.Map)
        if holder is not None and key in holder:
            self._transactions.begin_part()
            holder = self.find(path, pycrdt.Map)
            assert holder is not None
            del holder[key]

    def field_at(self, path: str) -> FieldLayout:
        """The layout of the field at ``path``, which may be inside a record.

        Raises:
            KeyError: there is none.
        """
        return self._wires.field_at(path)

    def read_text(self, path: str) -> str:
        """The text at ``path``; empty when it was not made yet."""
        text = self.find(path, pycrdt.Text)
        return "" if text is None else str(text)

    def roots(self) -> list[SharedType]:
        return list(self._roots.values())

    def undoable_roots(self) -> list[SharedType]:
        """The roots whose edits may be taken back later: all but those with cells, see `crdt_board.cells`."""
        return [root for name, root in self._roots.items() if self.kinds.get(name) not in CELL_KINDS]

    def text_index(self, field: str) -> TextIndex:
        """Code point offsets of a text, by its path; valid until somebody else's change reaches that text."""
        return self._edits.index(field)

    def drop_text_indexes(self) -> None:
        """Forget cached offsets, after a change that did not go through them."""
        self._edits.forget_all()

    def local_transaction(
        self, origin: int | None = None, on_part: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Group local edits, which keep the text indexes themselves, into one transaction.

        ``origin`` tells an `UndoHistory` that the transaction belongs to it. For yrs it is a transaction for each part,
        see `LocalTransactions`; ``on_part`` is called before each but the first.
        """
        return self._transactions.open(origin, on_part)

    def edit_text(self, field: str, start: int, stop: int, inserted: str) -> None:
        """Inside `local_transaction`: replace the code points from ``start`` to ``stop`` of the text at a path.

        ``0 <= start <= stop <= text_index(field).chars``. Adjacent edits become one (invariant 2).
        """
        assert self._transactions.is_open, "an edit of a text outside a local transaction"
        if not self._edits.knows(field):
            self.make(field)
        self._edits.replace(field, start, stop, inserted)

    def check_change(self, path: str, change: int) -> None:
        """Before a local edit makes the field at ``path`` larger or smaller by ``change``, measured as its bounds are.

        Raises:
            InvalidValue: it would go beyond the bounds of the field, or further beyond.
        """
        self.standing.check_change(self, path, change)

    def settle(self) -> None:
        """Make the edit that is pending, so that it is not joined with the next one."""
        self._edits.settle()

    def apply(self, updates: Iterable[bytes]) -> list[MalformedUpdate | None]:
        """Apply updates in one transaction; answer for each whether it was malformed (then it changed nothing).

        They must be ready, as is what the journal and other documents hold.

        Raises:
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        with guarded(), self.doc.transaction():
            answers = [apply_update(self.doc, update) for update in updates]
        self._clocks.lag = True
        return answers

    def apply_ready(
        self, updates: Sequence[tuple[bytes, Extent]], intake: Intake | None = None
    ) -> list[MalformedUpdate | NotReady | bytes | None]:
        """As `DocumentClocks.apply_ready`."""
        return self._clocks.apply_ready(updates, intake)

    def clocks(self) -> dict[int, int]:
        """How far each client has come."""
        return self._clocks.all()

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
        # On the inner type: pycrdt's own wrapper asks each time whether the callback is a coroutine, which takes 3 µs.
        subscription = self.doc._doc.observe(lambda event: captured.append(event.update))
        try:
            with guarded(), self.doc.transaction():
                change()
        finally:
            subscription.drop()
        self._clocks.lag = True
        return captured[0] if captured else EMPTY_UPDATE

    def apart(self, update: bytes) -> list[bytes]:
        """``update``, which was made here just now, as it is to travel; see `crdt_board.openings`."""
        opened = self._containers.opened
        if not opened:
            return [update]
        parts = apart(update, opened, self.client_id)
        opened.clear()
        return parts

    def news_in(self, update: bytes) -> bytes:
        """Apply ``update`` and return only what was new in it (``EMPTY_UPDATE`` when nothing was).

        Raises:
            MalformedUpdate: it is not an update; nothing changed.
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        problems: list[MalformedUpdate | None] = []
        news = self.capture(lambda: problems.append(apply_update(self.doc, update)))
        if problems[0] is not None:
            raise problems[0]
        return news

    def state_vector(self) -> bytes:
        return self._clocks.state_vector()

    def encode(self, since: bytes | None = None) -> bytes:
        """Everything that is not in the state vector ``since``, as one update.

        Raises:
            MalformedUpdate: ``since`` is not a state vector.
        """
        self._edits.settle()
        try:
            with guarded():
                return self.doc.get_update(since)
        except ValueError as error:
            raise MalformedUpdate(f"not a state vector: {error}") from error

    def take_touched(self) -> tuple[str, ...]:
        """The paths that were touched since the last call, in alphabetical order."""
        return self._touched.take_paths()

    def take_misfit(self, depth_max: int) -> str | None:
        """The field that others gave what cannot be read, since the last call: text in a list, or too deep a nest.

        After such a find the document must be rebuilt without it, and nothing may be read before.
        """
        return self._touched.take_misfit(depth_max)

    def take_unreadable(self) -> str | None:
        """The field that others gave text where a list is, since the last call; it must be removed unread."""
        return self._touched.take_unreadable()

    def keep_wires(self) -> None:
        """Keep what is read in wire form from now on, so that only what was touched since is read again.

        It takes the memory of the state as Python's values. What `field_wire` and `wire_state` return is shared then,
        and must not be changed.
        """
        self._wires.keeps = True

    def field_wire(self, name: str) -> JsonValue:
        """A field that has a root of its own, in wire form; empty, zero or None (with cells) when it holds nothing."""
        return self._wires.container(name)

    def wire_state(self, only: Collection[str] | None = None) -> dict[str, JsonValue]:
        """Every field that holds something, in wire form; sets are lists in the order of their canonical JSON.

        ``only`` names fields to leave out all others, which are not read then.
        """
        return self._wires.state(only)

    def wire_at(self, path: str) -> JsonValue:
        """What is at a path as changes name them, in wire form; None when nothing is."""
        return self._wires.at(path)

    def checksum(self) -> str:
        """A hash over the hashes of the fields that hold something; costs only what changed since the last call.

        Fields that were added to the layout and never written do not change it.
        """
        return self._checksums.checksum()

    def written_fields(self) -> tuple[str, ...]:
        """The names of the fields that hold something, in alphabetical order; costs as much as `checksum`."""
        return self._checksums.written_fields()

    def _forget(self, path: str) -> None:
        """Nothing that was known of what is at a path and below it holds any longer."""
        self._edits.settle()
        self._edits.forget(path)
        self._items.touch(path)
