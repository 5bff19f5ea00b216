"""The routes that read boards. They need no open board: they go to the store, and what is not there stays so."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, BinaryIO, cast

from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from crdt_board.exports import EXPORT_SUFFIX, EXPORT_TYPE, export_board
from crdt_board.history import BoardHistory, StateDiff, Verification
from crdt_board.host import BoardHost
from crdt_board.journal import Entry
from crdt_board.limits import check_board_id
from crdt_board.store.contract import Store
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.answers import (
    BlamePage,
    BoardInfo,
    BoardPage,
    BoardState,
    CheckpointPage,
    EditPage,
    ForkPage,
    JournalEntry,
    JournalPage,
)
from crdt_board_server.api.parameters import AfterBoard, BoardId, FieldPath, Limit, Version
from crdt_board_server.api.problems import problem_responses

_ENTRIES_AT_ONCE = 50

WithArtifacts = Annotated[bool, Query(description="Whether the content of its artifacts is in the file.")]


def add_reading(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, over the store of ``host``."""

    async def history_of(board_id: str) -> BoardHistory:
        return await BoardHistory.open(host.store, check_board_id(board_id, host.limits))

    @routes.get("/boards", summary="All boards", responses=problem_responses())
    async def boards(after: AfterBoard = "", limit: Limit = 100) -> BoardPage:
        heads = await host.store.boards(after=after, limit=limit)
        return BoardPage(
            boards=[BoardInfo.of(head) for head in heads], after=heads[-1].board_id if len(heads) == limit else None
        )

    @routes.get("/boards/{board_id}", summary="Where a board's journal ends", responses=problem_responses(404, 410))
    async def board(board_id: BoardId) -> BoardInfo:
        return BoardInfo.of(await existing_head(host.store, check_board_id(board_id, host.limits)))

    @routes.get(
        "/boards/{board_id}/state",
        summary="What a board holds, or held at a version",
        responses=problem_responses(404, 410),
    )
    async def state(board_id: BoardId, response: Response, version: Version | None = None) -> BoardState:
        found = await (await history_of(board_id)).state(version)
        response.headers["ETag"] = f'"{found.version}"'
        return BoardState(
            board=board_id, seq=found.seq, version=found.version, checkpoint=found.checkpoint, state=found.state
        )

    @routes.get(
        "/boards/{board_id}/checkpoints", summary="Checkpoints, newest first", responses=problem_responses(404, 410)
    )
    async def checkpoints(board_id: BoardId, before: Version | None = None, limit: Limit = 100) -> CheckpointPage:
        await history_of(board_id)
        found = await host.store.checkpoints(board_id, before=before, limit=limit)
        return CheckpointPage(
            checkpoints=found, before=found[-1].version if len(found) == limit and found[-1].version > 1 else None
        )

    @routes.get(
        "/boards/{board_id}/journal",
        summary="Entries of the journal",
        description="With `payload` a page ends before it holds more than 4 MiB of updates; go on at `after`.",
        responses=problem_responses(404, 410),
    )
    async def journal(board_id: BoardId, after: Version = 0, limit: Limit = 100, payload: bool = False) -> JournalPage:
        await history_of(board_id)
        most = host.limits.journal_page_bytes_max if payload else None
        found, goes_on = await _entries(host.store, board_id, after=after, limit=limit, bytes_max=most)
        return JournalPage(
            entries=[JournalEntry.of(entry, payload=payload) for entry in found],
            after=found[-1].seq if goes_on else None,
        )

    @routes.get(
        "/boards/{board_id}/diff",
        summary="What differs between two versions",
        description="Without `after`: up to what the board holds now. Version 0 is the empty board.",
        responses=problem_responses(404, 410),
    )
    async def diff(board_id: BoardId, before: Version, after: Version | None = None) -> StateDiff:
        return await (await history_of(board_id)).diff(before, after)

    @routes.get(
        "/boards/{board_id}/history",
        summary="Who changed a path, when, and in which step",
        responses=problem_responses(404, 410),
    )
    async def edits(board_id: BoardId, path: FieldPath, before: Version | None = None, limit: Limit = 100) -> EditPage:
        found = await (await history_of(board_id)).edits(path, before=before, limit=limit)
        return EditPage(edits=found, before=found[-1].seq if len(found) == limit else None)

    @routes.get(
        "/boards/{board_id}/blame",
        summary="Who wrote each stretch of a text",
        responses=problem_responses(404, 410),
    )
    async def blame(board_id: BoardId, path: FieldPath, version: Version | None = None) -> BlamePage:
        return BlamePage(stretches=await (await history_of(board_id)).blame(path, version))

    @routes.get(
        "/boards/{board_id}/verify",
        summary="Compare everything that is stored of a board with what it should be",
        responses=problem_responses(404, 410),
    )
    async def verify(board_id: BoardId) -> Verification:
        return await (await history_of(board_id)).verify()

    @routes.get("/boards/{board_id}/forks", summary="The forks of a board", responses=problem_responses(404, 410))
    async def forks(board_id: BoardId) -> ForkPage:
        return ForkPage(forks=await (await history_of(board_id)).forks())

    @routes.get(
        "/boards/{board_id}/export",
        summary="The whole board as one file that checks itself",
        description="With the artifacts that it points to; when one of them is missing or damaged, this is refused.",
        response_class=FileResponse,
        responses={200: {"content": {EXPORT_TYPE: {}}}, **problem_responses(404, 409, 410, 500)},
    )
    async def export(board_id: BoardId, artifacts: WithArtifacts = True) -> FileResponse:
        await history_of(board_id)
        with tempfile.NamedTemporaryFile(prefix="crdt-board-", suffix=".export", delete=False) as file:
            remove = BackgroundTask(Path(file.name).unlink)
            try:
                place = host.artifacts if artifacts else None
                await export_board(host.store, board_id, cast(BinaryIO, file), artifacts=place)
            except BaseException:
                await remove()
                raise
        return FileResponse(file.name, media_type=EXPORT_TYPE, filename=f"{board_id}{EXPORT_SUFFIX}", background=remove)


async def _entries(
    store: Store, board_id: str, *, after: int, limit: int, bytes_max: int | None
) -> tuple[list[Entry], bool]:
    """Up to ``limit`` entries after one, the first and as many more as have ``bytes_max`` of updates together; and
    whether there may be more. Few are read at a time, since a single one may be large."""
    found: list[Entry] = []
    size = 0
    while len(found) < limit:
        wanted = min(_ENTRIES_AT_ONCE, limit - len(found))
        page = await store.entries(board_id, after=found[-1].seq if found else after, limit=wanted)
        for entry in page:
            size += len(entry.payload)
            if bytes_max is not None and found and size > bytes_max:
                return found, True
            found.append(entry)
        if len(page) < wanted:
            return found, False
    return found, True
