"""Squashing the beginning of a board's journal into a base, while others go on writing the board.

The order makes every state between two steps one that loads to the same board:

1. The states of versions before the base that stay are stored, pinned, each verified by loading it back.
2. The records of checkpoints that stay are copied out of their entries.
3. One transaction moves the base. From then on nothing before it is read.
4. Entries before the base are removed in small steps, and their space is given back in small steps.

Whatever ends a compaction before 3 leaves pinned snapshots and copied records behind, which the next one replaces or
removes; after 3, `tidy` goes on, which opening the board and every later compaction call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BoardCorrupt, Conflict
from crdt_board.history.blame import Origin, Origins
from crdt_board.history.pins import handed_over, pins_of
from crdt_board.history.retention import CompactionReport, Retention, RetentionPlan, plan_retention
from crdt_board.journal import Entry, unpack_updates
from crdt_board.layout import NO_FIELDS
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.loading import UNUSABLE, LoadedBoard, entry_pages, load_board, open_truth, snapshot_digest
from crdt_board.schemas import BoardSchemas
from crdt_board.snapshots import capture, record_of
from crdt_board.store.contract import BaseMove, BaseRecord, BoardHead, SnapshotRecord, Store
from crdt_board.store.lookup import existing_head

_PAGE_CHECKPOINTS = 500
_REST_SECONDS_MIN = 0.001


@dataclass(slots=True)
class _Squashed:
    """What the entries before a new base add up to."""

    entries: int = 0
    entry_bytes: int = 0
    state_bytes: int = 0
    origins: Origins = field(default_factory=Origins)


class Compaction:
    """One compaction of one board, through its store alone: whoever has the board open need not know of it."""

    def __init__(
        self,
        store: Store,
        board_id: str,
        schemas: BoardSchemas,
        on_progress: Callable[[int, int], None],
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._store = store
        self._board_id = board_id
        self._schemas = schemas
        self._on_progress = on_progress
        self._limits = limits

    async def run(self, policy: Retention, *, dry_run: bool) -> CompactionReport:
        """See `BoardHistory.compact`."""
        head = await self._head()
        try:
            return await self._run(policy, head, dry_run=dry_run)
        except BoardCorrupt as error:
            if (await self._head()).base_seq == head.base_seq:
                raise
            raise self._was_first() from error

    async def _run(self, policy: Retention, head: BoardHead, *, dry_run: bool) -> CompactionReport:
        checkpoints = await self._checkpoints()
        plan = await self._plan(policy, head, checkpoints)
        keyed, left = await self._records(plan, checkpoints)
        squashed = _Squashed()
        if dry_run:
            await self._count(squashed, head, plan)
        else:
            if plan.base_seq > head.base_seq or plan.dropped:
                await self._squash(squashed, head, plan, keyed=keyed, left=left)
            await tidy(self._store, self._board_id, self._limits)
        return CompactionReport(
            board_id=self._board_id,
            dry_run=dry_run,
            base_seq=plan.base_seq,
            entries=squashed.entries,
            entry_bytes=squashed.entry_bytes,
            base_bytes=squashed.state_bytes,
            kept=plan.kept_ranges(),
            dropped=plan.dropped_ranges(),
            records=len(keyed),
        )

    async def _plan(self, policy: Retention, head: BoardHead, checkpoints: Sequence[Checkpoint]) -> RetentionPlan:
        """What is to be done; a pointer that a version which stays hands over makes another version stay."""
        pins = {} if policy.keeps_all else await pins_of(self._store, head)
        with_state = await self._store.snapshot_seqs(self._board_id, pinned=True)
        now_ms = await self._store.now_ms()
        while True:
            plan = plan_retention(policy, head, checkpoints, pins=pins, with_state=with_state, now_ms=now_ms)
            more = handed_over(made for made, _ in (*plan.pinned, *plan.whole))
            if policy.keeps_all or more.keys() <= pins.keys():
                return plan
            pins = {**more, **pins}

    async def _records(self, plan: RetentionPlan, checkpoints: Sequence[Checkpoint]) -> tuple[list[int], list[int]]:
        """The versions whose states go but not their records, since a repeat of the request must find its first result;
        and those whose records go, also where a compaction that came second has left them without a state."""
        keyed = set(await self._store.keyed_versions(self._board_id, at_most=_version_at(plan.base_seq, checkpoints)))
        kept = {made.version for made, _ in (*plan.pinned, *plan.whole)} | keyed
        left = [made.version for made in checkpoints if made.seq <= plan.base_seq and made.version not in kept]
        return [made.version for made in plan.dropped if made.version in keyed], left

    async def _count(self, squashed: _Squashed, head: BoardHead, plan: RetentionPlan) -> None:
        async for page in self._pages(head.base_seq, plan.base_seq):
            _add(squashed, page)
            self._on_progress(page[-1].seq - head.base_seq, plan.base_seq - head.base_seq)

    async def _squash(
        self, squashed: _Squashed, head: BoardHead, plan: RetentionPlan, *, keyed: Sequence[int], left: Sequence[int]
    ) -> None:
        loaded = await self._fold(squashed, head, plan)
        base = await self._base(loaded, squashed.origins, plan)
        squashed.state_bytes += len(base.data) + len(base.origins)
        first = [made.version for made, _ in plan.whole[:1]]
        kept = [*(made.version for made, _ in plan.pinned), *keyed, *first]
        for start in range(0, len(kept), _PAGE_CHECKPOINTS):
            await self._store.keep_checkpoints(self._board_id, kept[start : start + _PAGE_CHECKPOINTS])
        move = BaseMove(
            base=base,
            epoch=head.epoch,
            expected_seq=head.base_seq,
            pinned=[made.seq for made, _ in plan.pinned],
            forgotten=left,
        )
        if not await self._store.move_base(move):
            raise self._was_first()

    async def _fold(self, squashed: _Squashed, head: BoardHead, plan: RetentionPlan) -> LoadedBoard:
        """The board at the new base, from the old one on; states to be pinned are stored when the fold comes by."""
        before = await self._store.base(self._board_id)
        newest = self._schemas.newest
        if before is None:
            loaded = await load_board(self._store, head, newest, until=0)
        else:
            loaded = open_truth(before, head, newest)
            squashed.origins = origins_of(before)
        to_pin = {made.seq: made for made, _ in plan.pinned if made.seq > head.base_seq}
        if head.base_seq and head.base_seq in {made.seq for made, _ in plan.pinned}:
            made = next(made for made, _ in plan.pinned if made.seq == head.base_seq)
            squashed.state_bytes += await self._pin(loaded, made)
        async for page in self._pages(loaded.fold.seq, plan.base_seq):
            _add(squashed, page)
            for stretch in _cut(page, to_pin.keys()):
                loaded.take_in(stretch)
                made_here = to_pin.get(loaded.fold.seq)
                if made_here is not None:
                    squashed.state_bytes += await self._pin(loaded, made_here)
            for entry in page:
                squashed.origins.add(unpack_updates(entry.payload), Origin(entry.seq, entry.author, entry.time_ms))
            self._on_progress(loaded.fold.seq - head.base_seq, plan.base_seq - head.base_seq)
        if loaded.fold.seq != plan.base_seq:
            raise BoardCorrupt(
                f"board {self._board_id}: journal entry {loaded.fold.seq + 1} is missing",
                board_id=self._board_id,
                seq=loaded.fold.seq + 1,
            )
        return loaded

    async def _pin(self, loaded: LoadedBoard, checkpoint: Checkpoint) -> int:
        record = await self._verified(loaded, checkpoint)
        await self._store.save_snapshot(replace(record, pinned=True))
        return len(record.data)

    async def _base(self, loaded: LoadedBoard, origins: Origins, plan: RetentionPlan) -> BaseRecord:
        state = await self._verified(loaded, plan.whole[0][0] if plan.whole else None)
        base = BaseRecord(
            board_id=self._board_id,
            seq=state.seq,
            entry_hash=state.entry_hash,
            version=state.version,
            checkpoint_hash=state.checkpoint_hash,
            meta=state.meta,
            data=state.data,
            origins=await asyncio.to_thread(origins.encode),
            sha256="",
        )
        return replace(base, sha256=snapshot_digest(base))

    async def _verified(self, loaded: LoadedBoard, checkpoint: Checkpoint | None) -> SnapshotRecord:
        """The board as it is now, as a record that loads back, and has the state that the checkpoint recorded."""
        if checkpoint is not None:
            layout = await self._schemas.layout_of(checkpoint.schema_version) or NO_FIELDS
            if layout is not loaded.document.layout:
                loaded.document.declare(layout)
            if loaded.document.checksum() != checkpoint.checksum:
                raise BoardCorrupt(
                    f"board {self._board_id}: the state at version {checkpoint.version} does not have the checksum "
                    "that was recorded; nothing was squashed",
                    board_id=self._board_id,
                    seq=checkpoint.seq,
                )
        record = await record_of(self._board_id, capture(loaded))
        if record is None:
            raise BoardCorrupt(
                f"board {self._board_id}: the state at entry {loaded.fold.seq} does not load back; nothing was "
                "squashed",
                board_id=self._board_id,
                seq=loaded.fold.seq,
            )
        return record

    async def _pages(self, after: int, until: int) -> AsyncIterator[list[Entry]]:
        async for page in entry_pages(
            self._store, self._board_id, after=after, until=until, page_max=self._limits.compaction_page_entries
        ):
            yield page
            await asyncio.sleep(0)

    async def _checkpoints(self) -> list[Checkpoint]:
        """All of them, newest first."""
        found: list[Checkpoint] = []
        while True:
            before = found[-1].version if found else None
            page = await self._store.checkpoints(self._board_id, before=before, limit=_PAGE_CHECKPOINTS)
            if not page:
                return found
            found += page

    async def _head(self) -> BoardHead:
        return await existing_head(self._store, self._board_id)

    def _was_first(self) -> Conflict:
        return Conflict(f"board {self._board_id} was compacted by somebody else at the same time; look again")


async def tidy(store: Store, board_id: str, limits: Limits = DEFAULT_LIMITS) -> None:
    """Remove what a compaction left before the base, and give its space back, in small steps with pauses in between.

    Raises:
        StoreUnavailable: the store did not answer; calling it again goes on.
    """
    clock = asyncio.get_running_loop().time
    removed = False
    while True:
        began = clock()
        if not await store.drop_squashed(board_id, limit=limits.compaction_page_entries):
            break
        removed = True
        await _rest(clock() - began)
    while removed:
        began = clock()
        if not await store.give_back(limit_bytes=limits.compaction_page_bytes):
            break
        await _rest(clock() - began)


async def _rest(seconds: float) -> None:
    """As long as the step took: half of the time belongs to writers of other processes, who queue for no lock."""
    await asyncio.sleep(max(seconds, _REST_SECONDS_MIN))


def origins_of(base: BaseRecord) -> Origins:
    """Which of the entries that are gone brought what.

    Raises:
        BoardCorrupt: it cannot be read.
    """
    try:
        return Origins.decode(base.origins)
    except (*UNUSABLE, IndexError) as error:
        raise BoardCorrupt(
            f"board {base.board_id}: the authors in the base at entry {base.seq} cannot be read; restore the database "
            "from a backup",
            board_id=base.board_id,
            seq=base.seq,
        ) from error


def _add(squashed: _Squashed, page: Sequence[Entry]) -> None:
    squashed.entries += len(page)
    squashed.entry_bytes += sum(len(entry.payload) + len(entry.checkpoint) for entry in page)


def _cut(page: list[Entry], seqs: Collection[int]) -> list[list[Entry]]:
    """The page in pieces that end behind the entries at ``seqs``."""
    ends = [index for index, entry in enumerate(page, 1) if entry.seq in seqs]
    bounds = [0, *ends, len(page)]
    return [page[start:stop] for start, stop in pairwise(bounds) if stop > start]


def _version_at(seq: int, checkpoints: Sequence[Checkpoint]) -> int:
    """The newest version that entry ``seq`` or one before it made."""
    return next((made.version for made in checkpoints if made.seq <= seq), 0)
