"""What the writer of a board makes durable at once: submissions, coordination, a commit, a report or a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.coordinating import CoordinationItem
from crdt_board.errors import BoardError
from crdt_board.schema_changes import SchemaItem
from crdt_board.submissions import Submission
from crdt_board.validity import Report
from crdt_board.violation import Violation


@dataclass(frozen=True, slots=True)
class Merged:
    """All that a fork holds, and the pointer to its newest version."""

    update: bytes
    pointer: str


@dataclass(slots=True, eq=False)
class CommitItem:
    """A commit that waits for its answer. ``base_seq``: where in the journal its preconditions start to look.

    ``schema`` is as in `Submission`.
    """

    request: CommitRequest
    answer: asyncio.Future[Checkpoint]
    base_seq: int = 0
    merged: Merged | None = None
    """What a fork has written, in place of a patch."""
    schema: int | None = None
    resolved: Sequence[Violation] = ()
    """The recorded violations that it drops."""
    records: Mapping[str, JsonValue] = field(default_factory=dict)
    """The leases, tasks and the like that it changes."""

    def finish(self, checkpoint: Checkpoint) -> None:
        if not self.answer.done():
            self.answer.set_result(checkpoint)

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class ReportItem:
    """A report that waits to be taken in, which is what ``answer`` tells."""

    report: Report
    answer: asyncio.Future[None]

    def finish(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class Batch:
    """What is written in one append: submissions, then coordination, then at most one commit or report; or a schema
    alone.

    A commit ends its batch, so that the checksum of the document is that of the commit's own entry.
    """

    submissions: list[Submission] = field(default_factory=list)
    coordination: list[CoordinationItem] = field(default_factory=list)
    commit: CommitItem | None = None
    schema: SchemaItem | None = None
    report: ReportItem | None = None
    durable: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.submissions or self.coordination or self.commit or self.report or self.schema)

    @property
    def coordinates(self) -> bool:
        """Whether it asks for decisions that hold at one place in the journal and at one time only."""
        request = self.commit.request if self.commit is not None else None
        return bool(self.coordination or (request and (request.lease or request.operations)))

    def made_durable(self) -> None:
        """All of it that is to be in the journal is there."""
        self.durable = True

    def open_commit(self) -> CommitItem | None:
        """The commit, unless it was answered or given up."""
        return self.commit if self.commit is not None and not self.commit.answer.done() else None

    def refuse_outdated(self, refusal_of: Callable[[int | None], BoardError | None]) -> None:
        """Drop what was written under a schema that the board has left."""
        items = (*self.submissions, *([self.commit] if self.commit else ()))
        refusals = {schema: refusal_of(schema) for schema in {item.schema for item in items}}
        if not any(refusals.values()):
            return
        for item in items:
            refusal = refusals[item.schema]
            if refusal is not None:
                item.refuse(refusal)
        self.submissions = [submission for submission in self.submissions if not submission.decided]

    def refuse(self, error: BoardError) -> None:
        for submission in self.submissions:
            submission.refuse(error)
        for item in (*self.coordination, self.commit, self.report, self.schema):
            if item is not None:
                item.refuse(error)
