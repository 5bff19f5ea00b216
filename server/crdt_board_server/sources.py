"""Where the command line reads boards: a database file, or a server by its address. Both give the same answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import httpx
from pydantic import BaseModel

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, BoardError, ConnectionFailed, NotFound, from_details
from crdt_board.exports import EXPORT_TYPE, export_board, import_board
from crdt_board.forks import new_epoch
from crdt_board.history import (
    BoardHistory,
    CompactionReport,
    Fork,
    PathEdit,
    Retention,
    StateDiff,
    Stretch,
    Verification,
)
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.local import open_board
from crdt_board.store.lookup import existing_head
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.api.answers import (
    BlamePage,
    BoardInfo,
    BoardPage,
    BoardState,
    BoardViolation,
    CheckpointPage,
    CompactionRequest,
    EditPage,
    ForkPage,
    JournalEntry,
    ViolationPage,
)
from crdt_board_server.team_sources import ServerTeam, StoreTeam, TeamSource

_Answer = TypeVar("_Answer", bound=BaseModel)

_PAGE = 1_000
_SECONDS = 30.0
_POLL_SECONDS = 0.2
_COMPACTION_SECONDS = 3600.0

Progress = Callable[[int, int], None]
"""Called with how much of how much is done."""


class Source(Protocol):
    """Boards to look at. A board that is not there raises `NotFound`."""

    @property
    def team(self) -> TeamSource:
        """Their leases, tasks and agents."""
        ...

    async def boards(self) -> list[BoardInfo]: ...

    async def board(self, board_id: str) -> BoardInfo: ...

    async def state(self, board_id: str, version: int | None) -> BoardState: ...

    async def checkpoints(self, board_id: str, limit: int) -> list[Checkpoint]:
        """The newest ``limit``, newest first."""
        ...

    async def edits(self, board_id: str, path: str, limit: int) -> list[PathEdit]: ...

    async def diff(self, board_id: str, before: int, after: int | None) -> StateDiff: ...

    async def blame(self, board_id: str, path: str, version: int | None) -> list[Stretch]: ...

    async def verify(self, board_id: str, on_progress: Progress) -> Verification: ...

    async def create(self, board_id: str) -> BoardInfo: ...

    async def delete(self, board_id: str, agent: str) -> None: ...

    async def forks(self, board_id: str) -> list[Fork]: ...

    async def fork(self, board_id: str, version: int | None, name: str, agent: str) -> Checkpoint:
        """At the newest version when ``version`` is None."""
        ...

    async def merge(self, board_id: str, fork: str, agent: str) -> Checkpoint: ...

    async def restore(self, board_id: str, version: int, agent: str) -> Checkpoint: ...

    async def violations(self, board_id: str) -> list[BoardViolation]: ...

    async def dismiss(self, board_id: str, key: str, agent: str) -> None: ...

    def watch(self, board_id: str, after: int) -> AsyncIterator[JournalEntry]:
        """The entries after ``after``, and from then on each as it becomes durable."""
        ...

    async def compact(
        self, board_id: str, policy: Retention, *, dry_run: bool, on_progress: Progress
    ) -> CompactionReport: ...

    async def export(self, board_id: str, file: BinaryIO, on_progress: Progress) -> None: ...

    async def import_(self, file: BinaryIO, on_progress: Progress) -> BoardInfo: ...


@contextlib.asynccontextmanager
async def open_source(db: Path, url: str | None) -> AsyncIterator[Source]:
    """The boards of the server at ``url``, or without one those in the file ``db``, which must be there.

    Raises:
        BadRequest: ``url`` is no address of a server.
        StoreUnavailable: the file is no database of boards.
    """
    if url is not None:
        address = url.rstrip("/").replace("ws://", "http://", 1).replace("wss://", "https://", 1)
        if not address.startswith(("http://", "https://")):
            raise BadRequest(f"{url!r} is not the address of a server: use http://host:port")
        async with httpx.AsyncClient(base_url=address, timeout=_SECONDS) as client:
            yield ServerSource(client, address)
        return
    async with BoardHost(await SqliteStore.open(db)) as host:
        yield StoreSource(host)


class StoreSource:
    """The boards of a store in this process."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host
        self._store = host.store
        self.team: TeamSource = StoreTeam(host)

    async def boards(self) -> list[BoardInfo]:
        found: list[BoardInfo] = []
        while page := await self._store.boards(after=found[-1].id if found else "", limit=_PAGE):
            found += [BoardInfo.of(head) for head in page]
        return found

    async def board(self, board_id: str) -> BoardInfo:
        return BoardInfo.of(await existing_head(self._store, check_board_id(board_id)))

    async def state(self, board_id: str, version: int | None) -> BoardState:
        found = await (await self._history(board_id)).state(version)
        return BoardState(
            board=board_id, seq=found.seq, version=found.version, checkpoint=found.checkpoint, state=found.state
        )

    async def checkpoints(self, board_id: str, limit: int) -> list[Checkpoint]:
        await self.board(board_id)
        return await self._store.checkpoints(board_id, limit=limit)

    async def edits(self, board_id: str, path: str, limit: int) -> list[PathEdit]:
        return await (await self._history(board_id)).edits(path, before=None, limit=limit)

    async def diff(self, board_id: str, before: int, after: int | None) -> StateDiff:
        return await (await self._history(board_id)).diff(before, after)

    async def blame(self, board_id: str, path: str, version: int | None) -> list[Stretch]:
        return await (await self._history(board_id)).blame(path, version)

    async def verify(self, board_id: str, on_progress: Progress) -> Verification:
        return await (await self._history(board_id)).verify(on_progress)

    async def compact(
        self, board_id: str, policy: Retention, *, dry_run: bool, on_progress: Progress
    ) -> CompactionReport:
        return await (await self._history(board_id)).compact(policy, dry_run=dry_run, on_progress=on_progress)

    async def create(self, board_id: str) -> BoardInfo:
        return BoardInfo.of(await self._host.create(board_id))

    async def delete(self, board_id: str, agent: str) -> None:
        await self._host.delete(board_id, agent=agent)

    async def forks(self, board_id: str) -> list[Fork]:
        return await (await self._history(board_id)).forks()

    async def fork(self, board_id: str, version: int | None, name: str, agent: str) -> Checkpoint:
        newest = (await self.board(board_id)).version
        async with self._host.board(board_id) as engine:
            return await engine.fork(newest if version is None else version, name, agent=agent, epoch=new_epoch())

    async def merge(self, board_id: str, fork: str, agent: str) -> Checkpoint:
        await self.board(board_id)
        async with self._host.board(board_id) as engine:
            return await engine.merge(check_board_id(fork), agent=agent)

    async def restore(self, board_id: str, version: int, agent: str) -> Checkpoint:
        await self.board(board_id)
        async with open_board(self._host, board_id, agent=agent) as board:
            return await board.restore(version)

    async def violations(self, board_id: str) -> list[BoardViolation]:
        await self.board(board_id)
        async with open_board(self._host, board_id, agent="cli") as board:
            return [BoardViolation.of(each) for each in board.violations]

    async def dismiss(self, board_id: str, key: str, agent: str) -> None:
        await self.board(board_id)
        async with open_board(self._host, board_id, agent=agent) as board:
            for each in board.violations:
                if each.key == key:
                    await board.dismiss(each)
                    return
        raise NotFound(f"no violation {key} stands on board {board_id}")

    async def watch(self, board_id: str, after: int) -> AsyncIterator[JournalEntry]:
        while True:
            page = await self._store.entries(board_id, after=after, limit=_PAGE)
            for entry in page:
                after = entry.seq
                yield JournalEntry.of(entry, payload=False)
            if not page:
                await self.board(board_id)
                await asyncio.sleep(_POLL_SECONDS)

    async def export(self, board_id: str, file: BinaryIO, on_progress: Progress) -> None:
        await export_board(self._store, check_board_id(board_id), file, on_progress)

    async def import_(self, file: BinaryIO, on_progress: Progress) -> BoardInfo:
        return BoardInfo.of(await import_board(self._store, file, on_progress))

    async def _history(self, board_id: str) -> BoardHistory:
        return await BoardHistory.open(self._store, check_board_id(board_id))


