"""What an update builds on, and how far a document that knows so much can take it in.

yrs keeps what builds on something that it lacks until that comes, and must not be given such updates: it may use memory
after it was freed, panic, or lose a part of them [measured]. So nothing is handed to it that is not ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from crdt_board.errors import MalformedUpdate

_Id = tuple[int, int]


class Extent(NamedTuple):
    """Which clocks are in an update, and which it builds on, by client."""

    ends: dict[int, int]
    """The clock at which what it inserts of a client ends."""
    needs: dict[int, int] | None
    """The clock that a document must have reached before; None when clocks are left out, so that it is never ready.
    Of a client in ``ends`` it is where its structs begin, unless more than these is needed."""
    parents: tuple[_Id, ...] = ()
    """The structs that it puts something inside, named by their ids."""
    types: tuple[_Id, ...] = ()
    """The shared types that it makes."""


NOTHING = Extent({}, {})


class Section:
    """The structs of one client in an update, from clock ``begin`` to ``end``."""

    __slots__ = ("begin", "client", "end", "has_holes", "links", "parents", "types")

    def __init__(self, client: int, begin: int) -> None:
        self.client = client
        self.begin = begin
        self.end = begin
        self.has_holes = False
        self.links: list[tuple[int, _Id]] = []
        """The clocks of structs that refer to those of other clients, in order, and to which."""
        self.parents: list[_Id] = []
        self.types: list[_Id] = []

    def link(self, clock: int, target: _Id) -> None:
        """The struct that begins at ``clock`` refers to ``target``.

        Raises:
            MalformedUpdate: that comes after it.
        """
        if target[0] != self.client:
            self.links.append((clock, target))
        elif target[1] >= clock:
            raise MalformedUpdate("a struct that refers to a later one of its client")


def is_ready(extent: Extent, known: Mapping[int, int]) -> bool:
    """Whether a document that has reached these clocks can take in all of an update."""
    needs = extent.needs
    if needs is None:
        return False
    for client, clock in needs.items():  # noqa: SIM110 - twice as fast
        if clock > known.get(client, 0):
            return False
    return True


def extent_of(sections: Mapping[int, Section], deleted: Mapping[int, int]) -> Extent:
    """The extent of an update of these sections that deletes up to these clocks.

    Raises:
        MalformedUpdate: its structs wait for each other.
    """
    if not sections:
        return Extent({}, {client: clock for client, clock in deleted.items() if clock})
    ends = {client: section.end for client, section in sections.items()}
    needs = {client: section.begin for client, section in sections.items()}
    inside = False
    for section in sections.values():
        for _, (client, clock) in section.links:
            if clock >= ends.get(client, 0):
                needs[client] = max(needs.get(client, 0), clock + 1)
            else:
                inside = inside or clock >= sections[client].begin
    for client, clock in deleted.items():
        if clock > ends.get(client, 0):
            needs[client] = max(needs.get(client, 0), clock)
    if any(section.has_holes for section in sections.values()):
        return Extent(ends, None)
    parents = tuple(parent for section in sections.values() for parent in section.parents)
    types = tuple(made for section in sections.values() for made in section.types)
    if inside:
        reached = reach(sections, needs)
        if any(reached[client] < end for client, end in ends.items()):
            raise MalformedUpdate("structs that wait for each other")
    return Extent(ends, needs, parents, types)


def reach(sections: Mapping[int, Section], known: Mapping[int, int]) -> dict[int, int]:
    """The clocks that a document which has reached ``known`` reaches with these sections, as far as they are ready.

    They have no holes. Takes time in proportion to the links, and for those that wait the logarithm of their number.
    """
    reached = {**known}
    begun = [client for client, section in sections.items() if section.begin <= known.get(client, 0)]
    upcoming = dict.fromkeys(sections, 0)
    waiting: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    while begun:
        client = begun.pop()
        section = sections[client]
        index = _pass_links(section, upcoming[client], reached)
        upcoming[client] = index
        if index < len(section.links):
            clock, (target, needed) = section.links[index]
            heappush(waiting[target], (needed, client))
        else:
            clock = section.end
        reached[client] = max(reached.get(client, 0), clock)
        ready = waiting[client]
        while ready and ready[0][0] < reached[client]:
            begun.append(heappop(ready)[1])
    return reached


def _pass_links(section: Section, index: int, reached: Mapping[int, int]) -> int:
    """The first link from ``index`` on whose target is not there yet."""
    while index < len(section.links):
        client, clock = section.links[index][1]
        if clock >= reached.get(client, 0):
            break
        index += 1
    return index
