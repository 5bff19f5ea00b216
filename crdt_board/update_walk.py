"""A walk over the structs of a Yjs v1 update that measures how deep its values and shared types are nested.

Iterative, so that no depth of the input costs stack. It accepts only what Yjs 13 and yrs 0.28 read alike and refuses
the rest, because a walker that reads hostile bytes otherwise than yrs does protects nothing. Refused for that reason:
content of kind 2 (yrs reads one string more than is announced), XML hooks, types and kinds that only one of them
knows. Refused because yrs comes to harm of it, later and for good [measured]: a client that is listed twice (memory is
used after it was freed), clocks that run to the end of 32 bits (what the owner of the id writes next is lost, and
encoding panics), text, embeds and formats under the key of a map (its events panic), and several values as one struct
under a key (when the map is deleted after others were put between them, those before are not, and outlive their map);
a client that collects nothing sends such, of values that it has deleted.

Format: https://github.com/yjs/yjs, ``src/utils/encoding.js`` and ``src/structs``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from crdt_board.errors import MalformedUpdate
from crdt_board.reader import Reader
from crdt_board.readiness import Extent, Section, extent_of

HAS_ORIGIN = 0x80
HAS_RIGHT_ORIGIN = 0x40
HAS_KEY = 0x20
KIND = 0x1F
"""The bits of a struct's first byte that tell its kind."""

GC = 0
SKIP = 10

_XML_ELEMENT = 3
_PLAIN_TYPES = frozenset((0, 1, 2, 4, 6))  # array, map, text, XML fragment, XML text

_ARRAY_TAG = 117
_OBJECT_TAG = 118
_FIXED_TAGS = {127: 0, 126: 0, 124: 4, 123: 8, 122: 8, 121: 0, 120: 0}
_CHUNK_TAGS = frozenset((119, 116))  # string, binary
_INTEGER_TAG = 125
_INTEGER_BYTES_MAX = 10

_VALUE_DEPTH_MAX = 1_000  # where the bytes come from this process, nothing is to be refused
_DELETED_KIND, _STRING_KIND, _FORMAT_KIND, _TYPE_KIND, _VALUES_KIND = 1, 4, 6, 7, 8
_ARRAY_TYPE = 0
_SEQUENCE_KINDS = frozenset((_STRING_KIND, 5, 6))  # string, embed, format
_CLOCK_END = 1 << 31
_ONE_STRUCT = b"\x01\x01"

_Id = tuple[int, int]
_Place = tuple[_Id, int] | None
"""Where a struct sits: None in a root; else the struct it refers to, and 1 when inside it or 0 when beside it."""


class _Client(Section):
    """The structs of one client, in the order of their clocks."""

    __slots__ = ("arrays", "places", "rows", "starts", "texts")

    def __init__(self, client: int, begin: int) -> None:
        super().__init__(client, begin)
        self.arrays: set[int] = set()
        self.texts: list[int] = []
        self.starts: list[int] = []
        self.places: list[_Place] = []
        self.rows: list[tuple[int, int]] = []
        """Where several values under one key begin and end."""


def walk(update: bytes, depth_max: int) -> Extent:
    """Which clocks of which clients are in ``update``, and what it builds on.

    Returns when no value and no chain of shared types is deeper than ``depth_max``, and nothing else in it is of the
    kind that harms yrs. Takes about 3 µs a struct and 0.5 µs a value.

    Raises:
        MalformedUpdate: something is deeper, or the bytes are not an update that Yjs and yrs read alike.
    """
    reader = Reader(update)
    clients: dict[int, _Client] = {}
    inside = 0
    for _ in range(reader.count(bytes_each=5)):
        structs = reader.count(bytes_each=2)
        client = reader.varuint()
        if client in clients:
            raise MalformedUpdate(f"client {client} is listed twice")
        clients[client] = section = _Client(client, reader.varuint())
        inside += _walk_client(reader, section, structs, depth_max)
    rows = [(client, *row) for client, section in clients.items() for row in section.rows]
    ranges: list[tuple[int, int, int]] = []
    deleted: dict[int, int] = {}
    for _ in range(reader.count(bytes_each=2)):
        client = reader.varuint()
        for _ in range(reader.count(bytes_each=2)):
            begin = reader.varuint()
            end = begin + reader.varuint()
            _check_clock(end)
            deleted[client] = max(deleted.get(client, 0), end)
            if rows:
                ranges.append((client, begin, end))
    reader.finish()
    if rows:
        _check_rows(rows, sorted(ranges))
    if inside > depth_max:
        _check_chains(clients, depth_max)
    if any(section.arrays for section in clients.values()):
        _check_arrays(clients)
    return extent_of(clients, deleted)


