"""`board.lease`: hold a name while a block runs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from crdt_board.board_link import Owed
from crdt_board.commit_arguments import check_flag
from crdt_board.coordination.leases import (
    TURN_MS,
    WAIT_MS_MAX,
    WAITING_MAX,
    AcquireLease,
    Holder,
    LeaseClaim,
    LeaseRecord,
    ReleaseLease,
    RenewLease,
)
from crdt_board.errors import BadRequest, Conflict, LeaseLost
from crdt_board.team.desk import Desk, new_token
from crdt_board.team.keeping import Keeping, answer_seconds, checked_ms, give_back, give_back_later

_ASK_AGAIN_SECONDS = WAIT_MS_MAX / 3000
"""How often a place in line is prolonged."""

_SURE_SECONDS = TURN_MS / 2000
"""How long after its request a claim that was handed the lease need not ask whether it has it still."""


class Lease:
    """A claim to a name that only one agent has at a time, or only those that share it. Made by `Board.lease`.

    Renewed in the background while the block runs. Should that not get through, because this process stood still or
    the connection was gone for longer than the ttl, then somebody else may have the lease before the block has noticed:
    so let the writer of the board check what matters, with ``board.commit(..., lease=lease)``.
    """

    def __init__(self, desk: Desk, name: str, *, ttl: float, shared: bool, timeout: float | None) -> None:
        self._desk = desk
        self._name = name
        self._ttl_ms = checked_ms(ttl, "ttl")
        self._shared = check_flag(shared, "shared")
        self._timeout = timeout
        self._token = new_token()
        self._fence: int | None = None
        self._keeping: Keeping | None = None

    def __repr__(self) -> str:
        return f"<Lease {self._name!r} fence {self._fence}>"

    @property
    def name(self) -> str:
        return self._name

    @property
    def fence(self) -> int:
        """Greater than that of every claim to this lease before it: hand it to outside systems that compare it."""
        return self.claim.fence

    @property
    def claim(self) -> LeaseClaim:
        """What a commit shows to the writer."""
        if self._fence is None:
            raise self._not_entered()
        return LeaseClaim(name=self._name, fence=self._fence)

    @property
    def is_held(self) -> bool:
        """False as soon as this process cannot be sure any more that it has the lease."""
        return self._keeping is not None and self._keeping.is_held

    def check(self) -> None:
        """Raise LeaseLost unless `is_held`."""
        self._kept().check()

    async def __aenter__(self) -> Self:
        if self._fence is not None:
            raise BadRequest(f"lease {self._name} was entered before; call board.lease(...) again")
        try:
            with self._in_line():
                self._keeping = await self._acquire()
        except BaseException as error:
            if isinstance(error, BadRequest) or (self._timeout == 0 and isinstance(error, Conflict)):
                raise
            # The request may have reached the writer. If this does not get through, the claim ends with its ttl.
            give_back_later(self._desk, self._release, ttl_ms=self._ttl_ms)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keeping = self._kept()
        loss = keeping.loss
        await keeping.end()
        await give_back(self._desk, self._release, ttl_ms=self._ttl_ms)
        if kind is None and loss is not None:
            raise loss

    def _kept(self) -> Keeping:
        if self._keeping is None:
            raise self._not_entered()
        return self._keeping

    def _not_entered(self) -> BadRequest:
        return BadRequest(f"lease {self._name} is held inside `async with board.lease(...)` only")

    @property
    def _release(self) -> ReleaseLease:
        return ReleaseLease(name=self._name, token=self._token)

    @contextlib.contextmanager
    def _in_line(self) -> Iterator[None]:
        """While it waits, closing the board leaves the line, and a client that is cut off has a turn to be back."""
        session, owed = self._desk.session, Owed(self._desk.agent, self._release)
        session.owed.add(owed)
        session.claims[owed] = TURN_MS / 1000
        try:
            yield
        finally:
            session.owed.discard(owed)
            session.claims.pop(owed, None)

    async def _acquire(self) -> Keeping:
        loop = asyncio.get_running_loop()
        give_up_at = math.inf if self._timeout is None else loop.time() + self._timeout
        while True:
            asked_at = loop.time()
            seconds = max(0.0, min(give_up_at - asked_at, WAIT_MS_MAX / 1000))
            within = None if self._timeout is None else answer_seconds(give_up_at)
            answer = await self._desk.ask_one(self._request(math.ceil(seconds * 1000)), within=within)
            self._desk.session.check()
            if answer is not None:
                return self._keep(Holder.model_validate(answer), until=asked_at + self._ttl_ms / 1000)
            with contextlib.suppress(TimeoutError):
                await self._desk.until(self._has_moved, min(give_up_at - loop.time(), _ASK_AGAIN_SECONDS))
            # It was not held when that was asked, so it lasts for a turn from then on.
            holder, until = self._holder(), asked_at + TURN_MS / 1000
            if holder is not None and loop.time() < asked_at + _SURE_SECONDS:
                return self._keep(holder, until=until)

    def _request(self, wait_ms: int) -> AcquireLease:
        return AcquireLease(
            name=self._name, token=self._token, ttl_ms=self._ttl_ms, shared=self._shared, wait_ms=wait_ms
        )

    def _holder(self) -> Holder | None:
        """This claim when it holds the lease, as far as this replica knows."""
        lease = self._desk.ledger.get(LeaseRecord, self._name)
        return lease.held_by(self._token) if lease is not None else None

    def _has_moved(self) -> bool:
        """Whether this claim holds the lease, or is not in line although there is room."""
        lease = self._desk.ledger.get(LeaseRecord, self._name)
        if lease is None or lease.held_by(self._token) is not None:
            return True
        # Where many found the line full, they do not all ask for each place that becomes free.
        return lease.awaited_by(self._token) is None and len(lease.waiting) <= WAITING_MAX // 2

    def _keep(self, holder: Holder, *, until: float) -> Keeping:
        self._fence = holder.fence
        renewal = RenewLease(name=self._name, token=self._token, ttl_ms=self._ttl_ms)
        late = LeaseLost(f"lease {self._name} was not renewed in time, and somebody else may have it", lease=self._name)
        return Keeping(self._desk, renewal, ttl_ms=self._ttl_ms, until=until, late=late)
