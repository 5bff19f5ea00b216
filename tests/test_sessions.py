"""Thousands of short sessions: nothing on a board grows with their number, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from crdt_board import BoardHost
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.memory import MemoryStore
from crdt_board.updates import decode_state_vector
from crdt_board_client import connect
from support.agents import LiveAgent
from support.children import child
from support.server import ServerProcess
from support.sessions import CELL_FIELDS, Crowd, Job, Size, crashing, edit, size_of
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS

_AT_ONCE = 3
_ID_BYTES_MAX = 12  # of a client and its clock in a state vector


@contextlib.asynccontextmanager
async def _board() -> AsyncIterator[Engine]:
    limits = replace(DEFAULT_LIMITS, snapshot_every_entries=10**6, snapshot_every_bytes=10**9)
    async with BoardHost(MemoryStore(), limits=limits) as host, host.board("job") as engine:
        await engine.join(Job.board_layout())
        yield engine


def _check_size(size: Size, crashed: int) -> None:
    """Nothing is counted for a session that ended in order."""
    ids_max = crashed + _AT_ONCE
    assert size.clients <= ids_max
    assert size.state_vector_bytes <= _ID_BYTES_MAX * ids_max
    assert all(size.cells[name] <= ids_max for name in CELL_FIELDS)


@pytest.mark.parametrize("sessions", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_many_past_sessions(sessions: int) -> None:
    """Of them, 1 % of which crashed, only those leave a client and a cell; the counter is exact.

    The board is as large as if one agent had made all edits: what it grows by is the edits, not the sessions.
    """
    sample = 1_000
    # All of them early, while a new replica is quickly loaded; an id that is lost is lost at any time.
    crashes = crashing(sessions // 100, among=sessions // 5, seed=1)
    async with _board() as engine:
        crowd = Crowd(engine, crashes)
        await crowd.run(sessions, at_once=_AT_ONCE)
        size = await size_of(engine)
        _check_size(size, len(crashes))
        assert await _tokens(engine) == crowd.acknowledged == sessions
    one = LiveAgent(Job, client_id=2**51)
    for number in range(sample):
        with one.edit():
            edit(one.state, number)
    per_session = len(one.document.encode()) / sample
    lost = len(crashes) * 12 * _ID_BYTES_MAX  # for each: its place in the state, its cells, and what points at them
    assert size.state_bytes < 1.2 * sessions * per_session + lost


async def test_the_check_fails_where_ids_are_never_taken_back() -> None:
    """The canary: with a new id for each session, 300 sessions are far beyond what the check allows."""
    sessions = 300
    async with _board() as engine:
        crowd = Crowd(engine, gives_back=False)
        await crowd.run(sessions, at_once=_AT_ONCE)
        size = await size_of(engine)
        assert size.clients == sessions
        assert size.cells["tokens"] == sessions
        with pytest.raises(AssertionError):
            _check_size(size, sessions // 100)
        assert await _tokens(engine) == sessions


async def test_sessions_at_a_server_with_clients_and_the_server_killed(server: ServerProcess, board_id: str) -> None:
    """Two processes of agents that come and go, killed in the middle of a session, and a server that is killed too.

    A client that stays through all of it keeps its id; the counter is exact; each process and each server that was
    killed costs the ids that it held.
    """
    visits, visitors, rounds = 40, 2, 2
    command = [sys.executable, "-m", "support.visitor", server.url, board_id]
    sessions = 0
    async with connect(server.url, board_id, Job, agent="resident") as resident:
        client_id = resident._session.replica.document.client_id
        for number in range(rounds):
            async with contextlib.AsyncExitStack() as stack:
                processes = [await stack.enter_async_context(child(command)) for _ in range(visitors)]
                await asyncio.gather(*(process.answer() for process in processes))
                await asyncio.gather(*(process.ask("visit", 0, visits) for process in processes))
                await asyncio.gather(*(process.ask("stay", visits) for process in processes))
                sessions += visitors * (visits + 1)
                edit(resident.state, number)
                await resident.flush(DEADLINE_SECONDS)
                if number == 0:
                    await server.kill9()
                    resident.state.tokens += 1  # while nobody is there
                for process in processes:
                    await process.kill()
                if number == 0:
                    await server.start()
        await resident.flush(DEADLINE_SECONDS)
        written = sessions + rounds + 1
        await resident.wait_for(lambda state: state.tokens == written, DEADLINE_SECONDS)
        assert resident._session.replica.document.client_id == client_id
    held = 1 + visitors + visitors  # by each server: its own, those of open sessions, and of those that just ended
    async with stock_peer(server.url, board_id) as peer:
        assert len(decode_state_vector(peer.doc.get_state())) <= 1 + rounds * held
    async with connect(server.url, board_id, Job, agent="late") as late:
        assert late.state.tokens == written


async def _tokens(engine: Engine) -> object:
    def look(document: Document) -> object:
        return document.wire_state()["tokens"]

    return await engine.read(look)
