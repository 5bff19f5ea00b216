"""Reactions: what agents do when something on the board becomes true, once however many of them could.

There is a record for each reaction and place. It says that somebody is at it, or that it was done: then it is done
again only after an agent has seen that what it reacts to was no longer so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Frozen, Name, Record, Token, TtlMs, stored
from crdt_board.errors import Conflict, NotFound, ReactionLost

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

_PAUSE_MS_FIRST = 500
_PAUSE_MS_MAX = 60_000
_ERROR_CHARS_MAX = 500

PATH_CHARS_MAX = 1_000
NAME_END = "@"
"""What parts the name of a reaction from the path in the name of its record; no reaction's name has it."""

ReactionState = Literal["armed", "running", "waiting", "done", "failed"]

_Path = Annotated[str, Field(min_length=1, max_length=PATH_CHARS_MAX)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]


class ReactionRecord(Record):
    """How far a ``reaction`` is at a ``path``; ``name`` is both, with ``@`` between them.

    ``armed``: it runs when its condition holds. ``running``: ``agent`` is at it, until ``until_ms`` unless that is
    renewed. ``waiting``: it failed, and is tried again from ``until_ms`` on. ``done``, ``failed``: it is not run again
    until the condition has ceased to hold. ``attempts`` are those of the present run, ``runs`` all that were begun.
    """

    prefix: ClassVar[str] = "reaction"

    state: ReactionState = "armed"
    agent: str = ""
    token: Annotated[str, Field(repr=False)] = ""
    until_ms: int | None = None
    ttl_ms: int = 0
    """How long the claim, or the pause, lasts, so that a clock that is set back makes none last longer."""
    attempts: int = 0
    runs: int = 0
    error: str = ""

    @property
    def reaction(self) -> str:
        return self.name.partition(NAME_END)[0]

    @property
    def path(self) -> str:
        return self.name.partition(NAME_END)[2]

    @property
    def is_busy(self) -> bool:
        return self.state in ("running", "waiting")

    @property
    def deadline_ms(self) -> int | None:
        return self.until_ms

    def run_out(self, now_ms: int) -> ReactionRecord:
        return self._armed()

    def when_set_back(self, now_ms: int) -> ReactionRecord:
        if self.until_ms is None:
            return self
        return self.model_copy(update={"until_ms": min(self.until_ms, now_ms + self.ttl_ms)})

    def in_fork(self) -> ReactionRecord:
        return self._armed() if self.state in ("running", "waiting") else self

    def _armed(self) -> ReactionRecord:
        return self.model_copy(update={"state": "armed", "token": "", "until_ms": None, "ttl_ms": 0})


def record_name(reaction: str, path: str) -> str:
    """The name of the record of a reaction at a path."""
    return f"{reaction}{NAME_END}{path}"


class _OfReaction(Frozen):
    name: Name
    path: _Path
    token: Token

    @property
    def record(self) -> str:
        return record_name(self.name, self.path)


class ClaimReaction(_OfReaction):
    """Be the one who runs a reaction; again by the same token: for ``ttl_ms`` from now."""

    op: Literal["claim_reaction"] = "claim_reaction"
    ttl_ms: TtlMs
    attempts_max: _Count
    runs_max: _Count


class FinishReaction(_OfReaction):
    """The reaction was run."""

    op: Literal["finish_reaction"] = "finish_reaction"


class FailReaction(_OfReaction):
    """Running it has raised ``error``; it is tried again after a growing pause, ``attempts_max`` times in all."""

    op: Literal["fail_reaction"] = "fail_reaction"
    error: str
    attempts_max: _Count


class ReleaseReaction(_OfReaction):
    """Let somebody else run it: the claimer stops before it is done."""

    op: Literal["release_reaction"] = "release_reaction"


class RearmReaction(Frozen):
    """The condition was seen not to hold, after the reaction was run.

    With ``gone`` there is nothing at the path any more: then no record of it stays.
    """

    op: Literal["rearm_reaction"] = "rearm_reaction"
    name: Name
    path: _Path
    gone: bool = False


class RetryReaction(Frozen):
    """Arm a reaction that failed again, with all its attempts and runs: whoever has it runs it if it still holds."""

    op: Literal["retry_reaction"] = "retry_reaction"
    name: Name
    path: _Path


