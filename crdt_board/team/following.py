"""`board.follow`: a durable cursor over the journal of a board."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from crdt_board.checkpoints import Checkpoint
from crdt_board.control import ListEntries
from crdt_board.coordination.cursors import CursorRecord, MoveCursor
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BadRequest, CursorMoved, LeaseLost
from crdt_board.history.news import EntryPage, News
from crdt_board.team.desk import Desk
from crdt_board.team.idleness import Idleness
from crdt_board.team.leases import Lease
from crdt_board.views import Patch

_PAGE = 100

Start = Literal["beginning", "now"]

CommitNews = Callable[[str, Patch | None, Sequence[Operation], Lease, dict[str, Any]], Awaitable[Checkpoint]]


class Follower:
    """Everything that others changed since somebody of this name looked last, in order, each once. Made by
    `Board.follow`.

    Inside ``async with``, iterate: ``async for news in follower``. The cursor, which is kept on the board, moves over
    an item when `commit` was called for it, in the entry of that commit; otherwise when the next one is asked for. So
    an item comes again, after a crash or an exception, unless it was handled. Ends never; leave the block to stop.
    """

    def __init__(
        self,
        desk: Desk,
        idleness: Idleness,
        commit: CommitNews,
        *,
        name: str,
        path: str,
        start: Start,
        own: bool,
        ttl: float,
    ) -> None:
        if start not in ("beginning", "now"):
            raise BadRequest(f"start is 'beginning' or 'now', got {start!r}")
        self._desk = desk
        self._idleness = idleness
        self._commit = commit
        self._name = name
        self._path = path
        self._start: Start = start
        self._own = own
        self._ttl = ttl
        self._lease: Lease | None = None
        self._cursor = 0
        """Where the cursor is on the board."""
        self._handled = 0
        """Up to which entry nothing is left to handle."""
        self._read = 0
        """Up to which entry news were read."""
        self._news: deque[News] = deque()
        self._current: News | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
            self._idleness.add(self._idle_at)
        except BaseException as error:
            await self._leave(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._idleness.remove(self._idle_at)
        await self._leave(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News:
        """The next item, when there is one.

        Raises:
            CursorMoved: somebody else has handled the last item, since this process stood still for too long.
            BoardError: the board was closed or failed.
        """
        assert self._lease is not None, "a follower is used inside async with"
        if self._current is not None:
            self._handled, self._current = self._current.seq, None
        await self._keep_place(self._lease)
        while not self._news:
            await self._fetch()
            await self._keep_place(self._lease)
        self._current = self._news.popleft()
        return self._current

    async def commit(self, step: str, *, patch: Patch | None = None, **metadata: Any) -> Checkpoint:
        """Commit what was made of the present item, and move the cursor over it in the same entry.

        ``metadata`` is as for `Board.commit`: ``output``, ``confidence``, ``trace``, ``handoff``, ``tags``.

        Raises:
            LeaseLost, CursorMoved: this process stood still for too long, and somebody else follows; nothing was
                changed.
            As `Board.commit` otherwise.
        """
        if self._current is None or self._lease is None:
            raise BadRequest("follower.commit(...) is called in the loop, for the item at hand")
        move = MoveCursor(name=self._name, expected=self._cursor, to=self._current.seq)
        made = await self._commit(step, patch, (move,), self._lease, metadata)
        self._handled = self._cursor = self._current.seq
        self._current = None
        return made

    def _idle_at(self) -> int | None:
        return None if self._current is not None or self._news else self._read

    async def _leave(self, error: BaseException | None) -> None:
        if self._lease is not None:
            with contextlib.suppress(LeaseLost):
                await self._lease.__aexit__(type(error) if error else None, error, None)

    async def _begin(self) -> Lease:
        """Be the only one who follows under this name, and go on where the last one stopped."""
        lease = Lease(self._desk, f"cursor {self._name}", ttl=self._ttl, shared=False, timeout=None)
        self._lease = await lease.__aenter__()
        record = self._desk.ledger.get(CursorRecord, self._name)
        if record is None and self._start == "now":
            self._handled = self._desk.session.replica.seq
            self._cursor = 0
            await self._move(lease)
        else:
            self._cursor = self._handled = record.seq if record is not None else 0
        self._read, self._current = self._handled, None
        self._news.clear()
        return lease

    async def _keep_place(self, lease: Lease) -> None:
        """Go on being the one who follows, with the cursor moved over what was handled; from the place of the cursor
        when somebody else was it meanwhile."""
        while True:
            if lease.is_held:
                with contextlib.suppress(LeaseLost):
                    await self._move(lease)
                    return
            lease = await self._begin_again(lease)

    async def _begin_again(self, lost: Lease) -> Lease:
        handled, cursor = self._handled, self._cursor
        with contextlib.suppress(LeaseLost):
            await lost.__aexit__(None, None, None)  # it may be held after all, and would be renewed for ever
        lease = await self._begin()
        if handled != cursor:
            if self._cursor != cursor:
                raise CursorMoved(
                    f"cursor {self._name} is at entry {self._cursor}, where somebody else moved it, and not at "
                    f"{cursor}: the last item was handled twice",
                    cursor=self._name,
                    seq=self._cursor,
                )
            self._handled = self._read = handled
        return lease

    async def _fetch(self) -> None:
        """Read on, or wait until there is more."""
        page = EntryPage.model_validate(
            await self._desk.session.link.ask(ListEntries(after=self._read, path=self._path, limit=_PAGE))
        )
        self._news.extend(news for news in page.news if self._own or news.squashed or news.agent != self._desk.agent)
        is_all = page.until == self._read
        self._read = page.until
        if not self._news and is_all:
            await self._desk.until(self._has_more)
            if self._idleness.must_tell:
                self._idleness.tell()

    def _has_more(self) -> bool:
        return self._desk.session.replica.seq > self._read or self._idleness.must_tell

    async def _move(self, lease: Lease) -> None:
        """Raises LeaseLost, CursorMoved."""
        if self._handled != self._cursor:
            await self._desk.ask(
                MoveCursor(name=self._name, expected=self._cursor, to=self._handled, lease=lease.claim)
            )
            self._cursor = self._handled
