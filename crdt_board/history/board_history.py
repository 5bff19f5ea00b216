"""Looking back at one board through its store, without its writer: states, differences, edits, authors, integrity."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TypeVar

import pycrdt
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from crdt_board.checkpoints import Checkpoint
from crdt_board.document import Document
from crdt_board.errors import BadRequest, BoardCorrupt, NotFound
from crdt_board.history.blame import Origin, Origins, Stretch, attribute
from crdt_board.history.compaction import Compaction, origins_of
from crdt_board.history.differences import StateDiff, state_differences
from crdt_board.history.edits import PathEdit, check_item, check_path, differences_at, index_in, may_touch
from crdt_board.history.following import Follower
from crdt_board.history.inspection import Inspection
from crdt_board.history.news import EntryPage, News, news_of
from crdt_board.history.retention import CompactionReport, Retention
from crdt_board.history.verification import Verification
from crdt_board.journal import unpack_updates, verify_chain
from crdt_board.layout import NO_FIELDS, Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.live import Snapshots
from crdt_board.loading import LoadedBoard, apply_entries, entry_pages, load_board
from crdt_board.paths import field_of
from crdt_board.positions import blocks_in_order
from crdt_board.schema import BoardModel
from crdt_board.schemas import BoardSchemas
from crdt_board.sizes import BoardSizes, board_sizes
from crdt_board.store.contract import BoardHead, Store
from crdt_board.store.lookup import existing_head
from crdt_board.wire_values import copy_wire

_PAGE_ENTRIES = 500
_PAGE_CHECKPOINTS = 1_000
_SCANNED_MAX = 5_000
_PAGE_FORKS = 1_000


ModelT = TypeVar("ModelT", bound=BoardModel)
_Dated = TypeVar("_Dated", PathEdit, Stretch)


def _no_progress(_read: int, _of: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PastState:
    """Fields in wire form as of entry ``seq``; ``version`` is the newest checkpoint then, ``checkpoint`` it if that is
    what was asked for."""

    seq: int
    version: int
    checkpoint: Checkpoint | None
    state: dict[str, JsonValue]


class Fork(BaseModel):
    """A board that was forked from this one at the version that the pointer ``parent`` names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    board_id: str
    parent: str
    created_ms: int


