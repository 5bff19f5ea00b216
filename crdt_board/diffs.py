"""Smallest edits between two texts or lists, and moving edits onto a sequence that others changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rapidfuzz.distance import Levenshtein

SequenceT = TypeVar("SequenceT", str, list[Hashable])

_PRODUCT_MAX = 25_000_000
"""Lengths multiplied, beyond which the differing middle is replaced whole; at the bound a comparison takes 4 ms."""


class Splice(NamedTuple, Generic[SequenceT]):
    """Replace the items from ``start`` up to ``stop`` by ``new``."""

    start: int
    stop: int
    new: SequenceT


def middle_splice(old: SequenceT, new: SequenceT) -> Splice[SequenceT] | None:
    """The one splice between the common beginning and the common end, or None when both are equal."""
    if old == new:
        return None
    start = _common(lambda count: old[:count] == new[:count], min(len(old), len(new)))
    behind = _common(lambda count: old[len(old) - count :] == new[len(new) - count :], min(len(old), len(new)) - start)
    return Splice(start, len(old) - behind, new[start : len(new) - behind])


def splices(old: SequenceT, new: SequenceT) -> list[Splice[SequenceT]]:
    """The smallest set of splices that turns ``old`` into ``new``: ascending, apart from each other, positions in
    ``old``. Above a bound on the cost it is the one splice of the differing middle."""
    middle = middle_splice(old, new)
    if middle is None:
        return []
    removed = old[middle.start : middle.stop]
    if not removed or not middle.new or len(removed) * len(middle.new) > _PRODUCT_MAX:
        return [middle]
    found = [
        Splice(middle.start + code.src_start, middle.start + code.src_end, middle.new[code.dest_start : code.dest_end])
        for code in Levenshtein.opcodes(*_comparable(removed, middle.new))
        if code.tag != "equal"
    ]
    return _joined(found)


def apply_splices(edits: Iterable[Splice[SequenceT]], old: SequenceT) -> SequenceT:
    """``old`` after ascending splices."""
    result = old
    for start, stop, new in reversed(list(edits)):
        result = result[:start] + new + result[stop:]
    return result


def rebase(edits: Sequence[Splice[SequenceT]], base: SequenceT, current: SequenceT) -> list[Splice[SequenceT]]:
    """Splices that were made against ``base``, for ``current``, which others made out of ``base``.

    What others inserted stays, what either side removed is removed, what ``edits`` insert comes directly before the
    item that it was put before, after anything that others inserted at the same place. Ascending; positions in
    ``current``.
    """
    if base == current:
        return list(edits)
    kept = _kept_blocks(base, current)
    moved: list[Splice[SequenceT]] = []
    for start, stop, new in edits:
        removals = [
            (offset + max(start, first), offset + min(stop, last))
            for first, last, offset in kept
            if first < stop and start < last
        ]
        place = removals[0][0] if removals else _place_before(start, kept, len(current))
        if new and (not removals or place < removals[0][0]):
            moved.append(Splice(place, place, new))
        elif removals:
            moved.append(Splice(*removals.pop(0), new))
        moved += [Splice(first, last, new[:0]) for first, last in removals]
    return _joined(moved)


def _common(agree: Callable[[int], bool], limit: int) -> int:
    """The greatest count up to ``limit`` for which both sides agree, by halving: slices compare at the speed of C."""
    low, high = 0, limit
    while low < high:
        half = (low + high + 1) // 2
        if agree(half):
            low = half
        else:
            high = half - 1
    return low


def _comparable(old: SequenceT, new: SequenceT) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """rapidfuzz compares items of lists by hash only, and ``hash(-1) == hash(-2)``: number them instead."""
    if isinstance(old, str):
        return old, new
    numbers: dict[Hashable, int] = {}
    numbered = [[numbers.setdefault(item, len(numbers)) for item in side] for side in (old, new)]
    return numbered[0], numbered[1]


def _joined(edits: list[Splice[SequenceT]]) -> list[Splice[SequenceT]]:
    """Splices that touch each other as one."""
    joined: list[Splice[SequenceT]] = []
    for edit in edits:
        if joined and joined[-1].stop == edit.start:
            before = joined.pop()
            joined.append(Splice(before.start, edit.stop, before.new + edit.new))
        else:
            joined.append(edit)
    return joined


def _kept_blocks(base: SequenceT, current: SequenceT) -> list[tuple[int, int, int]]:
    """The stretches of ``base`` that are still in ``current``: first, last + 1, and how far they moved."""
    blocks: list[tuple[int, int, int]] = []
    position = shift = 0
    for start, stop, new in splices(base, current):
        if position < start:
            blocks.append((position, start, shift))
        position = stop
        shift += len(new) - (stop - start)
    if position < len(base):
        blocks.append((position, len(base), shift))
    return blocks


def _place_before(position: int, kept: list[tuple[int, int, int]], length: int) -> int:
    """Where the first surviving item at or after ``position`` is now."""
    for first, last, shift in kept:
        if position < last:
            return max(position, first) + shift
    return length
