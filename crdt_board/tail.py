"""The end of a board's journal, as far as this process has come: the document and the fold there.

It appends what was planned, takes in what other processes appended, and shows both to whoever follows the board. It
knows of no submissions and no requests, and does not wait for a store that fails: the writer of the board does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from crdt_board.checkpoints import decode_checkpoint
from crdt_board.client_ids import ClientIds
from crdt_board.clock import Clock
from crdt_board.errors import BoardCorrupt, NotFound, StoreUnavailable
from crdt_board.fold import NOWHERE, Fold
from crdt_board.group_commit import GroupCommit
from crdt_board.journal import Entry, unpack_updates, verify_chain
from crdt_board.loading import LoadedBoard, apply_entries, entry_pages, load_board
from crdt_board.plans import Plan, append_request, seal
from crdt_board.publishing import Listeners, PublishedEntry
from crdt_board.schemas import BoardSchemas
from crdt_board.store.appends import deleted
from crdt_board.store.contract import Appended, BoardHead, SchemaRecord, Store

NOBODY = "board"
"""The author of what the writer of a board writes before it has seen anybody else's entry."""


def _nothing() -> None:
    pass


def _not_counted(_entries: int) -> None:
    pass


class Tail:
    """The document of a board's writer, its fold, and who is shown what comes after.

    Invariants:
        1. Between two batches the document and the fold hold exactly the entries up to ``seq``, all durable.
        2. Listeners have been given exactly the entries up to ``seq`` since they were added, once each, in order; or
           in place of some that were compacted away before they were seen, the whole board.
        3. No listener sees anything before it is durable.
        4. What was planned is in flight from before it is appended until the journal tells what became of it.
    """

    def __init__(
        self,
        store: Store,
        journal: GroupCommit,
        loaded: LoadedBoard,
        *,
        board_id: str,
        schemas: BoardSchemas,
        client_ids: ClientIds,
        clock: Clock,
    ) -> None:
        self.board_id = board_id
        self.loaded = loaded
        """Not to be kept over a wait: `reload` and `catch_up` may put another in its place."""
        self.schemas = schemas
        self.listeners = Listeners(board_id)
        self.client_id = loaded.document.client_id
        """Under which the writer of the board writes itself."""
        self.last_author = NOBODY
        """Of the newest entry that was taken in."""
        self.on_taken_in: Callable[[int], None] = _not_counted
        """Called with the number of entries that were added to the journal, by whomever."""
        self.on_appended: Callable[[], None] = _nothing
        """Called after this process appended entries."""
        self._store = store
        self._journal = journal
        self._client_ids = client_ids
        self._clock = clock
        self._shown_schema = schemas.number
        self._in_flight: dict[str, Plan] = {}
        self._on_durable: Callable[[], None] = _nothing

    @property
    def fold(self) -> Fold:
        return self.loaded.fold

    @property
    def seq(self) -> int:
        """The newest durable entry."""
        return self.loaded.fold.seq

    async def append(
        self,
        plans: Sequence[Plan],
        *,
        schemas: Sequence[SchemaRecord] = (),
        on_durable: Callable[[], None] = _nothing,
    ) -> bool:
        """Append what was planned, whose updates are in the document, and take it in; False when others were first.

        ``schemas`` become known with it. ``on_durable`` is called before listeners see it, also when the append seemed
        to fail and `catch_up` finds that it took place.

        Raises:
            StoreUnavailable: it is not known whether the append took place; to be followed by `recover`.
        """
        entries = seal(
            self.loaded,
            plans,
            board_id=self.board_id,
            schema_version=self.schemas.number,
            now_ms=self._clock.now_ms(),
        )
        self._in_flight = {entry.hash: plan for entry, plan in zip(entries, plans, strict=True)}
        self._on_durable = on_durable
        request = append_request(entries, plans, expected_seq=self.seq, schemas=schemas)
        if not isinstance(await self._journal.append(request), Appended):
            self._in_flight.clear()
            return False
        if schemas:
            self.schemas.extend(schemas)
            self.show_schema()
        self._take_in(entries)
        self.on_appended()
        return True

    async def catch_up(self) -> None:
        """Take in what the journal has after ``seq``: others' entries, or our own of an append that seemed to fail."""
        head = await self._head()
        await self.schemas.reload()  # after the head, and before the entries that are written under them
        self.show_schema()
        if head.base_seq > self.seq:
            await self._jump(head)
        try:
            async for page in entry_pages(self._store, self.board_id, after=self.seq, until=head.seq):
                verify_chain(self.fold.hash, self.seq, page)
                apply_entries(self.loaded, page)
                self._take_in(page)
        except BoardCorrupt:
            head = await self._head()
            if head.base_seq <= self.seq:
                raise
            await self._jump(head)  # somebody compacted the board while we read on
        self._in_flight.clear()

    async def recover(self) -> None:
        """After a failed append: rebuild the document, then learn from the journal whether the append took place."""
        if any(plan.source is None and plan.updates for plan in self._in_flight.values()):
            # Under the old id the same clocks would be used again, while nobody knows for good that the append is dead.
            self.client_id = self._client_ids.renew(self.client_id)
        await self.reload()
        await self.catch_up()

    async def reload(self) -> None:
        """Rebuild the document as it was after ``seq`` (invariant 1); the fold stays (invariant 2)."""
        fold = self.fold
        try:
            self.loaded = await load_board(
                self._store, await self._head(), self.schemas.newest, until=fold.seq, client_id=self.client_id
            )
            self.loaded.fold = fold
        except NotFound:
            await self._jump(await self._head())
        self._declare_newest()  # a model may have joined meanwhile

    def show_schema(self) -> None:
        """Use the newest schema from now on, and tell the listeners of it if they do not know."""
        self._declare_newest()
        if self._shown_schema != self.schemas.number:
            self._shown_schema = self.schemas.number
            self.listeners.tell_schema()

    async def now_ms(self) -> int:
        """The store's clock, by which leases and the like run out."""
        return await self._store.now_ms()

    def _take_in(self, entries: Sequence[Entry]) -> None:
        """Advance the fold by durable entries whose updates are in the document, show them, then answer commits."""
        published: list[PublishedEntry] = []
        for entry in entries:
            self.last_author = entry.author
            plan = self._in_flight.get(entry.hash)
            shown = _shown(entry, plan)
            self.loaded.advance(entry, plan.origin if plan else NOWHERE, shown.checkpoint)
            published.append(shown)
        own = [self._in_flight.pop(entry.hash, None) for entry in entries]
        if any(own):
            self._on_durable()
        if not self._in_flight:
            self._on_durable = _nothing
        self.listeners.publish(published)
        self.on_taken_in(len(published))
        for shown, plan in zip(published, own, strict=True):
            if plan is not None and plan.commit and shown.checkpoint:
                plan.commit.finish(shown.checkpoint)

    async def _jump(self, head: BoardHead) -> None:
        """Go to the journal's end at once, since entries that we have not seen became part of the base.

        What was in them is shown as one entry without an author that holds the whole board.
        """
        for plan in self._in_flight.values():
            if plan.commit is not None and plan.commit.request.idempotency_key is None:
                plan.commit.refuse(
                    StoreUnavailable("the store failed, and it is not known whether the commit was made")
                )
        self.loaded = loaded = await load_board(self._store, head, self.schemas.newest, client_id=self.client_id)
        entry = Entry(
            board_id=self.board_id,
            epoch=self.fold.epoch,
            seq=loaded.fold.seq,
            kind="update",
            author="",
            time_ms=self._clock.now_ms(),
            paths=(),
            checkpoint="",
            payload=b"",
            hash=loaded.fold.hash,
        )
        updates = [loaded.document.encode()]
        checkpoint = await self._store.checkpoint(self.board_id, loaded.fold.version)
        self.listeners.publish([PublishedEntry(entry, updates, None, checkpoint)])

    def _declare_newest(self) -> None:
        newest = self.schemas.newest
        if newest is not None and newest is not self.loaded.document.layout:
            self.loaded.document.declare(newest)
        self.loaded.track_scratch()

    async def _head(self) -> BoardHead:
        head, epoch = await self._store.head(self.board_id), self.fold.epoch
        if head is not None and head.epoch == epoch:
            return head
        for tombstone in await self._store.tombstones(self.board_id):
            if tombstone.epoch == epoch:
                raise deleted(tombstone)
        raise BoardCorrupt(f"board {self.board_id} is gone from the store", board_id=self.board_id, seq=None)


def _shown(entry: Entry, plan: Plan | None) -> PublishedEntry:
    if plan is not None:
        return PublishedEntry(entry, plan.updates, plan.source, plan.checkpoint, plan.corrections)
    checkpoint = decode_checkpoint(entry.checkpoint) if entry.checkpoint else None
    return PublishedEntry(entry, unpack_updates(entry.payload), None, checkpoint)
