"""Leases: timed claims to a name, each with a fence that grows from one claim to the next.

A fence protects what the clock cannot: a holder that stood still beyond its time and wakes up later commits with a
fence that no holder has any more, and is refused. See Kleppmann, "How to do distributed locking" (2016).

Whoever waits stands in a line, which is a part of the lease: what ends a claim hands the lease to the next in line, in
the same entry. Whoever is dead or cut off by then does not renew it, and has it for a short time only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, JsonValue

from crdt_board.coordination.records import Frozen, Name, Record, Token, TtlMs
from crdt_board.errors import LeaseHeld, LeaseLost

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

WAITING_MAX = 100
"""How many may stand in line for one lease. It is written as a whole when it moves, some 60 bytes for each."""

HOLDERS_MAX = 100
"""How many may share one lease; who comes then stands in line. They are written as a whole when one of them changes."""

WAIT_MS_MAX = 600_000
"""How long a place in line lasts unless its owner asks again."""

TURN_MS = 5_000
"""How long whoever gets it in line has it, unless it renews it."""

_FENCE = "lease"
_LINES_REMEMBERED = 64


class Holder(Frozen):
    """Who has a lease, and until when. ``token`` is the claim's own."""

    token: Annotated[str, Field(repr=False)]
    agent: str
    fence: int
    ttl_ms: int
    expires_ms: int


class Waiter(NamedTuple):
    """Who stands in line for a lease, and until when. ``token`` is that of the claim that it will be."""

    token: str
    expires_ms: int
    shared: bool
    agent: str


class FenceRecord(Record):
    """The greatest fence that a board ever gave: it goes on growing when leases are gone."""

    prefix: ClassVar[str] = "fence"

    last: int = 0


@lru_cache(_LINES_REMEMBERED)
def _read_line(line: str) -> tuple[Waiter, ...]:
    rows = (row.split(" ", 3) for row in line.split("\n") if row)
    return tuple(Waiter(token, int(expires_ms), shared == "1", agent) for token, expires_ms, shared, agent in rows)


def _checked_line(line: str) -> str:
    """``line``. Raises ValueError when it is none."""
    _read_line(line)
    return line


_Line = Annotated[str, AfterValidator(_checked_line)]


class LeaseRecord(Record):
    """A lease that somebody has.

    Invariant: whoever stands in line cannot have it yet. Who comes later does not get it before, not even to share it.
    """

    prefix: ClassVar[str] = "lease"

    shared: bool = False
    """Whether the holders let others share it."""
    holders: tuple[Holder, ...] = ()
    line: Annotated[_Line, Field(repr=False)] = ""
    """`waiting` as one text, since every replica reads it each time that the line moves; a row for each."""

    @property
    def waiting(self) -> tuple[Waiter, ...]:
        """Who stands in line, in the order of asking."""
        return _read_line(self.line)

    @property
    def deadline_ms(self) -> int | None:
        ends = [holder.expires_ms for holder in self.holders] + [waiter.expires_ms for waiter in self.waiting]
        return min(ends, default=None)

    def run_out(self, now_ms: int) -> LeaseRecord | None:
        return self.only(
            lambda holder: holder.expires_ms > now_ms, (each for each in self.waiting if each.expires_ms > now_ms)
        )

    def end(self, draft: Draft) -> None:
        _hand_on(draft, self, self.run_out(draft.now_ms))

    def when_set_back(self, now_ms: int) -> LeaseRecord:
        holders = (
            holder.model_copy(update={"expires_ms": min(holder.expires_ms, now_ms + holder.ttl_ms)})
            for holder in self.holders
        )
        waiting = (each._replace(expires_ms=min(each.expires_ms, now_ms + WAIT_MS_MAX)) for each in self.waiting)
        return self.model_copy(update={"holders": tuple(holders)}).with_line(waiting)

    def in_fork(self) -> None:
        return None

    def only(self, stays: Callable[[Holder], bool], waiting: Iterable[Waiter]) -> LeaseRecord | None:
        """The lease with these holders and this line; None when there are none."""
        holders = tuple(holder for holder in self.holders if stays(holder))
        left = self.model_copy(update={"holders": holders}).with_line(waiting)
        return left if left.holders or left.line else None

    def held_by(self, token: str) -> Holder | None:
        return next((holder for holder in self.holders if holder.token == token), None)

    def awaited_by(self, token: str) -> Waiter | None:
        return next((waiter for waiter in self.waiting if waiter.token == token), None)

    def admits(self, *, shared: bool) -> bool:
        """Whether somebody may have it beside the holders."""
        return not self.holders or (self.shared and shared and len(self.holders) < HOLDERS_MAX)

    def with_line(self, waiting: Iterable[Waiter]) -> LeaseRecord:
        rows = (f"{each.token} {each.expires_ms} {int(each.shared)} {each.agent}" for each in waiting)
        return self.model_copy(update={"line": "\n".join(rows)})

    def with_waiter(self, waiter: Waiter) -> LeaseRecord:
        """``waiter`` is in line. If it is already, then its place lasts as long as it says, and stays what it was."""
        if self.awaited_by(waiter.token) is None:
            return self.with_line((*self.waiting, waiter))
        return self.with_line(
            each._replace(expires_ms=waiter.expires_ms) if each.token == waiter.token else each for each in self.waiting
        )


