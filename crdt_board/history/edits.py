"""Who changed a path, when and in which step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.history.differences import Difference, state_differences, whole_difference
from crdt_board.journal import Entry
from crdt_board.layout import Layout
from crdt_board.records import split_path


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
