"""The routes of boards. Reads need no open board: they go to the store, and a board that is not there stays so."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi import Path as PathParameter

from crdt_board.errors import NotFound
from crdt_board.history import BoardHistory, StateDiff, Verification
from crdt_board.host import BoardHost
from crdt_board.limits import DEFAULT_LIMITS, check_board_id
from crdt_board_server.api.answers import (
    BlamePage,
    BoardInfo,
    BoardPage,
    BoardState,
    CheckpointPage,
    EditPage,
    JournalEntry,
    JournalPage,
)
from crdt_board_server.api.problems import problem_responses

_NUMBER_MAX = 2**53 - 1
_PATH_CHARS_MAX = 1_000

BoardId = Annotated[str, PathParameter(description="The board.", examples=["job-884"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
AfterBoard = Annotated[str, Query(max_length=DEFAULT_LIMITS.board_id_chars_max, description="A board id.")]
Version = Annotated[int, Query(ge=0, le=_NUMBER_MAX)]
FieldPath = Annotated[
    str,
    Query(
        min_length=1,
        max_length=_PATH_CHARS_MAX,
        description="A field, or a key or record inside one, as in findings/f1/title.",
        examples=["draft"],
    ),
]


def board_routes(host: BoardHost) -> APIRouter:
    """The routes under ``/api``, over the store of ``host``."""
    routes = APIRouter(prefix="/api", tags=["boards"])

    async def history_of(board_id: str) -> BoardHistory:
        return await BoardHistory.open(host.store, check_board_id(board_id, host.limits))

    @routes.get("/boards", summary="All boards", responses=problem_responses())
    async def boards(after: AfterBoard = "", limit: Limit = 100) -> BoardPage:
        heads = await host.store.boards(after=after, limit=limit)
        return BoardPage(
            boards=[BoardInfo.of(head) for head in heads], after=heads[-1].board_id if len(heads) == limit else None
        )

    @routes.get("/boards/{board_id}", summary="Where a board's journal ends", responses=problem_responses(404))
    async def board(board_id: BoardId) -> BoardInfo:
        head = await host.store.head(check_board_id(board_id, host.limits))
        if head is None:
            raise NotFound(f"there is no board {board_id}", board_id=board_id)
        return BoardInfo.of(head)

    @routes.get(
        "/boards/{board_id}/state",
        summary="What a board holds, or held at a version",
        responses=problem_responses(404),
    )
    async def state(board_id: BoardId, response: Response, version: Version | None = None) -> BoardState:
        found = await (await history_of(board_id)).state(version)
        response.headers["ETag"] = f'"{found.version}"'
        return BoardState(
            board=board_id, seq=found.seq, version=found.version, checkpoint=found.checkpoint, state=found.state
        )

    @routes.get("/boards/{board_id}/checkpoints", summary="Checkpoints, newest first", responses=problem_responses(404))
    async def checkpoints(board_id: BoardId, before: Version | None = None, limit: Limit = 100) -> CheckpointPage:
        await history_of(board_id)
        found = await host.store.checkpoints(board_id, before=before, limit=limit)
        return CheckpointPage(
            checkpoints=found, before=found[-1].version if len(found) == limit and found[-1].version > 1 else None
        )

    @routes.get("/boards/{board_id}/journal", summary="Entries of the journal", responses=problem_responses(404))
    async def journal(board_id: BoardId, after: Version = 0, limit: Limit = 100, payload: bool = False) -> JournalPage:
        await history_of(board_id)
        found = await host.store.entries(board_id, after=after, limit=limit)
        return JournalPage(
            entries=[JournalEntry.of(entry, payload=payload) for entry in found],
            after=found[-1].seq if len(found) == limit else None,
        )

    @routes.get(
        "/boards/{board_id}/diff",
        summary="What differs between two versions",
        description="Without `after`: up to what the board holds now. Version 0 is the empty board.",
        responses=problem_responses(404),
    )
    async def diff(board_id: BoardId, before: Version, after: Version | None = None) -> StateDiff:
        return await (await history_of(board_id)).diff(before, after)

    @routes.get(
        "/boards/{board_id}/history",
        summary="Who changed a path, when, and in which step",
        responses=problem_responses(400, 404),
    )
    async def edits(board_id: BoardId, path: FieldPath, before: Version | None = None, limit: Limit = 100) -> EditPage:
        found = await (await history_of(board_id)).edits(path, before=before, limit=limit)
        return EditPage(edits=found, before=found[-1].seq if len(found) == limit else None)

    @routes.get(
        "/boards/{board_id}/blame",
        summary="Who wrote each stretch of a text",
        responses=problem_responses(400, 404),
    )
    async def blame(board_id: BoardId, path: FieldPath, version: Version | None = None) -> BlamePage:
        return BlamePage(stretches=await (await history_of(board_id)).blame(path, version))

    @routes.get(
        "/boards/{board_id}/verify",
        summary="Compare everything that is stored of a board with what it should be",
        responses=problem_responses(404),
    )
    async def verify(board_id: BoardId) -> Verification:
        return await (await history_of(board_id)).verify()

    return routes
