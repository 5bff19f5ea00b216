"""How an agent of the demo works: edits at a human pace, commits that happen once, and tells of both."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from crdt_board.board import Board
from crdt_board_demo import messages
from crdt_board_demo.model import Migration

_WATCH_SECONDS = 0.05
_CHECKPOINTS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A piece of work that ends with a checkpoint.

    ``run`` must skip what is on the board already: it is run again when its process died in the middle. ``status`` is
    set by the commit itself; an ``exclusive`` step is committed only if nobody else changed the status meanwhile.
    """

    name: str
    run: Callable[[Worker], Awaitable[None]]
    status: str | None = None
    exclusive: bool = False


class Worker:
    """An agent at work on a board."""

    def __init__(self, board: Board[Migration], chance: random.Random) -> None:
        self.board = board
        self._chance = chance
        self._edits = 0

    @property
    def online(self) -> bool:
        return self.board.failure is None

    @property
    def acknowledged(self) -> int:
        """How many of this process's edits are durable: each is one update, and they become durable in order."""
        return self._edits - self.board.unacknowledged

    async def work_off(self, steps: list[Step]) -> None:
        """Do the steps that the checkpoints do not show as finished by this agent."""
        recorded = await self.board.checkpoints(limit=_CHECKPOINTS_MAX)
        done = tuple(made.step for made in reversed(recorded) if made.agent == self.board.agent)
        tell(messages.Started(pid=os.getpid(), version=self.board.version, steps_done=done))
        for step in steps:
            if step.name not in done:
                await self._perform(step)

    async def edit(
        self, edit_id: str, change: Callable[[], None], *, done: bool, seconds: float, note: str = ""
    ) -> None:
        """Make one edit, which is one update of the replica, unless it is ``done``; then pause about ``seconds``."""
        if done:
            tell(messages.Found(id=edit_id))
            return
        change()
        self._edits += 1
        tell(messages.Edited(id=edit_id, online=self.online, acknowledged=self.acknowledged))
        if note:
            self.note(note)
        await asyncio.sleep(seconds * self._chance.uniform(0.6, 1.4))

    def note(self, text: str) -> None:
        tell(messages.Noted(text=text))

    async def watch_connection(self) -> None:
        """Tell when the connection goes and comes back, until cancelled."""
        online = True
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self.online != online:
                online = self.online
                tell(messages.Connection(online=online, acknowledged=self.acknowledged))

    async def _perform(self, step: Step) -> None:
        key = f"{self.board.agent}/{step.name}"
        patch = None if step.status is None else {"status": step.status}

        async def unchanged(_state: Migration) -> dict[str, str] | None:
            return patch

        self.board.announce(step=step.name)
        await step.run(self)
        if step.exclusive:
            made = await self.board.attempt(unchanged, step=step.name, reads=["status"], idempotency_key=key)
        else:
            made = await self.board.commit(step.name, patch=patch, idempotency_key=key)
        done = self.acknowledged
        tell(messages.Committed(version=made.version, step=made.step, hash=made.hash, acknowledged=done))


def tell(message: messages.Message) -> None:
    """Write one line for the demo at once, so that a process that is killed has told all that it did."""
    sys.stdout.buffer.write(messages.encode(message))
    sys.stdout.buffer.flush()
