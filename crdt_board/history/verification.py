"""Whether everything that is stored of a board is as it was written: what `BoardHistory.verify` finds."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

RecordKind = Literal["entry", "checkpoint", "snapshot", "schema", "head", "base"]


class Problem(BaseModel):
    """A stored record that is not what was written.

    ``number`` is the ``seq`` of an entry, snapshot or base, the version of a checkpoint, the number of a schema; None
    where it could not be told.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    record: RecordKind
    number: int | None
    message: str


class Verification(BaseModel):
    """What was looked at, and what is wrong with it.

    ``problems`` are in the order of the journal; the first one names the first bad record. The journal is the truth: a
    bad snapshot costs time only, unless it is all that is left of a version from before the base. ``base_seq`` is the
    entry up to which the journal was squashed into the base, 0 when it was not; ``entries`` are those after it.
    ``good_version`` is the newest version whose state is known to be good, 0 when there is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    board_id: str
    base_seq: int
    entries: int
    checkpoints: int
    snapshots: int
    good_version: int
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        base = f"a base at entry {self.base_seq}, " if self.base_seq else ""
        looked = f"{base}{self.entries} entries, {self.checkpoints} checkpoints and {self.snapshots} snapshots"
        if self.ok:
            return f"board {self.board_id}: {looked} are intact"
        lines = [f"board {self.board_id}: of {looked}, {len(self.problems)} are not as they were written"]
        lines += [problem.message for problem in self.problems]
        return "\n".join([*lines, f"the newest good version is {self.good_version}"])
