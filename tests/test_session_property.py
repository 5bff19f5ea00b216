"""Sessions that come and go at random, in two processes on one database: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board.client_ids import Holder
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import MalformedUpdate
from crdt_board.group_commit import GroupCommit
from crdt_board.merge_types import Text
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.updates import decode_state_vector
from support.agents import LiveAgent
from support.sessions import Job
from support.waiting import DEADLINE_SECONDS

_EARLIER_MAX = 8
_MARK_FIRST = 0x4E00


class Log(Job):
    """The fields with cells, and a text in which each edit leaves its mark."""

    draft: Text


@dataclass(eq=False)
class _Process:
    """A process with the board open, which may end in order or not."""

    store: MemoryStore
    engine: Engine = field(init=False)
    _journal: GroupCommit = field(init=False)

    async def start(self) -> None:
        self._journal = GroupCommit(self.store)
        self.engine = await Engine.open(self.store, self._journal, "job", epoch="e")
        await self.engine.join(Log.board_layout())

    async def close(self) -> None:
        await self.engine.close()
        await self._journal.close()

    async def crash(self) -> None:
        """End without returning anything to the store."""
        self.engine._task.cancel()
        await asyncio.wait([self.engine._task])
        await self._journal.close()


@dataclass(eq=False)
class _Session:
    name: str
    agent: LiveAgent
    source: object | None = None
    """The connection, None while offline."""
    process: _Process | None = None
    marks: list[str] = field(default_factory=list)
    """What its pending edits left in the text."""


class World:
    """Two processes, the sessions that live, and what was acknowledged so far."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        store = MemoryStore()
        self.processes = [_Process(store), _Process(store.peer())]
        self.sessions: list[_Session] = []
        self.acknowledged: list[str] = []
        self.lost = 0
        self.most_at_once = 0
        self._numbered = 0
        self._earlier: list[tuple[_Process, object, list[bytes]]] = []
        """What was sent on connections that are gone, and may still be on its way there."""

    async def run(self, steps: int) -> None:
        for process in self.processes:
            await process.start()
        actions = {
            self.begin: 6, self.edit: 8, self.send: 6, self.end: 5, self.go_offline: 2, self.come_back: 3,
            self.crash: 0.5, self.arrive_late: 2, self.restart: 0.7,
        }  # fmt: skip
        for action in self._random.choices(list(actions), list(actions.values()), k=steps):
            await action()
            self.most_at_once = max(self.most_at_once, len(self.sessions))

    async def begin(self) -> None:
        self._numbered += 1
        name, source, process = f"session {self._numbered}", object(), self._any_process()
        client_id = await process.engine.client_ids.grant(Holder(name, source))
        assert client_id not in {session.agent.document.client_id for session in self.sessions}
        session = _Session(name, LiveAgent(Log, client_id=client_id), source, process)
        await self._follow(session)
        self.sessions.append(session)

    async def edit(self) -> None:
        session = self._any_session()
        if session is None:
            return
        self._numbered += 1
        mark, state = chr(_MARK_FIRST + self._numbered), session.agent.state  # one character, which nothing splits
        with session.agent.edit():  # one update, which arrives as a whole or not at all
            state.tokens += 1
            state.draft.insert(self._random.randint(0, len(state.draft)), mark)
            if self._random.random() < 0.5:
                state.best = self._numbered
                state.verdict = mark
                state.status = mark
        session.marks.append(mark)

    async def send(self) -> None:
        session = self._any_session(connected=True)
        if session is not None:
            await self._flush(session)

    async def end(self) -> None:
        """In order: everything is sent first."""
        session = self._any_session(connected=True)
        if session is None or session.process is None:
            return
        await self._flush(session)
        replica = session.agent.replica
        session.process.engine.take_back(replica.document.client_id, session.source, clock=replica.clock)
        self.sessions.remove(session)

    async def go_offline(self) -> None:
        """What was sent may yet arrive, and its acknowledgement is lost."""
        session = self._any_session(connected=True)
        if session is None or session.process is None:
            return
        pending = [item.update for item in session.agent.replica.pending]
        self._earlier.append((session.process, session.source, pending[: self._random.randint(0, len(pending))]))
        del self._earlier[:-_EARLIER_MAX]
        session.process.engine.client_ids.forget(session.agent.document.client_id, session.source)
        session.source = session.process = None

    async def come_back(self) -> None:
        session = self._any_session(connected=False)
        if session is None:
            return
        session.source, session.process = object(), self._any_process()
        holder = Holder(session.name, session.source)
        session.process.engine.refresh()  # as the watch for other processes does
        session.process.engine.client_ids.resume(session.agent.document.client_id, holder)
        await self._follow(session)

    async def crash(self) -> None:
        session = self._any_session()
        if session is not None:
            if session.process is not None:
                session.process.engine.client_ids.forget(session.agent.document.client_id, session.source)
            self.sessions.remove(session)
            self.lost += 1

    async def arrive_late(self) -> None:
        """A connection that is gone delivers what was sent on it."""
        if not self._earlier:
            return
        process, source, updates = self._earlier.pop(self._random.randrange(len(self._earlier)))
        if updates and process.engine.is_open:
            with contextlib.suppress(MalformedUpdate):  # the replica writes through another connection by now
                await _submit(process.engine, updates, source)

    async def restart(self) -> None:
        process = self._any_process()
        for session in self.sessions:
            if session.process is process:
                session.source = session.process = None
        if self._random.random() < 0.5:
            await process.close()
        else:
            self.lost += 1 + len(process.engine.client_ids._kept)
            await process.crash()
        await process.start()

    async def settle(self) -> None:
        """Everybody comes back, sends what is pending, and holds what the board holds."""
        for session in self.sessions:
            while session.process is None:
                await self.come_back()
            await self._flush(session)
        for process in self.processes:
            process.engine.refresh()
        for session in self.sessions:
            await self._follow(session)

    async def close(self) -> None:
        for process in self.processes:
            await process.close()

    async def _follow(self, session: _Session) -> None:
        """Exchange everything, as the two steps of the sync protocol do."""
        assert session.process is not None
        replica = session.agent.replica

        def take_over(document: Document) -> None:
            replica.receive([document.encode(replica.document.state_vector())], agent=None, seq=None)

        await session.process.engine.read(take_over)

    async def _flush(self, session: _Session) -> None:
        assert session.process is not None
        replica = session.agent.replica
        updates = [item.update for item in replica.pending]
        if updates:
            receipt = await _submit(session.process.engine, updates, session.source)
            assert receipt.error is None
            assert receipt.first_unready is None
            replica.acknowledge(replica.last_number)
            self.acknowledged += session.marks
            session.marks = []

    def _any_process(self) -> _Process:
        return self._random.choice(self.processes)

    def _any_session(self, *, connected: bool | None = None) -> _Session | None:
        found = [each for each in self.sessions if connected is None or (each.process is not None) == connected]
        return self._random.choice(found) if found else None


