"""Where the command line finds leases, tasks and agents: in a database file, or at a server. Both answer alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import httpx

from crdt_board.coordination.reactions import ReactionState
from crdt_board.coordination.task_record import TaskState
from crdt_board.errors import BadRequest
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.team.task_info import Task
from crdt_board_server.api.team_bodies import (
    AgentPage,
    BoardAgent,
    BoardLease,
    BoardReaction,
    LeasePage,
    ReactionPage,
    TaskPage,
    TeamRequest,
)
from crdt_board_server.teamwork import decide, leases_of, reactions_of, tasks_of

_PAGE = 1_000


class TeamSource(Protocol):
    """A board that is not there raises `NotFound`."""

    async def decide(self, board_id: str, request: TeamRequest) -> Any:
        """What ``request.answer`` makes of the writer's answer."""
        ...

    async def leases(self, board_id: str) -> list[BoardLease]: ...

    async def tasks(
        self, board_id: str, *, states: Sequence[TaskState], queue: str | None, limit: int
    ) -> list[Task]: ...

    async def reactions(self, board_id: str, *, states: Sequence[ReactionState], limit: int) -> list[BoardReaction]: ...

    async def agents(self, board_id: str) -> list[BoardAgent]: ...


class StoreTeam:
    """Those of the boards of a store in this process."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host

    async def decide(self, board_id: str, request: TeamRequest) -> Any:
        return await decide(self._host, board_id, request)

    async def leases(self, board_id: str) -> list[BoardLease]:
        return await leases_of(self._host, board_id)

    async def tasks(self, board_id: str, *, states: Sequence[TaskState], queue: str | None, limit: int) -> list[Task]:
        return (await tasks_of(self._host, board_id, states=states, queue=queue, after=0, limit=limit)).tasks

    async def reactions(self, board_id: str, *, states: Sequence[ReactionState], limit: int) -> list[BoardReaction]:
        return (await reactions_of(self._host, board_id, states=states, after="", limit=limit)).reactions

    async def agents(self, board_id: str) -> list[BoardAgent]:
        raise BadRequest(f"who is on board {check_board_id(board_id)} is not in a file: ask a server, with --url")


class ServerTeam:
    """Those of the boards of a server, over its HTTP API."""

    def __init__(self, ask: Callable[..., Awaitable[httpx.Response]]) -> None:
        self._ask = ask

    async def decide(self, board_id: str, request: TeamRequest) -> Any:
        body = request.model_dump(mode="json")
        answer = await self._ask("POST", f"/api/boards/{check_board_id(board_id)}/{request.route}", json=body)
        return request.answer_type.model_validate_json(answer.content)

    async def leases(self, board_id: str) -> list[BoardLease]:
        answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/leases")
        return LeasePage.model_validate_json(answer.content).leases

    async def tasks(self, board_id: str, *, states: Sequence[TaskState], queue: str | None, limit: int) -> list[Task]:
        wanted: dict[str, Any] = {"state": list(states), **({} if queue is None else {"queue": queue})}
        found: list[Task] = []
        after: int | None = 0
        while after is not None and len(found) < limit:
            page_size = min(_PAGE, limit - len(found))
            parameters = {**wanted, "after": after, "limit": page_size}
            answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/tasks", params=parameters)
            page = TaskPage.model_validate_json(answer.content)
            found, after = [*found, *page.tasks], page.after
        return found

    async def reactions(self, board_id: str, *, states: Sequence[ReactionState], limit: int) -> list[BoardReaction]:
        found: list[BoardReaction] = []
        after: str | None = ""
        while after is not None and len(found) < limit:
            parameters = {"state": list(states), "after": after, "limit": min(_PAGE, limit - len(found))}
            answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/reactions", params=parameters)
            page = ReactionPage.model_validate_json(answer.content)
            found, after = [*found, *page.reactions], page.after
        return found

    async def agents(self, board_id: str) -> list[BoardAgent]:
        answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/agents")
        return AgentPage.model_validate_json(answer.content).agents
