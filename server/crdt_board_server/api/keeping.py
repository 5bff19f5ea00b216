"""The routes about what a board takes, and what it keeps."""

from __future__ import annotations

from fastapi import APIRouter

from crdt_board.history import BoardHistory
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.sizes import BoardSizes
from crdt_board_server.api.answers import RetentionRules
from crdt_board_server.api.parameters import BoardId
from crdt_board_server.api.problems import problem_responses


def add_keeping(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, over the store of ``host``."""

    async def history_of(board_id: str) -> BoardHistory:
        return await BoardHistory.open(host.store, check_board_id(board_id, host.limits))

    @routes.get(
        "/boards/{board_id}/sizes",
        summary="How large a board is, field by field and in the store",
        responses=problem_responses(404, 410),
    )
    async def sizes(board_id: BoardId) -> BoardSizes:
        return await (await history_of(board_id)).sizes()

    @routes.get(
        "/boards/{board_id}/retention",
        summary="Which versions a board keeps by itself",
        responses=problem_responses(404, 410),
    )
    async def retention(board_id: BoardId) -> RetentionRules:
        return RetentionRules.of(await (await history_of(board_id)).retention())

    @routes.put(
        "/boards/{board_id}/retention",
        summary="Say which versions a board keeps",
        description="Applied by whoever has the board open, after every 10,000 entries; `{}` keeps all versions.",
        responses=problem_responses(404, 410),
    )
    async def set_retention(board_id: BoardId, wanted: RetentionRules) -> RetentionRules:
        await (await history_of(board_id)).set_retention(wanted.policy)
        return RetentionRules.of(wanted.policy)
