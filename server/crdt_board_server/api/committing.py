"""The routes that commit to a board, without its model."""

from __future__ import annotations

from fastapi import APIRouter, Response

from crdt_board.checkpoints import Checkpoint
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.local import open_board
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.answers import CommitBody, RestoreRequest
from crdt_board_server.api.parameters import BoardId, IdempotencyKey, IfMatch, version_of
from crdt_board_server.api.problems import problem_responses


def add_committing(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, for the boards of ``host``."""

    @routes.post(
        "/boards/{board_id}/commits",
        status_code=201,
        summary="Make a checkpoint, with a patch on top of what the board holds",
        description="`If-Match` names the version that must be the newest, as in the `ETag` of the state; without it "
        "the commit merges. A repeat with the same `Idempotency-Key` and body is answered with the first result.",
        responses=problem_responses(404, 409, 410),
    )
    async def commit(
        board_id: BoardId,
        wanted: CommitBody,
        response: Response,
        if_match: IfMatch = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Checkpoint:
        await existing_head(host.store, check_board_id(board_id, host.limits))
        async with open_board(host, board_id, agent=wanted.agent) as board:
            made = await board.commit(
                wanted.step,
                patch=wanted.patch,
                expected_version=version_of(if_match),
                reads=wanted.reads,
                idempotency_key=idempotency_key,
                output=wanted.output,
                confidence=wanted.confidence,
                trace=wanted.trace,
                handoff=wanted.handoff,
                tags=wanted.tags,
            )
        response.headers["ETag"] = f'"{made.version}"'
        return made

    @routes.post(
        "/boards/{board_id}/restores",
        status_code=201,
        summary="Commit the state of a version as a new version",
        responses=problem_responses(404, 409, 410),
    )
    async def restore(board_id: BoardId, wanted: RestoreRequest) -> Checkpoint:
        await existing_head(host.store, check_board_id(board_id, host.limits))
        async with open_board(host, board_id, agent=wanted.agent) as board:
            return await board.restore(wanted.version)
