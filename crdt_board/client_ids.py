"""The client ids of one board: granted to replicas, and taken back when these are done.

A client id stays in the state vector of a board for ever, and in every counter that was counted under it. So a replica
that ends with everything durable leaves its id to the next one, which goes on where it stopped. Two replicas that write
under one id at once would lose edits without a word: an id is free only when all that was ever written under it is in
the journal, and whoever is granted it must hold all of that before its first edit.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from crdt_board.errors import NotFound, StoreUnavailable, Unavailable
from crdt_board.limits import CLIENT_ID_END, CLIENT_ID_FIRST, WRITER_ID_END, Limits
from crdt_board.store.contract import Store

_BLOCK_FIRST = 2  # the engine's own and one replica's: a board that is opened for one agent keeps no more in memory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who may write under an id: a replica, over all its connections, and the source of its submissions now."""

    replica: str
    source: object


WRITER = Holder("", "the writer of the board")
"""Holds the id under which the engine itself writes."""

_NOBODY = Holder("", None)
"""Holds the ids that are free in this process."""


class ClientIds:
    """The ids that this process has taken from the store, and who holds them.

    Invariants:
        1. An id has at most one holder, and while it has one it is neither kept here nor free in the store.
        2. An id whose fate is not known (its replica went without a word, the store failed) is never granted again.
        3. What the journal holds when an id is taken from the store is looked at before anybody writes under that id.
    """

    def __init__(self, store: Store, board_id: str, limits: Limits, *, rest_until: float = 0.0) -> None:
        """Take nothing from the store before ``rest_until``, on the clock of the event loop."""
        self.on_taken: Callable[[], None] = _nothing
        """Called after ids were taken from the store: another process may have written under them (invariant 3)."""
        self.epoch = ""
        """Which board of this name the ids belong to: they are returned to no other one."""
        self._store = store
        self._board_id = board_id
        self._kept_max = limits.client_ids_kept_max
        self._rest_until = rest_until
        self._block = _BLOCK_FIRST
        self._kept: list[int] = []
        self._holders: dict[int, Holder] = {}
        self._taking = asyncio.Lock()
        self._returning: asyncio.Task[None] | None = None

    async def grant(self, holder: Holder) -> int:
        """An id that nobody else writes under, used before or new; never fails, since a new one costs little."""
        if self._next(holder) is None:
            async with self._taking:
                if self._next(holder) is None and asyncio.get_running_loop().time() >= self._rest_until:
                    await self._take()
        client_id = self._next(holder)
        if client_id is not None:
            self._kept.remove(client_id)
        return self._give(_new_id(holder) if client_id is None else client_id, holder)

    def renew(self, client_id: int) -> int:
        """A new id for the holder of ``client_id``, which is not used again."""
        holder = self._holders.pop(client_id)
        return self._give(_new_id(holder), holder)

    def resume(self, client_id: int, holder: Holder) -> object:
        """Let a replica write on under the id that it has; return the source through which it wrote so far, or None.

        Raises:
            Unavailable: another replica holds the id now.
        """
        present = self._holders.get(client_id)
        if present is _NOBODY:
            self._kept.remove(client_id)
        elif present is WRITER or (present is not None and present.replica != holder.replica):
            raise Unavailable(
                f"client id {client_id} is in use by another replica; if that lasts, open the board again"
            )
        self._give(client_id, holder)
        return present.source if present is not None else None

    def is_closed_to(self, client_id: int, source: object) -> bool:
        """Whether somebody else than ``source`` holds the id, or nobody may write under it."""
        holder = self._holders.get(client_id)
        return holder is not None and holder.source is not source

    def holds(self, client_id: int, source: object) -> bool:
        holder = self._holders.get(client_id)
        return holder is not None and holder.source is source

    def take_back(self, client_id: int) -> None:
        """The holder is done, and all that was written under the id is in the journal."""
        assert client_id in self._holders, client_id
        self._holders[client_id] = _NOBODY
        self._kept.append(client_id)
        if len(self._kept) > self._kept_max and (self._returning is None or self._returning.done()):
            self._returning = asyncio.create_task(self._return_surplus(), name=f"client-ids-{self._board_id}")

    def forget(self, client_id: int, source: object) -> None:
        """The holder went without a word; it may come back with the id, which is granted to nobody else."""
        if self.holds(client_id, source):
            del self._holders[client_id]

    async def close(self) -> None:
        """Return to the store what is kept. A failure costs these ids, and is logged."""
        if self._returning is not None:
            await self._returning
        await self._return(0)

    async def _take(self) -> None:
        try:
            taken = await self._store.take_client_ids(self._board_id, self._block)
        except StoreUnavailable as error:
            logger.warning("board %s: no client ids from the store, new ones are used: %s", self._board_id, error)
            return
        if taken:
            self._block = min(2 * self._block, self._kept_max)
            # Held here after all: it was taken back in another process, to which its replica had moved from this one.
            free = [client_id for client_id in taken if client_id not in self._holders]
            self._holders.update(dict.fromkeys(free, _NOBODY))
            self._kept += free
            self.on_taken()

    async def _return_surplus(self) -> None:
        while len(self._kept) > self._kept_max:
            await self._return(self._kept_max // 2)

    async def _return(self, keep: int) -> None:
        """Return all but ``keep``, those that were used last: a crash then costs few."""
        surplus = self._kept[: len(self._kept) - keep]
        del self._kept[: len(surplus)]
        for client_id in surplus:
            del self._holders[client_id]
        if surplus:
            try:
                await self._store.return_client_ids(self._board_id, surplus, epoch=self.epoch)
            except (StoreUnavailable, NotFound) as error:  # perhaps they were returned: invariant 2
                logger.warning("board %s: %d client ids are lost: %s", self._board_id, len(surplus), error)
            except Exception:  # the boundary of a background task
                logger.exception("board %s: %d client ids are lost", self._board_id, len(surplus))

    def _next(self, holder: Holder) -> int | None:
        """The kept id that was used last, of those for the writer of the board or for replicas."""
        fitting = (each for each in reversed(self._kept) if (each < WRITER_ID_END) == (holder is WRITER))
        return next(fitting, None)

    def _give(self, client_id: int, holder: Holder) -> int:
        self._holders[client_id] = holder
        return client_id


def new_client_id() -> int:
    """An id that nobody has: beyond those that Yjs chooses in JavaScript, and below those of opened records."""
    return CLIENT_ID_FIRST + secrets.randbelow(CLIENT_ID_END - CLIENT_ID_FIRST)


def _new_id(holder: Holder) -> int:
    """An id that nobody has.

    Of writes that are made at once under one key that of the greater id wins. That of the writer of the board is small,
    so that what a peer wrote before it heard of a correction is not lost to that correction.
    """
    return 1 + secrets.randbelow(WRITER_ID_END - 1) if holder is WRITER else new_client_id()


def _nothing() -> None:
    pass
