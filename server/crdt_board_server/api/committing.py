"""The routes that commit to a board, without its model."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, NotFound
from crdt_board.fields import nearest_name
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.local import open_board
from crdt_board.store.lookup import existing_head
from crdt_board.wire_values import invalid_value
from crdt_board_server.api.answers import BoardViolation, CommitBody, DismissRequest, RestoreRequest, ViolationPage
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
        if wanted.reads is not None and if_match is None:
            raise BadRequest(
                "reads needs If-Match: the version that was read; without it nothing is known of what came since"
            )
        async with open_board(host, board_id, agent=wanted.agent) as board:
            check_fields([*wanted.patch, *(wanted.reads or ())], host, board_id)
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

    @routes.get(
        "/boards/{board_id}/violations",
        summary="The rules that the board's state breaks: what keeps commits from being made",
        responses=problem_responses(404, 410),
    )
    async def violations(board_id: BoardId) -> ViolationPage:
        await existing_head(host.store, check_board_id(board_id, host.limits))
        async with open_board(host, board_id, agent="api") as board:
            return ViolationPage(violations=[BoardViolation.of(each) for each in board.violations])

    @routes.post(
        "/boards/{board_id}/dismissals",
        status_code=204,
        summary="Drop a recorded violation although nothing was changed",
        description="An agent whose model has the rule, and finds it broken, records it again. Sizes stay.",
        responses=problem_responses(404, 409, 410),
    )
    async def dismiss(board_id: BoardId, wanted: DismissRequest) -> None:
        await existing_head(host.store, check_board_id(board_id, host.limits))
        async with open_board(host, board_id, agent=wanted.agent) as board:
            for each in board.violations:
                if each.key == wanted.key:
                    await board.dismiss(each)
                    return
        raise NotFound(f"no violation {wanted.key} stands on board {board_id}")


def check_fields(names: Sequence[str], host: BoardHost, board_id: str) -> None:
    """Refuse what is no field of a board that has a schema: it is a mistake, which nobody would read.

    Raises:
        InvalidValue: one of ``names`` is none.
    """
    fields = host.open_boards()[board_id].fields
    for name in names if fields else ():
        if name not in fields:
            raise invalid_value(name, f"the board has no such field{nearest_name(name, fields)}")
