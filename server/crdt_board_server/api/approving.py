"""The routes of approvals: what was asked, and the answers of people."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query

from crdt_board.coordination.approvals import DecideApproval, State, WithdrawApproval
from crdt_board.coordination.records import NAME_CHARS_MAX, Name
from crdt_board.host import BoardHost
from crdt_board_server.api.approval_answers import (
    AllApprovalsPage,
    ApprovalPage,
    AskRequest,
    BoardApproval,
    DecisionRequest,
    ShownApproval,
    WithdrawalRequest,
)
from crdt_board_server.api.approval_lists import ApprovalLists
from crdt_board_server.api.parameters import AfterBoard, BoardId, IdempotencyKey, Limit
from crdt_board_server.api.problems import problem_responses

ApprovalPath = Annotated[Name, Path(max_length=NAME_CHARS_MAX, description="The approval's id.", examples=["ship-3"])]
InState = Annotated[State | None, Query(description="Only those in this state.")]


def add_approving(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, for the boards of ``host``."""
    lists = ApprovalLists(host)

    @routes.get(
        "/approvals",
        summary="Approvals of all boards",
        description="`limit` is how many boards are looked at; `after` goes on, also when nothing was found on them.",
        responses=problem_responses(),
    )
    async def all_approvals(state: InState = None, after: AfterBoard = "", limit: Limit = 100) -> AllApprovalsPage:
        found, go_on = await lists.page(after=after, limit=limit)
        return AllApprovalsPage(approvals=_in_state(found, state), after=go_on)

    @routes.get(
        "/boards/{board_id}/approvals",
        summary="What was asked on a board, in the order of asking",
        responses=problem_responses(404, 410),
    )
    async def approvals(board_id: BoardId, state: InState = None) -> ApprovalPage:
        return ApprovalPage(approvals=_in_state(await lists.of(board_id), state))

    @routes.post(
        "/boards/{board_id}/approvals",
        status_code=201,
        summary="Ask people to choose",
        description="With a `key` a question is asked once: a repeat is answered with the approval as it is then.",
        responses=problem_responses(404, 409, 410),
    )
    async def ask(board_id: BoardId, wanted: AskRequest) -> BoardApproval:
        return await lists.coordinate(board_id, wanted.agent, wanted.operation())

    @routes.post(
        "/boards/{board_id}/approvals/{approval_id:path}/decision",
        summary="Choose an option, once",
        description="A repeat with the same `Idempotency-Key` and body is answered with the decision that was made. "
        "Any other request on an approval that is not pending is refused: `approval_closed` tells how it ended.",
        responses=problem_responses(404, 409, 410),
    )
    async def decide(
        board_id: BoardId, approval_id: ApprovalPath, wanted: DecisionRequest, idempotency_key: IdempotencyKey = None
    ) -> BoardApproval:
        operation = DecideApproval(
            name=approval_id,
            option=wanted.option,
            comment=wanted.comment,
            seen=wanted.seen,
            token=secrets.token_hex(12) if idempotency_key is None else _token(wanted.agent, idempotency_key),
        )
        return await lists.coordinate(board_id, wanted.agent, operation)

    @routes.post(
        "/boards/{board_id}/approvals/{approval_id:path}/withdrawal",
        summary="Take a question back that needs no answer any more",
        responses=problem_responses(404, 409, 410),
    )
    async def withdraw(board_id: BoardId, approval_id: ApprovalPath, wanted: WithdrawalRequest) -> BoardApproval:
        return await lists.coordinate(board_id, wanted.agent, WithdrawApproval(name=approval_id))

    @routes.get(
        "/boards/{board_id}/approvals/{approval_id:path}",
        summary="One approval, with what it is about as it is now",
        responses=problem_responses(404, 410),
    )
    async def approval(board_id: BoardId, approval_id: ApprovalPath) -> ShownApproval:
        return await lists.one(board_id, approval_id)


def _in_state(approvals: list[BoardApproval], state: State | None) -> list[BoardApproval]:
    return [each for each in approvals if state in (None, each.state)]


def _token(agent: str, idempotency_key: str) -> str:
    return hashlib.sha256(f"{agent}\n{idempotency_key}".encode()).hexdigest()
