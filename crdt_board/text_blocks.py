"""The stretches of text that a document stores for one client, read from its own encoding."""

from __future__ import annotations

from crdt_board.reader import Reader
from crdt_board.update_walk import GC, KIND, SKIP, read_content, read_place

_STRING = 4
_DEPTH_MAX = 1_000  # the document holds it already, so that nothing is refused here


def text_blocks(update: bytes, client: int) -> list[tuple[int, str]]:
    """For each text block of ``client``: its first clock and its content, whatever text it belongs to.

    Raises:
        MalformedUpdate: ``update`` is not an update.
    """
    reader = Reader(update)
    blocks: list[tuple[int, str]] = []
    for _ in range(reader.count(bytes_each=5)):
        structs = reader.count(bytes_each=2)
        found = _client_blocks(reader, structs, wanted := reader.varuint() == client)
        if wanted:
            blocks = found
    return blocks


def all_text_blocks(update: bytes) -> dict[tuple[int, int], str]:
    """The content of every text block of every client, whatever text it belongs to, by client and first clock.

    Raises:
        MalformedUpdate: ``update`` is not an update.
    """
    reader = Reader(update)
    blocks: dict[tuple[int, int], str] = {}
    for _ in range(reader.count(bytes_each=5)):
        structs, client = reader.count(bytes_each=2), reader.varuint()
        for clock, content in _client_blocks(reader, structs, wanted=True):
            blocks[client, clock] = content
    return blocks


def is_item(update: bytes, client: int, clock: int) -> bool:
    """Whether ``update`` holds an item at this clock, and not only the gap that garbage collection left.

    ``update`` holds what follows ``clock`` of ``client``: the block that the clock is in is its first one.

    Raises:
        MalformedUpdate: ``update`` is not an update.
    """
    reader = Reader(update)
    for _ in range(reader.count(bytes_each=5)):
        structs = reader.count(bytes_each=2)
        if reader.varuint() == client:
            start = reader.varuint()
            return structs > 0 and start <= clock and reader.byte() not in (GC, SKIP)
        _client_blocks(reader, structs, wanted=False)
    return False


def _client_blocks(reader: Reader, structs: int, wanted: bool) -> list[tuple[int, str]]:
    clock = reader.varuint()
    blocks: list[tuple[int, str]] = []
    for _ in range(structs):
        info = reader.byte()
        if info in (GC, SKIP):
            clock += reader.varuint()
            continue
        read_place(reader, info)
        start = reader.position
        length = read_content(reader, info & KIND, _DEPTH_MAX)
        if wanted and info & KIND == _STRING:
            end, reader.position = reader.position, start
            blocks.append((clock, reader.string()))
            reader.position = end
        clock += length
    return blocks
