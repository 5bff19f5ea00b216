"""Embedded: everything that one person typed into a paper, on a bare pycrdt text and on a durable board."""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pycrdt

from benchmarks.harness import Figure, Run, in_fresh_process, recording, require, run_program
from crdt_board import BoardModel, Text, open_board

_FILE = "automerge-paper.json.gz"
_PER_TRANSACTION = 100
_OPENINGS = 10
_QUICK_EDITS, _QUICK_OPENINGS = 5_000, 1

Edit = tuple[int, int, str]


class Paper(BoardModel):
    """One text."""

    text: Text


@dataclass(frozen=True, slots=True)
class Trace:
    """The recorded edits, each ``(position, deleted, inserted)``, and the text that they make."""

    edits: list[Edit]
    end_content: str

    @classmethod
    def load(cls) -> Trace:
        """Read the recording; ends the process where there is none."""
        recorded = recording(_FILE)
        edits = [(at, deleted, inserted) for txn in recorded["txns"] for at, deleted, inserted in txn["patches"]]
        # A bare pycrdt text counts bytes; in this recording they are the code points.
        require(all(inserted.isascii() for _, _, inserted in edits), f"{_FILE} is not all ASCII")
        return cls(edits, recorded["endContent"])

    def first(self, count: int) -> Trace:
        """The first ``count`` edits alone."""
        content = ""
        for at, deleted, inserted in self.edits[:count]:
            content = content[:at] + inserted + content[at + deleted :]
        return Trace(self.edits[:count], content)

    def transactions(self) -> Iterator[list[Edit]]:
        """The edits, a hundred at a time."""
        for start in range(0, len(self.edits), _PER_TRANSACTION):
            yield self.edits[start : start + _PER_TRANSACTION]


@dataclass(slots=True)
class Samples:
    """What one way of writing to a board took, round by round."""

    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    closing: list[float] = field(default_factory=list)
    bytes_an_edit: list[float] = field(default_factory=list)
    openings: list[float] = field(default_factory=list)


def type_bare(trace: Trace) -> float:
    """Seconds for all edits on a pycrdt text that nobody observes or stores."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    text = doc.get("text", type=pycrdt.Text)
    gc.collect()
    began = time.perf_counter()
    for edits in trace.transactions():
        with doc.transaction():
            for position, deleted, inserted in edits:
                if deleted:
                    del text[position : position + deleted]
                if inserted:
                    text.insert(position, inserted)
    seconds = time.perf_counter() - began
    require(str(text) == trace.end_content, "the bare text differs from the recorded one")
    return seconds


async def type_on_board(trace: Trace, file: Path, *, flush_each: bool) -> tuple[float, float]:
    """Seconds until all edits are durable on a new board, and seconds that closing it takes then.

    With ``flush_each`` every transaction is durable before the next begins; otherwise the writer works along.
    """
    gc.collect()
    async with open_board(file, "paper", Paper, agent="author") as board:
        text = board.state.text
        began = time.perf_counter()
        for edits in trace.transactions():
            with board.transaction():
                for position, deleted, inserted in edits:
                    if deleted:
                        text.delete(position, position + deleted)
                    if inserted:
                        text.insert(position, inserted)
            await (board.flush() if flush_each else asyncio.sleep(0))
        await board.flush()
        typed = time.perf_counter()
        require(str(text) == trace.end_content, "the board differs from the recorded text")
        ended = time.perf_counter()
    return typed - began, time.perf_counter() - ended


def open_and_read(file: str, sha256: str) -> dict[str, float]:
    """Seconds from `open_board` to the text being read; run in a process that has opened nothing before."""

    async def opened() -> float:
        began = time.perf_counter()
        async with open_board(file, "paper", Paper, agent="reader") as board:
            text = str(board.state.text)
            seconds = time.perf_counter() - began
        require(hashlib.sha256(text.encode()).hexdigest() == sha256, "the reopened board does not hold the text")
        return seconds

    return {"seconds": asyncio.run(opened())}


def measure_board(trace: Trace, samples: Samples, bare_seconds: float, *, openings: int, flush_each: bool) -> None:
    """One round of one way of writing: type, close, weigh the files, open again and again."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "boards.db"
        seconds, closing = asyncio.run(type_on_board(trace, file, flush_each=flush_each))
        samples.seconds.append(seconds)
        samples.ratios.append(seconds / bare_seconds)
        samples.closing.append(closing)
        samples.bytes_an_edit.append(sum(path.stat().st_size for path in Path(folder).iterdir()) / len(trace.edits))
        sha256 = hashlib.sha256(trace.end_content.encode()).hexdigest()
        for _ in range(openings):
            opened = in_fresh_process("bench_automerge_paper", "open_and_read", file, sha256)
            samples.openings.append(opened["seconds"] * 1e3)


def figures_of(name: str, samples: Samples) -> list[Figure]:
    """The rows of one way of writing."""
    return [
        Figure(f"{name}: all edits durable", "s", samples.seconds),
        Figure(f"{name}: times the bare text", "x", samples.ratios, at_most=1.3),
        Figure(f"{name}: disk for an edit, after closing", "bytes", samples.bytes_an_edit, at_most=8),
        Figure(f"{name}: cold open, after imports", "ms", samples.openings, at_most=100),
        Figure(f"{name}: closing, with a verified snapshot", "s", samples.closing),
    ]


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Embedded: automerge-paper, 100 edits to a transaction", argparse.ArgumentParser(), repeat=3)
    trace, openings = Trace.load(), _OPENINGS
    if run.options.quick:
        trace, openings = trace.first(_QUICK_EDITS), _QUICK_OPENINGS
    bare: list[float] = []
    flushed, pipelined = Samples(), Samples()
    for number in range(1, run.options.repeat + 1):
        run.progress(f"round {number}: bare text")
        bare.append(type_bare(trace))
        run.progress(f"round {number}: flush after each transaction")
        measure_board(trace, flushed, bare[-1], openings=openings, flush_each=True)
        run.progress(f"round {number}: one flush at the end")
        measure_board(trace, pipelined, bare[-1], openings=openings, flush_each=False)
    run.finish(
        [
            Figure("bare pycrdt text: all edits", "s", bare),
            *figures_of("flush each", flushed),
            *figures_of("pipelined", pipelined),
        ],
        [f"{len(trace.edits):,} edits; every text, the reopened ones too, is the recorded one"],
    )


if __name__ == "__main__":
    run_program(main)