class BoardHistory:
    """What the store holds of one board's past. One look at a time: each takes memory and the loop's time.

    Everything here raises `StoreUnavailable` when the store does not answer, and `BoardCorrupt`, which names the first
    bad record, when what it reads does not verify.
    """

    def __init__(self, store: Store, board_id: str, schemas: BoardSchemas | None = None) -> None:
        """``schemas`` are read when they are needed first unless they are given."""
        self._store = store
        self._board_id = board_id
        self._schemas = schemas
        self._looking = asyncio.Lock()

    @classmethod
    async def open(cls, store: Store, board_id: str) -> BoardHistory:
        """The history of a board that nobody needs to have open.

        Raises:
            NotFound, BoardDeleted: there is no such board.
        """
        await existing_head(store, board_id)
        return cls(store, board_id)

    async def state_at(self, version: int) -> tuple[Checkpoint, dict[str, JsonValue]]:
        """A checkpoint and the board's state at it, in wire form, verified against the checkpoint's checksum.

        Raises:
            NotFound: there is no such version.
        """
        checkpoint, loaded = await self.load_version(version)
        return checkpoint, loaded.document.wire_state()

    async def states(self, first: int, last: int) -> AsyncIterator[tuple[Checkpoint, dict[str, JsonValue]]]:
        """The same for the versions from ``first`` to ``last``, oldest first; without those that were compacted away.

        The board is loaded once and then followed from version to version, where `state_at` loads it each time: a state
        costs what it differs from the one before in, and a copy of the others' containers. States share nothing that
        can be changed.
        """
        async for checkpoint, document in self._documents(first, last):
            yield checkpoint, {name: copy_wire(wire) for name, wire in document.wire_state().items()}

    async def snapshots(self, first: int, last: int, model: type[ModelT]) -> AsyncIterator[tuple[Checkpoint, ModelT]]:
        """The same as models.

        Raises:
            InvalidValue: a state does not fit ``model``; it may be of another schema.
        """
        snapshots = Snapshots(model)
        async for checkpoint, document in self._documents(first, last):
            yield checkpoint, snapshots.of(document)

    async def load_version(self, version: int) -> tuple[Checkpoint, LoadedBoard]:
        """A checkpoint, and a copy of the board as it was then, verified against the checkpoint's checksum.

        Raises:
            NotFound: there is no such version.
        """
        checkpoint = await self._checkpoint(version)
        async with self._looking:
            return checkpoint, await self._load_version(checkpoint)

    async def state(self, version: int | None) -> PastState:
        """The same, also of version 0, which is the empty board, and with None of what is durable now.

        Raises:
            NotFound: there is no such version.
        """
        if version:
            checkpoint, state = await self.state_at(version)
            return PastState(checkpoint.seq, version, checkpoint, state)
        async with self._looking:
            loaded = await self.load(version)
        return PastState(loaded.fold.seq, loaded.fold.version, None, loaded.document.wire_state())

    async def diff(self, before: int, after: int | None) -> StateDiff:
        """What differs between two versions, by path; ``after`` None is what is durable now.

        Raises:
            NotFound: there is no such version.
        """
        async with self._looking:
            sides: list[tuple[dict[str, JsonValue], Layout]] = []
            for version in (before, after):
                loaded = await self.load(version)
                sides.append((loaded.document.wire_state(), loaded.document.layout))
        (old, old_layout), (new, new_layout) = sides
        differences = state_differences(old, new, (old_layout, new_layout))
        return StateDiff(before_version=before, after_version=after, differences=differences)

    async def edits(self, path: str, *, before: int | None, limit: int) -> list[PathEdit]:
        """Up to ``limit`` entries with ``seq < before`` (all when None) that changed ``path``, newest first.

        ``path`` is a field, or a key or item inside one, as in `Board.changes`. Reads the journal backwards until there
        are enough, and once more forwards from the oldest of them. What was compacted away is not there any more.

        Raises:
            BadRequest: the path names no field, or a place that has no changes of its own.
        """
        head = await self._head()
        layout = await self._layout(None)
        check_path(path, layout)
        if index_in(path, layout):
            check_item(path, (await self.state(None)).state)
        end = head.seq + 1 if before is None else min(before, head.seq + 1)
        found: list[PathEdit] = []
        async with self._looking:
            while end > head.base_seq + 1 and len(found) < limit:
                marked, end = await self._marked(path, end, limit - len(found), head.base_seq + 1)
                if marked:
                    found += reversed(await self._edits_at(path, marked, head, layout))
        return await self._with_versions(found)

    async def entries(self, path: str, *, after: int, limit: int) -> EntryPage:
        """Up to ``limit`` entries after ``after`` that concern ``path`` (all that change something when empty), in
        order.

        Reads the journal forwards, `_SCANNED_MAX` entries at most: so there may be more behind a page without news.
        """
        news: list[News] = []
        until, end = after, after + _SCANNED_MAX
        while len(news) < limit and until < end:
            page = await self._store.entries(self._board_id, after=until, limit=_PAGE_ENTRIES)
            if not page or page[0].seq != until + 1:
                head = await self._head()
                if head.base_seq > until:
                    until = head.base_seq
                    news.append(News(seq=until, agent="", time_ms=0, squashed=True))
                    continue
                break
            for entry in page:
                found = news_of(entry, path)
                if found is not None:
                    news.append(found)
                until = entry.seq
                if len(news) == limit:
                    break
        return EntryPage(news=tuple(news), until=until)

    async def blame(self, path: str, version: int | None) -> list[Stretch]:
        """Who wrote each stretch of the text at ``path``, in the order of the text; as of now when ``version`` is None.

        Reads the whole journal up to there. What was written in entries that were compacted away is dated with the
        first version which holds it that was kept.

        Raises:
            NotFound: there is no such version, or no such record.
            BadRequest: the path names no text.
        """
        async with self._looking:
            loaded = await self.load(version)
            text = _text_of(loaded, path)
            base = await self._store.base(self._board_id)
            origins = Origins() if base is None else origins_of(base)
            after = base.seq if base is not None else 0
            async for page in entry_pages(self._store, self._board_id, after=after, until=loaded.fold.seq):
                for entry in page:
                    origins.add(unpack_updates(entry.payload), Origin(entry.seq, entry.author, entry.time_ms))
        found: list[Stretch] = []
        start = 0
        for content, origin in attribute(blocks_in_order(text) if text is not None else (), origins):
            stop = start + len(content)
            found.append(
                Stretch(
                    start=start,
                    stop=stop,
                    text=content,
                    agent=origin.author,
                    seq=origin.seq,
                    time_ms=origin.time_ms,
                )
            )
            start = stop
        return await self._with_versions(found)

    async def forks(self) -> list[Fork]:
        """The boards that were forked from this one, in the order of their ids."""
        heads: list[BoardHead] = []
        while page := await self._store.forks(
            self._board_id, after=heads[-1].board_id if heads else "", limit=_PAGE_FORKS
        ):
            heads += page
        return [Fork(board_id=head.board_id, parent=head.parent, created_ms=head.created_ms) for head in heads]

    async def sizes(self) -> BoardSizes:
        """How large the board is now, field by field and in the store, and how near its bounds."""
        async with self._looking:
            head = await self._head()
            loaded = await load_board(self._store, head, await self._layout(None))
            return board_sizes(loaded, head, await self._store.sizes(self._board_id), DEFAULT_LIMITS)

    async def verify(self, on_progress: Callable[[int, int], None] = _no_progress) -> Verification:
        """Read everything that is stored of the board and compare it: hashes, chains, states, snapshots, head.

        ``on_progress`` is called with how many entries were read, and of how many. Only `StoreUnavailable` is raised;
        what is wrong is in the result.
        """
        async with self._looking:
            return await Inspection(self._store, self._board_id, on_progress).run()

    async def retention(self) -> Retention:
        """Which versions the board keeps by itself; all of them until `set_retention` says otherwise.

        Raises:
            BoardCorrupt: what is stored is no retention.
        """
        stored = await self._store.retention(self._board_id)
        try:
            return Retention.model_validate_json(stored) if stored else Retention()
        except ValidationError as error:
            raise BoardCorrupt(
                f"board {self._board_id}: its retention cannot be read; set it again", board_id=self._board_id, seq=None
            ) from error

    async def set_retention(self, policy: Retention) -> None:
        """Say which versions the board keeps, from now on and in whatever process has it open; durable on return.

        A process that has it open compacts it accordingly after every 10,000 entries, and so does `compact` without a
        policy. Forks do not inherit it, and an export does not hold it.

        Raises:
            NotFound: there is no such board any more.
        """
        await self._store.set_retention(self._board_id, "" if policy == Retention() else policy.model_dump_json())

    async def compact(
        self,
        policy: Retention | None = None,
        *,
        dry_run: bool = False,
        on_progress: Callable[[int, int], None] = _no_progress,
    ) -> CompactionReport:
        """Squash what no version needs that the policy keeps; with ``dry_run`` only say what would go.

        Without a ``policy`` it is that of `retention`.

        The board may be open, and written, in any number of processes meanwhile. What the board holds does not change,
        nor do the ids of its items, so that clients which were away go on with a small difference. Versions that go
        answer `NotFound` from then on; edits before the oldest of the newest versions that stay are not in `edits` any
        more, but `blame` still knows who wrote them. Durable on return. Cancelled, or ended by a failure of the store,
        it has taken place or not, and the next compaction or opening removes what it left.

        Raises:
            Conflict: somebody else compacted the board at the same time.
            BoardCorrupt: what is to be squashed does not verify; nothing was removed.
        """
        async with self._looking:
            policy = await self.retention() if policy is None else policy
            schemas = await self._known_schemas()
            await schemas.reload()
            return await Compaction(self._store, self._board_id, schemas, on_progress).run(policy, dry_run=dry_run)

    async def _marked(self, path: str, end: int, wanted: int, first: int) -> tuple[list[int], int]:
        """The newest entries from ``first`` to before ``end`` that may have changed ``path``, ascending, and the next
        ``end``."""
        marked: list[int] = []
        while end > first and len(marked) < wanted:
            start = max(first, end - _PAGE_ENTRIES)
            page = await self._store.entries(self._board_id, after=start - 1, limit=end - start)
            for entry in reversed(page):
                if len(marked) == wanted:
                    break
                end = entry.seq
                if may_touch(entry, path):
                    marked.append(entry.seq)
            else:
                end = start
        return sorted(marked), end

    async def _edits_at(self, path: str, marked: list[int], head: BoardHead, layout: Layout) -> list[PathEdit]:
        """What the marked entries changed at ``path``; those that changed nothing there are left out."""
        name, wanted = field_of(path), set(marked)
        loaded = await load_board(self._store, head, layout, until=marked[0] - 1)
        state = loaded.document.wire_state([name])
        found: list[PathEdit] = []
        async for page in entry_pages(self._store, self._board_id, after=marked[0] - 1, until=marked[-1]):
            verify_chain(loaded.fold.hash, loaded.fold.seq, page)
            for entry in page:
                apply_entries(loaded, [entry])
                loaded.advance(entry)
                if entry.seq not in wanted:
                    continue
                before, state = state, loaded.document.wire_state([name])
                differences = differences_at(path, before, state, layout)
                if differences:
                    found.append(
                        PathEdit(seq=entry.seq, agent=entry.author, time_ms=entry.time_ms, differences=differences)
                    )
        return found

    async def _with_versions(self, found: list[_Dated]) -> list[_Dated]:
        """The same, each with the first checkpoint that holds it."""
        if not found:
            return []
        oldest = min(each.seq for each in found)
        checkpoints: list[Checkpoint] = []  # newest first
        before: int | None = None
        while not checkpoints or (checkpoints[-1].seq >= oldest and checkpoints[-1].version > 1):
            page = await self._store.checkpoints(self._board_id, before=before, limit=_PAGE_CHECKPOINTS)
            if not page:
                break
            checkpoints += page
            before = page[-1].version
        checkpoints.reverse()
        seqs = [checkpoint.seq for checkpoint in checkpoints]
        dated: list[_Dated] = []
        for each in found:
            index = bisect_left(seqs, each.seq)
            first = checkpoints[index] if index < len(seqs) else None
            dated.append(
                each.model_copy(update={"version": first.version, "step": first.step}) if first is not None else each
            )
        return dated

    async def load(self, version: int | None) -> LoadedBoard:
        """A copy of the board at a version; version 0 is the empty board, None what is durable now."""
        if version is None:
            return await load_board(self._store, await self._head(), await self._layout(None))
        if version == 0:
            return await load_board(self._store, await self._head(), await self._layout(None), until=0)
        return await self._load_version(await self._checkpoint(version))

    async def _load_version(self, checkpoint: Checkpoint) -> LoadedBoard:
        layout, head = await self._layout(checkpoint.schema_version), await self._head()
        try:
            loaded = await load_board(self._store, head, layout, until=checkpoint.seq)
        except NotFound:
            raise _compacted(self._board_id, checkpoint.version) from None
        self._check_sum(loaded, checkpoint)
        return loaded

    async def _documents(self, first: int, last: int) -> AsyncIterator[tuple[Checkpoint, Document]]:
        """The board at one version after the other: mostly the same document, which was brought forward."""
        follower: Follower | None = None
        schema_version = 0
        async for checkpoint in self._checkpoints(first, last):
            try:
                async with self._looking:
                    if (
                        follower is None
                        or checkpoint.schema_version != schema_version
                        or not await follower.follow(checkpoint.seq)
                    ):
                        follower = Follower(self._store, self._board_id, await self._load_version(checkpoint))
                        follower.loaded.document.keep_wires()
                    else:
                        self._check_sum(follower.loaded, checkpoint)
            except NotFound:  # its record was kept, for the key that led to it; its state was not
                follower = None
                continue
            schema_version = checkpoint.schema_version
            yield checkpoint, follower.loaded.document

    def _check_sum(self, loaded: LoadedBoard, checkpoint: Checkpoint) -> None:
        if loaded.document.checksum() != checkpoint.checksum:
            raise BoardCorrupt(
                f"board {self._board_id}: the state at version {checkpoint.version} does not have the checksum that "
                "was recorded",
                board_id=self._board_id,
                seq=checkpoint.seq,
            )

    async def _checkpoints(self, first: int, last: int) -> AsyncIterator[Checkpoint]:
        """Those of which there is a record, oldest first."""
        last = min(last, (await self._head()).version)
        for start in range(max(first, 1), last + 1, _PAGE_CHECKPOINTS):
            end = min(start + _PAGE_CHECKPOINTS, last + 1)
            for checkpoint in reversed(await self._store.checkpoints(self._board_id, before=end, limit=end - start)):
                if checkpoint.version >= start:
                    yield checkpoint

    async def _checkpoint(self, version: int) -> Checkpoint:
        checkpoint = await self._store.checkpoint(self._board_id, version)
        if checkpoint is None:
            newest = (await self._head()).version
            if 0 < version <= newest:
                raise _compacted(self._board_id, version)
            raise NotFound(f"board {self._board_id} has no version {version}; the newest is {newest}")
        return checkpoint

    async def _layout(self, number: int | None) -> Layout:
        """The schema under a number, the newest when None; an empty one when no model was ever used."""
        schemas = await self._known_schemas()
        if number is None:
            await schemas.reload()
            return schemas.newest or NO_FIELDS
        return await schemas.layout_of(number) or NO_FIELDS

    async def _known_schemas(self) -> BoardSchemas:
        if self._schemas is None:
            self._schemas = BoardSchemas(self._store, self._board_id, await self._store.schemas(self._board_id))
        return self._schemas

    async def _head(self) -> BoardHead:
        return await existing_head(self._store, self._board_id)


def _compacted(board_id: str, version: int) -> NotFound:
    return NotFound(
        f"version {version} of board {board_id} was compacted away; list the checkpoints for those that were kept",
        board_id=board_id,
        version=version,
    )


def _text_of(loaded: LoadedBoard, path: str) -> pycrdt.Text | None:
    """The text at ``path``, None when nobody has made it yet."""
    document = loaded.document
    try:
        is_text = document.field_at(path).kind == "text"
    except KeyError:
        is_text = False
    if not is_text:
        raise BadRequest(f"{path} is no text of this board: blame tells who wrote each stretch of a Text field")
    holder = path.rpartition("/")[0]
    if holder and document.find(holder, pycrdt.Map) is None:
        raise NotFound(f"there is no {holder} on this board")
    return document.find(path, pycrdt.Text)
