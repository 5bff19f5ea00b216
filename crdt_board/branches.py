"""What a fork holds, on its way back into the board that it came from."""

from __future__ import annotations

from dataclasses import dataclass

from crdt_board.batches import Merged
from crdt_board.checkpoints import Pointer, parse_pointer
from crdt_board.document import Document
from crdt_board.errors import BadRequest, SchemaMismatch, VersionConflict
from crdt_board.forks import State, decided_on_both_sides, decision_conflict
from crdt_board.history import BoardHistory
from crdt_board.layout import Layout
from crdt_board.schemas import BoardSchemas
from crdt_board.store.contract import BoardHead, Store
from crdt_board.store.lookup import existing_head

_PAGE_CHECKPOINTS = 1_000


@dataclass(frozen=True, slots=True)
class Branch:
    """A fork as it is now. ``bases`` are states in which both boards were alike: the fork's first, those of merges."""

    fork_id: str
    layout: Layout | None
    bases: tuple[State, ...]
    state: State
    merged: Merged
    author: str

    @property
    def strict(self) -> tuple[str, ...]:
        """The strict fields."""
        return tuple(field.name for field in self.layout.fields if field.kind == "strict") if self.layout else ()

    def brings_news_to(self, document: Document) -> bool:
        """Whether it has written, or deleted, what a document does not know of: something that a merge would bring.

        Tasks and the like stay with the fork, and do not count.
        """
        copy = Document(document.layout, strays=True)
        copy.apply_or_raise([document.encode()])
        before = copy.ledger.everything()
        copy.take_touched()
        copy.apply_or_raise([self.merged.update])
        after = copy.ledger.everything()
        comes = any(record.as_merged(0) is not None for key, record in after.items() if key not in before)
        return comes or bool(copy.take_touched())

    def conflict_with(self, document: Document, version: int, seq: int) -> VersionConflict | None:
        """Why this cannot be merged into a document, or None."""
        names = decided_on_both_sides(self.bases, document.wire_state(), self.state, self.strict)
        return decision_conflict(names, self.fork_id, version=version, author=self.author, seq=seq) if names else None


async def open_branch(store: Store, board_id: str, fork_id: str) -> Branch:
    """Read a fork of a board, or the board that it was forked from.

    Raises:
        NotFound, BoardDeleted: there is no board ``fork_id``, or what both have in common is gone.
        BadRequest: neither of the two was forked from the other.
        SchemaMismatch: one of them was migrated since.
    """
    fork, board = await existing_head(store, fork_id), await existing_head(store, board_id)
    origin = _origin(fork, board) or _origin(board, fork)
    if origin is None:
        raise BadRequest(f"neither of {fork_id} and {board_id} was forked from the other")
    for each in (fork_id, board_id):
        await _check_not_migrated(store, each, origin)
    loaded = await (await BoardHistory.open(store, fork_id)).load(None)
    newest = await store.checkpoint(fork_id, loaded.fold.version)
    document = loaded.document
    return Branch(
        fork_id=fork_id,
        layout=document.layout if document.layout.fields else None,
        bases=tuple([await _state_at(store, pointer) for pointer in await _meetings(store, origin, board_id, fork_id)]),
        state=document.wire_state(),
        merged=Merged(document.encode(), newest.pointer if newest else ""),
        author=loaded.fold.version_author,
    )


async def _check_not_migrated(store: Store, board_id: str, origin: Pointer) -> None:
    """Migrations write values anew; were they written on both sides, both would be there after a merge."""
    begin = await store.checkpoint(origin.board_id, origin.version)
    schemas = BoardSchemas(store, board_id, await store.schemas(board_id))
    number = begin.schema_version if begin is not None else schemas.number
    if number and schemas.last_like(number) != schemas.number:
        raise SchemaMismatch(
            f"board {board_id} was migrated from schema {number} to {schemas.number} since the fork; a fork is merged "
            "before either side is migrated",
            fields=[],
            board_schema=schemas.number,
        )


def _origin(fork: BoardHead, parent: BoardHead) -> Pointer | None:
    """Where ``fork`` was forked from ``parent``, None when it was not."""
    pointer = parse_pointer(fork.parent) if fork.parent else None
    return pointer if pointer is not None and pointer.board_id == parent.board_id else None


async def _meetings(store: Store, origin: Pointer, board_id: str, fork_id: str) -> list[Pointer]:
    """The versions at which both were alike: where the fork began, and the last merge in each direction."""
    meetings = [origin]
    for here, there in ((board_id, fork_id), (fork_id, board_id)):
        before: int | None = None
        merge: Pointer | None = None
        while merge is None and (page := await store.checkpoints(here, before=before, limit=_PAGE_CHECKPOINTS)):
            sources = [parse_pointer(made.merged_from) for made in page if made.merged_from]
            merge = next((source for source in sources if source.board_id == there), None)
            before = page[-1].version
        if merge is not None:
            meetings.append(merge)
    return meetings


async def _state_at(store: Store, pointer: Pointer) -> State:
    return (await (await BoardHistory.open(store, pointer.board_id)).state_at(pointer.version))[1]
