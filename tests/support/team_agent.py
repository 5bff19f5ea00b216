"""An agent that works with others, as a process: ``python -m support.team_agent <file or ws://...> <board> <agent>``.

Reads commands from stdin and answers each on stdout, both one JSON value a line; see `support.children`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from crdt_board import Board, BoardError, ClaimedTask, open_board
from crdt_board_client import connect
from support.children import Child, child
from support.model import Report


class TeamAgent:
    def __init__(self, board: Board[Report]) -> None:
        self._board = board
        self._held = contextlib.AsyncExitStack()
        self._lease: Any = None

    async def hold(self, name: str, ttl: float, shared: bool = False) -> int:
        """Take a lease and keep it; returns its fence."""
        self._lease = await self._held.enter_async_context(self._board.lease(name, ttl=ttl, shared=shared))
        fence: int = self._lease.fence
        return fence

    async def line(self, name: str, count: int) -> None:
        """Wait until so many stand in line for a lease."""
        board = self._board
        await board.wait_for(
            lambda _state: any(each.name == name and len(each.waiting) == count for each in board.leases)
        )

    async def commit_held(self, title: str) -> Any:
        """Commit under the lease; returns the version, or the code of the error."""
        try:
            return (await self._board.commit(title, patch={"title": title}, lease=self._lease)).version
        except BoardError as error:
            return error.code

    async def let_go(self) -> str | None:
        """Leave the block of the lease; returns the code of its error."""
        try:
            await self._held.aclose()
        except BoardError as error:
            return error.code
        return None

    async def work(self, queue: str, agents: int, idle: float) -> list[str]:
        """Have so many agents do tasks until there are none for a while; returns the keys of what they did."""
        names = [f"{self._board.agent}-{number}" for number in range(agents)]
        done = await asyncio.gather(*(self._work(self._board.as_agent(name), queue, idle) for name in names))
        return [key for keys in done for key in keys]

    async def _work(self, board: Board[Report], queue: str, idle: float) -> list[str]:
        keys: list[str] = []
        while True:
            try:
                async with board.tasks.claim(queue, ttl=10.0, timeout=idle) as task:
                    board.state.sources.add(task.key)
                    await board.commit(task.key, task=task, output=board.agent)
                    keys.append(task.key)
            except TimeoutError:
                return keys

    async def claim_and_hang(self, queue: str, ttl: float) -> str:
        """Claim a task and do nothing with it; returns its key."""
        claimed: ClaimedTask = await self._held.enter_async_context(self._board.tasks.claim(queue, ttl=ttl))
        return claimed.key


def agent_at(where: str, board_id: str, agent: str) -> AbstractAsyncContextManager[Board[Report]]:
    if where.startswith("ws://"):
        return connect(where, board_id, Report, agent=agent)
    return open_board(where, board_id, Report, agent=agent)


@contextlib.asynccontextmanager
async def team_agent(where: str, board_id: str, agent: str) -> AsyncIterator[Child]:
    """A process with an agent that is on the board."""
    async with child([sys.executable, "-m", "support.team_agent", where, board_id, agent]) as process:
        assert await process.answer() == "ready"
        yield process


async def main(where: str, board_id: str, agent: str) -> None:
    commands = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with agent_at(where, board_id, agent) as board:
        team = TeamAgent(board)
        print(json.dumps("ready"), flush=True)
        while line := await commands.readline():
            method, *arguments = json.loads(line)
            answer: Any = await getattr(team, method)(*arguments)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