class ServerSource:
    """The boards of a server, over its HTTP API."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self._client = client
        self._address = address
        self.team: TeamSource = ServerTeam(self._ask)

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

    async def watch(self, board_id: str, after: int) -> AsyncIterator[JournalEntry]:
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
                        yield JournalEntry.model_validate_json(value)
        except httpx.HTTPError as error:
            raise ConnectionFailed(f"lost {self._address}: {str(error) or type(error).__name__}") from error

    async def export(self, board_id: str, file: BinaryIO, on_progress: Progress) -> None:
        answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/export")
        file.write(answer.content)
        on_progress(1, 1)

    async def compact(
        self, board_id: str, policy: Retention, *, dry_run: bool, on_progress: Progress
    ) -> CompactionReport:
        wanted = CompactionRequest.of(policy, dry_run=dry_run)
        address = f"/api/boards/{check_board_id(board_id)}/compact"
        answer = await self._ask("POST", address, json=wanted.model_dump(), timeout=_COMPACTION_SECONDS)
        on_progress(1, 1)
        return CompactionReport.model_validate_json(answer.content)

    async def import_(self, file: BinaryIO, on_progress: Progress) -> BoardInfo:
        answer = await self._ask("POST", "/api/imports", content=file.read(), headers={"content-type": EXPORT_TYPE})
        on_progress(1, 1)
        return BoardInfo.model_validate_json(answer.content)

    async def _get(self, kind: type[_Answer], address: str, **parameters: Any) -> _Answer:
        given = {name: value for name, value in parameters.items() if value is not None}
        return kind.model_validate_json((await self._ask("GET", address, params=given)).content)

    async def _ask(self, method: str, address: str, **content: Any) -> httpx.Response:
        try:
            answer = await self._client.request(method, address, **content)
        except httpx.HTTPError as error:
            raise ConnectionFailed(
                f"no CRDT Board server answers at {self._address} ({error}); start one with `crdt-board serve`"
            ) from error
        if answer.is_success:
            return answer
        raise self._problem(answer)

    def _problem(self, answer: httpx.Response) -> BoardError:
        if answer.headers.get("content-type", "").startswith("application/problem+json"):
            problem = answer.json()
            return from_details({"code": problem["code"], "message": problem["detail"], "data": problem.get("data")})
        return ConnectionFailed(f"{self._address} answered {answer.status_code}: is it a CRDT Board server?")