async def _submit(engine: Engine, updates: list[bytes], source: object) -> Receipt:
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(Submission(updates=updates, author="agent", source=source, written=told.set_result))
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await told


async def _live(source: random.Random, steps: int) -> None:
    world = World(source)
    await world.run(steps)
    await world.settle()
    states = [await process.engine.read(lambda document: document.wire_state()) for process in world.processes]
    states += [session.agent.document.wire_state() for session in world.sessions]
    assert all(state == states[0] for state in states)
    draft = str(states[0].get("draft", ""))
    late = len(draft) - len(world.acknowledged)  # arrived, of sessions that crashed before they heard of it
    assert all(draft.count(mark) == 1 for mark in world.acknowledged)
    assert late >= 0
    tokens = states[0].get("tokens", 0)
    assert tokens == len(world.acknowledged) + late
    vectors = [await process.engine.read(Document.state_vector) for process in world.processes]
    clients = decode_state_vector(vectors[0])
    assert clients == decode_state_vector(vectors[1])
    assert len(clients) <= world.lost + world.most_at_once + 2 * len(world.processes)
    await world.close()


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(50, 150))
def test_sessions_come_and_go(source: random.Random, steps: int) -> None:
    """Sessions with used ids begin, edit, lose their connections, come back elsewhere, end and crash, as do processes.

    Every acknowledged edit is there once, the counter is exact, all replicas and processes hold the same, and the ids
    are as many as were in use at once or lost.
    """
    asyncio.run(_live(source, steps))
