"""The routes for agents that work together: leases, tasks, and who is present."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query

from crdt_board.coordination.reactions import PATH_CHARS_MAX, ReactionState
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.coordination.task_record import TaskState
from crdt_board.team.task_info import Task
from crdt_board_server.api.parameters import BoardId, Limit, Version
from crdt_board_server.api.problems import problem_responses
from crdt_board_server.api.team_bodies import (
    AgentPage,
    BoardReaction,
    BreakAnswer,
    BreakLeaseRequest,
    CancelRequest,
    ClaimAnswer,
    ClaimRequest,
    ClearAnswer,
    ClearRequest,
    CompleteRequest,
    FailRequest,
    LeasePage,
    PutTaskRequest,
    ReactionPage,
    ReleaseAnswer,
    ReleaseRequest,
    RenewRequest,
    RetryReactionRequest,
    RetryRequest,
    TaskPage,
)
from crdt_board_server.rooms import Rooms
from crdt_board_server.teamwork import agents_of, decide, leases_of, reactions_of, tasks_of

_REFUSALS = problem_responses(404, 409, 410)

States = Annotated[list[TaskState] | None, Query(description="Only tasks in these; can be repeated.")]
ReactionStates = Annotated[list[ReactionState] | None, Query(description="Only reactions in these; can be repeated.")]
AfterReaction = Annotated[
    str, Query(max_length=NAME_CHARS_MAX + PATH_CHARS_MAX + 1, description="As the page before was answered with.")
]
Queue = Annotated[str | None, Query(min_length=1, max_length=NAME_CHARS_MAX, description="Only tasks of this queue.")]


def add_teamwork(routes: APIRouter, rooms: Rooms) -> None:
    """Add the routes to ``routes``, for the boards of ``rooms``."""
    host = rooms.host

    @routes.get("/boards/{board_id}/agents", summary="Who is on a board now", responses=problem_responses(404, 410))
    async def agents(board_id: BoardId) -> AgentPage:
        return AgentPage(agents=await agents_of(rooms, board_id))

    @routes.get("/boards/{board_id}/leases", summary="What is held now", responses=problem_responses(404, 410))
    async def leases(board_id: BoardId) -> LeasePage:
        return LeasePage(leases=await leases_of(host, board_id))

    @routes.post("/boards/{board_id}/leases/break", summary="Take a lease from whoever has it", responses=_REFUSALS)
    async def break_lease(board_id: BoardId, wanted: BreakLeaseRequest) -> BreakAnswer:
        return cast(BreakAnswer, await decide(host, board_id, wanted))

    @routes.get(
        "/boards/{board_id}/tasks",
        summary="Tasks, in the order in which they were put",
        responses=problem_responses(404, 410),
    )
    async def tasks(
        board_id: BoardId, state: States = None, queue: Queue = None, after: Version = 0, limit: Limit = 100
    ) -> TaskPage:
        return await tasks_of(host, board_id, states=state or [], queue=queue, after=after, limit=limit)

    @routes.post(
        "/boards/{board_id}/tasks",
        status_code=201,
        summary="Put a task on the board",
        description="With a `key` it is put once: a repeat with the same content is answered with the task as it is.",
        responses=_REFUSALS,
    )
    async def put(board_id: BoardId, wanted: PutTaskRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    _add_claims(routes, rooms)

    @routes.post("/boards/{board_id}/tasks/cancel", summary="Have nobody do a task", responses=_REFUSALS)
    async def cancel(board_id: BoardId, wanted: CancelRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    @routes.post("/boards/{board_id}/tasks/retry", summary="Open a failed or cancelled task again", responses=_REFUSALS)
    async def retry(board_id: BoardId, wanted: RetryRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    @routes.post(
        "/boards/{board_id}/tasks/clear",
        summary="Remove finished tasks",
        description="One that a blocked task waits for stays.",
        responses=_REFUSALS,
    )
    async def clear(board_id: BoardId, wanted: ClearRequest) -> ClearAnswer:
        return cast(ClearAnswer, await decide(host, board_id, wanted))

    @routes.get(
        "/boards/{board_id}/reactions",
        summary="What has run of reactions, at each place",
        responses=problem_responses(404, 410),
    )
    async def reactions(
        board_id: BoardId, state: ReactionStates = None, after: AfterReaction = "", limit: Limit = 100
    ) -> ReactionPage:
        return await reactions_of(host, board_id, states=state or [], after=after, limit=limit)

    @routes.post("/boards/{board_id}/reactions/retry", summary="Run a failed reaction again", responses=_REFUSALS)
    async def retry_reaction(board_id: BoardId, wanted: RetryReactionRequest) -> BoardReaction:
        return cast(BoardReaction, await decide(host, board_id, wanted))


def _add_claims(routes: APIRouter, rooms: Rooms) -> None:
    host = rooms.host

    @routes.post(
        "/boards/{board_id}/tasks/claim",
        summary="Claim the next open task",
        description="Answers at once, with null when there is none. The claim ends after `ttl` seconds unless it is "
        "renewed; the `token` of the answer renews and ends it.",
        responses=_REFUSALS,
    )
    async def claim(board_id: BoardId, wanted: ClaimRequest) -> ClaimAnswer:
        return cast(ClaimAnswer, await decide(host, board_id, wanted))

    @routes.post("/boards/{board_id}/tasks/renew", summary="Make a claim last longer", responses=_REFUSALS)
    async def renew(board_id: BoardId, wanted: RenewRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    @routes.post("/boards/{board_id}/tasks/complete", summary="A claimed task is done", responses=_REFUSALS)
    async def complete(board_id: BoardId, wanted: CompleteRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    @routes.post("/boards/{board_id}/tasks/fail", summary="An attempt has failed", responses=_REFUSALS)
    async def fail(board_id: BoardId, wanted: FailRequest) -> Task:
        return cast(Task, await decide(host, board_id, wanted))

    @routes.post("/boards/{board_id}/tasks/release", summary="Give a claimed task back", responses=_REFUSALS)
    async def release(board_id: BoardId, wanted: ReleaseRequest) -> ReleaseAnswer:
        return cast(ReleaseAnswer, await decide(host, board_id, wanted))
