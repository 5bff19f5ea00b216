"""The boards of a server, as the command line reads them over the HTTP API."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, TypeVar

import httpx
from pydantic import BaseModel

from crdt_board.artifacts.contract import CHUNK_BYTES
from crdt_board.artifacts.threads import in_thread
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BoardError, ConnectionFailed, from_details
from crdt_board.exports import EXPORT_TYPE, file_errors
from crdt_board.history import CompactionReport, Fork, PathEdit, Retention, StateDiff, Stretch, Verification
from crdt_board.limits import check_board_id
from crdt_board.sizes import BoardSizes
from crdt_board_server.api.answers import (
    BlamePage,
    BoardInfo,
    BoardPage,
    BoardState,
    BoardViolation,
    CheckpointPage,
    EditPage,
    ForkPage,
    ImportedBoardInfo,
    RetentionRules,
    ViolationPage,
    WatchedEntry,
)
from crdt_board_server.approval_sources import ApprovalSource, ServedApprovals
from crdt_board_server.effect_sources import EffectSource, ServedEffects
from crdt_board_server.sources import Progress
from crdt_board_server.team_sources import ServerTeam, TeamSource

_Answer = TypeVar("_Answer", bound=BaseModel)

_PAGE = 1_000
_SECONDS = 30.0
_COMPACTION_SECONDS = 3600.0
_FILE_TIMEOUT = httpx.Timeout(_SECONDS, read=3600.0)
"""A server puts a whole export together before it answers, and answers when it has made all of one."""


@contextlib.asynccontextmanager
async def open_server(address: str) -> AsyncIterator[ServerSource]:
    """The boards of the server at an ``http`` address."""
    async with httpx.AsyncClient(base_url=address, timeout=_SECONDS) as client:
        yield ServerSource(client, address)


class ServerSource:
    """The boards of a server, over its HTTP API."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address
        self.approvals: ApprovalSource = ServedApprovals(self._ask)
        self.team: TeamSource = ServerTeam(self._ask)
        self.effects: EffectSource = ServedEffects(self._ask)

    @property
    def failure(self) -> None:
        return None

    async def boards(self) -> list[BoardInfo]:
        found: list[BoardInfo] = []
        after: str | None = ""
        while after is not None:
            page = await self._get(BoardPage, "/api/boards", after=after, limit=_PAGE)
            found, after = [*found, *page.boards], page.after
        return found

    async def board(self, board_id: str) -> BoardInfo:
        return await self._get(BoardInfo, f"/api/boards/{check_board_id(board_id)}")

    async def state(self, board_id: str, version: int | None) -> BoardState:
        return await self._get(BoardState, f"/api/boards/{check_board_id(board_id)}/state", version=version)

    async def checkpoints(self, board_id: str, limit: int) -> list[Checkpoint]:
        path = f"/api/boards/{check_board_id(board_id)}/checkpoints"
        return (await self._get(CheckpointPage, path, limit=limit)).checkpoints

    async def edits(self, board_id: str, path: str, limit: int) -> list[PathEdit]:
        address = f"/api/boards/{check_board_id(board_id)}/history"
        return (await self._get(EditPage, address, path=path, limit=limit)).edits

    async def diff(self, board_id: str, before: int, after: int | None) -> StateDiff:
        return await self._get(StateDiff, f"/api/boards/{check_board_id(board_id)}/diff", before=before, after=after)

    async def blame(self, board_id: str, path: str, version: int | None) -> list[Stretch]:
        address = f"/api/boards/{check_board_id(board_id)}/blame"
        return (await self._get(BlamePage, address, path=path, version=version)).stretches

    async def verify(self, board_id: str, on_progress: Progress) -> Verification:
        return await self._get(Verification, f"/api/boards/{check_board_id(board_id)}/verify")

    async def sizes(self, board_id: str) -> BoardSizes:
        return await self._get(BoardSizes, f"/api/boards/{check_board_id(board_id)}/sizes")

    async def create(self, board_id: str) -> BoardInfo:
        answer = await self._ask("POST", "/api/boards", json={"board": board_id})
        return BoardInfo.model_validate_json(answer.content)

    async def delete(self, board_id: str, agent: str) -> None:
        await self._ask("DELETE", f"/api/boards/{check_board_id(board_id)}", params={"agent": agent})

    async def forks(self, board_id: str) -> list[Fork]:
        return (await self._get(ForkPage, f"/api/boards/{check_board_id(board_id)}/forks")).forks

    async def fork(self, board_id: str, version: int | None, name: str, agent: str) -> Checkpoint:
        body = {"board": name, "version": version, "agent": agent}
        answer = await self._ask("POST", f"/api/boards/{check_board_id(board_id)}/forks", json=body)
        return Checkpoint.model_validate_json(answer.content)

    async def merge(self, board_id: str, fork: str, agent: str) -> Checkpoint:
        body = {"board": fork, "agent": agent}
        answer = await self._ask("POST", f"/api/boards/{check_board_id(board_id)}/merges", json=body)
        return Checkpoint.model_validate_json(answer.content)

    async def restore(self, board_id: str, version: int, agent: str) -> Checkpoint:
        body = {"version": version, "agent": agent}
        answer = await self._ask("POST", f"/api/boards/{check_board_id(board_id)}/restores", json=body)
        return Checkpoint.model_validate_json(answer.content)

    async def violations(self, board_id: str) -> list[BoardViolation]:
        return (await self._get(ViolationPage, f"/api/boards/{check_board_id(board_id)}/violations")).violations

    async def dismiss(self, board_id: str, key: str, agent: str) -> None:
        body = {"key": key, "agent": agent}
        await self._ask("POST", f"/api/boards/{check_board_id(board_id)}/dismissals", json=body)

    async def watch(self, board_id: str, after: int) -> AsyncIterator[WatchedEntry]:
        address = f"/api/boards/{check_board_id(board_id)}/events"
        try:
            async with self._client.stream("GET", address, params={"after": after}, timeout=None) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self._problem(answer)
                event = ""
                async for line in answer.aiter_lines():
                    name, _, value = line.partition(": ")
                    if name == "event":
                        event = value
                    elif name == "data" and event == "error":
                        raise from_details(json.loads(value))
                    elif name == "data":
                        yield WatchedEntry.model_validate_json(value)
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    async def export(
        self, board_id: str, file: BinaryIO, on_progress: Progress, *, with_artifacts: bool = True
    ) -> None:
        address = f"/api/boards/{check_board_id(board_id)}/export"
        wanted = {"artifacts": with_artifacts}
        done = 0
        try:
            async with self._client.stream("GET", address, params=wanted, timeout=_FILE_TIMEOUT) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise self._problem(answer)
                size = int(answer.headers["content-length"])
                async for chunk in answer.aiter_bytes(CHUNK_BYTES):
                    with file_errors():
                        await in_thread(file.write, chunk)
                    done += len(chunk)
                    on_progress(done, size)
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    async def retention(self, board_id: str) -> Retention:
        return (await self._get(RetentionRules, f"/api/boards/{check_board_id(board_id)}/retention")).policy

    async def set_retention(self, board_id: str, policy: Retention) -> None:
        address = f"/api/boards/{check_board_id(board_id)}/retention"
        await self._ask("PUT", address, json=RetentionRules.of(policy).model_dump())

    async def compact(
        self, board_id: str, policy: Retention | None, *, dry_run: bool, on_progress: Progress
    ) -> CompactionReport:
        rules = {} if policy is None else RetentionRules.of(policy).model_dump()
        address = f"/api/boards/{check_board_id(board_id)}/compact"
        body = {**rules, "dry_run": dry_run}
        answer = await self._ask("POST", address, json=body, timeout=_COMPACTION_SECONDS)
        on_progress(1, 1)
        return CompactionReport.model_validate_json(answer.content)

    async def import_(self, file: BinaryIO, on_progress: Progress, *, board_id: str | None = None) -> ImportedBoardInfo:
        answer = await self._ask(
            "POST",
            "/api/imports",
            params={} if board_id is None else {"as": board_id},
            content=_content_of(file, on_progress),
            headers={"content-type": EXPORT_TYPE},
            timeout=_FILE_TIMEOUT,
        )
        return ImportedBoardInfo.model_validate_json(answer.content)

    async def _get(self, kind: type[_Answer], address: str, **parameters: Any) -> _Answer:
        given = {name: value for name, value in parameters.items() if value is not None}
        return kind.model_validate_json((await self._ask("GET", address, params=given)).content)

    async def _ask(self, method: str, address: str, **content: Any) -> httpx.Response:
        try:
            answer = await self._client.request(method, address, **content)
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        if answer.is_success:
            return answer
        raise self._problem(answer)

    def _lost(self, error: httpx.HTTPError) -> ConnectionFailed:
        reason = str(error) or type(error).__name__
        if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return ConnectionFailed(f"lost {self._address}: {reason}")
        return ConnectionFailed(
            f"no CRDT Board server answers at {self._address} ({reason}); start one with `crdt-board serve`"
        )

    def _problem(self, answer: httpx.Response) -> BoardError:
        if answer.headers.get("content-type", "").startswith("application/problem+json"):
            problem = answer.json()
            return from_details({"code": problem["code"], "message": problem["detail"], "data": problem.get("data")})
        return ConnectionFailed(f"{self._address} answered {answer.status_code}: is it a CRDT Board server?")


async def _content_of(file: BinaryIO, on_progress: Progress) -> AsyncIterator[bytes]:
    """The bytes of a file, told as they are sent; of a pipe nobody knows how many there are."""
    size, done = 0, 0
    with contextlib.suppress(OSError):
        size = os.fstat(file.fileno()).st_size
    while chunk := await in_thread(file.read, CHUNK_BYTES):
        yield chunk
        done += len(chunk)
        on_progress(done, max(size, done))
