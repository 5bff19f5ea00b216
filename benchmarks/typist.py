"""One author of a recording of two who typed at the same time, as a client process of its own.

Started as ``python -m benchmarks.typist <recording> <author> <port> <board>``. Says ``ready``, waits for a line, types,
and prints what became of it as JSON. Each transaction is made on a document that holds exactly what its parents held:
what the other author wrote later has arrived perhaps, but is not let in yet.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any

import pycrdt

from benchmarks.harness import recording, require
from benchmarks.stock import StockClient, stock_client

_CLIENT_IDS = (1_001, 1_002)
_SILENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Transaction:
    """``seen``: how many of the other author's transactions come before it, with all own earlier ones."""

    seen: int
    patches: list[tuple[int, int, str]]


def transactions_of_both(recorded: dict[str, Any]) -> tuple[list[Transaction], list[Transaction]]:
    """The recorded graph, as a list for each author."""
    made: tuple[list[Transaction], list[Transaction]] = ([], [])
    versions: list[list[int]] = []
    for item in recorded["txns"]:
        author = item["agent"]
        parents = [versions[parent] for parent in item["parents"]]
        version = [max((parent[side] for parent in parents), default=0) for side in (0, 1)]
        require(version[author] == len(made[author]), "an author does not see their own transactions in order")
        made[author].append(Transaction(version[1 - author], [(at, cut, put) for at, cut, put in item["patches"]]))
        version[author] += 1
        versions.append(version)
    return made


class Typist:
    """Types one author's transactions, letting in the other's as the recording says."""

    def __init__(self, client: StockClient, transactions: list[Transaction]) -> None:
        self._client = client
        self._transactions = transactions
        self._text = client.doc.get("text", type=pycrdt.Text)
        self._sent: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._let_in = 0
        self._news = asyncio.Event()
        self._subscription = client.doc.observe(self._made)
        self._typing = False
        client.on_update = self._arrived

    async def type(self, others: int) -> str:
        """The text when all is typed and durable, and all ``others`` transactions of the other one are let in."""
        for transaction in self._transactions:
            await self._hold(transaction.seen)
            self._typing = True
            with self._client.doc.transaction():
                for position, deleted, inserted in transaction.patches:
                    if deleted:
                        del self._text[position : position + deleted]
                    if inserted:
                        self._text.insert(position, inserted)
            self._typing = False
            await asyncio.sleep(0)
        await self._hold(others)
        while self._sent:
            await self._wait_for_news("an update to come back as saved")
        return str(self._text)

    async def _hold(self, seen: int) -> None:
        require(self._let_in <= seen, "the recording goes back to an earlier state")
        while self._let_in < seen:
            if not self._waiting:
                await self._wait_for_news("an update of the other author")
            while self._waiting and self._let_in < seen:
                self._client.doc.apply_update(self._waiting.popleft())
                self._let_in += 1

    async def _wait_for_news(self, what: str) -> None:
        self._news.clear()
        try:
            async with asyncio.timeout(_SILENCE_SECONDS):
                await self._news.wait()
        except TimeoutError:
            raise SystemExit(f"waited {_SILENCE_SECONDS:g} s for {what}") from None

    def _made(self, event: pycrdt.TransactionEvent) -> None:
        if self._typing:
            self._sent.append(event.update)
            self._client.send_update(event.update)

    def _arrived(self, update: bytes) -> None:
        """A server sends a stock client its own updates too, in order, once they are durable."""
        if self._sent and update == self._sent[0]:
            self._sent.popleft()
        else:
            self._waiting.append(update)
        self._news.set()


async def main(file: str, author: str, port: str, board: str) -> None:
    """Type one author's part when told to."""
    both = transactions_of_both(recording(file))
    mine, others = both[int(author)], both[1 - int(author)]
    # A bare pycrdt text counts bytes; in this recording they are the code points.
    require(
        all(put.isascii() for part in both for txn in part for _, _, put in txn.patches), f"{file} is not all ASCII"
    )
    async with stock_client(int(port), board, client_id=_CLIENT_IDS[int(author)]) as client:
        typist = Typist(client, mine)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        text = await typist.type(len(others))
    print(json.dumps({"text": text, "updates": len(mine)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
