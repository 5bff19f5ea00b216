"""Updates that the load generator replays, made once with pycrdt and kept in the cache.

A file holds, in little-endian 32-bit numbers, how many senders there are, and for each how many updates, and each of
these with its length before it. Sender ``i`` writes as client ``FIRST_CLIENT_ID + i``, five bytes as of a usual id.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pycrdt

FIRST_CLIENT_ID = 3_000_000_000
Kind = Literal["keys", "many-keys", "text"]
_KEYS = {"keys": 20, "many-keys": 1000}
_CURSOR_STAYS = 50


def history_file(folder: Path, kind: Kind, *, senders: int, count: int) -> Path:
    """A file with at least ``count`` updates of each sender, made if it is not there.

    ``keys``: values of 14 characters under 20 keys for each sender, some 46 bytes an update. ``many-keys``: under 1,000
    keys. ``text``: single characters at a cursor that jumps after 50.
    """
    path = folder / f"{kind}-{senders}x{count}.bin"
    if not path.exists():
        made = path.with_suffix(".part")
        with made.open("wb") as file:
            file.write(struct.pack("<I", senders))
            for sender in range(senders):
                updates = history(kind, sender, count)
                file.write(struct.pack("<I", len(updates)))
                file.writelines(struct.pack("<I", len(update)) + update for update in updates)
        made.rename(path)
    return path


def history(kind: Kind, sender: int, count: int) -> list[bytes]:
    """The first ``count`` updates of one sender, the same each time."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=FIRST_CLIENT_ID + sender)
    updates: list[bytes] = []
    edits = _typing(doc, sender) if kind == "text" else _assigning(doc, sender, _KEYS[kind])
    doc.observe(lambda event: updates.append(event.update))
    for _ in range(count):
        next(edits)
    assert len(updates) == count, "an edit is not one update"
    return updates


def _assigning(doc: pycrdt.Doc[Any], sender: int, keys: int) -> Iterator[None]:
    values = doc.get("values", type=pycrdt.Map)
    for number in itertools.count():
        values[f"{sender}-{number % keys}"] = f"value-{number:08d}"
        yield


def _typing(doc: pycrdt.Doc[Any], sender: int) -> Iterator[None]:
    text, chance, cursor = doc.get("text", type=pycrdt.Text), random.Random(sender), 0
    for number in itertools.count():
        if number % _CURSOR_STAYS == 0:
            cursor = chance.randint(0, number)
        text.insert(cursor, "abcdefghij klmnop"[number % 17])
        cursor += 1
        yield
