"""Working together on a board: the part of `Board` that claims, asks and hands over."""

from __future__ import annotations

from crdt_board.board_link import BoardSession
from crdt_board.coordination.leases import LeaseRecord
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.limits import check_name
from crdt_board.team.desk import Desk
from crdt_board.team.leases import Lease


class BoardTeam:
    """What an agent's handle on a board offers for working with other agents and with people."""

    _session: BoardSession
    _agent: str

    @property
    def _desk(self) -> Desk:
        return Desk(self._session, self._agent)

    def lease(self, name: str, *, ttl: float = 30.0, shared: bool = False, timeout: float | None = None) -> Lease:
        """Hold ``name`` while an ``async with`` block runs: nobody else does so, or only those that share it.

        ``async with board.lease("payments", ttl=30) as lease:`` waits until it is free, ``timeout`` seconds at most
        (None for ever, 0 does not wait). The writer of the board decides, on the clock of its store. The lease is
        renewed while the block runs, and given back at its end; when this process dies it is free after ``ttl`` seconds
        (0.1 to 86,400). ``lease.fence`` grows from one claim to the next, and ``board.commit(..., lease=lease)`` is
        refused unless the claim still stands: only that is safe against a process that stood still.

        Raises:
            LeaseHeld: somebody else has it, and ``timeout`` is over; says who, and until when.
            LeaseLost: at the end of the block, when the claim ran out or was broken inside it.
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        self._session.check()
        check_name(name, "lease", NAME_CHARS_MAX)
        return Lease(self._desk, name, ttl=ttl, shared=shared, timeout=timeout)

    @property
    def leases(self) -> list[LeaseRecord]:
        """The leases that somebody has now, as this replica knows it, in alphabetical order of their names."""
        records = self._desk.ledger.all(LeaseRecord).values()
        return sorted((record for record in records if record.holders), key=lambda record: record.name)
