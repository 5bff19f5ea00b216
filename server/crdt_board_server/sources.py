"""Where the command line reads boards: a database file, or a server by its address. Both give the same answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from crdt_board.addresses import http_address
from crdt_board.artifacts.opening import beside, open_artifacts
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BadRequest, BoardError, NotFound
from crdt_board.exports import export_board
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
from crdt_board.history.narration import Narrator
from crdt_board.host import BoardHost
from crdt_board.imports import add_board, import_board, read_export
from crdt_board.limits import check_board_id
from crdt_board.local import open_board
from crdt_board.sizes import BoardSizes
from crdt_board.store.lookup import existing_head
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.api.answers import (
    BoardInfo,
    BoardState,
    BoardViolation,
    ImportedBoardInfo,
    WatchedEntry,
)
from crdt_board_server.approval_sources import ApprovalSource, StoredApprovals
from crdt_board_server.effect_sources import EffectSource, StoredEffects
from crdt_board_server.team_sources import StoreTeam, TeamSource

_PAGE = 1_000
_POLL_SECONDS = 0.2

Progress = Callable[[int, int], None]
"""Called with how much of how much is done."""


class Source(Protocol):
    """Boards to look at. A board that is not there raises `NotFound`."""

    @property
    def failure(self) -> BoardError | None:
        """Why a board that is open here cannot be written just now; a server tells by itself."""
        ...

    @property
    def approvals(self) -> ApprovalSource: ...

    @property
    def team(self) -> TeamSource:
        """Their leases, tasks and agents."""
        ...

    @property
    def effects(self) -> EffectSource: ...

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

    async def sizes(self, board_id: str) -> BoardSizes: ...

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

    def watch(self, board_id: str, after: int) -> AsyncIterator[WatchedEntry]:
        """The entries after ``after``, and from then on each as it becomes durable."""
        ...

    async def retention(self, board_id: str) -> Retention: ...

    async def set_retention(self, board_id: str, policy: Retention) -> None: ...

    async def compact(
        self, board_id: str, policy: Retention | None, *, dry_run: bool, on_progress: Progress
    ) -> CompactionReport:
        """By the board's own retention when ``policy`` is None."""
        ...

    async def export(
        self, board_id: str, file: BinaryIO, on_progress: Progress, *, with_artifacts: bool = True
    ) -> None: ...

    async def import_(self, file: BinaryIO, on_progress: Progress, *, board_id: str | None = None) -> ImportedBoardInfo:
        """Under its own name when ``board_id`` is None."""
        ...


@contextlib.asynccontextmanager
async def open_source(db: Path, url: str | None, place: str | None = None) -> AsyncIterator[Source]:
    """The boards of the server at ``url``, or without one those in the file ``db``, which must be there.

    ``place`` is where the artifacts of a file are, when not beside it.

    Raises:
        BadRequest: ``url`` is no address of a server, or ``place`` is none.
        StoreUnavailable: the file is no database of boards.
    """
    if url is not None:
        address = http_address(url)
        if place is not None:
            raise BadRequest("--artifacts is for a database file; the server at --url has its own place")
        from crdt_board_server.server_source import open_server  # noqa: PLC0415 - a tenth of what the command starts in

        async with open_server(address) as source:
            yield source
        return
    artifacts = None if place is None else open_artifacts(place)
    async with BoardHost(await SqliteStore.open(db), artifacts=artifacts) as host:
        yield StoreSource(host)


async def import_into_new(
    db: Path, place: str | None, file: BinaryIO, on_progress: Progress, *, board_id: str | None = None
) -> ImportedBoardInfo:
    """Make the database ``db`` with the board of an export in it, which is verified before.

    Raises:
        BoardExists: somebody else has made them meanwhile.
        StoreUnavailable: the file cannot be made.
        BadRequest, LimitExceeded, BoardCorrupt, InvalidBoardId: as `import_board`.
    """
    artifacts = open_artifacts(place or beside(db))
    try:
        export = await read_export(file, on_progress, board_id=board_id, artifacts=artifacts)
        store = await SqliteStore.open(db)
        try:
            return ImportedBoardInfo.of_imported(await add_board(store, export, artifacts))
        finally:
            await store.close()
    finally:
        await artifacts.close()


class StoreSource:
    """The boards of a store in this process."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host
        self._store = host.store
        self.approvals: ApprovalSource = StoredApprovals(host)
        self.team: TeamSource = StoreTeam(host)
        self.effects: EffectSource = StoredEffects(host)

    @property
    def failure(self) -> BoardError | None:
        return next((engine.failure for engine in self._host.open_boards().values() if engine.failure), None)

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

    async def sizes(self, board_id: str) -> BoardSizes:
        return await (await self._history(board_id)).sizes()

    async def retention(self, board_id: str) -> Retention:
        return await (await self._history(board_id)).retention()

    async def set_retention(self, board_id: str, policy: Retention) -> None:
        await (await self._history(board_id)).set_retention(policy)

    async def compact(
        self, board_id: str, policy: Retention | None, *, dry_run: bool, on_progress: Progress
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
            return await engine.branching.fork(
                newest if version is None else version, name, agent=agent, epoch=new_epoch()
            )

    async def merge(self, board_id: str, fork: str, agent: str) -> Checkpoint:
        await self.board(board_id)
        async with self._host.board(board_id) as engine:
            return await engine.branching.merge(check_board_id(fork), agent=agent)

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

    async def watch(self, board_id: str, after: int) -> AsyncIterator[WatchedEntry]:
        narrator = Narrator(self._store, board_id)
        while True:
            page = await self._store.entries(board_id, after=after, limit=_PAGE)
            told = await narrator.tell(page)
            for entry in page:
                after = entry.seq
                yield WatchedEntry.telling(entry, told.get(entry.seq, ()))
            if not page:
                await self.board(board_id)
                await asyncio.sleep(_POLL_SECONDS)

    async def export(
        self, board_id: str, file: BinaryIO, on_progress: Progress, *, with_artifacts: bool = True
    ) -> None:
        artifacts = self._host.artifacts if with_artifacts else None
        await export_board(self._store, check_board_id(board_id), file, on_progress, artifacts=artifacts)

    async def import_(self, file: BinaryIO, on_progress: Progress, *, board_id: str | None = None) -> ImportedBoardInfo:
        made = await import_board(self._store, file, on_progress, board_id=board_id, artifacts=self._host.artifacts)
        return ImportedBoardInfo.of_imported(made)

    async def _history(self, board_id: str) -> BoardHistory:
        return await BoardHistory.open(self._store, check_board_id(board_id))
