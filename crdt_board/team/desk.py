"""What all shells of this package need of a board: asking its writer, reading records, waiting for others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.coordination.ledger import Ledger
from crdt_board.coordination.operations import Operation
from crdt_board.errors import Unavailable


class Desk:
    """One agent's place at a board."""

    def __init__(self, session: BoardSession, agent: str) -> None:
        self.session = session
        self.agent = agent

    @property
    def ledger(self) -> Ledger:
        """The records as this replica holds them."""
        return self.session.replica.document.ledger

    async def ask(self, *operations: Operation) -> list[JsonValue]:
        """The writer's answers, in order; all operations are decided, or none. Durable on return.

        Raises what the writer refuses them with. Cancelling does not take them back.
        """
        self.session.check()
        return await self.session.link.coordinate(self.agent, operations)

    async def ask_one(self, operation: Operation, *, within: float | None = None) -> JsonValue:
        """As `ask_last`."""
        return await self.ask_last(operation, within=within)

    async def ask_last(self, *operations: Operation, within: float | None = None) -> JsonValue:
        """As `ask`, but only the last answer.

        Raises Unavailable when none came within so many seconds; the operations may be decided nevertheless.
        """
        if within is None:  # a timeout that never comes costs 10 µs
            return (await self.ask(*operations))[-1]
        try:
            async with asyncio.timeout(within):
                return (await self.ask(*operations))[-1]
        except TimeoutError:
            reason = self.session.link.failure
            raise Unavailable(
                f"no answer to {operations[-1].op} within {within:g} s" + (f": {reason}" if reason else "")
            ) from reason

    async def until(self, is_true: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until ``is_true``, which is called whenever this replica has moved. Raises TimeoutError."""
        await self.session.waiters.until(is_true, timeout)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run ``work`` in the background, until the board is closed at the latest."""
        return self.session.spawn(work, name)


def new_token() -> str:
    """A text by which the writer knows a claim again."""
    return secrets.token_hex(12)
