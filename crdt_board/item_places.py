"""Places in a list of records: texts such that the order of the texts is the order of the items.

A place is a way down a tree, a few steps of ``<number><run><index><side>``. The last step ends in ``=``; what is below
it goes to its left (``<``) or to its right (``>``). The digits are ``0-9a-z``, and the numbers are written so that they
sort and that every place has other places before, after and beside it.

A *run* is what one replica inserts side by side. Only its owner goes on in a run, by the next ``index``, at either
end; so of two runs that were made at one place at once all items of one are before all items of the other. Who
inserts beside another's item begins a run of its own, as high in the tree as there is room: with the next ``number`` at
an end of the list, however many replicas take turns. Places therefore grow with the logarithm of what is appended or
put in front, and by some characters at a time only where a gap between two neighbours is halved again and again.

Pure.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeGuard

from crdt_board.limits import DEFAULT_LIMITS

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE = len(_DIGITS)
_RUN_CHARS = 6
_POSITIVE, _NEGATIVE = "ghijkl", "fedcba"
"""What stands before a number tells its sign and how many digits it has, so that numbers sort as texts."""

_LEFT, _SELF, _RIGHT = "<", "=", ">"
_NUMBER = "|".join(
    f"{head}[0-9a-z]{{{count}}}" for heads in (_POSITIVE, _NEGATIVE) for count, head in enumerate(heads, 1)
)
_STEP = re.compile(f"({_NUMBER})([0-9a-z]{{{_RUN_CHARS}}})({_NUMBER})([<=>])")
_PLACE = re.compile(
    f"(?:(?:{_NUMBER})[0-9a-z]{{{_RUN_CHARS}}}(?:{_NUMBER})[<>])*(?:{_NUMBER})[0-9a-z]{{{_RUN_CHARS}}}(?:{_NUMBER})="
)


class _Step(NamedTuple):
    number: int
    run: str
    within: int
    """The index in the run."""
    side: str = _SELF


def base36(value: int, count: int) -> str:
    """The last ``count`` digits of a number, in ``0-9a-z``."""
    digits = ""
    for _ in range(count):
        value, digit = divmod(value, _BASE)
        digits = _DIGITS[digit] + digits
    return digits


def is_place(value: object) -> TypeGuard[str]:
    """Whether ``value`` is a place; other clients write what they like."""
    return (
        isinstance(value, str) and len(value) <= DEFAULT_LIMITS.place_chars_max and _PLACE.fullmatch(value) is not None
    )


def run_of(client_id: int) -> str:
    """The name of the runs of a replica. That two replicas share one does no harm unless they insert at one place."""
    return base36(client_id % _BASE**_RUN_CHARS, _RUN_CHARS)


def first_places(count: int, run: str) -> list[str]:
    """Ascending places for ``count`` items of a list that has no others."""
    return [_written([_Step(0, run, index)]) for index in range(count)]


def places_between(left: str | None, right: str | None, count: int, run: str) -> list[str] | None:
    """Ascending places for ``count`` items between two neighbours, of which None is the end of the list.

    None when there is no room: the neighbours share one place, or the places would become too long.
    """
    places: list[str] = []
    for _ in range(count):
        made = _between(left, right, run)
        if made is None or len(made) > DEFAULT_LIMITS.place_chars_max:
            return None
        places.append(made)
        left = made
    return places


def _between(left: str | None, right: str | None, run: str) -> str | None:
    def fits(place: str) -> bool:
        return (left is None or left < place) and (right is None or place < right)

    before, after = _steps(left), _steps(right)
    behind_left, before_right = _is_below(after, before, 1), _is_below(before, after, -1)
    candidates: list[str] = []
    if not behind_left:
        candidates += _continued(before, run, 1)
    if not before_right:
        candidates += _continued(after, run, -1)
    own = next(filter(fits, candidates), None)
    if own is not None:
        return own
    shared = _shared(before, after)
    begun = [
        *itertools.islice(filter(fits, _begun(before, shared, run, 1)), 1),
        *itertools.islice(filter(fits, _begun(after, shared, run, -1)), 1),
    ]
    if begun:
        return min(begun, key=len)
    child = _child(before, run, _RIGHT) if before and not behind_left else _child(after, run, _LEFT)
    return child if fits(child) else None


def _is_below(steps: Sequence[_Step], top: Sequence[_Step], shift: int) -> bool:
    """Whether a place is below another one, on its right for a ``shift`` of 1 and on its left for -1.

    In a run each item is below the one before it, and below the one after it.
    """
    if not top or len(steps) < len(top) or list(steps[: len(top) - 1]) != list(top[:-1]):
        return False
    here, there = top[-1], steps[len(top) - 1]
    if (here.number, here.run) != (there.number, there.run):
        return False
    if here.within == there.within:
        return there.side == (_RIGHT if shift > 0 else _LEFT)
    return shift * there.within > shift * here.within


def _continued(steps: Sequence[_Step], run: str, shift: int) -> Iterator[str]:
    """The next place of a run of one's own, away from where the run began."""
    if steps and steps[-1].run == run and shift * steps[-1].within >= 0:
        yield from _if_written([*steps[:-1], steps[-1]._replace(within=steps[-1].within + shift)])


def _begun(steps: Sequence[_Step], shared: int, run: str, shift: int) -> Iterator[str]:
    """First places of runs beside a neighbour or what is above it, the highest in the tree first.

    Above the steps that it has in common with the other neighbour there is no room between them.
    """
    for level in range(shared, len(steps)):
        yield from _if_written([*steps[:level], _Step(steps[level].number + shift, run, 0)])


def _child(steps: Sequence[_Step], run: str, side: str) -> str:
    """The first place of a run below a neighbour, or of the first run of a list."""
    above = [*steps[:-1], steps[-1]._replace(side=side)] if steps else []
    return _written([*above, _Step(0, run, 0)])


def _shared(before: Sequence[_Step], after: Sequence[_Step]) -> int:
    return next((level for level, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)


def _steps(place: str | None) -> list[_Step]:
    found = _STEP.findall(place or "")
    return [_Step(_value(number), run, _value(within), side) for number, run, within, side in found]


def _if_written(steps: Sequence[_Step]) -> Iterator[str]:
    if all(_is_number(value) for value in (steps[-1].number, steps[-1].within)):
        yield _written(steps)


def _written(steps: Sequence[_Step]) -> str:
    return "".join(f"{_number(step.number)}{step.run}{_number(step.within)}{step.side}" for step in steps)


_COUNT: int = sum(_BASE**digits for digits in range(1, len(_POSITIVE) + 1))
"""How many numbers there are from 0 up, and as many below."""


def _is_number(value: int) -> bool:
    return -_COUNT <= value < _COUNT


def _number(value: int) -> str:
    rest = value if value >= 0 else -value - 1
    for count, head in enumerate(_POSITIVE if value >= 0 else _NEGATIVE, 1):
        if rest < _BASE**count:
            return head + base36(rest if value >= 0 else _BASE**count - 1 - rest, count)
        rest -= _BASE**count
    raise AssertionError(f"{value} is beyond the numbers of places")


def _value(number: str) -> int:
    count, rest = len(number) - 1, int(number[1:], _BASE)
    negative = number[0] in _NEGATIVE
    if negative:
        rest = _BASE**count - 1 - rest
    for shorter in range(1, count):
        rest += _BASE**shorter
    return -rest - 1 if negative else rest
