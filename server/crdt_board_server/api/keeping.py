"""The routes about what a board takes, and what it keeps."""

from __future__ import annotations

from fastapi import APIRouter

from crdt_board.history import BoardHistory
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.sizes import BoardSizes
from crdt_board_server.api.parameters import BoardId
from crdt_board_server.api.problems import problem_responses


def add_keeping(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, over the store of ``host``."""

    @routes.get(
        "/boards/{board_id}/sizes",
        summary="How large a board is, field by field and in the store",
        responses=problem_responses(404, 410),
    )
    async def sizes(board_id: BoardId) -> BoardSizes:
        return await (await BoardHistory.open(host.store, check_board_id(board_id, host.limits))).sizes()
