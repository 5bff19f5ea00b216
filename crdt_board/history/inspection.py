"""Reading everything that is stored of a board and comparing it with what it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import ValidationError

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import Checkpoint, decode_checkpoint, is_intact
from crdt_board.document import Document
from crdt_board.errors import BoardCorrupt
from crdt_board.fold import Fold
from crdt_board.history.compaction import origins_of
from crdt_board.history.verification import Problem, RecordKind, Verification
from crdt_board.journal import Entry, verify_chain
from crdt_board.layout import NO_FIELDS, Layout
from crdt_board.loading import UNUSABLE, LoadedBoard, apply_entries, open_snapshot, open_truth
from crdt_board.store.contract import BoardHead, SnapshotRecord, Store
from crdt_board.store.lookup import existing_head

_PAGE_ENTRIES = 500
_PAGE_CHECKPOINTS = 1_000


class Inspection:
    """One walk over a board's journal, with everything else compared where the walk comes by.

    What is written meanwhile is left out. After a bad entry the walk cannot go on: no later state is known.
    """

    def __init__(self, store: Store, board_id: str, on_progress: Callable[[int, int], None]) -> None:
        self._store = store
        self._board_id = board_id
        self._on_progress = on_progress
        self._problems: list[Problem] = []
        self._snapshots: dict[int, SnapshotRecord] = {}
        self._checkpoints: dict[int, str] = {}
        self._layouts: list[Layout] = []
        self._good_version = 0

    async def run(self) -> Verification:
        head = await existing_head(self._store, self._board_id)
        snapshots = await self._read_snapshots(head)
        loaded = LoadedBoard(document=Document(strays=True), fold=Fold(epoch=head.epoch))
        if await self._read_schemas():
            await self._read_kept(head)
            found = await self._read_base(head) if head.base_seq else loaded
            if found is not None:
                loaded = found
                self._declare(loaded.document, len(self._layouts))
                await self._walk(loaded, head)
        await self._compare_checkpoints(head)
        return Verification(
            board_id=self._board_id,
            base_seq=head.base_seq,
            entries=max(0, loaded.fold.seq - head.base_seq),
            checkpoints=len(self._checkpoints),
            snapshots=snapshots,
            good_version=self._good_version,
            problems=tuple(self._problems),
        )

    async def _read_kept(self, head: BoardHead) -> None:
        """The checkpoints up to the base that are still there, and the states of those before it."""
        states = {seq: self._snapshots.pop(seq) for seq in sorted(self._snapshots) if seq < head.base_seq}
        try:
            kept = await self._kept_checkpoints(head)
        except BoardCorrupt as error:
            self._note("checkpoint", None, str(error))
            return
        for checkpoint in kept:
            number = checkpoint.version
            self._checkpoints[number] = checkpoint.hash
            if not is_intact(checkpoint):
                self._note("checkpoint", number, f"checkpoint {number} does not match its hash")
            elif checkpoint.seq in states:
                self._compare_kept(head, checkpoint, states[checkpoint.seq])

    async def _kept_checkpoints(self, head: BoardHead) -> list[Checkpoint]:
        """Those up to the base, in order."""
        kept: list[Checkpoint] = []
        before: int | None = None
        while head.base_seq:
            page = await self._store.checkpoints(self._board_id, before=before, limit=_PAGE_CHECKPOINTS)
            if not page:
                break
            kept += [checkpoint for checkpoint in page if checkpoint.seq <= head.base_seq]
            before = page[-1].version
        return kept[::-1]

    def _compare_kept(self, head: BoardHead, checkpoint: Checkpoint, record: SnapshotRecord) -> None:
        number = checkpoint.version
        try:
            found = open_truth(record, head, None)
        except BoardCorrupt as error:
            self._note("snapshot", record.seq, str(error))
            return
        if found.fold.checkpoint_hash != checkpoint.hash or not self._has_state_of(found, checkpoint):
            self._note("snapshot", record.seq, f"the state that was kept is not that of version {number}")
        else:
            self._good_version = number

    async def _read_base(self, head: BoardHead) -> LoadedBoard | None:
        try:
            base = await self._store.base(self._board_id)
            if base is None or base.seq != head.base_seq:
                raise BoardCorrupt("the base is missing", seq=head.base_seq)
            loaded = open_truth(base, head, None)
            origins_of(base)
        except BoardCorrupt as error:
            self._note("base", head.base_seq, str(error))
            return None
        number = loaded.fold.version
        checkpoint = await self._store.checkpoint(self._board_id, number) if number else None
        if number and loaded.fold.version_seq == base.seq:
            if checkpoint is None or checkpoint.hash != loaded.fold.checkpoint_hash:
                self._note("base", base.seq, f"the base is not at the version {number} that was recorded")
            elif not self._has_state_of(loaded, checkpoint):
                self._note("base", base.seq, f"the base does not have the checksum recorded for version {number}")
            else:
                self._good_version = number
        return loaded

    def _has_state_of(self, loaded: LoadedBoard, checkpoint: Checkpoint) -> bool:
        if not self._declare(loaded.document, checkpoint.schema_version):
            return False
        return loaded.document.checksum() == checkpoint.checksum

    async def _walk(self, loaded: LoadedBoard, head: BoardHead) -> None:
        while loaded.fold.seq < head.seq:
            after = loaded.fold.seq
            try:
                page = await self._store.entries(
                    self._board_id, after=after, limit=min(_PAGE_ENTRIES, head.seq - after)
                )
                if not page:
                    raise BoardCorrupt(f"journal entry {after + 1} is missing", seq=after + 1)
                self._take_page(loaded, page)
            except BoardCorrupt as error:
                self._note("entry", error.seq, str(error))
                return
            self._on_progress(loaded.fold.seq, head.seq)
        found = (loaded.fold.hash, loaded.fold.version, loaded.fold.checkpoint_hash)
        if found != (head.hash, head.version, head.checkpoint_hash):
            self._note("head", head.seq, "the head names another last entry or checkpoint than the journal has")

    def _take_page(self, loaded: LoadedBoard, page: list[Entry]) -> None:
        for stretch in self._stretches(page):
            verify_chain(loaded.fold.hash, loaded.fold.seq, stretch)
            previous = (loaded.fold.version, loaded.fold.checkpoint_hash)
            apply_entries(loaded, stretch)
            for entry in stretch:
                self._advance(loaded, entry)
            last = stretch[-1]
            if last.kind == "commit":
                self._compare_checkpoint(loaded, decode_checkpoint(last.checkpoint), last, previous)
            if last.seq in self._snapshots:
                self._compare_snapshot(loaded, self._snapshots.pop(last.seq))

    def _advance(self, loaded: LoadedBoard, entry: Entry) -> None:
        try:
            loaded.advance(entry)
        except (ValueError, AssertionError) as error:
            raise BoardCorrupt(f"journal entry {entry.seq} holds a checkpoint that is none", seq=entry.seq) from error

    def _stretches(self, page: list[Entry]) -> Iterator[list[Entry]]:
        """The page, cut behind every entry at which a state is compared."""
        stretch: list[Entry] = []
        for entry in page:
            stretch.append(entry)
            if entry.kind == "commit" or entry.seq in self._snapshots:
                yield stretch
                stretch = []
        if stretch:
            yield stretch

    def _compare_checkpoint(
        self, loaded: LoadedBoard, checkpoint: Checkpoint, entry: Entry, previous: tuple[int, str]
    ) -> None:
        self._checkpoints[checkpoint.version] = checkpoint.hash
        version, parent = previous
        number = checkpoint.version
        if not is_intact(checkpoint) or (checkpoint.board_id, checkpoint.seq) != (self._board_id, entry.seq):
            self._note("checkpoint", number, f"checkpoint {number} does not match its hash, or its entry")
        elif number != version + 1 or checkpoint.parent_hash != (parent or NO_CHECKPOINT):
            self._note("checkpoint", number, f"checkpoint {number} does not continue version {version}")
        elif not self._declare(loaded.document, checkpoint.schema_version):
            self._note("schema", checkpoint.schema_version, f"checkpoint {number} names a schema that is not stored")
        elif loaded.document.checksum() != checkpoint.checksum:
            self._note("checkpoint", number, f"the state at version {number} does not have the checksum recorded")
        else:
            self._good_version = number

    def _compare_snapshot(self, loaded: LoadedBoard, record: SnapshotRecord) -> None:
        layout = loaded.document.layout
        try:
            found = open_snapshot(record, loaded.fold.epoch, layout)
        except UNUSABLE as error:
            self._note("snapshot", record.seq, f"the snapshot at entry {record.seq} cannot be used: {error}")
            return
        if found.fold.hash != loaded.fold.hash or found.document.checksum() != loaded.document.checksum():
            self._note("snapshot", record.seq, f"the snapshot at entry {record.seq} differs from the journal")

    def _declare(self, document: Document, number: int) -> bool:
        layouts = self._layouts
        if number > len(layouts):
            return False
        layout = layouts[number - 1] if number else NO_FIELDS
        if layout is not document.layout:
            document.declare(layout)
        return True

    async def _read_schemas(self) -> bool:
        for number, record in enumerate(await self._store.schemas(self._board_id), start=1):
            if record.number != number:
                self._note("schema", number, f"schema {number} is missing (found {record.number})")
                return False
            try:
                layout = Layout.model_validate_json(record.document)
            except ValidationError as error:
                self._note("schema", number, f"schema {number} cannot be read: {error.error_count()} errors")
                return False
            if layout.fingerprint != record.fingerprint:
                self._note("schema", number, f"schema {number} does not have the fingerprint that stands beside it")
            self._layouts.append(layout)
        return True

    async def _read_snapshots(self, head: BoardHead) -> int:
        try:
            records = await self._store.snapshots(self._board_id)
        except BoardCorrupt as error:
            self._note("snapshot", error.seq, str(error))
            return 0
        self._snapshots = {record.seq: record for record in records if record.seq <= head.seq}
        return len(records)

    async def _compare_checkpoints(self, head: BoardHead) -> None:
        """The list of checkpoints is kept beside the journal: both must name the same ones."""
        before = head.version + 1
        while before > 1:
            try:
                page = await self._store.checkpoints(self._board_id, before=before, limit=_PAGE_CHECKPOINTS)
            except BoardCorrupt as error:
                self._note("checkpoint", None, str(error))
                return
            versions = [checkpoint.version for checkpoint in page if checkpoint.seq > head.base_seq]
            versions += [
                checkpoint.version for checkpoint in page[len(versions) :][:1]
            ]  # up to the base there are gaps
            expected = list(range(before - 1, before - 1 - len(versions), -1))
            if not page or versions != expected:
                missing = next((number for number in expected if number not in versions), before - 1)
                self._note("checkpoint", missing, f"checkpoint {missing} is missing from the list")
                return
            for checkpoint in page:
                if self._checkpoints.get(checkpoint.version, checkpoint.hash) != checkpoint.hash:
                    text = f"checkpoint {checkpoint.version} is listed otherwise than in the journal"
                    self._note("checkpoint", checkpoint.version, text)
            if page[-1].seq <= head.base_seq:
                return
            before = versions[-1]

    def _note(self, record: RecordKind, number: int | None, message: str) -> None:
        self._problems.append(Problem(record=record, number=number, message=message))
