"""Forks of an open board, and merging what they have written back into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from crdt_board.batches import Merged
from crdt_board.branches import open_branch
from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.clock import Clock
from crdt_board.document import Document
from crdt_board.errors import BoardExists, VersionConflict
from crdt_board.forks import ForkContent, new_fork
from crdt_board.history import BoardHistory
from crdt_board.layout import Layout
from crdt_board.limits import Limits, check_board_id
from crdt_board.store.contract import Store

_Answer = TypeVar("_Answer")


class Trunk(Protocol):
    """The writer of the board that is forked, and merged into; an `Engine`."""

    @property
    def board_id(self) -> str: ...

    @property
    def seq(self) -> int: ...

    @property
    def version(self) -> int: ...

    @property
    def version_seq(self) -> int: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def history(self) -> BoardHistory: ...

    def commit(self, request: CommitRequest, *, merged: Merged) -> asyncio.Future[Checkpoint]: ...

    async def read(self, look: Callable[[Document], _Answer]) -> _Answer: ...

    async def join(self, layout: Layout, *, agent: str) -> int: ...


class Branching:
    """Forks one board, and takes them back in."""

    def __init__(self, trunk: Trunk, store: Store, clock: Clock) -> None:
        self._trunk = trunk
        self._store = store
        self._clock = clock

    async def merge(
        self, fork_id: str, *, agent: str, origin: str = "", idempotency_key: str | None = None
    ) -> Checkpoint:
        """Commit everything that a fork of this board, or any board with a common past, has and this one has not.

        Edits of both sides merge like concurrent ones. Durable on return, and given to every listener. When there is
        nothing that this board has not, it returns the newest checkpoint and makes none.

        Raises:
            NotFound: there is no board ``fork_id``.
            VersionConflict: both have decided a strict field, differently; nothing was changed.
            Violated: the state afterwards would break a rule, as far as is known; nothing was changed.
            IdempotencyMismatch: the key was used for another request; nothing was changed.
            SchemaMismatch: the fork's model does not fit, or one of the two was migrated since; nothing was changed.
            BadRequest: the boards have no common past.
        """
        trunk = self._trunk
        branch = await open_branch(self._store, trunk.board_id, fork_id)
        if branch.layout is not None:
            await trunk.join(branch.layout, agent=agent)

        is_repeat = idempotency_key is not None and bool(await self._store.keys(trunk.board_id, [idempotency_key]))

        def look(document: Document) -> tuple[int, int]:
            conflict = branch.conflict_with(document, trunk.version, trunk.seq)
            if conflict is not None:
                raise conflict
            return trunk.seq, 0 if is_repeat or branch.brings_news_to(document) else trunk.version

        step = f"merge {fork_id}"
        request = CommitRequest(
            step=step, agent=agent, fingerprint=step, origin=origin, idempotency_key=idempotency_key
        )
        while True:
            seq, known_at = await trunk.read(look)
            if known_at and (known := await self._store.checkpoint(trunk.board_id, known_at)):
                return known
            try:
                watched = request.model_copy(update={"reads": branch.strict, "base_seq": seq})
                return await trunk.commit(watched, merged=branch.merged)
            except VersionConflict:
                continue  # a strict field was decided meanwhile: look again

    async def fork(self, version: int, board_id: str, *, agent: str, epoch: str) -> Checkpoint:
        """Make a board that begins at a version of this one; return its first checkpoint. Durable on return.

        A repeat with the same ``epoch``, which is a new random one for every fork, does nothing.

        Raises:
            NotFound: there is no such version.
            BoardExists: there is a board of this name.
            InvalidBoardId: ``board_id`` is not one.
        """
        trunk = self._trunk
        check_board_id(board_id, trunk.limits)
        checkpoint, content = await self._content_at(version)
        board = new_fork(
            content,
            checkpoint,
            await self._store.schemas(trunk.board_id),
            board_id=board_id,
            epoch=epoch,
            agent=agent,
            now_ms=self._clock.now_ms(),
            limits=trunk.limits,
        )
        if await self._store.create_with(board):
            return board.beginning.checkpoints[0]
        head, made = await self._store.head(board_id), await self._store.checkpoint(board_id, 1)
        if head is None or head.epoch != epoch or made is None:
            raise BoardExists(f"there is a board {board_id} already; choose another name", board_id=board_id)
        return made

    async def _content_at(self, version: int) -> tuple[Checkpoint, ForkContent]:
        """What the board held at a version: at once when nothing came after it, and else read from the store."""
        trunk = self._trunk

        def look(document: Document) -> tuple[str, ForkContent] | None:
            is_now = (trunk.version, trunk.version_seq) == (version, trunk.seq)
            return (document.checksum(), ForkContent.of(document)) if is_now else None

        now = await trunk.read(look)
        if now is not None:
            checkpoint = await self._store.checkpoint(trunk.board_id, version)
            if checkpoint is not None and checkpoint.checksum == now[0]:
                return checkpoint, now[1]
        checkpoint, loaded = await trunk.history.load_version(version)
        return checkpoint, ForkContent.of(loaded.document)
