"""Boards with a long past, made without the work of having written it: journals that a writer could have left."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pycrdt

from crdt_board import BoardModel, Text, open_board
from crdt_board.store.contract import Append, Appended
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.journals import JournalWriter, payloads

BOARD = "long"
_KEYS = 1_000
_AT_ONCE = 1_000
_FIRST_CLIENT = 1 << 40


class Past(BoardModel):
    """What the journals below write into."""

    status: str = ""
    draft: Text
    scores: dict[str, int] = {}


def edits() -> Iterator[bytes]:
    """Updates of one client without end: keys that are set again and again, and each tenth time a word."""
    made: list[bytes] = []
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=_FIRST_CLIENT)
    scores, draft = doc.get("scores", type=pycrdt.Map), doc.get("draft", type=pycrdt.Text)
    doc.observe(lambda event: made.append(event.update))
    for number in itertools.count():
        if number % 10:
            scores[f"key-{number % _KEYS}"] = number
        else:
            draft.insert(0, "word ")  # at the end it takes yrs 0.2 ms when 60,000 are there
        yield made.pop()


def newest_edit(count: int) -> tuple[str, int]:
    """The key that the last of ``count`` of these `edits` set, and to what, unless it put a word."""
    return f"key-{(count - 1) % _KEYS}", count - 1


def edits_of_clients() -> Iterator[bytes]:
    """Updates without end, each of a client that wrote once and never came back."""
    for number in itertools.count():
        doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=_FIRST_CLIENT + number)
        doc.get("scores", type=pycrdt.Map)[f"key-{number % 10}"] = number
        yield doc.get_update()


async def make(file: Path, model: type[BoardModel] = Past) -> None:
    """A new board that has its schema, and nothing else."""
    async with open_board(file, BOARD, model, agent="maker") as board:
        await board.flush()


async def append_updates(file: Path, updates: Iterable[bytes], count: int) -> None:
    """Append ``count`` of ``updates``, each an entry of its own, as if the writer had been killed after them."""
    source = iter(updates)
    store = await SqliteStore.open(file, synchronous="OFF")
    try:
        head = await store.head(BOARD)
        assert head is not None
        writer = JournalWriter(head)
        for start in range(0, count, _AT_ONCE):
            made = writer.updates(*itertools.islice(source, min(_AT_ONCE, count - start)))
            await _append(store, made)
    finally:
        await store.close()


async def append_versions(file: Path, count: int) -> None:
    """Append ``count`` commits that change nothing."""
    store = await SqliteStore.open(file, synchronous="OFF")
    try:
        head = await store.head(BOARD)
        assert head is not None
        writer = JournalWriter(head)
        for start in range(0, count, _AT_ONCE):
            made = [writer.commit("step", b"\0\0") for _ in range(min(_AT_ONCE, count - start))]
            entries = [entry for each in made for entry in each.entries]
            checkpoints = [checkpoint for each in made for checkpoint in each.checkpoints]
            await _append(store, replace(made[0], entries=entries, checkpoints=checkpoints))
    finally:
        await store.close()


async def last_updates(file: Path, count: int) -> list[bytes]:
    """The updates of the last ``count`` entries."""
    store = await SqliteStore.open(file)
    try:
        head = await store.head(BOARD)
        assert head is not None
        return payloads(await store.entries(BOARD, after=head.seq - count, limit=count))
    finally:
        await store.close()


async def snapshot(file: Path, model: type[BoardModel] = Past) -> None:
    """Load the board and close it in good order, which saves a snapshot."""
    async with open_board(file, BOARD, model, agent="keeper") as board:
        await board.flush()


async def snapshot_seqs(file: Path) -> list[int]:
    """Where the journal has snapshots."""
    store = await SqliteStore.open(file)
    try:
        return list(await store.snapshot_seqs(BOARD))
    finally:
        await store.close()


async def _append(store: SqliteStore, request: Append) -> None:
    (answer,) = await store.append([request])
    assert isinstance(answer, Appended), answer
