"""Recorded sessions, saved as whole documents with a version, and as edits of a text."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pycrdt

from benchmarks.contention.classic import ClassicStore, Refused
from benchmarks.drafting.writing import Draft
from benchmarks.harness import require
from benchmarks.typist import transactions_of_both
from crdt_board import BoardHost, open_board
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Receipt, Submission

Edit = tuple[int, int, str]
_CLIENT_IDS = (1_001, 1_002)
_BOARD = "draft"


@dataclass(frozen=True, slots=True)
class Save:
    """One save of a session of several: ``seen`` is how many saves there were that its author knew of."""

    seen: int
    text: str
    typed: int
    """Characters that are typed in it, or deleted."""
    update: bytes


def saves_of_one(recorded: dict[str, Any], edits_a_save: int) -> list[list[Edit]]:
    """One author's edits, as they are saved."""
    edits = [(at, cut, put) for txn in recorded["txns"] for at, cut, put in txn["patches"]]
    require(all(put.isascii() for _, _, put in edits), "the recording is not all ASCII")
    return [edits[start : start + edits_a_save] for start in range(0, len(edits), edits_a_save)]


def saves_of_two(recorded: dict[str, Any]) -> list[Save]:
    """Every transaction of two authors, in the order of the recording, made on what its author had seen."""
    both = transactions_of_both(recorded)
    docs: list[pycrdt.Doc[Any]] = [pycrdt.Doc(client_id=number) for number in _CLIENT_IDS]
    head: pycrdt.Doc[Any] = pycrdt.Doc()
    texts = [doc.get("text", type=pycrdt.Text) for doc in docs]
    whole = head.get("text", type=pycrdt.Text)
    made: list[list[bytes]] = [[], []]
    let_in = [0, 0]
    saves: list[Save] = []
    for txn in recorded["txns"]:
        author = txn["agent"]
        other = 1 - author
        transaction = both[author][len(made[author])]
        for update in made[other][let_in[author] : transaction.seen]:
            docs[author].apply_update(update)
        let_in[author] = transaction.seen
        before = docs[author].get_state()
        with docs[author].transaction():
            for position, deleted, inserted in transaction.patches:
                if deleted:
                    del texts[author][position : position + deleted]
                if inserted:
                    texts[author].insert(position, inserted)
        update = docs[author].get_update(before)
        seen = len(made[author]) + transaction.seen
        made[author].append(update)
        head.apply_update(update)
        typed = sum(deleted + len(inserted) for _, deleted, inserted in transaction.patches)
        saves.append(Save(seen, str(whole), typed, update))
    require(saves[-1].text == recorded["endContent"], "the recording does not end in its text")
    return saves


def refused(saves: Sequence[Save]) -> list[Save]:
    """Those that whole-document OCC refuses once: somebody had saved what their author had not seen."""
    return [save for count, save in enumerate(saves) if save.seen != count]


async def one_as_text(folder: Path, saves: Sequence[Sequence[Edit]], end: str | None) -> tuple[float, int]:
    """Seconds, and bytes of the files."""
    async with open_board(folder / "boards.db", _BOARD, Draft, agent="author") as board:
        text = board.state.text
        began = time.perf_counter()
        for edits in saves:
            with board.transaction():
                for position, deleted, inserted in edits:
                    if deleted:
                        text.delete(position, position + deleted)
                    if inserted:
                        text.insert(position, inserted)
            await board.flush()
        seconds = time.perf_counter() - began
        require(end is None or str(text) == end, "the text is not the recorded one")
    return seconds, _size(folder)


def one_as_whole(folder: Path, saves: Sequence[Sequence[Edit]], end: str | None) -> tuple[float, int]:
    """The same, of which only the commits are timed, not the editing of the string."""
    text, content, seconds = bytearray(), "", 0.0
    with contextlib.closing(ClassicStore(folder / "classic.db")) as store:
        for version, edits in enumerate(saves):
            for position, deleted, inserted in edits:
                text[position : position + deleted] = inserted.encode()
            content = text.decode()
            began = time.perf_counter()
            store.commit(_BOARD, {"text": content}, version)
            seconds += time.perf_counter() - began
        require(end is None or content == end, "the text is not the recorded one")
    return seconds, _size(folder)


async def two_as_text(folder: Path, saves: Sequence[Save]) -> float:
    """Seconds for all updates, each durable before the next."""
    store = await SqliteStore.open(folder / "boards.db")
    async with BoardHost(store, idle_seconds=60) as host, host.board(_BOARD) as engine:
        await engine.join(Draft.board_layout())
        began = time.perf_counter()
        for save in saves:
            told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            engine.submit(Submission(updates=[save.update], author="author", source=saves, written=told.set_result))
            await told
        seconds = time.perf_counter() - began
        async with open_board(host, _BOARD, Draft, agent="reader") as board:
            require(str(board.state.text) == saves[-1].text, "the text is not the recorded one")
    return seconds


def two_as_whole(folder: Path, saves: Sequence[Save]) -> float:
    """Seconds for all saves, refused ones loaded and saved again by an author who takes no time for that."""
    with contextlib.closing(ClassicStore(folder / "classic.db")) as store:
        began = time.perf_counter()
        for save in saves:
            try:
                store.commit(_BOARD, {"text": save.text}, save.seen)
            except Refused:
                version, _ = store.load(_BOARD)
                store.commit(_BOARD, {"text": save.text}, version)
        return time.perf_counter() - began


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
