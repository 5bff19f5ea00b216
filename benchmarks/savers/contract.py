"""What is asked of everything that keeps a board step by step, and what is written. Knows none of them."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_NOTE_CHARS = 100
_SYNCHRONOUS_FULL = 2


@dataclass(frozen=True, slots=True)
class Change:
    """What one step changes: a status, and an item at the end of a list when it is not empty."""

    status: str
    item: str = ""


@dataclass(frozen=True, slots=True)
class State:
    """A board as it is read back, as far as it is checked."""

    status: str
    notes: int
    items: int


class Saver(Protocol):
    """Keeps one board. Opened by an async context manager; everything is gone afterwards."""

    durability: str
    """What is on the disk when a step has returned."""
    writes_again: bool
    """Whether `write` can be called more than once."""

    async def start(self, notes: dict[str, str]) -> None:
        """Write the board as it is before the first step."""
        ...

    async def write(self, changes: Sequence[Change], deadline: float) -> list[float]:
        """Milliseconds of each step, one after the other, durable; those that began before ``deadline``."""
        ...

    async def latest(self) -> State:
        """The newest state, in full, as whoever writes the steps reads it."""
        ...

    async def history(self, limit: int) -> list[State]:
        """Up to ``limit`` states, in full, newest first, from where they are stored."""
        ...

    async def size(self) -> int:
        """Bytes on disk of everything that is kept."""
        ...


def notes_of(seed: int, size: int) -> dict[str, str]:
    """Notes of about ``size`` bytes in all, of words, which compress like prose and not like zeros."""
    seeded = random.Random(seed)
    vocabulary = ["".join(seeded.choices(string.ascii_lowercase, k=seeded.randint(2, 9))) for _ in range(2_000)]
    count = max(1, size // (_NOTE_CHARS + 10))
    return {f"note-{n}": " ".join(seeded.choices(vocabulary, k=_NOTE_CHARS // 6))[:_NOTE_CHARS] for n in range(count)}


def changes_of(count: int, item_chars: int) -> list[Change]:
    """``count`` steps, each of which sets the status, and appends an item of ``item_chars`` unless that is 0."""
    seeded = random.Random(count)
    letters = string.ascii_lowercase + " "
    return [Change(f"step {n:05}", "".join(seeded.choices(letters, k=item_chars))) for n in range(count)]


def timed_each(changes: Sequence[Change], deadline: float, step: Callable[[Change], Any]) -> list[float]:
    """`Saver.write` for savers that do not await."""
    samples: list[float] = []
    for change in changes:
        began = time.perf_counter()
        if began >= deadline:
            break
        step(change)
        samples.append((time.perf_counter() - began) * 1e3)
    return samples


def sqlite_durability(ask: Callable[[str], Any]) -> str:
    """What a connection to SQLite promises; ``ask`` gives its answer to a PRAGMA.

    Raises:
        ValueError: it does not wait for the disk.
    """
    mode, level = ask("PRAGMA journal_mode"), ask("PRAGMA synchronous")
    if level < _SYNCHRONOUS_FULL:
        raise ValueError(f"a connection with synchronous={level} does not wait for the disk")
    return f"SQLite, journal_mode={mode}, synchronous={'FULL' if level == _SYNCHRONOUS_FULL else level}"


def bytes_of(file: Path) -> int:
    """Bytes of the pages of a SQLite file that are in use, those in its write-ahead log too.

    The size of the file does not grow while pages that something else left free are filled.
    """
    with contextlib.closing(sqlite3.connect(file)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    used: int = (pages - free) * size
    return used
