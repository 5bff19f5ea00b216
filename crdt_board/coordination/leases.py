"""Leases: timed claims to a name, each with a fence that grows from one claim to the next.

A fence protects what the clock cannot: a holder that stood still beyond its time and wakes up later commits with a
fence that no holder has any more, and is refused. See Kleppmann, "How to do distributed locking" (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from crdt_board.coordination.records import Frozen, Name, Record, Token, TtlMs
from crdt_board.errors import LeaseHeld, LeaseLost

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

_FENCE = "lease"


class Holder(Frozen):
    """Who has a lease, and until when. ``token`` is the claim's own."""

    token: str
    agent: str
    fence: int
    ttl_ms: int
    expires_ms: int


class FenceRecord(Record):
    """The greatest fence that a board ever gave: it goes on growing when leases are gone."""

    prefix: ClassVar[str] = "fence"

    last: int = 0


class LeaseRecord(Record):
    """A lease that somebody has."""

    prefix: ClassVar[str] = "lease"

    shared: bool = False
    """Whether the holders let others share it."""
    holders: tuple[Holder, ...] = ()

    @property
    def deadline_ms(self) -> int | None:
        return min((holder.expires_ms for holder in self.holders), default=None)

    def run_out(self, now_ms: int) -> LeaseRecord | None:
        return self.only(lambda holder: holder.expires_ms > now_ms)

    def when_set_back(self, now_ms: int) -> LeaseRecord:
        holders = (
            holder.model_copy(update={"expires_ms": min(holder.expires_ms, now_ms + holder.ttl_ms)})
            for holder in self.holders
        )
        return self.model_copy(update={"holders": tuple(holders)})

    def in_fork(self) -> None:
        return None

    def only(self, stays: Callable[[Holder], bool]) -> LeaseRecord | None:
        """The lease with these holders; None when there are none."""
        left = tuple(holder for holder in self.holders if stays(holder))
        return self.model_copy(update={"holders": left}) if left else None

    def held_by(self, token: str) -> Holder | None:
        return next((holder for holder in self.holders if holder.token == token), None)


class LeaseClaim(Frozen):
    """What a commit shows to prove that its agent still has a lease."""

    name: Name
    fence: Annotated[int, Field(ge=1, le=2**53 - 1)]


class AcquireLease(Frozen):
    """Claim a lease for ``ttl_ms`` from now; again by the same token: makes it last until then."""

    op: Literal["acquire_lease"] = "acquire_lease"
    name: Name
    token: Token
    ttl_ms: TtlMs
    shared: bool = False


class RenewLease(Frozen):
    """Make a lease that is held last until ``ttl_ms`` from now."""

    op: Literal["renew_lease"] = "renew_lease"
    name: Name
    token: Token
    ttl_ms: TtlMs


class ReleaseLease(Frozen):
    """Give a lease back; nothing happens when it is not held any more."""

    op: Literal["release_lease"] = "release_lease"
    name: Name
    token: Token


class BreakLease(Frozen):
    """Take a lease from whoever has it: for people, when a holder is known to be gone."""

    op: Literal["break_lease"] = "break_lease"
    name: Name


LeaseOperation = AcquireLease | RenewLease | ReleaseLease | BreakLease


def acquire(draft: Draft, op: AcquireLease) -> JsonValue:
    """Answers with the holder. Raises LeaseHeld while somebody else has it."""
    lease = draft.get(LeaseRecord, op.name) or LeaseRecord(name=op.name)
    held = lease.held_by(op.token)
    if held is not None:
        return _keep(draft, lease, held, op.ttl_ms)
    if lease.holders and not (lease.shared and op.shared):
        raise held_error(lease, draft.now_ms)
    fence = (draft.get(FenceRecord, _FENCE) or FenceRecord(name=_FENCE)).last + 1
    draft.put(FenceRecord(name=_FENCE, last=fence))
    holder = Holder(
        token=op.token, agent=draft.agent, fence=fence, ttl_ms=op.ttl_ms, expires_ms=draft.now_ms + op.ttl_ms
    )
    draft.put(lease.model_copy(update={"shared": op.shared, "holders": (*lease.holders, holder)}))
    return holder.model_dump()


def renew(draft: Draft, op: RenewLease) -> JsonValue:
    """Answers with the holder. Raises LeaseLost when the claim ran out or was broken."""
    lease = draft.get(LeaseRecord, op.name)
    held = lease.held_by(op.token) if lease is not None else None
    if lease is None or held is None:
        raise LeaseLost(f"lease {op.name} is not held any more by this claim of {draft.agent}", lease=op.name)
    return _keep(draft, lease, held, op.ttl_ms)


def release(draft: Draft, op: ReleaseLease) -> JsonValue:
    lease = draft.get(LeaseRecord, op.name)
    if lease is not None:
        draft.put_or_drop(lease, lease.only(lambda holder: holder.token != op.token))
    return None


def break_lease(draft: Draft, op: BreakLease) -> JsonValue:
    """Answers with who had it."""
    lease = draft.get(LeaseRecord, op.name)
    if lease is None:
        return []
    draft.drop(lease)
    return [holder.model_dump() for holder in lease.holders]


def check_claim(draft: Draft, claim: LeaseClaim) -> None:
    """Raise LeaseLost unless a holder has the lease with this fence."""
    lease = draft.get(LeaseRecord, claim.name)
    holders = lease.holders if lease is not None else ()
    if not any(holder.fence == claim.fence for holder in holders):
        raise LeaseLost(
            f"lease {claim.name} is not held any more with fence {claim.fence}"
            + (f"; {holders[0].agent} has it with fence {holders[0].fence}" if holders else ""),
            lease=claim.name,
        )


def held_error(lease: LeaseRecord, now_ms: int) -> LeaseHeld:
    last = max(lease.holders, key=lambda holder: holder.expires_ms)
    return LeaseHeld(
        f"lease {lease.name} is held by {last.agent} for up to {(last.expires_ms - now_ms) / 1000:.1f} s more",
        lease=lease.name,
        agent=last.agent,
        expires_ms=last.expires_ms,
    )


def _keep(draft: Draft, lease: LeaseRecord, held: Holder, ttl_ms: int) -> JsonValue:
    kept = held.model_copy(update={"ttl_ms": ttl_ms, "expires_ms": draft.now_ms + ttl_ms})
    holders = tuple(kept if each is held else each for each in lease.holders)
    draft.put(lease.model_copy(update={"holders": holders}))
    return kept.model_dump()