class LeaseClaim(Frozen):
    """What a commit shows to prove that its agent still has a lease."""

    name: Name
    fence: Annotated[int, Field(ge=1, le=2**53 - 1)]


class AcquireLease(Frozen):
    """Claim a lease for ``ttl_ms`` from now; again by the same token: makes it last until then.

    Who cannot have it now stands in line for ``wait_ms``, which asking again prolongs; 0 is for not at all. A claim is
    ``shared``, or not, as it was asked for first.
    """

    op: Literal["acquire_lease"] = "acquire_lease"
    name: Name
    token: Token
    ttl_ms: TtlMs
    shared: bool = False
    wait_ms: Annotated[int, Field(ge=0, le=WAIT_MS_MAX)] = 0


class RenewLease(Frozen):
    """Make a lease that is held last until ``ttl_ms`` from now."""

    op: Literal["renew_lease"] = "renew_lease"
    name: Name
    token: Token
    ttl_ms: TtlMs


class ReleaseLease(Frozen):
    """Give a lease back, or leave its line; nothing happens when it is not held any more."""

    op: Literal["release_lease"] = "release_lease"
    name: Name
    token: Token


class BreakLease(Frozen):
    """Take a lease from whoever has it: for people, when a holder is known to be gone. The next in line gets it."""

    op: Literal["break_lease"] = "break_lease"
    name: Name


LeaseOperation = AcquireLease | RenewLease | ReleaseLease | BreakLease


def acquire(draft: Draft, op: AcquireLease) -> JsonValue:
    """Answers with the holder; None when somebody else has it or comes before: then the caller is to wait.

    It stands in line then, unless that is full. Raises LeaseHeld instead when it does not want to wait.
    """
    lease = draft.get(LeaseRecord, op.name) or LeaseRecord(name=op.name)
    held = lease.held_by(op.token)
    if held is not None:
        return _keep(draft, lease, held, op.ttl_ms)
    if not lease.waiting and lease.admits(shared=op.shared):
        lease = _held(draft, lease, op.token, draft.agent, shared=op.shared, ttl_ms=op.ttl_ms)
        draft.put(lease)
        return lease.holders[-1].model_dump()
    if not op.wait_ms:
        raise held_error(lease, draft.now_ms)
    line = lease.with_waiter(Waiter(op.token, draft.now_ms + op.wait_ms, op.shared, draft.agent))
    if len(line.waiting) <= WAITING_MAX:
        draft.put(line)
    return None


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
        waiting = (each for each in lease.waiting if each.token != op.token)
        _hand_on(draft, lease, lease.only(lambda holder: holder.token != op.token, waiting))
    return None


def break_lease(draft: Draft, op: BreakLease) -> JsonValue:
    """Answers with who had it."""
    lease = draft.get(LeaseRecord, op.name)
    if lease is None:
        return []
    _hand_on(draft, lease, lease.only(lambda _holder: False, lease.waiting))
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
        f"lease {lease.name} is held by {last.agent} for up to {(last.expires_ms - now_ms) / 1000:.1f} s more"
        + (f", and {len(lease.waiting)} wait for it" if lease.waiting else ""),
        lease=lease.name,
        agent=last.agent,
        expires_ms=last.expires_ms,
    )


def _hand_on(draft: Draft, before: LeaseRecord, left: LeaseRecord | None) -> None:
    """Of ``before`` only ``left`` is left: those get the lease who are next in line and can have it now."""
    while left is not None and left.waiting and left.admits(shared=left.waiting[0].shared):
        first, *others = left.waiting
        left = _held(draft, left, first.token, first.agent, shared=first.shared, ttl_ms=TURN_MS).with_line(others)
    draft.put_or_drop(before, left)


def _held(draft: Draft, lease: LeaseRecord, token: str, agent: str, *, shared: bool, ttl_ms: int) -> LeaseRecord:
    """The lease with one holder more, who gets the next fence."""
    fence = (draft.get(FenceRecord, _FENCE) or FenceRecord(name=_FENCE)).last + 1
    draft.put(FenceRecord(name=_FENCE, last=fence))
    holder = Holder(token=token, agent=agent, fence=fence, ttl_ms=ttl_ms, expires_ms=draft.now_ms + ttl_ms)
    return lease.model_copy(update={"shared": shared, "holders": (*lease.holders, holder)})


def _keep(draft: Draft, lease: LeaseRecord, held: Holder, ttl_ms: int) -> JsonValue:
    kept = held.model_copy(update={"ttl_ms": ttl_ms, "expires_ms": draft.now_ms + ttl_ms})
    holders = tuple(kept if each is held else each for each in lease.holders)
    draft.put(lease.model_copy(update={"holders": holders}))
    return kept.model_dump()