ReactionOperation = ClaimReaction | FinishReaction | FailReaction | ReleaseReaction | RearmReaction | RetryReaction


def claim(draft: Draft, op: ClaimReaction) -> JsonValue:
    """Answers True when it is the claimer's to run, False when there is nothing to run or somebody else does."""
    record = draft.get(ReactionRecord, op.record) or ReactionRecord(name=op.record)
    until_ms = draft.now_ms + op.ttl_ms
    if record.state == "running" and record.token == op.token:
        draft.put(record.model_copy(update={"until_ms": until_ms, "ttl_ms": op.ttl_ms}))
        return True
    if record.state != "armed":
        return False
    if record.attempts >= op.attempts_max or record.runs >= op.runs_max:
        spent = "attempts" if record.attempts >= op.attempts_max else "runs"
        draft.put(record.model_copy(update={"state": "failed", "error": record.error or f"all {spent} are used up"}))
        return False
    claimed = {
        "state": "running",
        "agent": draft.agent,
        "token": op.token,
        "until_ms": until_ms,
        "ttl_ms": op.ttl_ms,
        "attempts": record.attempts + 1,
        "runs": record.runs + 1,
    }
    draft.put(record.model_copy(update=claimed))
    return True


def finish(draft: Draft, op: FinishReaction) -> JsonValue:
    """Raises ReactionLost when it is not the caller's any more."""
    record = draft.get(ReactionRecord, op.record)
    if record is not None and record.state == "done" and record.token == op.token:
        return None
    record = _own(record, op)
    draft.put(record.model_copy(update={"state": "done", "until_ms": None, "ttl_ms": 0, "attempts": 0, "error": ""}))
    return None


def fail(draft: Draft, op: FailReaction) -> JsonValue:
    """Answers True when it will be tried again. Raises ReactionLost when it is not the caller's any more."""
    record = draft.get(ReactionRecord, op.record)
    if record is not None and record.state in ("waiting", "failed") and record.token == op.token:
        return record.state == "waiting"
    record = _own(record, op)
    again = record.attempts < op.attempts_max
    pause_ms = min(_PAUSE_MS_MAX, _PAUSE_MS_FIRST * 2 ** (record.attempts - 1))
    failed = {
        "state": "waiting" if again else "failed",
        "until_ms": draft.now_ms + pause_ms if again else None,
        "ttl_ms": pause_ms if again else 0,
        "error": op.error[:_ERROR_CHARS_MAX],
    }
    draft.put(record.model_copy(update=failed))
    return again


def release(draft: Draft, op: ReleaseReaction) -> JsonValue:
    record = draft.get(ReactionRecord, op.record)
    if record is not None and record.state == "running" and record.token == op.token:
        draft.put(record._armed().model_copy(update={"attempts": record.attempts - 1, "runs": record.runs - 1}))
    return None


def rearm(draft: Draft, op: RearmReaction) -> JsonValue:
    record = draft.get(ReactionRecord, record_name(op.name, op.path))
    if record is None:
        return None
    if op.gone and record.state in ("armed", "done", "failed"):
        draft.drop(record)
    elif record.state in ("done", "failed"):
        draft.put(record.model_copy(update={"state": "armed", "token": "", "attempts": 0, "error": ""}))
    return None


def retry(draft: Draft, op: RetryReaction) -> JsonValue:
    """Answers with the armed reaction. Raises NotFound, and Conflict when it runs or is done."""
    record = draft.get(ReactionRecord, record_name(op.name, op.path))
    if record is None:
        raise NotFound(f"reaction {op.name} has not run at {op.path}")
    if record.state == "running":
        raise Conflict(f"reaction {op.name} at {op.path} is being run by {record.agent}; wait for how that ends")
    if record.state == "done":
        raise Conflict(
            f"reaction {op.name} at {op.path} is done, and did not fail; it runs again when its condition has ceased "
            "to hold and holds again"
        )
    armed = record._armed().model_copy(update={"attempts": 0, "runs": 0, "error": ""})
    draft.put(armed)
    return stored(armed)


def _own(record: ReactionRecord | None, op: FinishReaction | FailReaction) -> ReactionRecord:
    if record is None or record.state != "running" or record.token != op.token:
        who = f"; {record.agent} runs it now" if record is not None and record.state == "running" else ""
        raise ReactionLost(f"reaction {op.name} at {op.path} took too long and is not this run's any more{who}")
    return record
