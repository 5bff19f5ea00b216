"""What the demo learned from its agents while they worked, and a way to wait for something to have happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from crdt_board_demo import messages
from crdt_board_demo.processes import DemoFailed


@dataclass(slots=True)
class AgentRecord:
    """One agent, over all its processes."""

    starts: list[messages.Started] = field(default_factory=list)
    edits: Counter[str] = field(default_factory=Counter)
    """How often each edit was made: more than once where a process took an unsent one with it."""
    found: set[str] = field(default_factory=set)
    """Edits that a later process found on the board."""
    acknowledged: set[str] = field(default_factory=set)
    offline_edits: int = 0
    commits: list[messages.Committed] = field(default_factory=list)
    finished: messages.Finished | None = None
    online: bool = False
    _of_this_process: list[str] = field(default_factory=list)

    def take(self, message: messages.Message) -> None:
        match message:
            case messages.Started():
                self.starts.append(message)
                self.finished = None
                self.online = True
                self._of_this_process = []
            case messages.Edited():
                self.edits[message.id] += 1
                self.offline_edits += not message.online
                self._of_this_process.append(message.id)
            case messages.Found():
                self.found.add(message.id)
            case messages.Connection():
                self.online = message.online
            case messages.Committed():
                self.commits.append(message)
            case messages.Finished():
                self.finished = message
        if isinstance(message, messages.Edited | messages.Connection | messages.Committed | messages.Finished):
            self.acknowledged.update(self._of_this_process[: message.acknowledged])

    @property
    def durable(self) -> set[str]:
        """Edits that the server acknowledged, or showed to a later process of the agent."""
        return self.acknowledged | self.found


class Record:
    """All agents' records."""

    def __init__(self, agents: tuple[str, ...]) -> None:
        self.agents = {agent: AgentRecord() for agent in agents}
        self._changed = asyncio.Event()
        self._error: DemoFailed | None = None

    def take(self, agent: str, message: messages.Message) -> None:
        self.agents[agent].take(message)
        self._changed.set()

    def fail(self, error: DemoFailed) -> None:
        """End whoever waits: what is waited for will not happen."""
        self._error = self._error or error
        self._changed.set()

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Raises DemoFailed when that cannot happen any more."""
        while not is_true():
            self.check()
            self._changed.clear()
            await self._changed.wait()

    def check(self) -> None:
        """Raises the error that was given to `fail`, if any."""
        if self._error is not None:
            raise self._error

    def made(self, edit_id: str) -> bool:
        return any(edit_id in agent.edits for agent in self.agents.values())

    @property
    def offline_edits(self) -> int:
        return sum(agent.offline_edits for agent in self.agents.values())
