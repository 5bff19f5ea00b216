"""The story of the demo: a team at work, its server killed, then one of the team killed, and what is left of it all."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crdt_board.errors import BoardError
from crdt_board.local import open_board
from crdt_board_demo import messages
from crdt_board_demo.checks import Audit, Check, Incidents, check_all
from crdt_board_demo.model import RESEARCHERS, TEAM, Migration
from crdt_board_demo.processes import AgentProcess, ChildProcess, DemoFailed, ServerProcess
from crdt_board_demo.record import Record
from crdt_board_demo.screen import Screen
from crdt_board_demo.script import Script

_STORY_SECONDS = 60.0
_OFFLINE_EDITS = 25
_OFFLINE_SECONDS = 2.0
_CHECKPOINTS_MAX = 1000
_VICTIM = RESEARCHERS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the demo found out."""

    board_id: str
    record: Record
    audit: Audit
    checks: list[Check]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)


async def perform(script: Script, database: Path, screen: Screen) -> Outcome:
    """Play the story on a new board in ``database``. No process is left when it ends, however it does.

    Raises:
        DemoFailed: a process ended that should not have, or the story took too long.
    """
    stage = _Stage(script, database, screen)
    try:
        async with asyncio.timeout(_STORY_SECONDS), stage:
            await stage.play()
    except TimeoutError:
        missing = [name for name, agent in stage.record.agents.items() if agent.finished is None]
        who = ", ".join(missing) or "the server"
        raise DemoFailed(f"the demo did not end within {_STORY_SECONDS:g} s; {who} had not finished") from None
    audit = await _audit(database, stage.board_id)
    checks = check_all(script, stage.record, stage.incidents, audit)
    return Outcome(board_id=stage.board_id, record=stage.record, audit=audit, checks=checks)


async def _audit(database: Path, board_id: str) -> Audit:
    """Read the board from its file alone, in this process."""
    try:
        async with open_board(database, board_id, Migration, agent="auditor") as board:
            checkpoints = (await board.checkpoints(limit=_CHECKPOINTS_MAX))[::-1]
            return Audit(state=board.snapshot(), state_at_last=await board.at(board.version), checkpoints=checkpoints)
    except BoardError as error:
        raise DemoFailed(f"{database} cannot be read: {error}") from error


@dataclass(slots=True)
class _Stage:
    """The running processes; leaving it ends them."""

    script: Script
    database: Path
    screen: Screen
    board_id: str = field(default_factory=lambda: f"demo-{secrets.token_hex(4)}")
    record: Record = field(default_factory=lambda: Record(TEAM))
    incidents: Incidents = field(default_factory=Incidents)
    server: ServerProcess | None = None
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    _watches: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *_error: object) -> None:
        for watch in self._watches.values():
            watch.cancel()
        children = [*self.agents.values(), *([self.server] if self.server else [])]
        await asyncio.gather(*(child.kill() for child in children))

    async def play(self) -> None:
        server = await self._start_server(0)
        for name in TEAM:
            await self._start_agent(name)
        steps = [*self.script.research[_VICTIM].values()]
        await self._reached(steps[0][2].id)
        await self._kill_server(server)
        server = await self._start_server(server.port)
        self.incidents.server_restarts += 1
        await self._reached(steps[1][2].id)
        await self._kill_agent(_VICTIM)
        await self._start_agent(_VICTIM)
        self.incidents.agent_restarts.append(_VICTIM)
        await self.record.until(lambda: all(agent.finished for agent in self.record.agents.values()))
        await asyncio.gather(*(watch for name, watch in self._watches.items() if name != server.name))
        self.record.check()
        self._unwatch(server)
        self.incidents.server_exit_code = await server.stop()
        self.screen.say("server", "stopped by SIGTERM")

    async def _reached(self, edit_id: str) -> None:
        await self.record.until(lambda: self.record.made(edit_id))

    async def _start_server(self, port: int) -> ServerProcess:
        self.server = await ServerProcess.start(self.database, port)
        self._watch(self.server)
        await self.server.listening()
        again = " again on the same port" if port else ""
        self.screen.say("server", f"pid {self.server.pid} listens{again} at {self.server.url}")
        return self.server

    async def _kill_server(self, server: ServerProcess) -> None:
        before = self.record.offline_edits
        self._unwatch(server)
        await server.kill()
        self.incidents.server_kills.append(await server.ended())
        self.screen.say("server", f"kill -9 of pid {server.pid} while everybody works")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_OFFLINE_SECONDS):
                await self.record.until(lambda: self.record.offline_edits >= before + _OFFLINE_EDITS)
        self.screen.say("server", f"still down; the team has made {self.record.offline_edits} edits without it")

    async def _start_agent(self, name: str) -> None:
        arguments = ["--url", self._url(), "--board", self.board_id, "--seed", str(self.script.seed)]
        agent = await AgentProcess.start(name, arguments, partial(self._take, name))
        self.agents[name] = agent
        self._watch(agent)

    async def _kill_agent(self, name: str) -> None:
        agent = self.agents[name]
        self._unwatch(agent)
        await agent.kill()
        self.incidents.agent_kills.append(name)
        self.screen.say(name, f"kill -9 of pid {agent.pid} in the middle of a step", alarm=True)

    def _watch(self, child: ChildProcess) -> None:
        """End the story when a process fails that nobody has killed."""

        async def watch() -> None:
            code = await child.ended()
            if code != 0:
                self.record.fail(DemoFailed(f"{child.name} ended with code {code}: {child.last_words}"))

        self._watches[child.name] = asyncio.create_task(watch(), name=f"watch over {child.name}")

    def _unwatch(self, child: ChildProcess) -> None:
        self._watches.pop(child.name).cancel()

    def _url(self) -> str:
        assert self.server is not None
        return self.server.url

    def _take(self, name: str, message: messages.Message) -> None:
        self.record.take(name, message)
        self.screen.show(name, message, durable=len(self.record.agents[name].durable))
