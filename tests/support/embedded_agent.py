"""An agent with an embedded board, as a process: ``python -m support.embedded_agent <file> <board> <agent>``.

Reads commands from stdin and answers each on stdout, both one JSON value a line; see `support.children`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from crdt_board import Board, open_board
from crdt_board.errors import ApprovalClosed
from support.model import Report

_SECONDS = 30.0


class EmbeddedAgent:
    def __init__(self, board: Board[Report]) -> None:
        self._board = board

    async def commit(self, times: int) -> list[int]:
        """That many commits, each with an edit before it and a patch; returns their versions."""
        versions = []
        for number in range(times):
            self._board.state.spent += 1
            name = f"{self._board.agent} {number}"
            made = await self._board.commit(name, patch={"scores": {**self._board.snapshot().scores, name: number}})
            versions.append(made.version)
        return versions

    async def commit_once(self, step: str, key: str) -> int:
        """A step as an agent does it that may have been killed in the middle of it."""
        patch = {"title": f"{step} done", "plan": [step]}
        return (await self._board.commit(step, patch=patch, idempotency_key=key)).version

    async def flush(self, *sources: str) -> None:
        """One edit for each source, then durable all together."""
        for source in sources:
            self._board.state.sources.add(source)
        await self._board.flush(_SECONDS)

    async def append(self, text: str) -> None:
        """One more piece of the draft, durable."""
        self._board.state.draft.append(text)
        await self._board.flush(_SECONDS)

    async def see_approval(self, approval_id: str) -> None:
        """Wait until this process knows of an approval."""
        await self._board.wait_for(lambda _: any(each.name == approval_id for each in self._board.approvals), _SECONDS)

    async def decide(self, approval_id: str, option: str) -> str:
        """Decide; returns the state that the approval is in then."""
        try:
            return (await self._board.decide(approval_id, option)).state
        except ApprovalClosed as closed:
            return str(closed.state)

    async def see(self, source: str) -> float:
        """Wait until somebody has added a source; returns when, on the clock that all processes share."""
        await self._board.wait_for(lambda state: source in state.sources, _SECONDS)
        return asyncio.get_running_loop().time()


async def main(file: str, board_id: str, agent: str) -> None:
    commands = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with open_board(file, board_id, Report, agent=agent) as board:
        embedded = EmbeddedAgent(board)
        print(json.dumps("ready"), flush=True)
        while line := await commands.readline():
            method, *arguments = json.loads(line)
            answer: Any = await getattr(embedded, method)(*arguments)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
