"""What every store takes for granted about an append, asserted once for all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crdt_board.errors import BoardDeleted
from crdt_board.store.contract import Append, Tombstone


def assert_sound(requests: Sequence[Append]) -> None:
    """Fail when the writer of a board made a request that no store could ever write.

    The entries follow ``expected_seq`` without gaps under one board and epoch, the checkpoints are those of the
    commit entries, their versions follow each other, schemas come with a migration entry, and no board occurs twice.
    """
    boards = [request.board_id for request in requests]
    assert len(set(boards)) == len(boards), f"a board occurs twice in one append: {boards}"
    for request in requests:
        _assert_entries(request)
        _assert_checkpoints(request)
        _assert_schemas(request)


def deleted(tombstone: Tombstone) -> BoardDeleted:
    """The error for whoever asks for a board of which this is left."""
    return BoardDeleted(
        f"board {tombstone.board_id} was deleted by {tombstone.agent}; create it anew, or use another name",
        board_id=tombstone.board_id,
        deleted_ms=tombstone.deleted_ms,
        agent=tombstone.agent,
    )


def _assert_entries(request: Append) -> None:
    assert request.entries, f"nothing to append to {request.board_id}"
    for seq, entry in enumerate(request.entries, request.expected_seq + 1):
        assert entry.seq == seq, (request.board_id, entry.seq, seq)
        assert entry.board_id == request.board_id, (entry.board_id, request.board_id)
        assert entry.epoch == request.epoch, (request.board_id, entry.epoch, request.epoch)
        assert bool(entry.checkpoint) == (entry.kind == "commit"), (request.board_id, seq, entry.kind)


def _assert_checkpoints(request: Append) -> None:
    commits = [entry.seq for entry in request.entries if entry.kind == "commit"]
    made = [checkpoint.seq for checkpoint in request.checkpoints]
    assert made == commits, (request.board_id, made, commits)
    versions = [checkpoint.version for checkpoint in request.checkpoints]
    assert not versions or versions == list(range(versions[0], versions[0] + len(versions))), versions


def _assert_schemas(request: Append) -> None:
    numbers = [schema.number for schema in request.schemas]
    assert not numbers or numbers == list(range(numbers[0], numbers[0] + len(numbers))), (request.board_id, numbers)
    assert not numbers or any(entry.kind == "migration" for entry in request.entries), (request.board_id, numbers)
