"""What people really typed, through the whole of the product."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from crdt_board import BoardModel, Text, open_board
from crdt_board_client import connect
from support.children import Child, child
from support.gate import Gate, gate_to
from support.recording import Recording, Run, Typing
from support.server import ServerProcess

_AUTHORS = (0, 1)
_BOARD = "friends"


class _Typists:
    """The two authors, each a process behind a gate that delivers as late as the recording says."""

    def __init__(self, recording: Recording, gates: Sequence[Gate], processes: Sequence[Child]) -> None:
        self._recording = recording
        self._gates = gates
        self._processes = processes
        self._runs = [recording.runs(author) for author in _AUTHORS]

    async def type(self, until: tuple[int, int]) -> int:
        """Type on until each has made so many transactions, and return while the last ones are under way.

        Returns how many updates were not acknowledged yet.
        """
        last: list[Run] = []
        plans: list[list[Run]] = []
        for author in _AUTHORS:
            runs = [run for run in self._runs[author] if run.stop <= until[author]]
            del self._runs[author][: len(runs)]
            last.append(runs.pop())
            plans.append(runs)
        await asyncio.gather(*(self._type_and_deliver(author, plans[author]) for author in _AUTHORS))
        return sum(await asyncio.gather(*(self._type(author, last[author]) for author in _AUTHORS)))

    async def meet(self, made: tuple[int, int]) -> None:
        """Let both see everything that was made, and be sure that the server has it."""
        for gate in self._gates:
            await gate.open()
        for author, process in enumerate(self._processes):
            await process.ask("flush")
            await process.ask("has_seen", made[1 - author])
        for author, gate in enumerate(self._gates):
            gate.count_from(self._recording.updates_before(1 - author, made[1 - author]))

    async def texts(self) -> list[str]:
        return [await process.ask("read") for process in self._processes]

    async def _type_and_deliver(self, author: int, runs: Sequence[Run]) -> None:
        """Each run becomes a journal entry of its own, which can be held back by itself."""
        for run in runs:
            await self._type(author, run)
            await self._gates[1 - author].has_arrived(self._recording.updates_before(author, run.stop))

    async def _type(self, author: int, run: Run) -> int:
        await self._gates[author].allow(self._recording.updates_before(1 - author, run.seen))
        unacknowledged: int = await self._processes[author].ask("type", run.start, run.stop, run.seen)
        return unacknowledged


@contextlib.asynccontextmanager
async def _seat(server: ServerProcess, file: Path) -> AsyncIterator[tuple[Gate, Child]]:
    async with (
        gate_to(server.port) as gate,
        child([sys.executable, "-m", "support.typist", str(file), gate.url, _BOARD]) as process,
    ):
        assert await process.answer() == "ready"
        yield gate, process


@pytest.mark.long
async def test_two_people_typing_with_the_server_killed_halfway(server: ServerProcess, data_dir: Path) -> None:
    """Both replicas, a late one and a cold reload end with exactly the recorded text, over a ``kill -9``."""
    file = data_dir / "friendsforever.json.gz"
    recording = Recording(file)
    meeting, end = recording.meeting_near(0.5), recording.end
    async with contextlib.AsyncExitStack() as stack:
        seats = [await stack.enter_async_context(_seat(server, file)) for _ in _AUTHORS]
        # Once, both insert at one place at the same time, and Yjs then puts the lower client id first. The recorded
        # text has what author 0 wrote first.
        by_id = {await process.ask("client_id"): (gate, process) for gate, process in seats}
        gates, processes = zip(*(by_id[client_id] for client_id in sorted(by_id)), strict=True)
        for author in _AUTHORS:
            await processes[author].ask("play", author)
        typists = _Typists(recording, gates, processes)

        assert await typists.type(meeting) > 0
        await server.kill9()
        await server.start()
        await typists.meet(meeting)
        assert [gate.connections for gate in gates] == [2, 2]

        await typists.type(end)
        await typists.meet(end)
        assert await typists.texts() == [recording.end_content] * 2

    async with connect(server.url, _BOARD, Typing, agent="reader") as board:
        assert str(board.state.text) == recording.end_content
    await server.terminate()
    async with open_board(server.database, _BOARD, Typing, agent="reader") as board:
        assert str(board.state.text) == recording.end_content
        assert board.state.typed == {"0": end[0], "1": end[1]}


class Paper(BoardModel):
    text: Text


@pytest.mark.long
async def test_one_person_writing_a_paper(tmp_path: Path, data_dir: Path) -> None:
    """259,778 edits, a hundred to a transaction, end with exactly the recorded text, also in a cold reload."""
    with gzip.open(data_dir / "automerge-paper.json.gz", "rt") as content:
        recorded = json.load(content)
    patches = [patch for transaction in recorded["txns"] for patch in transaction["patches"]]
    assert len(patches) == 259_778
    file = tmp_path / "paper.db"
    async with open_board(file, "paper", Paper, agent="author") as board:
        text = board.state.text
        for start in range(0, len(patches), 100):
            with board.transaction():
                for position, deleted, inserted in patches[start : start + 100]:
                    text.delete(position, position + deleted)
                    text.insert(position, inserted)
        await board.flush()
        assert str(text) == recorded["endContent"]
    async with open_board(file, "paper", Paper, agent="reader") as board:
        assert str(board.state.text) == recorded["endContent"]
