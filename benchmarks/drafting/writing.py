"""Agents write a section each of one document while a reviewer corrects all of it; and what of it is lost."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.contention.classic import Client, Refused
from crdt_board import Board, BoardModel, Text

THINK_SECONDS = 0.02
"""A writer's, for a sentence."""
REVIEW_SECONDS = 0.1
"""The reviewer's, for the whole document."""
_WORDS = 8
_MISSPELT = re.compile(r"\bteh-(\S+)")


class Draft(BoardModel):
    """One document."""

    text: Text


@dataclass(slots=True)
class Outcome:
    """What came of one draft."""

    seconds: float = 0.0
    text: str = ""
    writer_retries: int = 0
    """Sentences that were thought of and then refused."""
    review_retries: int = 0
    corrected: list[str] = field(default_factory=list)
    """Each correction that was durable, in order; more than once where it was undone by somebody."""

    @property
    def corrected_again(self) -> int:
        return len(self.corrected) - len(set(self.corrected))


class Desk(Protocol):
    """How an agent changes the document. Durable on return; how many thoughts came to nothing before that."""

    async def write(self, section: int, sentence: str) -> int:
        """Read, think, and put a sentence at the end of a section."""
        ...

    async def review(self) -> tuple[int, list[str]]:
        """Read, think, and correct everything; also what was corrected. With nothing to correct nothing is written."""
        ...

    async def read(self) -> str:
        """The document as it is stored."""
        ...


def empty_draft(writers: int) -> str:
    """A document with a section for each writer."""
    return "".join(f"## Section {section}\n\n{_end_of(section)}\n\n" for section in range(writers))


def sentence_of(section: int, number: int) -> str:
    """Words that are in no other sentence, one of them misspelt."""
    words = [f"w{section}-{number}-{at}" for at in range(1, _WORDS)]
    return " ".join([words[0], f"teh-{section}-{number}", *words[1:]]) + ".\n"


def words_lost(text: str, writers: int, sentences: int) -> int:
    """How many words that were durable once are not there, corrected or not."""
    there = set(re.findall(r"[^\s.]+", text))
    expected = [
        word
        for section in range(writers)
        for number in range(sentences)
        for word in re.findall(r"[^\s.]+", _corrected(sentence_of(section, number)))
    ]
    return sum(1 for word in expected if word not in there and word.replace("the-", "teh-") not in there)


class WholeDocument:
    """A document that is read and written whole: with ``checked`` refused when another write came in between."""

    def __init__(self, client: Client, *, checked: bool) -> None:
        self._client = client
        self._checked = checked

    async def write(self, section: int, sentence: str) -> int:
        end = _end_of(section)
        retries, _ = await self._change(THINK_SECONDS, lambda text: text.replace(end, sentence + end))
        return retries

    async def review(self) -> tuple[int, list[str]]:
        retries, seen = await self._change(REVIEW_SECONDS, _corrected)
        return retries, _MISSPELT.findall(seen)

    async def read(self) -> str:
        _, state = await self._client.load()
        return str(state["text"])

    async def _change(self, seconds: float, edit: Callable[[str], str]) -> tuple[int, str]:
        retries = 0
        while True:
            version, state = await self._client.load()
            seen: str = state["text"]
            await asyncio.sleep(seconds)
            changed = edit(seen)
            if changed == seen:
                return retries, seen
            try:
                await self._client.commit({"text": changed}, version if self._checked else None)
            except Refused:
                retries += 1
            else:
                return retries, seen


class MergedText:
    """The document as a `Text`, edited where it changes."""

    def __init__(self, board: Board[Draft]) -> None:
        self._board = board

    async def write(self, section: int, sentence: str) -> int:
        text = self._board.state.text
        str(text)
        place = text.anchor(text.index(_end_of(section)))
        await asyncio.sleep(THINK_SECONDS)
        text.insert(place.start, sentence)
        await self._board.flush()
        return 0

    async def review(self) -> tuple[int, list[str]]:
        text = self._board.state.text
        misspelt = _MISSPELT.findall(str(text))
        await asyncio.sleep(REVIEW_SECONDS)
        with self._board.transaction():
            for word in misspelt:
                text.replace(f" teh-{word} ", f" the-{word} ")
        await self._board.flush()
        return 0, misspelt

    async def read(self) -> str:
        return str((await self._board.at(await self._board.commit("read"))).text)


async def write_together(desks: Sequence[Desk], sentences: int) -> Outcome:
    """Every desk but the last writes a section; the last reviews until all is written and nothing is misspelt."""
    outcome = Outcome()
    done = asyncio.Event()

    async def write(section: int, desk: Desk) -> None:
        for number in range(sentences):
            retries = await desk.write(section, sentence_of(section, number))
            outcome.writer_retries += retries

    async def review(desk: Desk) -> None:
        while True:
            last = done.is_set()
            retries, corrected = await desk.review()
            outcome.review_retries += retries
            outcome.corrected += corrected
            outcome.seconds = time.perf_counter() - began
            # A replica hears of the last sentence a moment after its writer knows that it is durable.
            if last and not corrected and not _MISSPELT.search(await desk.read()):
                return

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        reviewing = group.create_task(review(desks[-1]))
        await asyncio.gather(*(write(section, desk) for section, desk in enumerate(desks[:-1])))
        done.set()
        await reviewing
    outcome.text = await desks[-1].read()
    return outcome


def _end_of(section: int) -> str:
    return f"<end {section}>"


def _corrected(text: str) -> str:
    return _MISSPELT.sub(r"the-\1", text)
