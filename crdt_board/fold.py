"""What the journal of one board adds up to, besides the document: head, version, and who changed which field last.

Pure. The engine advances a `Fold` by every entry, in order; a snapshot carries it as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, decode_checkpoint
from crdt_board.journal import GENESIS_HASH, Entry
from crdt_board.paths import field_of
from crdt_board.scratch_times import ScratchTimes

NOWHERE = ""
"""The origin of what no replica of this process made."""


@dataclass(slots=True)
class ChangeMark:
    """The last change of a field, and the last one from anywhere else than its origin."""

    seq: int
    origin: str
    others_seq: int

    def moved(self, seq: int, origin: str) -> ChangeMark:
        return ChangeMark(seq, origin, self.others_seq if origin == self.origin else self.seq)

    def seq_without(self, origin: str) -> int:
        return self.others_seq if origin and origin == self.origin else self.seq


@dataclass(slots=True)
class Fold:
    """The state of one board at ``seq``. Version 0 is the board before its first commit."""

    epoch: str
    seq: int = 0
    hash: str = GENESIS_HASH
    version: int = 0
    version_seq: int = 0
    version_author: str = ""
    checkpoint_hash: str = NO_CHECKPOINT
    marks: dict[str, ChangeMark] = field(default_factory=dict)
    scratch: ScratchTimes = field(default_factory=ScratchTimes)

    def advance(self, entry: Entry, origin: str = NOWHERE, checkpoint: Checkpoint | None = None) -> None:
        """Take in the next entry; the caller has verified its place in the chain. ``checkpoint`` is the one in it,
        if that was decoded already.

        ``origin`` names the replica that made it. It is not stored: what was read from the journal, and what a commit
        wrote, came from nowhere, and so counts as somebody else's for everybody.
        """
        self._pass(entry, origin)
        if entry.kind == "commit":
            self._take_checkpoint(checkpoint or decode_checkpoint(entry.checkpoint), entry.seq)

    def advance_all(self, entries: Sequence[Entry]) -> None:
        """The same for entries from the journal. Reads only the last checkpoint among them, which is quicker."""
        last: Entry | None = None
        for entry in entries:
            self._pass(entry, NOWHERE)
            if entry.kind == "commit":
                last = entry
        if last is not None:
            self._take_checkpoint(decode_checkpoint(last.checkpoint), last.seq)

    def _pass(self, entry: Entry, origin: str) -> None:
        assert entry.seq == self.seq + 1, (entry.seq, self.seq)
        self.seq, self.hash = entry.seq, entry.hash
        self.scratch.advance(entry)
        for name in {field_of(path) for path in entry.paths}:
            mark = self.marks.get(name)
            self.marks[name] = mark.moved(entry.seq, origin) if mark else ChangeMark(entry.seq, origin, 0)

    def _take_checkpoint(self, checkpoint: Checkpoint, seq: int) -> None:
        self.version, self.version_seq = checkpoint.version, seq
        self.version_author, self.checkpoint_hash = checkpoint.agent, checkpoint.hash

    def changed_since(self, seq: int, *, apart_from: str = NOWHERE) -> list[str]:
        """The fields that were changed after ``seq`` from anywhere but ``apart_from``, in alphabetical order."""
        return sorted(name for name, mark in self.marks.items() if mark.seq_without(apart_from) > seq)

    def to_meta(self) -> str:
        """The parts that a snapshot record has no column for, as JSON."""
        return json.dumps(
            {
                "epoch": self.epoch,
                "version_seq": self.version_seq,
                "version_author": self.version_author,
                "marks": {name: [mark.seq, mark.origin, mark.others_seq] for name, mark in self.marks.items()},
                "scratch": self.scratch.to_meta(),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_meta(cls, meta: str, *, seq: int, hash: str, version: int, checkpoint_hash: str) -> Fold:
        """The inverse of `to_meta`.

        Raises:
            ValueError, KeyError, TypeError: ``meta`` was not made by `to_meta`.
        """
        content = json.loads(meta)
        return cls(
            epoch=content["epoch"],
            seq=seq,
            hash=hash,
            version=version,
            version_seq=content["version_seq"],
            version_author=content["version_author"],
            checkpoint_hash=checkpoint_hash,
            marks={name: ChangeMark(*mark) for name, mark in dict(content["marks"]).items()},
            scratch=ScratchTimes.from_meta(content["scratch"]),
        )


def bounded_paths(paths: Iterable[str], paths_max: int) -> tuple[str, ...]:
    """``paths`` in order, or the names of their fields when there are more than ``paths_max``."""
    kept = tuple(paths)
    return kept if len(kept) <= paths_max else tuple(sorted({field_of(path) for path in kept}))