def first_clocks(update: bytes) -> dict[int, int]:
    """Where what ``update`` inserts begins, for each of its clients. Walks over all but the last client's structs.

    Raises:
        MalformedUpdate: the bytes are not an update.
    """
    reader = Reader(update)
    clocks: dict[int, int] = {}
    clients = reader.count(bytes_each=5)
    for number in range(1, clients + 1):
        structs, client = reader.count(bytes_each=2), reader.varuint()
        clocks[client] = reader.varuint()
        for _ in range(structs if number < clients else 0):
            info = reader.byte()
            if info in (GC, SKIP):
                reader.varuint()
            else:
                read_place(reader, info)
                read_content(reader, info & KIND, _VALUE_DEPTH_MAX)
    return clocks


def _walk_client(reader: Reader, section: _Client, structs: int, depth_max: int) -> int:
    """Read the structs of one client; return how many of them sit inside another struct."""
    clock = section.begin
    inside = 0
    for _ in range(structs):
        info = reader.byte()
        section.starts.append(clock)
        place: _Place = None
        if info in (GC, SKIP):
            section.has_holes = section.has_holes or info == SKIP
            clock += reader.varuint()
        else:
            place = read_place(reader, info, section, clock)
            if info & HAS_KEY and info & KIND in _SEQUENCE_KINDS:
                raise MalformedUpdate("content of a text under the key of a map")
            _note_kind(reader, section, info & KIND, clock)
            length = read_content(reader, info & KIND, depth_max)
            if length > 1 and info & HAS_KEY and info & KIND == _VALUES_KIND:
                section.rows.append((clock, clock + length))
            clock += length
            inside += place is not None and place[1]
        section.places.append(place)
    _check_clock(clock)
    section.end = clock
    return inside


def _check_rows(rows: Iterable[tuple[int, int, int]], deleted: Sequence[tuple[int, int, int]]) -> None:
    """Several values under one key are those that the same update deletes."""
    for client, begin, end in rows:
        index = bisect_right(deleted, (client, begin, _CLOCK_END)) - 1
        if index < 0 or deleted[index][0] != client or deleted[index][2] < end:
            raise MalformedUpdate("several values under one key")


def _note_kind(reader: Reader, section: _Client, kind: int, clock: int) -> None:
    if kind == _STRING_KIND:
        section.texts.append(len(section.places))
    elif kind == _TYPE_KIND:
        section.types.append((section.client, clock))
        start = reader.position
        if reader.byte() == _ARRAY_TYPE:
            section.arrays.add(len(section.places))
        reader.position = start


def _check_clock(clock: int) -> None:
    if clock >= _CLOCK_END:
        raise MalformedUpdate(f"a clock of {clock}, where no client comes near {_CLOCK_END}")


def read_place(reader: Reader, info: int, section: Section | None = None, clock: int = 0) -> _Place:
    """Read where an item sits: what follows its first byte ``info``. In ``section`` is noted what it builds on."""
    origin = (reader.varuint(), reader.varuint()) if info & HAS_ORIGIN else None
    right_origin = (reader.varuint(), reader.varuint()) if info & HAS_RIGHT_ORIGIN else None
    if section is not None:
        if origin is not None:
            section.link(clock, origin)
        if right_origin is not None:
            section.link(clock, right_origin)
    neighbour = origin or right_origin
    if neighbour is not None:
        return neighbour, 0
    place: _Place = None
    if reader.varuint() == 1:
        reader.skip_chunk()
    else:
        holder = reader.varuint(), reader.varuint()
        place = holder, 1
        if section is not None:
            section.link(clock, holder)
            section.parents.append(holder)
    if info & HAS_KEY:
        reader.skip_chunk()
    return place


