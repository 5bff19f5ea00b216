"""Steps: functions that run once for each board and version line, and are resumed where they were left.

A step that has begun keeps its record when its agent dies: it is *open* then, for the next one to run it again. It is
done with the commit that holds what it did, in the same entry, and its record keeps the output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Frozen, Milliseconds, Name, Token, TtlMs
from crdt_board.coordination.runs import Fingerprint, RunRecord
from crdt_board.errors import BadRequest, IdempotencyMismatch, StepLost

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

StepState = Literal["open", "running", "done"]


class StepRecord(RunRecord):
    """A step that was begun at least once."""

    prefix: ClassVar[str] = "step"

    state: StepState
    begun_at: int
    """The newest version of the board when it was begun for the first time."""
    begun_ms: Milliseconds
    number: int = 0
    """The order in which steps of the board were begun first."""
    runs: int = 1
    """How often it was begun."""
    version: int = 0
    """The version that it made when it was done."""
    output: JsonValue = None

    def run_out(self, now_ms: int) -> StepRecord:
        return self.opened()

    def opened(self) -> StepRecord:
        return self.model_copy(update={"state": "open", "expires_ms": 0})

    def in_fork(self) -> StepRecord | None:
        """Done by the first version of the fork; what was not done begins there anew."""
        return self.model_copy(update={"version": 1}) if self.state == "done" else None

    def as_merged(self, version: int) -> StepRecord | None:
        return self.model_copy(update={"version": version}) if self.state == "done" else None


class _OnStep(Frozen):
    name: Name
    token: Token


class BeginStep(_OnStep):
    """Claim a step for ``ttl_ms``, in order to run it; again by the same token: the same claim."""

    op: Literal["begin_step"] = "begin_step"
    fingerprint: Fingerprint = ""
    ttl_ms: TtlMs


class RenewStep(_OnStep):
    """It still runs: be heard of again within ``ttl_ms`` from now."""

    op: Literal["renew_step"] = "renew_step"
    ttl_ms: TtlMs


class FinishStep(_OnStep):
    """It is done with the version that is being committed; for commits only."""

    op: Literal["finish_step"] = "finish_step"
    output: JsonValue


class ReleaseStep(_OnStep):
    """It was not finished: let it be begun again."""

    op: Literal["release_step"] = "release_step"


class ReopenSteps(Frozen):
    """The board goes back to what it was at ``version``: what was done since is to be done again."""

    op: Literal["reopen_steps"] = "reopen_steps"
    version: Annotated[int, Field(ge=0, le=2**53 - 1)]


StepOperation = BeginStep | RenewStep | FinishStep | ReleaseStep | ReopenSteps


def begin(draft: Draft, op: BeginStep) -> JsonValue:
    """Answers with the record: the caller is to run it when that has its token, and to wait while another runs.

    Raises IdempotencyMismatch when the step was begun with other arguments.
    """
    found = draft.get(StepRecord, op.name)
    if found is None:
        begun = StepRecord(
            name=op.name,
            state="running",
            agent=draft.agent,
            token=op.token,
            fingerprint=op.fingerprint,
            begun_at=draft.version,
            begun_ms=draft.now_ms,
            number=1 + max((each.number for each in draft.all(StepRecord)), default=0),
            expires_ms=draft.now_ms + op.ttl_ms,
            ttl_ms=op.ttl_ms,
        )
    elif found.state == "done" or (found.state == "running" and found.token != op.token):
        check_same_step(found, op.fingerprint)
        return found.model_dump()
    elif found.token == op.token:
        begun = found.kept(draft.now_ms, op.ttl_ms)
    else:
        check_same_step(found, op.fingerprint)
        again = {"agent": draft.agent, "token": op.token, "fingerprint": op.fingerprint, "runs": found.runs + 1}
        begun = found.kept(draft.now_ms, op.ttl_ms).model_copy(update=again)
    draft.put(begun)
    return begun.model_dump()


def renew(draft: Draft, op: RenewStep) -> JsonValue:
    """Raises StepLost when somebody else has begun it meanwhile."""
    draft.put(_own(draft, op).kept(draft.now_ms, op.ttl_ms))
    return None


def finish(draft: Draft, op: FinishStep) -> JsonValue:
    """Raises StepLost when somebody else has begun it meanwhile, and BadRequest outside of a commit."""
    if not draft.commits:
        raise BadRequest("finish_step goes with the commit that makes the version in which the step is done, not alone")
    done = {"state": "done", "expires_ms": 0, "version": draft.version + 1, "output": op.output}
    draft.put(_own(draft, op).model_copy(update=done))
    return None


def release(draft: Draft, op: ReleaseStep) -> JsonValue:
    """Nothing happens when it is not run under this token any more."""
    found = draft.get(StepRecord, op.name)
    if found is not None and found.token == op.token and found.state == "running":
        draft.put(found.opened())
    return None


def reopen(draft: Draft, op: ReopenSteps) -> JsonValue:
    """Forgets what was done, or begun, after the version."""
    for record in [each for each in draft.all(StepRecord) if _made_at(each) > op.version]:
        draft.drop(record)
    return None


def check_same_step(found: StepRecord, fingerprint: str) -> None:
    """Raise IdempotencyMismatch when the step is that of other arguments."""
    if found.differs_from(fingerprint):
        raise IdempotencyMismatch(
            f"step {found.name} was begun with other arguments by {found.agent}; give each its own key, as in "
            "step(..., key=...)",
            key=found.name,
        )


def _made_at(record: StepRecord) -> int:
    return record.version if record.state == "done" else record.begun_at


def _own(draft: Draft, op: RenewStep | FinishStep) -> StepRecord:
    found = draft.get(StepRecord, op.name)
    if found is None or not found.may_be_ended_by(op.token):
        raise StepLost(
            f"step {op.name} is not run by this claim of {draft.agent} any more: it stood still for too long, or the "
            "board was restored to a version before it",
            step=op.name,
        )
    return found
