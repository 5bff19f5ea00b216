"""Which items of a list of records stay when another list takes its place, and which of them must move. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from crdt_board.layout import ITEM_KEY

Item = dict[str, Any]
"""An item in wire form, with its id when that is known."""


def match_items(
    before: Sequence[Item], target: Sequence[Item], content: Callable[[Item], Hashable]
) -> list[str | None]:
    """For each item of ``target`` the id of the item of ``before`` that it is, or None when it is a new one.

    Items are known by their ids. Of the others those with equal ``content`` are the same, in their order. Where
    ``target`` knows no item of ``before`` by its id, as when it was written from scratch, an item that is left over
    is the one that stood behind the same neighbour.
    """
    known = {item[ITEM_KEY] for item in before}
    found = [each.get(ITEM_KEY) if each.get(ITEM_KEY) in known else None for each in target]
    from_scratch = not any(found)
    left = known.difference(found)
    if left and None in found:
        _match_equal(before, target, content, found, left)
    if left and from_scratch:
        _match_by_place([item[ITEM_KEY] for item in before], found, left)
    return found


def items_to_move(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """The fewest of the ids in both sequences that must move for the others to be in the order of ``after``."""
    rank = {item: index for index, item in enumerate(before)}
    common = [item for item in after if item in rank]
    ends: list[int] = []  # of the ascending runs of each length, the least rank that one ends with
    last: list[str] = []
    previous: dict[str, str | None] = {}
    for item in common:
        length = bisect_left(ends, rank[item])
        previous[item] = last[length - 1] if length else None
        ends[length : length + 1] = [rank[item]]
        last[length : length + 1] = [item]
    staying: set[str] = set()
    item_or_none = last[-1] if last else None
    while item_or_none is not None:
        staying.add(item_or_none)
        item_or_none = previous[item_or_none]
    return set(common) - staying


def _match_equal(
    before: Sequence[Item],
    target: Sequence[Item],
    content: Callable[[Item], Hashable],
    found: list[str | None],
    left: set[str],
) -> None:
    waiting: defaultdict[Hashable, deque[str]] = defaultdict(deque)
    for item in before:
        if item[ITEM_KEY] in left:
            waiting[content(item)].append(item[ITEM_KEY])
    for index, item in enumerate(target):
        same = waiting[content(item)] if found[index] is None else None
        if same:
            found[index] = same.popleft()
            left.discard(found[index] or "")


def _match_by_place(before: Sequence[str], found: list[str | None], left: set[str]) -> None:
    place = {item: index for index, item in enumerate(before)}
    following = 0  # where the item stands that is behind the last one; beyond the end when that one is new
    for index in range(len(found)):
        if found[index] is None and following < len(before) and before[following] in left:
            found[index] = before[following]
            left.discard(before[following])
        here = found[index]
        following = len(before) if here is None else place[here] + 1