def read_content(reader: Reader, kind: int, depth_max: int) -> int:
    """Skip the content of an item and return its length in clock ticks."""
    read = _CONTENT.get(kind)
    if read is None:
        raise MalformedUpdate(f"content of the unknown kind {kind}")
    return read(reader, depth_max)


def _deleted(reader: Reader, _: int) -> int:
    return reader.varuint()


def _chunk(reader: Reader, _: int) -> int:
    reader.skip_chunk()
    return 1


def _text(reader: Reader, _: int) -> int:
    text = reader.string()
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _format(reader: Reader, _: int) -> int:
    reader.skip_chunk()
    reader.skip_chunk()
    return 1


def _shared_type(reader: Reader, _: int) -> int:
    reference = reader.byte()
    if reference == _XML_ELEMENT:
        reader.skip_chunk()
    elif reference not in _PLAIN_TYPES:
        raise MalformedUpdate(f"a shared type of the unknown kind {reference}")
    return 1


def _values(reader: Reader, depth_max: int) -> int:
    length = reader.count()
    for _ in range(length):
        skip_value(reader, depth_max)
    return length


def _subdocument(reader: Reader, depth_max: int) -> int:
    reader.skip_chunk()
    skip_value(reader, depth_max)
    return 1


# Embeds (5) and formats (6) hold JSON, whose depth yrs' parser limits by itself (128).
_CONTENT: dict[int, Callable[[Reader, int], int]] = {
    1: _deleted,
    3: _chunk,
    4: _text,
    5: _chunk,
    6: _format,
    7: _shared_type,
    8: _values,
    9: _subdocument,
}


def skip_value(reader: Reader, depth_max: int) -> None:
    """Skip one value in lib0's Any encoding."""
    open_containers: list[tuple[int, bool]] = []  # values still to come in each, and whether they have keys
    while True:
        tag = reader.byte()
        if tag in (_ARRAY_TAG, _OBJECT_TAG):
            if len(open_containers) >= depth_max:
                raise MalformedUpdate(f"a value is nested deeper than {depth_max}")
            open_containers.append((reader.count(), tag == _OBJECT_TAG))
        else:
            _skip_scalar(reader, tag)
        while open_containers and open_containers[-1][0] == 0:
            open_containers.pop()
        if not open_containers:
            return
        left, keyed = open_containers[-1]
        open_containers[-1] = left - 1, keyed
        if keyed:
            reader.skip_chunk()


def _skip_scalar(reader: Reader, tag: int) -> None:
    size = _FIXED_TAGS.get(tag)
    if size is not None:
        reader.skip(size)
    elif tag in _CHUNK_TAGS:
        reader.skip_chunk()
    elif tag == _INTEGER_TAG:
        _skip_integer(reader)
    else:
        raise MalformedUpdate(f"a value of the unknown kind {tag}")


def _skip_integer(reader: Reader) -> None:
    for _ in range(_INTEGER_BYTES_MAX):
        if reader.byte() < 0x80:
            return
    raise MalformedUpdate("an integer of more than 64 bits")


def _check_chains(clients: dict[int, _Client], depth_max: int) -> None:
    """Follow every struct inside another one up to its root, each step once."""
    depths: dict[_Id, int] = {}
    for client, section in clients.items():
        for index, place in enumerate(section.places):
            if place is not None and place[1] and (client, index) not in depths:
                _measure((client, index), clients, depths, depth_max)


