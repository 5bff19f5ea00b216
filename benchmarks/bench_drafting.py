"""Drafting: one document that several write: whole documents with a version, or the last one, against `Text`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks.contention.classic import classic_client
from benchmarks.drafting import recorded
from benchmarks.drafting.writing import (
    REVIEW_SECONDS,
    THINK_SECONDS,
    Desk,
    Draft,
    MergedText,
    Outcome,
    WholeDocument,
    empty_draft,
    words_lost,
    write_together,
)
from benchmarks.harness import Figure, Run, recording_if_any, require, run_program
from benchmarks.reporting import Table
from benchmarks.servers import CLIENT_CORE, board_server, can_pin, classic_server, pinned_to
from crdt_board_client import connect

T = TypeVar("T")

OCC = "whole document, OCC"
LAST = "whole document, last writer wins"
TEXT = "Text"
_MODES = (OCC, LAST, TEXT)
_ONE, _TWO = "automerge-paper.json.gz", "friendsforever.json.gz"
_EDITS_A_SAVE = 100
_COLUMNS = (
    "time, s",
    "a writer's retries per sentence",
    "a reviewer's retries",
    "words lost, %",
    "corrected again",
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is written. ``saves``: of the session of two, that many are timed; ``edits``: of the session of one."""

    writers: Sequence[int]
    sentences: int
    saves: int
    edits: int | None


FULL = Scale((4, 16), 12, 2_000, None)
QUICK = Scale((2,), 2, 20, 500)


@dataclass(slots=True)
class Measured:
    """Samples of the rounds, by the name of what was measured."""

    drafts: dict[int, dict[str, tuple[list[float], ...]]] = field(default_factory=dict)
    sessions: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, writers: int, mode: str, outcome: Outcome, sentences: int) -> None:
        """Take in one draft."""
        columns = self.drafts.setdefault(writers, {}).setdefault(mode, tuple([] for _ in _COLUMNS))
        written = writers * sentences
        lost = words_lost(outcome.text, writers, sentences)
        require(mode == LAST or lost == 0, f"{writers} writers: {mode}: {lost} words were lost")
        seconds, retries, review, words, again = columns
        seconds.append(outcome.seconds)
        retries.append(outcome.writer_retries / written)
        review.append(outcome.review_retries)
        words.append(100 * lost / words_lost("", writers, sentences))
        again.append(outcome.corrected_again)


async def draft(mode: str, writers: int, sentences: int, *, ports: tuple[int, int], name: str) -> Outcome:
    """One document from nothing to reviewed, everybody with a connection of their own."""
    async with contextlib.AsyncExitStack() as stack:
        desks: list[Desk] = []
        for number in range(writers + 1):
            if mode == TEXT:
                opening = connect(f"ws://127.0.0.1:{ports[0]}", name, Draft, agent=f"agent-{number}")
                board = await stack.enter_async_context(opening)
                if not desks:
                    board.state.text.append(empty_draft(writers))
                    await board.flush()
                desks.append(MergedText(board))
            else:
                client = await stack.enter_async_context(classic_client(ports[1], name))
                if not desks:
                    await client.commit({"text": empty_draft(writers)}, 0)
                desks.append(WholeDocument(client, checked=mode == OCC))
        return await write_together(desks, sentences)


async def measure_drafts(run: Run, scale: Scale, measured: Measured, number: int) -> None:
    """One round of writers and a reviewer."""
    pin = can_pin()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with (
            board_server(folder / "boards.db", pin=pin) as port,
            classic_server(folder / "classic.db", pin=pin) as classic_port,
        ):
            for writers in scale.writers:
                for mode in _MODES[number % 3 :] + _MODES[: number % 3]:
                    run.progress(f"round {number}: {writers} writers: {mode}")
                    board = f"{mode.replace(' ', '-').replace(',', '')}-{writers}"
                    outcome = await draft(mode, writers, scale.sentences, ports=(port, classic_port), name=board)
                    measured.add(writers, mode, outcome, scale.sentences)


