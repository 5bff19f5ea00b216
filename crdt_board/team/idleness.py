"""When nobody on a board has anything to do: what agents tell each other of it, and waiting for it.

An agent is asked by the presence of whoever waits, and answers by its own: with the newest journal entry after which
all of its reactions and followers had nothing to do. Nobody tells anything while nobody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from crdt_board.board_link import AgentPresence, BoardSession
from crdt_board.control import ListEntries
from crdt_board.errors import LimitExceeded
from crdt_board.history.news import EntryPage
from crdt_board.team.desk import Desk


class Idleness:
    """What one agent tells of its own work, through one replica."""

    def __init__(self, session: BoardSession, agent: str) -> None:
        self._session = session
        self._said = AgentPresence(agent=agent)
        self._workers: list[Callable[[], int | None]] = []

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for the board to be settled."""
        return any(presence.settling for presence in self._session.link.agents())

    def say(self, presence: AgentPresence) -> None:
        """Announce what the agent does; what it tells of its idleness stays."""
        said = self._said
        self._announce(replace(presence, reacts=said.reacts, idle_at=said.idle_at, settling=said.settling))

    def add(self, idle_at: Callable[[], int | None]) -> None:
        """Take a worker into account. ``idle_at`` is the entry after which it had nothing to do; None while it has.

        Raises LimitExceeded, and takes nothing, when too many agents of the replica announce themselves.
        """
        self._announce(replace(self._said, reacts=True))
        self._workers.append(idle_at)

    def remove(self, idle_at: Callable[[], int | None]) -> None:
        self._workers.remove(idle_at)
        if not self._workers and self._session.error is None:
            self._announce(replace(self._said, reacts=False, idle_at=None))

    @property
    def must_tell(self) -> bool:
        """Whether somebody asks who has not heard the present answer."""
        answer = self._answer()
        return answer is not None and answer != self._said.idle_at and self.is_asked

    def tell(self) -> None:
        self._announce(replace(self._said, idle_at=self._answer()))

    async def settle(self, desk: Desk, timeout: float | None) -> None:
        """Wait until nobody has anything to do. Raises TimeoutError."""
        self._announce(replace(self._said, settling=True))
        try:
            async with asyncio.timeout(timeout):
                while not await self._is_settled_at_writer(desk):
                    await desk.until(lambda: self._is_settled(desk))
        finally:
            if desk.session.error is None:
                self._announce(replace(self._said, settling=False))

    async def _is_settled_at_writer(self, desk: Desk) -> bool:
        """Whether it is settled, and the writer has nothing that this replica has not heard of."""
        if not self._is_settled(desk):
            return False
        seq = desk.session.replica.seq
        newer = EntryPage.model_validate(await desk.session.link.ask(ListEntries(after=seq, limit=1)))
        return newer.until == seq and self._is_settled(desk)

    def _is_settled(self, desk: Desk) -> bool:
        replica = desk.session.replica
        if not replica.owes_nothing or desk.ledger.busy:
            return False
        if self._workers and self._answer() != replica.seq:
            return False
        own, others = desk.agent, desk.session.link.agents()
        return all(
            presence.idle_at is not None and presence.idle_at >= replica.seq
            for presence in others
            if presence.reacts and presence.agent != own
        )

    def _answer(self) -> int | None:
        answers = [idle_at() for idle_at in self._workers]
        known = [answer for answer in answers if answer is not None]
        return min(known) if answers and len(known) == len(answers) else None

    def _announce(self, presence: AgentPresence) -> None:
        before = self._said
        if presence == before:
            return
        self._said = presence  # whoever is woken by the announcement looks at it
        try:
            self._session.link.announce(presence)
        except LimitExceeded:
            self._said = before
            raise
