"""A field of ``board.state`` that holds a list of records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, TypeVar, cast, overload

from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.containers import item_gone
from crdt_board.errors import NotFound
from crdt_board.fields import FieldSpec, plain_value
from crdt_board.identities import content_of
from crdt_board.item_lists import ItemIndex
from crdt_board.item_matching import Item, items_to_move, match_items
from crdt_board.layout import ITEM_KEY
from crdt_board.live.editor import Editor
from crdt_board.live.snapshots import record_from_wire
from crdt_board.schema import BoardModel
from crdt_board.wire_values import check_text, child_path, invalid_value

T = TypeVar("T")


class LiveRecordList(MutableSequence[T]):
    """A ``list`` of live records, each of which stays the same item wherever it is moved to.

    What ``items[i]`` gives is bound to the item that is there now, not to the index: it goes on meaning that item when
    others insert, move and delete around it, and raises NotFound when the item itself is deleted. Models that are put
    in are copied; every one is validated before anything is written.
    """

    __slots__ = ("_editor", "_live", "_path", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its content changes

    def __init__(self, editor: Editor, spec: FieldSpec, path: str, live: Callable[[str], Any]) -> None:
        """``live`` gives the live record at a path."""
        self._editor = editor
        self._live = live
        self._spec = spec
        self._path = path

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """The live record of the item that is at an index now, or a plain list of those of a slice."""
        if isinstance(index, slice):
            return [self._handle(item) for item in self._items.ids[index]]
        return self._handle(self._items.id_at(self._place(index)))

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        """Give the item at an index the content of another; it stays that item, and only what differs is written.

        A slice is replaced as in a ``list``: items that are in both stay, others are deleted and inserted.
        """
        if isinstance(index, slice):
            present: list[Any] = self.to_python()
            present[index] = value
            self.assign(present)
            return
        item = self._items.id_at(self._place(index))
        self._rewrite(item, self._valid(value, child_path(self._path, index)))

    def __delitem__(self, index: int | slice) -> None:
        items = self._items.ids[index] if isinstance(index, slice) else [self._items.id_at(self._place(index))]
        self._drop(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self[:])

    def __reversed__(self) -> Iterator[T]:
        return reversed(self[:])

    def __contains__(self, value: object) -> bool:
        """Whether the item of a handle, or of a model that was read, is there; else whether an equal one is."""
        try:
            return self._found(value) is not None
        except NotFound:
            return False

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | LiveRecordList):
            return self.to_python() == [plain_value(value) for value in other]
        return NotImplemented

    def __add__(self, other: Iterable[T]) -> list[T]:
        return self.to_python() + list(other)

    def __radd__(self, other: Iterable[T]) -> list[T]:
        return list(other) + self.to_python()

    def __iadd__(self, values: Iterable[T]) -> LiveRecordList[T]:
        self.extend(values)
        return self

    def __repr__(self) -> str:
        return f"<live list of {len(self)} records: {self._path}>"

    def insert(self, index: int, value: T) -> None:
        """Put a new item with the content of ``value`` before the one at an index."""
        length = len(self)
        self._insert(max(0, index + length) if index < 0 else min(index, length), [value])

    def append(self, value: T) -> None:
        self.extend([value])

    def extend(self, values: Iterable[T]) -> None:
        if isinstance(values, str | bytes):
            raise invalid_value(self._path, f"takes items, not the parts of a {type(values).__name__}")
        self._insert(len(self), list(values))

    def pop(self, index: int = -1) -> T:
        """Delete an item; returned is what it was, as a plain model."""
        item = self._items.id_at(self._place(index))
        found = plain_value(self._handle(item))
        self._drop([item])
        return cast(T, found)

    def remove(self, value: T) -> None:
        """Delete the item of a handle or of a model that was read; of another model the first equal one.

        Raises:
            NotFound: the handle's item was deleted already.
            ValueError: no item is like it.
        """
        del self[self.index(value)]

    def clear(self) -> None:
        self._drop(self._items.ids)

    def move(self, item: T | int, to_index: int) -> None:
        """Move an item, given by its handle or its index, so that it is at ``to_index`` afterwards; -1 is the end.

        Of concurrent moves of one item one wins; edits of the item are not disturbed.

        Raises:
            NotFound: the handle's item was deleted.
            IndexError: there is no such index.
            ValueError: there is no such item.
        """
        present = self._place(item) if isinstance(item, int) else self.index(item)
        wanted = self._place(to_index)
        if wanted != present:
            with self._editor.edit():
                gap = wanted if wanted < present else wanted + 1
                self._editor.document.move_item(self._path, self._items.id_at(present), gap)

    def index(self, value: T, start: int = 0, stop: int | None = None) -> int:
        """Where the item of a handle, or of a model that was read, is now; of another model the first equal one.

        Raises:
            NotFound: the handle's item was deleted.
            ValueError: no item from ``start`` to ``stop`` is like it.
        """
        found = self._found(value)
        if found is None or found not in range(len(self))[start:stop]:
            raise ValueError(f"{self._path} has no such item")
        return found

    def count(self, value: T) -> int:
        """How many items read as ``value``."""
        return self.to_python().count(cast(T, plain_value(value)))

    def id_of(self, item: T | int) -> str:
        """The id of an item, given by its handle or its index: a short text by which `by_id` finds it everywhere.

        Raises:
            NotFound: the handle's item was deleted.
            IndexError: there is no such index.
            ValueError: there is no such item.
        """
        return self._items.id_at(self._place(item) if isinstance(item, int) else self.index(item))

    def by_id(self, item_id: str) -> T:
        """The live record of an item.

        Raises:
            NotFound: the list has no such item, or not any more.
        """
        if item_id not in self._items:
            raise item_gone(child_path(self._path, check_text(item_id, self._path)))
        return self._handle(item_id)

    @property
    def ids(self) -> list[str]:
        """The ids of all items, in their order."""
        return self._items.ids

    def reverse(self) -> None:
        self._arrange(self._items.ids[::-1])

    def sort(self, *, key: Callable[[T], Any] | None = None, reverse: bool = False) -> None:
        """As ``list.sort``, with ``key`` called on plain models; the fewest items that must move are moved."""
        values = self.to_python()
        rank = key or _itself
        order = sorted(range(len(values)), key=lambda place: rank(values[place]), reverse=reverse)
        ids = self._items.ids
        self._arrange([ids[place] for place in order])

    def copy(self) -> list[T]:
        """The items as plain models."""
        return self.to_python()

    def to_python(self) -> list[T]:
        """The items as plain models, which are known again when they are handed in.

        Raises:
            InvalidValue: one does not fit its model, because a required field was never written, or another client
                wrote it.
        """
        return [self._decode(wire) for wire in self._wires()]

    def assign(self, values: object) -> None:
        """Make the list equal to ``values``: items that are in both are moved and changed only where they differ.

        Handles, and models that were read, are the items that they were read from. Others are those with equal content;
        and where no item is known, as in a list that was written from scratch, those that stand where they stood.
        """
        records = self._spec.valid(values, self._path)
        target = cast(list[Item], self._spec.wire_of(records, self._path))
        present = {item[ITEM_KEY]: item for item in self._wires()}
        matched = match_items(list(present.values()), target, lambda item: canonical_json(self._content(item)))
        self._editor.document.check_change(self._path, len(target) - len(present))
        with self._editor.edit(cast(Any, target)):
            for item in present:
                if item not in matched:
                    self._editor.document.drop_key(self._path, item)
            moving = items_to_move(list(present), [item for item in matched if item])
            behind: str | None = None
            for item, wire, record in zip(matched, target, records, strict=True):
                if item is None:
                    behind = self._insert_wires(self._items.gap_behind(behind), [wire])[0]
                    continue
                if item in moving:
                    self._move_behind(item, behind)
                if not self._spec.same_record(present[item], wire):
                    self._rewrite(item, record)
                behind = item

    @property
    def _items(self) -> ItemIndex:
        return self._editor.document.items(self._path)

    def _wires(self) -> list[Item]:
        return cast(list[Item], self._editor.document.read_records(self._path))

    def _handle(self, item: str) -> T:
        return cast(T, self._live(child_path(self._path, item)))

    def _found(self, value: object) -> int | None:
        """The index of the item that ``value`` is, or else of the first that is equal.

        Raises:
            NotFound: it is the handle of an item that was deleted.
        """
        own = getattr(type(value), "_board_place", None)
        if own is not None:
            path, item = own(value)
            cast(Any, value)._check()
            return self._items.index_of(item) if path == self._path else None
        if not isinstance(value, BoardModel):
            return None
        known = value._board_base.item
        if known is not None and known in self._items:
            return self._items.index_of(known)
        found = self.to_python()
        return found.index(value) if value in found else None

    def _insert(self, gap: int, values: Sequence[Any]) -> None:
        wires = [self._spec.record_wire(value, child_path(self._path, gap + n)) for n, value in enumerate(values)]
        if wires:
            self._editor.document.check_change(self._path, len(wires))
            with self._editor.edit(cast(Any, wires)):
                self._insert_wires(gap, wires)

    def _insert_wires(self, gap: int, wires: Sequence[Item]) -> list[str]:
        document = self._editor.document
        items = {document.new_id(): {name: value for name, value in wire.items() if name != ITEM_KEY} for wire in wires}
        document.insert_items(self._path, gap, items)
        return list(items)

    def _arrange(self, ids: Sequence[str]) -> None:
        moving = items_to_move(self._items.ids, ids)
        behind: str | None = None
        with self._editor.edit():
            for item in ids:
                if item in moving:
                    self._move_behind(item, behind)
                behind = item

    def _move_behind(self, item: str, behind: str | None) -> None:
        self._editor.document.move_item(self._path, item, self._items.gap_behind(behind))

    def _rewrite(self, item: str, record: BoardModel) -> None:
        live: Any = self._handle(item)
        with self._editor.edit():
            live._board_become(record)

    def _drop(self, items: Sequence[str]) -> None:
        if items:
            self._editor.document.check_change(self._path, -len(items))
            with self._editor.edit():
                for item in items:
                    self._editor.document.drop_key(self._path, item)

    def _place(self, index: int) -> int:
        length = len(self)
        place = index + length if index < 0 else index
        if not 0 <= place < length:
            raise IndexError(f"{self._path} has {length} items, no index {index}")
        return place

    def _valid(self, value: object, path: str) -> BoardModel:
        """``value`` as a plain model that has passed all checks."""
        record = cast(BoardModel, self._spec.codec.validate(plain_value(value), path))
        self._spec.record_wire(record, path)
        return record

    def _content(self, item: Item) -> Any:
        return content_of(item, self._spec.inside)

    def _decode(self, wire: Item) -> T:
        path = child_path(self._path, wire[ITEM_KEY])
        return cast(T, record_from_wire(cast(JsonValue, wire), cast(type[BoardModel], self._spec.record), path))


def items_of(field: list[T]) -> LiveRecordList[T]:
    """The same object with the type of what it is: a `LiveRecordList`, for type checkers that know it as its values.

    Raises:
        TypeError: it is no list of records of ``board.state``.
    """
    live: object = field
    if not isinstance(live, LiveRecordList):
        raise TypeError(f"items_of takes a list of records of board.state, not a {type(field).__name__}")
    return live


def _itself(value: Any) -> Any:
    return value
