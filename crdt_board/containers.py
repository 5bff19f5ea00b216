"""Finding and making the shared types of one document by their paths: roots, records, and the containers in records.

A path is ``field``, or for records ``field/key``, ``field/key/name`` and so on, escaped as in JSON Pointer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pycrdt
from pydantic import JsonValue

from crdt_board.errors import NotFound
from crdt_board.item_places import base36
from crdt_board.layout import NO_FIELDS, FieldLayout, Layout
from crdt_board.paths import split_path
from crdt_board.record_creation import Shape, container_shape, creation_update, place_of_new, record_shape
from crdt_board.records import SharedType, new_record, shared_class

_ID_CHARS = 10

S = TypeVar("S", pycrdt.Text, "pycrdt.Array[Any]", "pycrdt.Map[Any]")


class Containers:
    """The shared types of ``doc``. ``roots`` is filled by its owner; ``layout`` says what belongs where.

    What is returned must not be kept beyond the transaction: yrs frees a shared type when it is deleted.
    """

    def __init__(
        self, doc: pycrdt.Doc[Any], roots: Mapping[str, SharedType], new_id: Callable[[], str] | None = None
    ) -> None:
        """``new_id`` gives ids for the items of lists of records; they are random when it is None."""
        self._doc = doc
        self._roots = roots
        self.new_id = new_id or _random_id
        self.layout: Layout = NO_FIELDS
        self.opened: list[bytes] = []
        """The operations that `make` applied, in order, since its owner last emptied this list."""

    @property
    def client_id(self) -> int:
        return self._doc.client_id

    def find(self, path: str, kind: type[S]) -> S | None:
        """The shared type at ``path``; None when it was not made, or another client put something else there."""
        found: object = self._roots.get(path)
        if found is None:
            name, *way = split_path(path)
            found = self._roots.get(name)
            for part in way:
                found = _child(found, part) if isinstance(found, pycrdt.Map) else None
        return found if isinstance(found, kind) else None

    def make(self, path: str) -> SharedType:
        """Inside a transaction: what is at ``path``, made with everything that holds it where it is missing.

        Raises:
            NotFound: it is an item of a list of records, or in one, which is not there: items are never made by
                writing into them.
        """
        parts = split_path(path)
        found, field = self._roots[parts[0]], self.layout.by_name.get(parts[0])
        if field is not None:
            parts[0] = field.place  # what opens a record names the root
        for depth in range(1, len(parts)):
            assert field is not None
            assert isinstance(found, pycrdt.Map)
            if depth % 2 and field.kind == "record_list":
                found = _item(found, parts[depth], path)
            elif depth % 2:
                found = self._enter(found, parts[: depth + 1], pycrdt.Map, record_shape(field.fields))
            else:
                field = field.by_name[parts[depth]]
                found = self._enter(found, parts[: depth + 1], shared_class(field.kind), container_shape(field.kind))
        return found

    def put(self, path: str, wire: Mapping[str, JsonValue]) -> None:
        """Inside a transaction: a record that holds ``wire`` (as `check_record` returns it), in place of another."""
        holder, _, key = path.rpartition("/")
        records = self.make(holder)
        assert isinstance(records, pycrdt.Map)
        records[split_path(key)[0]] = new_record(wire, self.field_at(holder), self)

    def field_at(self, path: str) -> FieldLayout:
        """The layout of the field at ``path``, which may be inside a record.

        Raises:
            KeyError: there is none.
        """
        parts = split_path(path)
        field = self.layout.by_name[parts[0]]
        if len(parts) % 2 == 0:
            raise KeyError(path)
        for name in parts[2::2]:
            field = field.by_name[name]
        return field

    def _enter(self, holder: pycrdt.Map[Any], parts: Sequence[str], kind: type[SharedType], shape: Shape) -> SharedType:
        found = _child(holder, parts[-1])
        if not isinstance(found, kind):
            found = self._open(holder, parts, kind, shape)
        return found

    def _open(self, holder: pycrdt.Map[Any], parts: Sequence[str], kind: type[SharedType], shape: Shape) -> SharedType:
        """Make what is missing so that all who make it at once make the same; see `record_creation`."""
        if len(parts) == 2:
            self._apply(creation_update(parts, shape))
            found = _child(holder, parts[-1])
            if isinstance(found, kind):
                return found
        # Something was under this key before, or what holds it was made by an operation that is not known here.
        try:
            place = place_of_new(self._doc.get_update(), parts)
        except KeyError:
            pass  # updates are missing before what holds it, which therefore is not in the copy
        else:
            self._apply(creation_update(parts, shape, place))
            found = _child(holder, parts[-1])
            if isinstance(found, kind):
                return found
        # That very operation was made and taken back before: nobody else will make it again.
        holder[parts[-1]] = _fresh(shape)
        made = _child(holder, parts[-1])
        assert isinstance(made, kind)
        return made

    def _apply(self, opening: bytes) -> None:
        self._doc.apply_update(opening)
        self.opened.append(opening)


def _child(holder: pycrdt.Map[Any], key: str) -> object:
    try:
        return holder[key]
    except KeyError:
        return None


def item_gone(path: str) -> NotFound:
    """The error for using an item of a list of records that was deleted."""
    return NotFound(f"{path}: this item was deleted; look in the list which items are there", path=path)


def _item(holder: pycrdt.Map[Any], item: str, path: str) -> pycrdt.Map[Any]:
    found = _child(holder, item)
    if not isinstance(found, pycrdt.Map):
        raise item_gone(path)
    return found


def _random_id() -> str:
    """52 bits are enough for the items of a list, and short enough for a prompt."""
    return base36(secrets.randbits(52), _ID_CHARS)


def _fresh(shape: Shape) -> SharedType:
    if not shape.inside:
        return _EMPTY[shape.type]()
    return pycrdt.Map({name: _EMPTY[kind]() for name, kind in shape.inside})


_EMPTY: Sequence[type[SharedType]] = (pycrdt.Array, pycrdt.Map, pycrdt.Text)
"""By the type numbers of Yjs."""
