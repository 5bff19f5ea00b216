"""The recording of two people who typed into one text at the same time, as a plan for two processes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from crdt_board.merge_types import Text
from crdt_board.schema import BoardModel


class Typing(BoardModel):
    """``typed`` says for each author how many of their transactions a replica holds."""

    text: Text
    typed: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Transaction:
    """``seen`` is how many of the other author's transactions were before it: they, and its author's own earlier ones,
    are exactly its ancestors."""

    seen: int
    patches: list[tuple[int, int, str]]


@dataclass(frozen=True, slots=True)
class Run:
    """Transactions ``[start:stop]`` of one author, between which nothing of the other arrived, nor had to leave."""

    start: int
    stop: int
    seen: int


class Recording:
    """What two authors, 0 and 1, typed."""

    def __init__(self, file: Path) -> None:
        with gzip.open(file, "rt") as content:
            recorded = json.load(content)
        self.end_content: str = recorded["endContent"]
        self.transactions: tuple[list[Transaction], list[Transaction]] = ([], [])
        versions: list[tuple[int, int]] = []
        for item in recorded["txns"]:
            author = item["agent"]
            parents = [versions[parent] for parent in item["parents"]]
            version = [max((parent[side] for parent in parents), default=0) for side in (0, 1)]
            assert version[author] == len(self.transactions[author]), "an author sees their own transactions in order"
            self.transactions[author].append(Transaction(version[1 - author], [tuple(p) for p in item["patches"]]))
            version[author] += 1
            versions.append((version[0], version[1]))
        self._updates = [self._count_updates(author) for author in (0, 1)]

    @property
    def end(self) -> tuple[int, int]:
        """How many transactions each author made."""
        first, second = self.transactions
        return len(first), len(second)

    def updates_before(self, author: int, transactions: int) -> int:
        """How many updates an author's first ``transactions`` become: one for each edit, and a mark for each run."""
        return self._updates[author][transactions]

    def runs(self, author: int) -> list[Run]:
        """An author's transactions, cut where the author saw something new, and where the other one saw this author."""
        mine, others = self.transactions[author], self.transactions[1 - author]
        needed = {transaction.seen for transaction in others}
        runs, start = [], 0
        for stop in range(1, len(mine) + 1):
            if stop == len(mine) or mine[stop].seen != mine[start].seen or stop in needed:
                runs.append(Run(start, stop, mine[start].seen))
                start = stop
        return runs

    def meeting_near(self, share: float) -> tuple[int, int]:
        """How much each author has typed when, near this share of the whole, both have typed what the other has not
        seen and then both see everything."""
        first, second = self.transactions
        wanted = share * (len(first) + len(second))
        found = []
        done = [0, 0]
        runs = sorted(
            ((run.stop, side) for side in (0, 1) for run in self.runs(side)), key=lambda item: self._order(*item)
        )
        for stop, side in runs:
            done[side] = stop
            i, j = done
            if 0 < i < len(first) and 0 < j < len(second):
                apart = first[i - 1].seen < j and second[j - 1].seen < i
                together = first[i].seen >= j and second[j].seen >= i
                if apart and together:
                    found.append((i, j))
        return min(found, key=lambda pair: abs(sum(pair) - wanted))

    def _order(self, stop: int, side: int) -> tuple[int, int]:
        """A run comes after everything that it builds on; the sum of a version grows along the recording."""
        return stop + self.transactions[side][stop - 1].seen, side

    def _count_updates(self, author: int) -> list[int]:
        ends = {run.stop for run in self.runs(author)}
        counts = [0]
        for number, transaction in enumerate(self.transactions[author], start=1):
            edits = sum((deleted > 0) + (inserted != "") for _, deleted, inserted in transaction.patches)
            counts.append(counts[-1] + edits + (number in ends))
        return counts
