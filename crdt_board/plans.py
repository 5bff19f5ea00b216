"""Entries to be: what is known of one before it is sealed, and sealing them into the chain of the journal.

Pure: it reads the fold that they continue, and no document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crdt_board.batches import CommitItem
from crdt_board.checkpoints import Checkpoint, CommitRequest, encode_checkpoint, make_checkpoint
from crdt_board.fold import NOWHERE, Fold
from crdt_board.journal import Entry, EntryKind, make_entry, pack_updates
from crdt_board.loading import LoadedBoard
from crdt_board.paths import field_of
from crdt_board.store.contract import Append, KeyRecord, SchemaRecord
from crdt_board.validity import NOTHING_UNFOLDED, Unfolded

SEVERAL = object()
"""The source of an entry of several peers."""


@dataclass(slots=True, eq=False)
class Plan:
    """One entry to be; its updates are in the document already.

    ``source`` is whose they are, None for the engine's own, `SEVERAL` where there are more. ``corrections`` are the
    parts of ``updates`` that take back what was refused, which the source does not have. ``supersedes``: it closes
    approvals that are pending.
    """

    kind: EntryKind
    author: str
    source: object
    updates: list[bytes]
    paths: tuple[str, ...]
    origin: str = NOWHERE
    commit: CommitItem | None = None
    checksum: str = ""
    corrections: list[bytes] = field(default_factory=list)
    supersedes: bool = False
    checkpoint: Checkpoint | None = None
    """What a commit's entry makes; sealed last."""


def seal(loaded: LoadedBoard, plans: Sequence[Plan], *, board_id: str, schema_version: int, now_ms: int) -> list[Entry]:
    """The entries that continue the journal after the fold, chained; a commit's carries its checkpoint."""
    fold = loaded.fold
    entries: list[Entry] = []
    previous = fold.hash
    for seq, plan in enumerate(plans, start=fold.seq + 1):
        checkpoint = ""
        if plan.commit is not None:
            plan.checkpoint = _checkpoint(
                plan, plan.commit.request, plans, fold,
                board_id=board_id, seq=seq, schema_version=schema_version, now_ms=now_ms,
            )  # fmt: skip
            checkpoint = encode_checkpoint(plan.checkpoint)
        entry = make_entry(
            previous,
            board_id=board_id,
            epoch=fold.epoch,
            seq=seq,
            kind=plan.kind,
            author=plan.author,
            time_ms=now_ms,
            paths=plan.paths,
            checkpoint=checkpoint,
            payload=pack_updates(plan.updates),
        )
        entries.append(entry)
        previous = entry.hash
    return entries


def append_request(
    entries: Sequence[Entry], plans: Sequence[Plan], *, expected_seq: int, schemas: Sequence[SchemaRecord] = ()
) -> Append:
    """What the store is asked for: the entries, with the commit's checkpoint and idempotency key."""
    checkpoints = [plan.checkpoint for plan in plans if plan.checkpoint is not None]
    request = plans[-1].commit.request if plans[-1].commit else None
    keys: list[KeyRecord] = []
    if request is not None and request.idempotency_key is not None:
        version = checkpoints[-1].version
        keys.append(KeyRecord(key=request.idempotency_key, fingerprint=request.fingerprint, version=version))
    return Append(
        board_id=entries[0].board_id,
        epoch=entries[0].epoch,
        expected_seq=expected_seq,
        entries=entries,
        checkpoints=checkpoints,
        keys=keys,
        schemas=schemas,
    )


def unfolded_by(plans: Sequence[Plan], origin: str) -> Unfolded:
    """What these plans change, and what of it was not written by the replica ``origin``."""
    if not plans:
        return NOTHING_UNFOLDED
    strange = [plan for plan in plans if not plan.origin or plan.origin != origin]
    fields, others = (frozenset(field_of(path) for plan in each for path in plan.paths) for each in (plans, strange))
    return Unfolded(len(plans), fields, others)


def _checkpoint(
    plan: Plan,
    request: CommitRequest,
    plans: Sequence[Plan],
    fold: Fold,
    *,
    board_id: str,
    seq: int,
    schema_version: int,
    now_ms: int,
) -> Checkpoint:
    changed = set(fold.changed_since(fold.version_seq))
    changed.update(field_of(path) for other in plans for path in other.paths)
    return make_checkpoint(
        board_id=board_id,
        epoch=fold.epoch,
        version=fold.version + 1,
        seq=seq,
        parent_hash=fold.checkpoint_hash,
        checksum=plan.checksum,
        agent=request.agent,
        step=request.step,
        schema_version=schema_version,
        time_ms=now_ms,
        fields=tuple(sorted(changed)),
        tags=request.tags,
        output=request.output,
        confidence=request.confidence,
        trace=request.trace,
        handoff=request.handoff,
        merged_from=plan.commit.merged.pointer if plan.commit is not None and plan.commit.merged is not None else None,
    )