def _measure(start: _Id, clients: dict[int, _Client], depths: dict[_Id, int], depth_max: int) -> None:
    """Note in ``depths`` how deep ``start`` and every struct on its way up sit; keys are (client, index)."""
    way: dict[_Id, int] = {}
    node: _Id | None = start
    while node is not None and node not in depths:
        if node in way:
            raise MalformedUpdate("a shared type that contains itself")
        place = clients[node[0]].places[node[1]]
        way[node] = place[1] if place is not None else 0
        node = _find(place[0], clients) if place is not None else None
    depth = depths[node] if node is not None else 0
    for step, inside in reversed(way.items()):
        depth += inside
        if depth > depth_max:
            raise MalformedUpdate(f"shared types are nested deeper than {depth_max}")
        depths[step] = depth


def _find(reference: _Id, clients: dict[int, _Client]) -> _Id | None:
    """The struct of this update that holds a clock, or None when it is not part of it."""
    client, clock = reference
    section = clients.get(client)
    index = bisect_right(section.starts, clock) - 1 if section is not None else -1
    return (client, index) if index >= 0 else None


def _check_arrays(clients: dict[int, _Client]) -> None:
    """Refuse text inside a list that the same update makes: reading such a list never ends [measured]."""
    lists: dict[_Id, _Id | None] = {}
    for client, section in clients.items():
        for index in section.texts:
            parent = _parent_of((client, index), clients, lists)
            if parent is not None and parent[1] in clients[parent[0]].arrays:
                raise MalformedUpdate("text inside a list")


def _parent_of(start: _Id, clients: dict[int, _Client], known: dict[_Id, _Id | None]) -> _Id | None:
    """The struct of this update that ``start`` sits inside, None when it is not part of it; ``known`` saves steps."""
    way: list[_Id] = []
    node: _Id | None = start
    parent: _Id | None = None
    while node is not None and node not in known:
        known[node] = None  # ends a circle of neighbours
        way.append(node)
        place = clients[node[0]].places[node[1]]
        target = _find(place[0], clients) if place is not None else None
        if place is not None and place[1]:
            parent, node = target, None
        else:
            node = target
    if node is not None:
        parent = known[node]
    known.update(dict.fromkeys(way, parent))
    return parent


def has_content(update: bytes) -> tuple[bool, bool]:
    """Whether ``update`` puts characters, and whether it puts values, into what has an order: texts and lists.

    It has passed `walk`. Costs 1 µs when it holds one struct, as most do, and 3 µs a struct otherwise.
    """
    characters = values = False
    for info in struct_bytes(update):
        is_key = info & HAS_KEY and not info & (HAS_ORIGIN | HAS_RIGHT_ORIGIN)  # otherwise the bit says nothing
        if info & KIND in (GC, SKIP, _DELETED_KIND, _FORMAT_KIND) or is_key:
            continue
        if info & KIND == _STRING_KIND:
            characters = True
        else:
            values = True
    return characters, values


def struct_bytes(update: bytes) -> Iterable[int]:
    """The first byte of each struct of an update that has passed `walk`; costs as `has_content`."""
    return _struct_bytes(update) if update[:2] != _ONE_STRUCT else _only_struct_byte(update)


def _only_struct_byte(update: bytes) -> tuple[int]:
    """The same, of an update that holds one struct."""
    position = 2
    for _ in range(2):  # the client and the clock
        while update[position] >= 0x80:
            position += 1
        position += 1
    return (update[position],)


def _struct_bytes(update: bytes) -> Iterator[int]:
    """The first byte of each struct; all but that of the last one are read to their end."""
    reader = Reader(update)
    clients = reader.count(bytes_each=5)
    for number in range(1, clients + 1):
        structs = reader.count(bytes_each=2)
        reader.varuint()
        reader.varuint()
        for index in range(1, structs + 1):
            info = reader.byte()
            yield info
            if number == clients and index == structs:
                return
            if info in (GC, SKIP):
                reader.varuint()
            else:
                read_place(reader, info)
                read_content(reader, info & KIND, _VALUE_DEPTH_MAX)
