"""What the HTTP API answers with."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board.checkpoints import Checkpoint
from crdt_board.coordination.deeds import Deed
from crdt_board.history import Fork, PathEdit, Retention, Stretch
from crdt_board.history.narration import DEEDS_MAX
from crdt_board.imports import ImportedBoard
from crdt_board.journal import Entry, EntryKind
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.contract import BoardHead
from crdt_board.violation import Violation

_SECONDS_MAX = 10**10

AgentName = Annotated[
    str, Field(min_length=1, max_length=DEFAULT_LIMITS.agent_chars_max, description="Under whose name it is recorded.")
]


class Body(BaseModel):
    """What a request carries; a key that is none is a mistake, and not passed over."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NewBoardRequest(Body):
    """A board to make."""

    board: str = Field(description="Its id.", examples=["job-885"])


class CommitBody(Body):
    """A checkpoint to make. ``patch`` maps fields to the values that they shall have, in wire form."""

    step: Annotated[str, Field(min_length=1, max_length=DEFAULT_LIMITS.step_chars_max, examples=["review"])]
    patch: dict[str, JsonValue] = {}
    reads: list[str] | None = Field(
        default=None, description="With If-Match: conflict only when one of these fields was changed since."
    )
    agent: AgentName = "api"
    output: JsonValue = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    trace: str | None = None
    handoff: JsonValue = None
    tags: list[str] = []


class RestoreRequest(Body):
    """A version to go back to, by a new version."""

    version: Annotated[int, Field(ge=1, le=2**53 - 1)]
    agent: AgentName = "api"


class DismissRequest(Body):
    """A violation to drop although nothing was changed, by its key."""

    key: Annotated[str, Field(min_length=1, max_length=1_000, examples=["ends_after_start@"])]
    agent: AgentName = "api"


class ForkRequest(Body):
    """A fork to make, at ``version`` or at the newest."""

    board: str = Field(description="The id of the fork.", examples=["job-884-other"])
    version: Annotated[int, Field(ge=1, le=2**53 - 1)] | None = None
    agent: AgentName = "api"


class MergeRequest(Body):
    """A fork of this board, or the board that it was forked from, whose news are to be committed here."""

    board: str = Field(examples=["job-884-other"])
    agent: AgentName = "api"


class BoardInfo(BaseModel):
    """Where a board's journal ends. ``version`` 0 means that nothing was committed yet."""

    id: str
    epoch: str
    seq: int
    version: int
    created_ms: int

    @classmethod
    def of(cls, head: BoardHead) -> BoardInfo:
        return cls(id=head.board_id, epoch=head.epoch, seq=head.seq, version=head.version, created_ms=head.created_ms)


class ImportedBoardInfo(BoardInfo):
    """A board that was imported: how many artifacts came with it, and the pointers on it to those that are not here."""

    artifacts: int
    missing: list[str]

    @classmethod
    def of_imported(cls, made: ImportedBoard) -> ImportedBoardInfo:
        return cls(**BoardInfo.of(made.head).model_dump(), artifacts=made.artifacts, missing=list(made.missing))


class BoardPage(BaseModel):
    """Boards in the order of their ids; ``after`` goes on, None at the end."""

    boards: list[BoardInfo]
    after: str | None


class BoardState(BaseModel):
    """A board's fields in wire form, as of entry ``seq``; ``checkpoint`` is None when that is no version."""

    board: str
    seq: int
    version: int
    checkpoint: Checkpoint | None
    state: dict[str, JsonValue]


class CheckpointPage(BaseModel):
    """Checkpoints, newest first; ``before`` goes on, None at the end."""

    checkpoints: list[Checkpoint]
    before: int | None


class JournalEntry(BaseModel):
    """One accepted change; ``payload`` is its updates in base64, each with its length before it as a varint."""

    seq: int
    kind: EntryKind
    author: str
    time_ms: int
    paths: tuple[str, ...]
    hash: str
    payload: str | None = None

    @classmethod
    def of(cls, entry: Entry, *, payload: bool) -> JournalEntry:
        return cls(
            seq=entry.seq,
            kind=entry.kind,
            author=entry.author,
            time_ms=entry.time_ms,
            paths=entry.paths,
            hash=entry.hash,
            payload=base64.b64encode(entry.payload).decode() if payload else None,
        )


class WatchedEntry(JournalEntry):
    """An entry as it became durable; ``deeds`` say who did what in one of coordination, ``more_deeds`` that these are
    the first of many."""

    deeds: tuple[Deed, ...] = ()
    more_deeds: bool = False

    @classmethod
    def telling(cls, entry: Entry, deeds: Sequence[Deed]) -> Self:
        return cls(
            **JournalEntry.of(entry, payload=False).model_dump(),
            deeds=tuple(deeds[:DEEDS_MAX]),
            more_deeds=len(deeds) > DEEDS_MAX,
        )


class JournalPage(BaseModel):
    """Entries in order; ``after`` goes on, None at the end of the journal."""

    entries: list[JournalEntry]
    after: int | None


class EditPage(BaseModel):
    """Changes of a path, newest first; ``before`` goes on, None at the end."""

    edits: list[PathEdit]
    before: int | None


class ForkPage(BaseModel):
    """The boards that were forked from one, in the order of their ids."""

    forks: list[Fork]


class RetentionRules(Body):
    """Which versions to keep; without `keep_versions` and `newer_than_seconds` all of them."""

    model_config = ConfigDict(extra="forbid")

    keep_versions: int | None = Field(default=None, ge=1, le=2**53 - 1, description="The newest so many.")
    newer_than_seconds: int | None = Field(default=None, ge=1, le=_SECONDS_MAX, description="Those made since then.")
    keep_tagged: bool = Field(default=True, description="Those with a tag.")

    @property
    def policy(self) -> Retention:
        newer_than = None if self.newer_than_seconds is None else timedelta(seconds=self.newer_than_seconds)
        return Retention(keep_versions=self.keep_versions, newer_than=newer_than, keep_tagged=self.keep_tagged)

    @classmethod
    def of(cls, policy: Retention) -> Self:
        seconds = None if policy.newer_than is None else int(policy.newer_than.total_seconds())
        return cls(keep_versions=policy.keep_versions, newer_than_seconds=seconds, keep_tagged=policy.keep_tagged)


class CompactionRequest(RetentionRules):
    """Which versions to keep; when nothing is said of it, those that the board's retention keeps."""

    dry_run: bool = Field(default=False, description="Only say what would go.")

    @property
    def own_policy(self) -> Retention | None:
        """What the request says, if it says anything."""
        return self.policy if self.model_fields_set & RetentionRules.model_fields.keys() else None


class BoardViolation(BaseModel):
    """A rule of the model that the board's state breaks, and that keeps commits from being made; see `Violation`."""

    key: str
    path: str
    rule: str
    message: str
    agent: str | None

    @classmethod
    def of(cls, violation: Violation) -> BoardViolation:
        return cls(
            key=violation.key,
            path=violation.path,
            rule=violation.rule,
            message=violation.message,
            agent=violation.agent,
        )


class ViolationPage(BaseModel):
    """What stands now."""

    violations: list[BoardViolation]


class BlamePage(BaseModel):
    """A text in stretches, in order."""

    stretches: list[Stretch]
