"""Telling who did what in entries of coordination, which say only that leases, tasks or the like have changed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice

from crdt_board.coordination.deeds import Deed, deeds_of
from crdt_board.coordination.ledger import RECORDS
from crdt_board.coordination.records import Record
from crdt_board.errors import BoardCorrupt, BoardDeleted, NotFound
from crdt_board.journal import Entry
from crdt_board.loading import LoadedBoard, entry_pages, load_board
from crdt_board.store.contract import Store
from crdt_board.store.lookup import existing_head

DEEDS_MAX = 20
"""How much of one entry is told; one may remove a thousand tasks."""

_REMEMBERED_MAX = 1_000
_FOLLOWED_MAX = 1_000
"""A state that is further behind is not brought forward, but loaded from the snapshot that is nearest."""

logger = logging.getLogger(__name__)


class Narrator:
    """Tells of the entries of one board, to all who watch it.

    It needs the records before each entry: so it keeps one state of the board, the newest that it was asked about, and
    remembers what it told last. Whoever asks about older entries costs it a state for the time of the call, for which
    all others wait: see `Listener`.
    """

    def __init__(self, store: Store, board_id: str) -> None:
        self.board_id = board_id
        self._store = store
        self._newest: _State | None = None
        self._told: OrderedDict[int, tuple[Deed, ...]] = OrderedDict()
        self._telling = asyncio.Lock()

    async def tell(self, entries: Sequence[Entry]) -> dict[int, tuple[Deed, ...]]:
        """What was done in those of coordination among entries that follow each other, by their ``seq``.

        That are `DEEDS_MAX` deeds of an entry, and one more when there were more. None of an entry of a board
        that was compacted beyond it or deleted meanwhile, or that does not verify.

        Raises:
            StoreUnavailable: the store did not answer.
        """
        wanted = [entry.seq for entry in entries if entry.kind == "coordination"]
        if not wanted:
            return {}
        async with self._telling:
            if not all(seq in self._told for seq in wanted):
                try:
                    await self._read(entries)
                except (NotFound, BoardCorrupt, BoardDeleted) as error:
                    self._newest = None
                    logger.warning("board %s: what was done is not told: %s", self.board_id, error)
            told = {seq: self._told.get(seq, ()) for seq in wanted}
            while len(self._told) > _REMEMBERED_MAX:
                self._told.popitem(last=False)
            return told

    def has_passed(self, entries: Sequence[Entry]) -> bool:
        """Whether it could tell of these only from an older state of the board than it keeps."""
        if self._newest is None or not entries or entries[0].seq > self._newest.seq:
            return False
        return any(entry.kind == "coordination" and entry.seq not in self._told for entry in entries)

    def another(self) -> Narrator:
        """A narrator of the same board with a state of its own."""
        return Narrator(self._store, self.board_id)

    async def _read(self, entries: Sequence[Entry]) -> None:
        state = await self._state_at(entries[0].seq - 1)
        for entry in entries:
            deeds = state.take_in(entry)
            if entry.kind == "coordination":
                self._told[entry.seq] = deeds
        if self._newest is None or state.seq > self._newest.seq:
            self._newest = state

    async def _state_at(self, seq: int) -> _State:
        state = self._newest
        if state is None or not seq - _FOLLOWED_MAX <= state.seq <= seq:
            head = await existing_head(self._store, self.board_id)
            return _State(await load_board(self._store, head, None, until=seq))
        async for page in entry_pages(self._store, self.board_id, after=state.seq, until=seq):
            for entry in page:
                state.take_in(entry)
        return state


class Listener:
    """Whoever is told the entries of a board in their order, by a narrator that tells them to others, too.

    While it is behind these, it has a narrator to itself, with a state that goes on from page to page: so nobody waits
    for it.
    """

    def __init__(self, narrator: Narrator) -> None:
        self._narrator = narrator
        self._own: Narrator | None = None

    async def hear(self, entries: Sequence[Entry]) -> dict[int, tuple[Deed, ...]]:
        """As `Narrator.tell`."""
        if not self._narrator.has_passed(entries):
            self._own = None
            return await self._narrator.tell(entries)
        self._own = self._own or self._narrator.another()
        return await self._own.tell(entries)


class _State:
    """A board at one entry, with its records as they were before what is taken in next."""

    def __init__(self, loaded: LoadedBoard) -> None:
        self._loaded = loaded
        self._records: dict[str, Record] = loaded.document.ledger.everything()
        loaded.document.take_moved_records()

    @property
    def seq(self) -> int:
        return self._loaded.fold.seq

    def take_in(self, entry: Entry) -> tuple[Deed, ...]:
        """Go on to the next entry; what was done in it."""
        self._loaded.take_in([entry])
        ledger = self._loaded.document.ledger
        before: dict[str, Record | None] = {}
        after: dict[str, Record | None] = {}
        for key in self._loaded.document.take_moved_records():
            prefix, _, name = key.partition(":")
            if prefix in RECORDS:
                before[key] = self._records.pop(key, None)
                after[key] = now = ledger.get(RECORDS[prefix], name)
                if now is not None:
                    self._records[key] = now
        return tuple(islice(deeds_of(before, after, entry.author, entry.time_ms), DEEDS_MAX + 1))
