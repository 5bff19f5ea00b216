"""Asking the store what a commit was made on: where its version stands in the journal, and who used its key."""

from __future__ import annotations

from crdt_board.batches import CommitItem
from crdt_board.checkpoints import CommitRequest
from crdt_board.errors import IdempotencyMismatch, NotFound
from crdt_board.store.contract import Store
from crdt_board.tail import Tail


async def look_up(commit: CommitItem, tail: Tail, store: Store) -> None:
    """Find where the commit's preconditions start, and answer it if its idempotency key was used.

    Raises:
        StoreUnavailable: the store did not answer; nothing was decided.
    """
    request = commit.request
    if (request.expected_version or 0) > tail.fold.version:
        await tail.catch_up()  # another process made it, and handed it over
    commit.base_seq = await _base_seq(request, tail, store)
    if request.idempotency_key is None:
        return
    record = (await store.keys(tail.board_id, [request.idempotency_key])).get(request.idempotency_key)
    if record is None:
        return
    if record.version > tail.fold.version:
        await tail.catch_up()
    if record.fingerprint != request.fingerprint:
        commit.refuse(
            IdempotencyMismatch(
                f"idempotency key {record.key!r} was used for another request, which made version {record.version}",
                key=record.key,
                version=record.version,
            )
        )
        return
    checkpoint = await store.checkpoint(tail.board_id, record.version)
    if checkpoint is None:
        commit.refuse(NotFound(f"version {record.version} of board {tail.board_id} is gone"))
    else:
        commit.finish(checkpoint)


async def _base_seq(request: CommitRequest, tail: Tail, store: Store) -> int:
    if request.reads is not None and request.base_seq is not None:
        return request.base_seq
    if not request.expected_version:
        return 0
    if request.expected_version == tail.fold.version:
        return tail.fold.version_seq
    # Where the version was compacted away, the one before it: that finds too many changes rather than too few.
    found = await store.checkpoints(tail.board_id, before=request.expected_version + 1, limit=1)
    return found[0].seq if found else 0
