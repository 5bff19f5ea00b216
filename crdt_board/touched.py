"""What the transactions of one document touch: told to whatever remembers what stood there, and kept as paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from crdt_board.checksums import Checksums
from crdt_board.containers import Containers
from crdt_board.coordination.ledger import Ledger
from crdt_board.field_wires import FieldWires
from crdt_board.item_lists import ItemLists
from crdt_board.layout import STRICT_PREFIX, VIOLATION_PREFIX, FieldLayout
from crdt_board.local_transactions import LocalTransactions
from crdt_board.paths import escape_path
from crdt_board.records import DeepEvent, changed_paths
from crdt_board.standing import Standing
from crdt_board.text_edits import TextEdits


class Touched:
    """Reads the events of the roots, inside each transaction.

    Invariant: a path is among `take_paths` from the end of the transaction that changed it until that is called.
    """

    def __init__(
        self,
        containers: Containers,
        *,
        checksums: Checksums,
        wires: FieldWires,
        edits: TextEdits,
        items: ItemLists,
        standing: Standing,
        ledger: Ledger,
        transactions: LocalTransactions,
    ) -> None:
        self._containers = containers
        self._checksums = checksums
        self._wires = wires
        self._edits = edits
        self._items = items
        self._standing = standing
        self._ledger = ledger
        self._transactions = transactions
        self._paths: set[str] = set()
        self._deepest = (0, "")
        self._unreadable: str | None = None
        self.misplaced: set[str] = set()
        """The fields whose name is a key in ``state`` although they have another place."""
        self.on_events: Callable[[str, Sequence[Any]], None] | None = None
        """Called with the events of each root; only the writer of a board listens."""

    def take_paths(self) -> tuple[str, ...]:
        """The paths that were touched since the last call, in alphabetical order."""
        if not self._paths:
            return ()
        touched = tuple(sorted(self._paths))
        self._paths.clear()
        return touched

    def take_misfit(self, depth_max: int) -> str | None:
        """See `Document.take_misfit`."""
        deepest, self._deepest = self._deepest, (0, "")
        return self.take_unreadable() or (deepest[1] if deepest[0] > depth_max else None)

    def take_unreadable(self) -> str | None:
        """See `Document.take_unreadable`."""
        unreadable, self._unreadable = self._unreadable, None
        return unreadable

    def note_content(self, root: str, events: Sequence[DeepEvent]) -> None:
        """After what is noted of every root in its own way: what does not fit in it, and who else listens."""
        if not self._transactions.is_open:
            self._note_misfits(root, events)
        if self.on_events is not None:
            self.on_events(root, events)

    def note_state(self, _field: str, events: Sequence[DeepEvent]) -> None:
        kinds, wires = self._containers.layout.kinds, self._wires
        for event in events:
            for key in map(str, _changed_keys(event)):
                kind = kinds.get(key)
                if kind is None and not wires.strays:
                    continue  # what the model does not know is kept, but is no field that changed
                self._paths.add(escape_path(key))
                self._forget(key)
                if kind is None:
                    wires.forget_strays()
                elif kind != "scalar":
                    self.misplaced.add(key)

    def note_board(self, _field: str, events: Sequence[DeepEvent]) -> None:
        for event in events:
            for key in map(str, _changed_keys(event)):
                if key.startswith(STRICT_PREFIX):
                    name = key.removeprefix(STRICT_PREFIX)
                    self._paths.add(escape_path(name))
                    self._forget(name)
                elif key.startswith(VIOLATION_PREFIX):
                    self._standing.touch_recorded()

    def note_team(self, _field: str, events: Sequence[DeepEvent]) -> None:
        for event in events:
            for key in _changed_keys(event):
                self._ledger.touch(str(key))

    def note_keys(self, field: str, events: Sequence[DeepEvent]) -> None:
        self._checksums.forget(field)
        self._standing.touch(field)
        for event in events:
            for key in map(str, _changed_keys(event)):
                self._wires.forget_key(field, key)
                self._paths.add(f"{field}/{escape_path(key)}")

    def note_records(self, field: str, events: Sequence[DeepEvent]) -> None:
        self._checksums.forget(field)
        # The layout that is declared now may lack the field.
        layout = self._containers.layout.by_name.get(field) or FieldLayout(name=field, kind="records")
        for event in events:
            way, keys = event.path, getattr(event, "keys", ())
            for record in map(str, way[:1] or keys):  # what another client put there may have no path of its own
                self._checksums.forget_record(field, record)
                self._wires.forget_key(field, record)
            for parts in changed_paths(layout, way, keys):
                path = "/".join([field, *map(escape_path, parts)])
                self._paths.add(path)
                self._items.touch(path)
                self._standing.touch(field, parts[0])
                if not self._transactions.is_open:
                    self._edits.forget(path)

    def note_list(self, field: str, events: Sequence[DeepEvent]) -> None:
        self._checksums.change_list(field, events)
        self.note_whole(field, events)

    def note_whole(self, field: str, _events: Sequence[DeepEvent]) -> None:
        self._forget(field)
        self._standing.touch(field)
        self._paths.add(field)
        if not self._transactions.is_open:
            self._edits.forget_text(field)

    def _forget(self, field: str) -> None:
        self._checksums.forget(field)
        self._wires.forget(field)

    def _note_misfits(self, root: str, events: Sequence[DeepEvent]) -> None:
        for event in events:
            depth = len(event.path)
            if depth > self._deepest[0]:
                self._deepest = (depth, root)
            # [measured] text beyond ASCII in a list shows as an insertion of nothing, and reading the list never ends.
            if type(event).__name__ == "ArrayEvent" and any(part.get("insert") == [] for part in event.delta):
                self._unreadable = root


def _changed_keys(event: DeepEvent) -> Iterable[str | int]:
    """The keys of a root map that an event is about."""
    path = event.path
    return path[:1] if path else event.keys
