"""A process whose agents come and go: ``python -m support.visitor <url> <board>``; see `support.children`."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from crdt_board_client import connect
from support.sessions import Job, edit

_SECONDS = 30.0


class Visitor:
    def __init__(self, url: str, board_id: str) -> None:
        self._place = (url, board_id)

    async def visit(self, first: int, stop: int) -> int:
        """Sessions with these numbers, one after the other, each of which ends in order."""
        for number in range(first, stop):
            async with connect(*self._place, Job, agent=f"visitor {number}", timeout=_SECONDS) as board:
                edit(board.state, number)
        return stop - first

    async def stay(self, number: int) -> None:
        """A session that is open when the process is killed, with everything that it wrote acknowledged."""
        self._session = connect(*self._place, Job, agent=f"visitor {number}", timeout=_SECONDS)
        board = await self._session.__aenter__()
        edit(board.state, number)
        await board.flush(_SECONDS)


async def main(url: str, board_id: str) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    visitor = Visitor(url, board_id)
    print(json.dumps("ready"), flush=True)
    while line := await commands.readline():
        method, *arguments = json.loads(line)
        answer: Any = await getattr(visitor, method)(*arguments)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
