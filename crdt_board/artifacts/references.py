"""Which artifacts boards refer to: now, in every entry of their journals, and in every version that can be read.

What is looked for is the hash, in whatever is stored: pointers stand whole in entries, checkpoints, bases and pinned
states, since no value is ever cut. Only a text may hold a pointer that was written in pieces; so texts are also
read as they are now, and as they were at each version.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from crdt_board.artifacts.pointer import SCHEME
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import BoardCorrupt
from crdt_board.journal import GENESIS_HASH, Entry, verify_chain
from crdt_board.layout import FieldLayout, Layout
from crdt_board.loading import LoadedBoard, entry_pages, load_board, open_truth, snapshot_digest
from crdt_board.paths import field_of
from crdt_board.schemas import BoardSchemas
from crdt_board.store.contract import BaseRecord, BoardHead, SnapshotRecord, Store

_PAGE = 500
_FOLDED_AT_ONCE = 200
_DIGIT, _OTHER = b"x", b"-"
_MARKS = bytes(_DIGIT[0] if byte in b"0123456789abcdef" else _OTHER[0] for byte in range(256))
_RUN = _DIGIT * 64
_POINTER = re.compile(SCHEME.encode() + rb"([0-9a-f]{64})")


class Finding(Protocol):
    """What is looked for in the content of a board."""

    @property
    def is_partial(self) -> bool:
        """Whether there may be more of it in texts, where it was written in pieces."""
        ...

    def take(self, contents: Iterable[bytes]) -> None: ...


@dataclass(slots=True)
class References:
    """Of ``wanted`` hashes, those that are not found yet; and where the journals ended that were read."""

    wanted: set[str]
    read_to: dict[str, BoardHead] = field(default_factory=dict)
    """The heads that boards had when they were read."""

    @property
    def is_partial(self) -> bool:
        return bool(self.wanted)

    def take(self, contents: Iterable[bytes]) -> None:
        for content in contents if self.wanted else ():
            self.wanted.difference_update(hashes_in(content, self.wanted))


@dataclass(slots=True)
class _Pointed:
    """Of ``stored`` hashes those that are not found yet; and all that were found, be it these or in a whole pointer."""

    stored: set[str]
    found: set[str] = field(default_factory=set)

    @property
    def is_partial(self) -> bool:
        return bool(self.stored)

    def take(self, contents: Iterable[bytes]) -> None:
        for content in contents:
            self.found.update(match[1].decode() for match in _POINTER.finditer(content))
            if self.stored:
                self.found.update(hashes_in(content, self.stored))
        self.stored -= self.found


def hashes_in(content: bytes, wanted: Collection[str]) -> Iterator[str]:
    """Those of ``wanted`` that stand in ``content``, also inside a longer run of hex digits."""
    marks = content.translate(_MARKS)
    begin = marks.find(_RUN)
    while begin >= 0:
        end = marks.find(_OTHER, begin) % (len(marks) + 1)  # -1 is the end
        digits = content[begin:end].decode()
        for start in range(len(digits) - 63):
            if digits[start : start + 64] in wanted:
                yield digits[start : start + 64]
        begin = marks.find(_RUN, end)


async def strike_out_referenced(store: Store, references: References) -> bool:
    """Remove from ``wanted`` what boards refer to; False when no board has moved since the last call.

    Raises:
        BoardCorrupt: a board cannot be read, so that nothing is known of what it refers to.
        StoreUnavailable: the store did not answer.
    """
    moved = False
    after = ""
    while heads := await store.boards(after=after, limit=_PAGE):
        after = heads[-1].board_id
        for head in heads:
            if references.read_to.get(head.board_id) != head:
                moved = True
                await _read_board(store, head, references)
    return moved


async def artifacts_of_board(store: Store, head: BoardHead, stored: Collection[str]) -> set[str]:
    """The hashes of all artifacts that a board refers to, up to its head: those of ``stored`` whose hash stands in it,
    and others, which are missing, when they stand in a pointer.

    A pointer to what is missing is not seen where it was written into a text in pieces.

    Raises:
        BoardCorrupt: the board cannot be read, or was compacted meanwhile.
        StoreUnavailable: the store did not answer.
    """
    pointed = _Pointed(set(stored))
    await _BoardReading(store, head, pointed).read(None)
    return pointed.found


async def _read_board(store: Store, head: BoardHead, references: References) -> None:
    while True:
        before = references.read_to.get(head.board_id)
        after = before if before is not None and _goes_on(before, head) else None
        try:
            await _BoardReading(store, head, references).read(after)
        except BoardCorrupt:
            now = await store.head(head.board_id)
            if now is not None and _goes_on(head, now):
                raise
        now = await store.head(head.board_id)
        if now is None:
            return  # it was deleted meanwhile
        if _goes_on(head, now):
            references.read_to[head.board_id] = head
            return
        head = now  # it was compacted or made anew meanwhile


def _goes_on(before: BoardHead, now: BoardHead) -> bool:
    return (before.epoch, before.base_seq) == (now.epoch, now.base_seq)


class _BoardReading:
    """One board, read up to its head."""

    def __init__(self, store: Store, head: BoardHead, finding: Finding) -> None:
        self._store = store
        self._head = head
        self._finding = finding
        self._schemas = BoardSchemas(store, head.board_id, ())

    async def read(self, after: BoardHead | None) -> None:
        """Everything, or what came since the head ``after``; then texts, if something is still not found."""
        head = self._head
        await self._schemas.reload()
        kept = await self._read_what_was_kept() if after is None else []
        if after is not None:
            await self._read_entries(after.hash, after.seq)
        else:
            await self._read_entries(kept[-1].entry_hash if kept else GENESIS_HASH, head.base_seq)
        if self._finding.is_partial and any(map(_texts_of, self._schemas.layouts)):
            for each in kept:
                await self._take_texts(open_truth(each, head, self._schemas.newest), each.version)
            await self._read_texts(kept, after.seq if after is not None else 0)

    async def _read_entries(self, last: str, last_seq: int) -> None:
        head = self._head
        async for page in entry_pages(self._store, head.board_id, after=last_seq, until=head.seq, page_max=_PAGE):
            last, last_seq = await in_thread(verify_chain, last, last_seq, page)
            await self._take([content for entry in page for content in (entry.payload, entry.checkpoint.encode())])
        if (last_seq, last) != (head.seq, head.hash):
            raise BoardCorrupt(
                f"board {head.board_id}: the journal ends at entry {last_seq}, its head says {head.seq}",
                board_id=head.board_id,
                seq=last_seq + 1,
            )

    async def _read_what_was_kept(self) -> list[SnapshotRecord | BaseRecord]:
        """What is left of the journal before the base: records of checkpoints, pinned states, and the base, which is
        the last one of the list."""
        head, store = self._head, self._store
        kept: list[SnapshotRecord | BaseRecord] = []
        base = await store.base(head.board_id) if head.base_seq else None
        if base is None:
            return kept
        for seq in await store.snapshot_seqs(head.board_id, pinned=True):
            kept += await store.snapshots(head.board_id, at_most=seq, limit=1)
        kept.append(base)
        await self._take([self._unpacked(each) for each in kept])
        before = base.version + 1
        while page := await store.checkpoints(head.board_id, before=before, limit=_PAGE):
            await self._take([each.model_dump_json().encode() for each in page])
            before = page[-1].version
        return kept

    def _unpacked(self, kept: SnapshotRecord | BaseRecord) -> bytes:
        with contextlib.suppress(zlib.error):
            if snapshot_digest(kept) == kept.sha256:
                return zlib.decompress(kept.data)
        raise BoardCorrupt(
            f"board {kept.board_id}: the state that was kept at entry {kept.seq} is damaged; restore the database "
            "from a backup",
            board_id=kept.board_id,
            seq=kept.seq,
        )

    async def _read_texts(self, kept: Sequence[SnapshotRecord | BaseRecord], after: int) -> None:
        """What texts were at each version that the journal leads to, and are now."""
        head, newest = self._head, self._schemas.newest
        if kept:
            loaded = open_truth(kept[-1], head, newest)
        else:
            loaded = await load_board(self._store, head, newest, until=after)
        is_new = False
        pages = entry_pages(self._store, head.board_id, after=loaded.fold.seq, until=head.seq, page_max=_FOLDED_AT_ONCE)
        async for page in pages:
            for stretch in _ended_by_commits(page):
                loaded.take_in(stretch)
                is_new = is_new or any(map(self._may_change_texts, stretch))
                if is_new and stretch[-1].kind == "commit":
                    await self._take_texts(loaded, loaded.fold.version)
                    is_new = False
            await asyncio.sleep(0)
        await self._take_texts(loaded, None)

    async def _take_texts(self, loaded: LoadedBoard, version: int | None) -> None:
        """What texts are in a document, which is that of a version when one is given."""
        made = await self._store.checkpoint(self._head.board_id, version) if version else None
        layout = self._schemas.newest if made is None else await self._schemas.layout_of(made.schema_version)
        if layout is None:
            return
        if layout is not loaded.document.layout:
            loaded.document.declare(layout)
        texts = [loaded.document.wire_state((name,)) for name in _texts_of(layout)]
        await self._take([json.dumps(each).encode() for each in texts])

    def _may_change_texts(self, entry: Entry) -> bool:
        """What is in an entry that says nothing of what it touched may be anything."""
        if not entry.payload:
            return False
        return not entry.paths or not self._plain_fields.issuperset(map(field_of, entry.paths))

    @cached_property
    def _plain_fields(self) -> frozenset[str]:
        """Fields that hold no text under any schema."""
        layouts = self._schemas.layouts
        texts = {name for layout in layouts for name in _texts_of(layout)}
        return frozenset(field.name for layout in layouts for field in layout.fields) - texts

    async def _take(self, contents: Sequence[bytes]) -> None:
        await in_thread(self._finding.take, contents)


def _texts_of(layout: Layout) -> list[str]:
    """The fields that are texts, or hold records that may have some."""
    return [field.name for field in layout.fields if _has_text(field)]


def _has_text(field: FieldLayout) -> bool:
    return field.kind == "text" or any(map(_has_text, field.fields))


def _ended_by_commits(page: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The page in stretches, each up to a commit or to the end."""
    begin = 0
    for end, entry in enumerate(page, 1):
        if entry.kind == "commit" or end == len(page):
            yield list(page[begin:end])
            begin = end
