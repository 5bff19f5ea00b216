"""One author of a recording, as a process of its own: ``python -m support.typist <file> <url> <board>``.

Reads commands from stdin and answers each on stdout, both one JSON value a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from crdt_board import Board
from crdt_board_client import connect
from support.recording import Recording, Transaction, Typing

_SECONDS = 30.0


class Typist:
    def __init__(self, board: Board[Typing], recording: Recording) -> None:
        self._board = board
        self._recording = recording
        self._transactions: list[Transaction] = []
        self._name = self._other = ""

    async def client_id(self) -> int:
        return self._board._session.replica.document.client_id

    async def play(self, author: int) -> None:
        self._transactions = self._recording.transactions[author]
        self._name, self._other = str(author), str(1 - author)

    async def type(self, start: int, stop: int, seen: int) -> int:
        """Make transactions ``[start:stop]`` on a replica that holds exactly ``seen`` ones of the other author."""
        await self.has_seen(seen)
        held = self._board.state.typed.get(self._other, 0)
        assert held == seen, f"author {self._name} holds {held} transactions of the other one, not {seen}"
        text = self._board.state.text
        for transaction in self._transactions[start:stop]:
            assert transaction.seen == seen
            for position, deleted, inserted in transaction.patches:
                text.delete(position, position + deleted)
                text.insert(position, inserted)
        self._board.state.typed[self._name] = stop
        return self._board.unacknowledged

    async def has_seen(self, number: int) -> None:
        if self._board.state.typed.get(self._other, 0) < number:
            await self._board.wait_for(lambda state: state.typed.get(self._other, 0) >= number, _SECONDS)

    async def flush(self) -> None:
        await self._board.flush(_SECONDS)

    async def read(self) -> str:
        return str(self._board.state.text)


async def main(file: str, url: str, board_id: str) -> None:
    recording = Recording(Path(file))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with connect(url, board_id, Typing, agent="typist") as board:
        typist = Typist(board, recording)
        print(json.dumps("ready"), flush=True)
        while line := await commands.readline():
            method, *arguments = json.loads(line)
            print(json.dumps(await getattr(typist, method)(*arguments)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
