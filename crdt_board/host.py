"""The open boards of one process over one store: loaded once however many use them, closed when nobody does.

Owns the store, the group commit, the watch for other processes and every engine; closes them in reverse order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from crdt_board.artifacts.opening import MEMORY, beside, open_artifacts
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.clock import Clock, SystemClock
from crdt_board.engine import Engine
from crdt_board.errors import BoardClosed, BoardError, BoardExists, StoreUnavailable
from crdt_board.forks import new_epoch
from crdt_board.group_commit import GroupCommit
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_board_id
from crdt_board.loading import Offer
from crdt_board.offering import Offering
from crdt_board.snapshots import Compress, compress_in_thread
from crdt_board.store.contract import BoardHead, Store
from crdt_board.store.lookup import existing_head
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore

_WATCH_RETRY_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Slot:
    """One board that is being loaded, is open, or is being closed."""

    loading: asyncio.Task[Engine]
    offering: Offering
    users: int = 0
    idle_timer: asyncio.TimerHandle | None = None
    closing: asyncio.Task[None] | None = None


class BoardHost:
    """Engines by board id.

    Invariants:
        1. At most one engine of a board is open, being loaded or being closed in this process.
        2. A board that failed to load leaves nothing behind; the next `acquire` tries again.
    """

    def __init__(
        self,
        store: Store,
        *,
        artifacts: ArtifactStore | None = None,
        idle_seconds: float = 0.0,
        client_ids_rest_seconds: float = 0.0,
        clock: Clock | None = None,
        limits: Limits = DEFAULT_LIMITS,
        compress: Compress = compress_in_thread,
    ) -> None:
        """Take over ``store`` and ``artifacts``; must be called in a running event loop.

        Without ``artifacts`` they are kept in a folder beside a SQLite file and in memory with a store in memory; with
        other stores there are none.

        Where clients come back that were connected to an earlier process, free client ids are left in the store for
        ``client_ids_rest_seconds``; see `Limits`. ``compress`` loads snapshots back.
        """
        self.store = store
        self.artifacts = artifacts or _default_artifacts(store, limits)
        self.limits = limits
        self._idle_seconds = idle_seconds
        self._client_ids_rest_until = asyncio.get_running_loop().time() + client_ids_rest_seconds
        self.clock = clock or SystemClock()
        self._journal = GroupCommit(store)
        self._compress = compress
        self._slots: dict[str, _Slot] = {}
        self._closed = False
        self._watch = asyncio.create_task(self._watch_others(), name="watch-other-processes")

    async def __aenter__(self) -> BoardHost:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def open_boards(self) -> dict[str, Engine]:
        """The boards that are open at this moment."""
        return {
            board_id: slot.loading.result()
            for board_id, slot in self._slots.items()
            if slot.closing is None and slot.loading.done() and not _failed(slot.loading)
        }

    @contextlib.asynccontextmanager
    async def board(self, board_id: str, before_load: Offer | None = None) -> AsyncIterator[Engine]:
        """Use a board's engine for a while; see `acquire`."""
        engine = await self.acquire(board_id, before_load)
        try:
            yield engine
        finally:
            self.release(engine)

    async def acquire(self, board_id: str, before_load: Offer | None = None) -> Engine:
        """The board's engine, loaded or made if need be; give it back with `release`.

        However many wait, the board is read once. Cancelling one of them does not disturb the others. ``before_load``
        is awaited with what is stored, if that takes long to load and is not loaded yet; what it raises is raised here.
        Loading may begin meanwhile, for others.

        Raises:
            InvalidBoardId: ``board_id`` is not one.
            StoreUnavailable, BoardCorrupt: it cannot be loaded now; all who wait are told.
            BoardClosed: the host is closed.
        """
        check_board_id(board_id, self.limits)
        while True:
            if self._closed:
                raise BoardClosed("this process is closing its boards")
            slot = self._slots.get(board_id)
            if slot is not None and _failed(slot.loading):
                del self._slots[board_id]  # nobody who waited for it was left to do so (invariant 2)
                slot = None
            if slot is not None and slot.closing is None and _stopped(slot):
                self._start_closing(board_id, slot)
            if slot is not None and slot.closing is not None:
                await asyncio.shield(slot.closing)
                continue
            if slot is None:
                offering = Offering()
                load = self._load(board_id, offering, offers=before_load is not None)
                loading = asyncio.create_task(load, name=f"load-{board_id}")
                slot = self._slots[board_id] = _Slot(loading, offering)
            return await self._join(board_id, slot, before_load)

    async def create(self, board_id: str) -> BoardHead:
        """Make an empty board, also under the name of one that was deleted; return its head.

        Raises:
            InvalidBoardId: ``board_id`` is not one.
            BoardExists: there is a board of this name.
            StoreUnavailable: the store did not answer.
        """
        check_board_id(board_id, self.limits)
        epoch = new_epoch()
        head = await self.store.create(board_id, epoch=epoch, created_ms=self.clock.now_ms(), anew=True)
        if head.epoch != epoch:
            raise BoardExists(f"there is a board {board_id} already", board_id=board_id)
        return head

    async def delete(self, board_id: str, *, agent: str) -> None:
        """Delete a board with all that is stored of it; whoever has it open is told `BoardDeleted`.

        Raises:
            NotFound, BoardDeleted: there is no such board.
            StoreUnavailable: the store did not answer; whether the board is gone is unknown.
        """
        await existing_head(self.store, check_board_id(board_id, self.limits))
        async with self.board(board_id) as engine:
            await engine.delete(agent)

    def release(self, engine: Engine) -> None:
        """Give back an engine; when nobody uses it for ``idle_seconds`` it is closed."""
        slot = self._slots.get(engine.board_id)
        if slot is None or slot.closing is not None or not _holds(slot, engine):
            return
        slot.users -= 1
        assert slot.users >= 0, engine.board_id
        if slot.users == 0:
            self._close_when_idle(engine.board_id, slot)

    async def close(self) -> None:
        """Close every board, writing what is queued, and then the store. Idempotent.

        While the store fails, it is tried for ``close_seconds_max`` more; then what was not acknowledged is refused.
        """
        self._closed = True
        for board_id, slot in list(self._slots.items()):
            if slot.closing is None:
                self._start_closing(board_id, slot)
            elif slot.loading.done() and not _failed(slot.loading):
                slot.loading.result().give_up_after(self.limits.close_seconds_max)
        closing = [slot.closing for slot in self._slots.values() if slot.closing is not None]
        await asyncio.gather(*closing, return_exceptions=True)
        self._watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watch
        await self._journal.close()
        await self.store.close()
        if self.artifacts is not None:
            await self.artifacts.close()

    async def _join(self, board_id: str, slot: _Slot, before_load: Offer | None) -> Engine:
        slot.users += 1
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
            slot.idle_timer = None
        try:
            try:
                if before_load is not None:
                    await slot.offering.use(before_load)
            finally:
                slot.offering.want()  # also when nobody is left: what has begun is ended in order
            return await asyncio.shield(slot.loading)
        except BaseException:
            slot.users -= 1
            if _failed(slot.loading):
                if self._slots.get(board_id) is slot:
                    del self._slots[board_id]
            elif slot.users == 0:
                self._close_when_idle(board_id, slot)
            raise

    async def _load(self, board_id: str, offering: Offering, *, offers: bool) -> Engine:
        try:
            return await Engine.open(
                self.store,
                self._journal,
                board_id,
                epoch=new_epoch(),
                clock=self.clock,
                limits=self.limits,
                client_ids_rest_until=self._client_ids_rest_until,
                compress=self._compress,
                offer=offering.offer if offers else None,
            )
        finally:
            offering.end()

    def _close_when_idle(self, board_id: str, slot: _Slot) -> None:
        def close() -> None:
            if slot.users == 0 and slot.closing is None:
                self._start_closing(board_id, slot)

        slot.idle_timer = asyncio.get_running_loop().call_later(self._idle_seconds, close)

    def _start_closing(self, board_id: str, slot: _Slot) -> None:
        if slot.idle_timer is not None:
            slot.idle_timer.cancel()
        slot.closing = asyncio.create_task(self._finish_closing(board_id, slot), name=f"close-{board_id}")

    async def _finish_closing(self, board_id: str, slot: _Slot) -> None:
        try:
            engine = await slot.loading
            if self._closed:
                engine.give_up_after(self.limits.close_seconds_max)
            await engine.close()
        except BoardError as error:
            logger.warning("board %s was not open when it was closed: %s", board_id, error)
        finally:
            if self._slots.get(board_id) is slot:
                del self._slots[board_id]

    async def _watch_others(self) -> None:
        while True:
            try:
                await self.store.wait_for_others()
            except StoreUnavailable as error:
                logger.warning("cannot see what other processes write: %s", error)
                await asyncio.sleep(_WATCH_RETRY_SECONDS)
            except Exception:  # the boundary of this task
                logger.exception("cannot see what other processes write")
                await asyncio.sleep(_WATCH_RETRY_SECONDS)
            for slot in self._slots.values():
                if slot.closing is None:
                    # One that is being loaded may have read before the others wrote.
                    slot.loading.add_done_callback(_refresh)


def _default_artifacts(store: Store, limits: Limits) -> ArtifactStore | None:
    if isinstance(store, SqliteStore):
        return open_artifacts(beside(store.path), limits=limits)
    return open_artifacts(MEMORY, limits=limits) if isinstance(store, MemoryStore) else None


def _failed(task: asyncio.Task[Engine]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _refresh(loading: asyncio.Task[Engine]) -> None:
    if not _failed(loading):
        loading.result().refresh()


def _stopped(slot: _Slot) -> bool:
    return slot.loading.done() and not _failed(slot.loading) and not slot.loading.result().is_open


def _holds(slot: _Slot, engine: Engine) -> bool:
    return slot.loading.done() and not _failed(slot.loading) and slot.loading.result() is engine
