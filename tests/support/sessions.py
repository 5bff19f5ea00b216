"""Many short sessions on one board, one after the other and some at once, some of which end without a word."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from crdt_board import BoardModel, Candidates, Counter, Max
from crdt_board.client_ids import Holder
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardError
from crdt_board.publishing import PublishedEntry
from crdt_board.replica import Replica
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import decode_state_vector
from support.agents import LiveAgent


class Job(BoardModel):
    """A field of each kind that keeps something for each replica, and a plain one."""

    status: str = ""
    tokens: Counter
    best: Annotated[int, Max()] = 0
    verdict: Annotated[str, Candidates()] = ""


CELL_FIELDS = ("tokens", "best", "verdict")


def edit(state: Any, number: int) -> None:
    """What every session writes."""
    state.tokens += 1
    state.best = number
    state.verdict = f"verdict {number}"
    state.status = f"by {number}"


@dataclass
class Crowd:
    """Sessions on an engine.

    The replica of an id that was given back is kept and follows the board, so that it holds what a new one would when
    somebody is granted the id: 20,000 sessions need not each load the board from its beginning.
    """

    engine: Engine
    crashes: frozenset[int] = frozenset()
    """The numbers of the sessions that end without a word."""
    gives_back: bool = True
    acknowledged: int = 0
    _agents: dict[int, LiveAgent] = field(default_factory=dict)
    """By client id, those of open sessions and those that are kept."""
    _sources: dict[object, int] = field(default_factory=dict)

    async def run(self, sessions: int, *, at_once: int) -> None:
        numbers = iter(range(1, sessions + 1))
        self.engine.add_listener(self)

        async def worker() -> None:
            for number in numbers:
                await self.session(number)

        await asyncio.gather(*(worker() for _ in range(at_once)))
        self.engine.remove_listener(self)

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        for shown in entries:
            own = self._sources.get(shown.source)
            for client_id, agent in self._agents.items():
                if client_id != own:
                    agent.replica.receive(shown.updates, agent=None, seq=None)

    def stopped(self, error: BoardError) -> None:
        raise error

    async def session(self, number: int) -> None:
        holder = Holder(f"session {number}", object())
        agent = await self._open(holder)
        with agent.edit():
            edit(agent.state, number)
        await self._flush(agent.replica, holder)
        self.acknowledged += 1
        client_id = agent.document.client_id
        del self._sources[holder.source]
        if number in self.crashes or not self.gives_back:
            del self._agents[client_id]
            self.engine.client_ids.forget(client_id, holder.source)
        else:
            self.engine.take_back(client_id, holder.source, clock=agent.replica.clock)

    async def _open(self, holder: Holder) -> LiveAgent:
        client_id = await self.engine.client_ids.grant(holder)
        self._sources[holder.source] = client_id
        if client_id in self._agents:
            return self._agents[client_id]
        agent = LiveAgent(Job, client_id=client_id)

        def take_over(document: Document) -> None:
            agent.replica.receive([document.encode()], agent=None, seq=None)
            self._agents[client_id] = agent

        await self.engine.read(take_over)
        return agent

    async def _flush(self, replica: Replica, holder: Holder) -> None:
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        updates = [item.update for item in replica.pending]
        self.engine.submit(
            Submission(
                updates=updates,
                author="agent",
                source=holder.source,
                origin=holder.replica,
                written=told.set_result,
            )
        )
        receipt = await told
        assert receipt.error is None, receipt.error
        assert receipt.first_unready is None
        replica.acknowledge(replica.last_number)


def crashing(count: int, *, among: int, seed: int) -> frozenset[int]:
    """The numbers of ``count`` of the first ``among`` sessions."""
    return frozenset(random.Random(seed).sample(range(1, among + 1), count))


@dataclass(frozen=True)
class Size:
    """What of a board grows with the ids that were ever used on it."""

    clients: int
    cells: dict[str, int]
    state_vector_bytes: int
    state_bytes: int


async def size_of(engine: Engine) -> Size:
    def look(document: Document) -> Size:
        state_vector = document.state_vector()
        return Size(
            clients=len(decode_state_vector(state_vector)),
            cells={name: len(document.cells(name)) for name in CELL_FIELDS},
            state_vector_bytes=len(state_vector),
            state_bytes=len(document.encode()),
        )

    return await engine.read(look)
