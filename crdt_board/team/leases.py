"""`board.lease`: hold a name while a block runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from types import TracebackType
from typing import Self

from crdt_board.coordination.leases import (
    TTL_MS_MAX,
    TTL_MS_MIN,
    AcquireLease,
    Holder,
    LeaseClaim,
    LeaseRecord,
    ReleaseLease,
    RenewLease,
)
from crdt_board.errors import BadRequest, BoardError, LeaseHeld, LeaseLost
from crdt_board.team.desk import Desk, new_token
from crdt_board.wire_values import invalid_value

_RENEWALS_PER_TTL = 3

logger = logging.getLogger(__name__)


class Lease:
    """A claim to a name that only one agent has at a time, or only those that share it. Made by `Board.lease`.

    Renewed in the background while the block runs. Should that not get through, because this process stood still or
    the connection was gone for longer than the ttl, then somebody else may have the lease before the block has noticed:
    so let the writer of the board check what matters, with ``board.commit(..., lease=lease)``.
    """

    def __init__(self, desk: Desk, name: str, *, ttl: float, shared: bool, timeout: float | None) -> None:
        self._desk = desk
        self._name = name
        self._ttl_ms = ttl_ms(ttl)
        self._shared = shared
        self._timeout = timeout
        self._token = new_token()
        self._fence: int | None = None
        self._held_until = 0.0
        self._lost: LeaseLost | None = None
        self._renewing: asyncio.Task[None] | None = None

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
            raise BadRequest(f"lease {self._name} is held inside `async with board.lease(...)` only")
        return LeaseClaim(name=self._name, fence=self._fence)

    @property
    def is_held(self) -> bool:
        """False as soon as this process cannot be sure any more that it has the lease."""
        return self._lost is None and asyncio.get_running_loop().time() < self._held_until

    def check(self) -> None:
        """Raise LeaseLost unless `is_held`."""
        if not self.is_held:
            raise self._lost or LeaseLost(
                f"lease {self._name} was not renewed in time, and somebody else may have it", lease=self._name
            )

    async def __aenter__(self) -> Self:
        if self._fence is not None:
            raise BadRequest(f"lease {self._name} was entered before; call board.lease(...) again")
        try:
            await self._acquire()
        except BaseException:
            # The request may have reached the writer. If this does not get through, the claim ends with its ttl.
            if self._desk.session.error is None:
                self._desk.spawn(self._release(), f"release-{self._name}")
            raise
        self._renewing = self._desk.spawn(self._renew(), f"lease-{self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._renewing is not None
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        await self._release()
        if kind is None:
            self.check()

    async def _acquire(self) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = None if self._timeout is None else loop.time() + self._timeout
        while True:
            asked_at = loop.time()
            try:
                request = AcquireLease(name=self._name, token=self._token, ttl_ms=self._ttl_ms, shared=self._shared)
                holder = Holder.model_validate(await self._desk.ask_one(request))
            except LeaseHeld as held:
                left = None if give_up_at is None else give_up_at - loop.time()
                if left is not None and left <= 0:
                    raise
                await self._wait(held, left)
            else:
                self._fence = holder.fence
                self._held_until = asked_at + self._ttl_ms / 1000
                return

    async def _wait(self, held: LeaseHeld, seconds: float | None) -> None:
        """Until the lease is free, as far as this replica knows; raises ``held`` when that takes too long."""
        try:
            await self._desk.until(self._looks_free, seconds)
        except TimeoutError:
            raise held from None

    def _looks_free(self) -> bool:
        lease = self._desk.ledger.get(LeaseRecord, self._name)
        return lease is None or not lease.holders or (lease.shared and self._shared)

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        request = RenewLease(name=self._name, token=self._token, ttl_ms=self._ttl_ms)
        while True:
            await asyncio.sleep(self._ttl_ms / 1000 / _RENEWALS_PER_TTL)
            asked_at = loop.time()
            try:
                await self._desk.ask_one(request)
            except LeaseLost as lost:
                logger.warning("board %s: %s", self._desk.session.link.board_id, lost)
                self._lost = lost
                return
            except BoardError as error:
                logger.warning("lease %s was not renewed: %s", self._name, error)
                return
            self._held_until = asked_at + self._ttl_ms / 1000

    async def _release(self) -> None:
        """Give the lease back; when that does not get through within its ttl, it has run out by itself."""
        with contextlib.suppress(BoardError, TimeoutError):
            async with asyncio.timeout(self._ttl_ms / 1000):
                await self._desk.ask_one(ReleaseLease(name=self._name, token=self._token))


def ttl_ms(seconds: float) -> int:
    """A time to live in whole milliseconds. Raises InvalidValue."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid_value("ttl", f"is a number of seconds, not {type(seconds).__name__}")
    if not TTL_MS_MIN / 1000 <= seconds <= TTL_MS_MAX / 1000:
        raise invalid_value(
            "ttl", f"must be from {TTL_MS_MIN / 1000:g} to {TTL_MS_MAX // 1000} seconds, got {seconds!r}"
        )
    return round(seconds * 1000)
