"""Taking back single writes: the update that the writer of a board adds to one that broke a rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pycrdt

from crdt_board.document import Document
from crdt_board.paths import split_path
from crdt_board.wire_values import document_wire


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()
"""There was no value, or one that cannot be put back: a shared type that was replaced is gone for good."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """The key of a map gets the value that it had, or none."""

    holder: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Remove:
    """Ranges of a list, or of a text in bytes, are removed."""

    holder: str
    ranges: tuple[tuple[int, int], ...]


Undo = PutBack | Remove


def reach(document: Document, path: str) -> object:
    """What is at ``path``, which may lead through maps and lists; None when nothing is."""
    name, *way = split_path(path)
    try:
        found: Any = document.root(name)
    except KeyError:
        return None
    for part in way:
        try:
            if isinstance(found, pycrdt.Map):
                found = found[part]
            elif isinstance(found, pycrdt.Array):
                found = found[int(part)]
            else:
                return None
        except (KeyError, IndexError, ValueError):
            return None
    return found


def take_back(document: Document, undos: Iterable[Undo]) -> None:
    """Inside a transaction: undo writes."""
    ranges: dict[str, set[tuple[int, int]]] = {}
    for undo in undos:
        if isinstance(undo, PutBack):
            _put_back(document, undo)
        else:
            ranges.setdefault(undo.holder, set()).update(undo.ranges)
    contents = [(reach(document, holder), removed) for holder, removed in ranges.items()]  # while indexes still hold
    for content, removed in contents:
        if isinstance(content, pycrdt.Array | pycrdt.Text):
            for start, stop in _joined(removed):
                del content[start:stop]


def _put_back(document: Document, undo: PutBack) -> None:
    content = reach(document, undo.holder)
    if not isinstance(content, pycrdt.Map):
        return
    if undo.value is not MISSING:
        # pycrdt gives bytes as a bytearray, which it does not take.
        is_bytes = isinstance(undo.value, bytes | bytearray)
        content[undo.key] = bytes(undo.value) if is_bytes else document_wire(undo.value)
    elif undo.key in content:
        del content[undo.key]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges without overlaps, the last one first."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined[::-1]