class Sessions:
    """The recorded sessions that there are."""

    def __init__(self, scale: Scale) -> None:
        one, two = recording_if_any(_ONE), recording_if_any(_TWO)
        self.facts: list[str] = []
        self._edits: list[list[recorded.Edit]] = []
        self._end: str | None = None
        if one is None or two is None:
            self.facts.append(f"not measured: {_ONE} and {_TWO}: name the folder that has them in CRDT_BOARD_DATA")
        self._saves: list[recorded.Save] = []
        if one is not None:
            saves = recorded.saves_of_one(one, _EDITS_A_SAVE)
            self._edits = saves if scale.edits is None else saves[: scale.edits // _EDITS_A_SAVE]
            self._end = one["endContent"] if scale.edits is None else None
        if two is not None:
            saves_of_two = recorded.saves_of_two(two)
            self._saves = saves_of_two[: scale.saves]
            self.facts.append(_told(saves_of_two))

    def measure(self, run: Run, measured: Measured) -> None:
        """One round, embedded."""
        samples = measured.sessions
        if self._edits:
            run.progress("one author: Text")
            seconds, size = in_folder(lambda folder: asyncio.run(recorded.one_as_text(folder, self._edits, self._end)))
            samples[f"automerge-paper, {len(self._edits):,} saves: {TEXT}|s"].append(seconds)
            samples[f"automerge-paper: {TEXT}, all history kept|MB"].append(size / 1e6)
            run.progress("one author: whole document")
            seconds, size = in_folder(lambda folder: recorded.one_as_whole(folder, self._edits, self._end))
            samples[f"automerge-paper, {len(self._edits):,} saves: {OCC}|s"].append(seconds)
            samples[f"automerge-paper: {OCC}, newest only|MB"].append(size / 1e6)
        if self._saves:
            run.progress("two authors")
            text = in_folder(lambda folder: asyncio.run(recorded.two_as_text(folder, self._saves)))
            samples[f"friendsforever, {len(self._saves):,} saves: {TEXT}|s"].append(text)
            whole = in_folder(lambda folder: recorded.two_as_whole(folder, self._saves))
            samples[f"friendsforever, {len(self._saves):,} saves: {OCC}|s"].append(whole)


def in_folder(work: Callable[[Path], T]) -> T:
    """What ``work`` returns, given a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder))


def _told(saves: Sequence[recorded.Save]) -> str:
    refused = recorded.refused(saves)
    again, typed = sum(save.typed for save in refused), sum(save.typed for save in saves)
    return (
        f"friendsforever, whole document, OCC: {len(refused):,} of {len(saves):,} saves are refused once "
        f"({100 * len(refused) / len(saves):.0f} %); {100 * again / typed:.0f} % of what was typed is typed again"
    )


def figures_of(measured: Measured) -> list[Figure]:
    """The recorded sessions, and the draft of most writers."""
    writers = max(measured.drafts)
    figures = [
        Figure(f"{writers} writers and a reviewer: {mode}: {what}", unit, columns[at])
        for at, what, unit in ((0, "time", "s"), (3, "words lost", "%"))
        for mode, columns in _in_order(measured.drafts[writers]).items()
    ]
    for name, samples in measured.sessions.items():
        what, _, unit = name.partition("|")
        figures.append(Figure(what, unit, samples))
    return figures


def _in_order(drafts: dict[str, tuple[list[float], ...]]) -> dict[str, tuple[list[float], ...]]:
    return {mode: drafts[mode] for mode in _MODES}


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Drafting: one document that several write", argparse.ArgumentParser(description=__doc__), repeat=3)
    scale = QUICK if run.options.quick else FULL
    measured, sessions = Measured(), Sessions(scale)
    for number in range(1, run.options.repeat + 1):
        with pinned_to(CLIENT_CORE, can_pin()):
            asyncio.run(measure_drafts(run, scale, measured, number))
        sessions.measure(run, measured)
    facts = [
        f"a writer thinks {THINK_SECONDS * 1e3:g} ms over each of {scale.sentences} sentences, the reviewer "
        f"{REVIEW_SECONDS * 1e3:g} ms over the whole document, until all is written and corrected",
        "OCC and Text lost no word, or this run would have ended",
        *sessions.facts,
    ]
    tables = [
        Table(f"{writers} writers and a reviewer, served", _COLUMNS, _in_order(drafts))
        for writers, drafts in measured.drafts.items()
    ]
    run.finish(figures_of(measured), facts, tables=tables)


if __name__ == "__main__":
    run_program(main)
