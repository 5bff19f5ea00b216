"""Effects: what is done in the outside world, at most once for each key.

Nobody can know from here whether an outside call took place whose end was never told. So an effect has three states:
it runs, under a timed claim; it is *in doubt*, when that claim ran out or its agent said so; or it is done, and its
result is recorded. In doubt it stays until its own agent comes back with the result after all, or somebody decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Frozen, Milliseconds, Name, Token, TtlMs
from crdt_board.coordination.runs import Fingerprint, RunRecord
from crdt_board.errors import Conflict, EffectInDoubt, EffectLost, IdempotencyMismatch, NotFound

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

REASON_CHARS_MAX = 1000

EffectState = Literal["running", "in_doubt", "done"]

EffectName = Annotated[Name, Field(pattern=r"^[^/]+$")]
"""What kind of effect it is, like ``open-ticket``; without a slash, which parts it from the key."""

Reason = Annotated[str, Field(max_length=REASON_CHARS_MAX)]

_RAN_OUT = "nothing was heard of its agent any more while it ran"
_FORKED = "it ran on the board that this one was forked from, when that was forked"


class EffectRecord(RunRecord):
    """An effect that runs, is in doubt, or is done. One that is known not to have taken place has no record."""

    prefix: ClassVar[str] = "effect"

    state: EffectState
    since_ms: Milliseconds
    """When it began."""
    reason: str = ""
    """Why it is in doubt."""
    result: JsonValue = None
    done_ms: Milliseconds = 0
    resolved_by: str | None = None
    """Who decided that it took place, when its own agent did not tell."""

    @property
    def effect(self) -> str:
        """The first part of the name, as `Board.effect` was given it."""
        return self.name.partition("/")[0]

    @property
    def effect_key(self) -> str:
        """The second part of the name: which of these effects it is."""
        return self.name.partition("/")[2]

    def run_out(self, now_ms: int) -> EffectRecord:
        return self.in_doubt(_RAN_OUT)

    def in_doubt(self, reason: str) -> EffectRecord:
        return self.model_copy(update={"state": "in_doubt", "reason": reason, "expires_ms": 0})

    def in_fork(self) -> EffectRecord:
        return self.in_doubt(_FORKED) if self.state == "running" else self

    def as_merged(self, version: int) -> EffectRecord:
        return self


class _OnEffect(Frozen):
    name: EffectName
    key: Name
    token: Token

    @property
    def record_name(self) -> str:
        return effect_record_name(self.name, self.key)


class BeginEffect(_OnEffect):
    """Claim an effect for ``ttl_ms``, in order to run it; again by the same token: the same claim."""

    op: Literal["begin_effect"] = "begin_effect"
    fingerprint: Fingerprint = ""
    ttl_ms: TtlMs


class RenewEffect(_OnEffect):
    """It still runs: be heard of again within ``ttl_ms`` from now."""

    op: Literal["renew_effect"] = "renew_effect"
    ttl_ms: TtlMs


class FinishEffect(_OnEffect):
    """It took place, with this result."""

    op: Literal["finish_effect"] = "finish_effect"
    result: JsonValue


class AbandonEffect(_OnEffect):
    """It ended without a result: it took no place and may run again, or whether it did is not known."""

    op: Literal["abandon_effect"] = "abandon_effect"
    in_doubt: Reason | None = None
    """Why it is not known whether it took place; None when it is known that it did not."""


class ResolveEffect(Frozen):
    """Somebody has looked: an effect that is in doubt took place, with this result, or it did not."""

    op: Literal["resolve_effect"] = "resolve_effect"
    name: EffectName
    key: Name
    took_place: bool
    result: JsonValue = None


EffectOperation = BeginEffect | RenewEffect | FinishEffect | AbandonEffect | ResolveEffect


def effect_record_name(name: str, key: str) -> str:
    return f"{name}/{key}"


def begin(draft: Draft, op: BeginEffect) -> JsonValue:
    """Answers with the record: the caller is to run it when that has its token, and to wait while another runs.

    Raises EffectInDoubt, and IdempotencyMismatch when the key stands for another request.
    """
    found = draft.get(EffectRecord, op.record_name)
    if found is None:
        expires_ms = draft.now_ms + op.ttl_ms
        begun = EffectRecord(
            name=op.record_name,
            state="running",
            agent=draft.agent,
            token=op.token,
            fingerprint=op.fingerprint,
            since_ms=draft.now_ms,
            expires_ms=expires_ms,
            ttl_ms=op.ttl_ms,
        )
        draft.put(begun)
        return begun.model_dump()
    check_same_effect(found, op.fingerprint)
    if found.token == op.token:
        found = _keep(draft, found, op.ttl_ms)  # its agent asks a second time, so it has not run it yet
    if found.state == "in_doubt":
        raise doubt_error(found)
    return found.model_dump()


def renew(draft: Draft, op: RenewEffect) -> JsonValue:
    """Also ends a doubt that was only about whether its agent is still there. Raises EffectLost."""
    _keep(draft, _own(draft, op), op.ttl_ms)
    return None


def finish(draft: Draft, op: FinishEffect) -> JsonValue:
    """Answers with the result that is recorded, which is another one when somebody has resolved it meanwhile.

    Raises EffectLost when it was resolved as not having taken place.
    """
    found = draft.get(EffectRecord, op.record_name)
    if found is not None and found.state == "done":
        return found.result
    draft.put(_done(_own(draft, op), draft, op.result))
    return op.result


def abandon(draft: Draft, op: AbandonEffect) -> JsonValue:
    """Nothing happens when this run has ended before."""
    found = draft.get(EffectRecord, op.record_name)
    if found is None or not found.may_be_ended_by(op.token):
        return None
    if op.in_doubt is None:
        draft.drop(found)
    else:
        draft.put(found.in_doubt(op.in_doubt))
    return None


def resolve(draft: Draft, op: ResolveEffect) -> JsonValue:
    """Answers with the record, None when it did not take place. Who comes second hears what was decided.

    Raises NotFound when there is no such effect, and Conflict while it runs or when it was decided otherwise.
    """
    found = draft.get(EffectRecord, effect_record_name(op.name, op.key))
    if found is None:
        if not op.took_place:
            return None
        raise NotFound(f"there is no effect {op.name} with the key {op.key} on this board, so none is in doubt")
    if found.state == "running":
        raise Conflict(f"effect {op.name} {op.key} is being run by {found.agent}, and not in doubt")
    if found.state == "done":
        if op.took_place:
            return found.model_dump()
        who = found.resolved_by or found.agent
        raise Conflict(f"effect {op.name} {op.key} took place: so said {who}, and its result is recorded")
    if not op.took_place:
        draft.drop(found)
        return None
    done = _done(found, draft, op.result).model_copy(update={"resolved_by": draft.agent})
    draft.put(done)
    return done.model_dump()


def check_same_effect(found: EffectRecord, fingerprint: str) -> None:
    """Raise IdempotencyMismatch when both say what was asked for, and it is not the same."""
    if found.differs_from(fingerprint):
        raise IdempotencyMismatch(
            f"effect {found.effect}: the key {found.effect_key} stands for another request, made by {found.agent}",
            key=found.effect_key,
        )


def doubt_error(found: EffectRecord) -> EffectInDoubt:
    return EffectInDoubt(
        f"whether effect {found.effect} {found.effect_key}, begun by {found.agent}, took place is not known: "
        f"{found.reason}. Look at the outside system, then say so with resolve_effect()",
        effect=found.effect,
        key=found.effect_key,
        agent=found.agent,
        since_ms=found.since_ms,
        reason=found.reason,
    )


def _own(draft: Draft, op: RenewEffect | FinishEffect) -> EffectRecord:
    found = draft.get(EffectRecord, op.record_name)
    if found is None or not found.may_be_ended_by(op.token):
        raise EffectLost(
            f"effect {op.name} {op.key} was resolved as if this run had ended without taking place; compare the "
            "outside system",
            effect=op.name,
            key=op.key,
        )
    return found


def _keep(draft: Draft, found: EffectRecord, ttl_ms: int) -> EffectRecord:
    if found.state == "done":
        return found
    kept = found.kept(draft.now_ms, ttl_ms).model_copy(update={"reason": ""})
    draft.put(kept)
    return kept


def _done(found: EffectRecord, draft: Draft, result: JsonValue) -> EffectRecord:
    ended = {"state": "done", "result": result, "done_ms": draft.now_ms, "expires_ms": 0, "reason": ""}
    return found.model_copy(update=ended)
