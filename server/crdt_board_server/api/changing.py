"""The routes that change whole boards."""

from __future__ import annotations

import tempfile
from typing import IO, Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.requests import ClientDisconnect

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, LimitExceeded
from crdt_board.exports import EXPORT_TYPE, file_errors
from crdt_board.forks import new_epoch
from crdt_board.history import BoardHistory, CompactionReport
from crdt_board.host import BoardHost
from crdt_board.imports import import_board
from crdt_board.limits import check_board_id
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.answers import (
    BoardInfo,
    CompactionRequest,
    ForkRequest,
    ImportedBoardInfo,
    MergeRequest,
    NewBoardRequest,
)
from crdt_board_server.api.parameters import Agent, BoardId
from crdt_board_server.api.problems import problem_responses


def add_changing(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, for the boards of ``host``."""

    @routes.post("/boards", status_code=201, summary="Make an empty board", responses=problem_responses(404, 409, 410))
    async def create(wanted: NewBoardRequest) -> BoardInfo:
        return BoardInfo.of(await host.create(wanted.board))

    @routes.delete(
        "/boards/{board_id}",
        status_code=204,
        summary="Delete a board with all that is stored of it",
        description="Whoever has it open is told; the name stays unusable until a board is made under it anew.",
        responses=problem_responses(404, 410),
    )
    async def delete(board_id: BoardId, agent: Agent = "api") -> None:
        await host.delete(board_id, agent=agent)

    @routes.post(
        "/boards/{board_id}/forks",
        status_code=201,
        summary="Make a board that begins at a version of this one",
        responses=problem_responses(404, 409, 410),
    )
    async def fork(board_id: BoardId, wanted: ForkRequest) -> Checkpoint:
        await existing_head(host.store, check_board_id(board_id, host.limits))
        async with host.board(board_id) as engine:
            version = engine.version if wanted.version is None else wanted.version
            return await engine.branching.fork(version, wanted.board, agent=wanted.agent, epoch=new_epoch())

    @routes.post(
        "/boards/{board_id}/merges",
        status_code=201,
        summary="Commit what a fork has and this board has not",
        description="When that is nothing, no version is made, and the answer is 200 with the newest one.",
        responses={200: {"model": Checkpoint}, **problem_responses(404, 409, 410)},
    )
    async def merge(board_id: BoardId, wanted: MergeRequest, response: Response) -> Checkpoint:
        before = await existing_head(host.store, check_board_id(board_id, host.limits))
        async with host.board(board_id) as engine:
            made = await engine.branching.merge(check_board_id(wanted.board, host.limits), agent=wanted.agent)
        if made.version <= before.version:
            response.status_code = 200
        return made

    @routes.post(
        "/boards/{board_id}/compact",
        summary="Squash what no version needs that is kept",
        description="The board may be in use. With `dry_run` the answer says what would go, and nothing is changed.",
        responses=problem_responses(404, 409, 410),
    )
    async def compact(board_id: BoardId, wanted: CompactionRequest) -> CompactionReport:
        history = await BoardHistory.open(host.store, check_board_id(board_id, host.limits))
        return await history.compact(wanted.own_policy, dry_run=wanted.dry_run)

    @routes.post(
        "/imports",
        status_code=201,
        summary="Make the board that an export holds, under its own name, with its artifacts",
        description="With `as` a copy of it under another name, with all versions; their hashes are others. "
        "`missing` are the pointers on the board to artifacts that are not in the file and not here.",
        responses=problem_responses(404, 409, 413),
        openapi_extra={"requestBody": {"required": True, "content": {EXPORT_TYPE: {"schema": {"type": "string"}}}}},
    )
    async def import_(
        request: Request, name: Annotated[str | None, Query(alias="as", description="A board id.")] = None
    ) -> ImportedBoardInfo:
        with file_errors(), tempfile.TemporaryFile() as file:
            await _spool(request, file, host.limits.import_bytes_max + host.limits.import_artifacts_bytes_max)
            made = await import_board(host.store, file, board_id=name, artifacts=host.artifacts, limits=host.limits)
            return ImportedBoardInfo.of_imported(made)


async def _spool(request: Request, file: IO[bytes], bytes_max: int) -> None:
    """Write the body of a request into a file, from the start of which it can be read then."""
    try:
        async for chunk in request.stream():
            file.write(chunk)
            if file.tell() > bytes_max:
                raise LimitExceeded(
                    f"an export of more than {bytes_max} bytes",
                    limit="import_artifacts_bytes_max",
                    value=file.tell(),
                    maximum=bytes_max,
                )
    except ClientDisconnect:
        raise BadRequest("the export was cut off, and nothing was made of it") from None
    file.seek(0)
