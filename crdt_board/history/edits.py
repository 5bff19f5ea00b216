"""Who changed a path, when and in which step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.errors import BadRequest
from crdt_board.fields import nearest_name
from crdt_board.history.differences import Difference, state_differences, whole_difference
from crdt_board.journal import Entry
from crdt_board.layout import ITEM_KEY, KEYED_KINDS, RECORD_KINDS, Layout
from crdt_board.paths import split_path
from crdt_board.wire_values import child_path

_INDEX_DIGITS_MAX = 7


class PathEdit(BaseModel):
    """One entry of the journal that changed a path.

    ``differences`` is what it changed there and below. ``time_ms`` is in milliseconds since 1970-01-01 UTC by the
    writer's clock; order is by ``seq``. ``version`` is the first checkpoint that holds the change and ``step`` its
    name; both None when no commit has been made since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    agent: str
    time_ms: int
    differences: tuple[Difference, ...]
    version: int | None = None
    step: str | None = None


def check_path(path: str, layout: Layout) -> None:
    """Return when ``path`` can be a place on a board with this layout.

    Raises:
        BadRequest: it names no field, or a place in one that has no changes of its own.
    """
    parts = split_path(path)
    fields, here, holder = layout.by_name, "", layout.title or "the board"
    while parts:
        name = parts.pop(0)
        if name not in fields:
            raise BadRequest(f"{path}: {holder} has no field {name!r}{nearest_name(name, fields)}")
        field, here = fields[name], f"{here}/{name}".lstrip("/")
        if not parts:
            return
        key = parts.pop(0)
        if field.kind in RECORD_KINDS:
            fields, holder = field.by_name, f"what {here} holds"
            here = child_path(here, key)
        elif field.kind not in KEYED_KINDS or parts:
            what = "each of its keys" if field.kind in KEYED_KINDS else "the field as a whole"
            raise BadRequest(f"{path}: {here} is a {field.kind}, whose changes are told for {what}; ask for {here!r}")


def index_in(path: str, layout: Layout) -> bool:
    """Whether the path may name an item of a list of records by its index."""
    name, key = [*split_path(path), ""][:2]
    return name in layout.by_name and layout.by_name[name].kind == "record_list" and key.isdecimal()


def check_item(path: str, state: Mapping[str, JsonValue]) -> None:
    """Return when there is an item of the name that stands in a path for which `index_in` holds.

    Raises:
        BadRequest: there is none; an index is no name, since it is that of another item after the next move.
    """
    name, key = split_path(path)[:2]
    items = state.get(name)
    ids = [str(item[ITEM_KEY]) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if key not in ids:
        is_index = len(key) <= _INDEX_DIGITS_MAX and int(key) < len(ids)
        example = f"; item {key} is {child_path(name, ids[int(key)])} now" if is_index else ""
        raise BadRequest(f"{path}: items are named by their ids ($id in `show --json`), not by an index{example}")


def may_touch(entry: Entry, path: str) -> bool:
    """Whether an entry says of itself that it changed ``path``, something below it, or something that holds it.

    An entry that touched many paths names their fields only, so that it may not have.
    """
    return any(each == path or _holds(path, each) or _holds(each, path) for each in entry.paths)


def differences_at(
    path: str, before: dict[str, JsonValue], after: dict[str, JsonValue], layout: Layout
) -> tuple[Difference, ...]:
    """What differs at ``path`` and below it between two states in wire form."""
    return tuple(_narrowed(path, state_differences(before, after, (layout, layout))))


def _narrowed(path: str, differences: tuple[Difference, ...]) -> Iterator[Difference]:
    for each in differences:
        if each.path == path or _holds(path, each.path):
            yield each
        elif _holds(each.path, path):
            below = split_path(path[len(each.path) + 1 :])
            sides = tuple(_found(side, below) for side in (each.before, each.after))
            yield from whole_difference(path, *sides)


def _found(value: JsonValue, keys: list[str]) -> dict[str, JsonValue]:
    """The value below keys of a JSON value, under the name ``value``; empty when there is none."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return {}
        value = value[key]
    return {"value": value}


def _holds(path: str, inner: str) -> bool:
    return inner.startswith(f"{path}/")
