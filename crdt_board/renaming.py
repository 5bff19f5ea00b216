"""A board under another name: a copy with all its versions, whose chains are made anew. Pure.

The name and the epoch of a board are in the hash of every entry and of every checkpoint, so that no entry can pass for
one of another board. What was squashed into a base has left only the hash of its last entry, and of versions that are
gone only their hashes are known: these stay as they were, and what comes after them is chained to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from crdt_board.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint, make_checkpoint
from crdt_board.fold import Fold
from crdt_board.journal import GENESIS_HASH, Entry, make_entry
from crdt_board.loading import snapshot_digest
from crdt_board.store.contract import BaseRecord, NewBoard, SnapshotRecord

_State = TypeVar("_State", BaseRecord, SnapshotRecord)


def renamed(board: NewBoard, board_id: str, epoch: str) -> NewBoard:
    """A board that was verified, as one of this name and epoch: the same numbers, times, authors and updates.

    What its versions say of other boards, as where it was forked from, stays. Pointers in its content stay as well, and
    mean the board that it is a copy of.
    """
    copying = _Copying(board_id, epoch)
    kept = [copying.checkpoint(each) for each in board.kept]
    states = [copying.state(each) for each in board.states]
    base = None if board.base is None else copying.state(board.base)
    entries = copying.entries(board.beginning.entries, base.entry_hash if base is not None else GENESIS_HASH)
    beginning = replace(
        board.beginning, board_id=board_id, epoch=epoch, entries=entries, checkpoints=copying.in_entries
    )
    return replace(board, beginning=beginning, base=base, states=states, kept=kept)


class _Copying:
    """One board on its way. Checkpoints are given in the order of their versions, and before what names them."""

    def __init__(self, board_id: str, epoch: str) -> None:
        self._name = {"board_id": board_id, "epoch": epoch}
        self._hashes: dict[str, str] = {}
        """The new hash of a checkpoint by its old one; the hash of one that is gone stays as it was."""
        self.in_entries: list[Checkpoint] = []

    def checkpoint(self, made: Checkpoint) -> Checkpoint:
        content = {**dict(made), **self._name, "parent_hash": self._hashes.get(made.parent_hash, made.parent_hash)}
        del content["hash"]
        copy = make_checkpoint(**content)
        self._hashes[made.hash] = copy.hash
        return copy

    def state(self, record: _State) -> _State:
        fold = Fold.from_meta(
            record.meta,
            seq=record.seq,
            hash=record.entry_hash,
            version=record.version,
            checkpoint_hash=self._hashes.get(record.checkpoint_hash, record.checkpoint_hash),
        )
        fold.epoch = self._name["epoch"]
        copy = replace(
            record, board_id=self._name["board_id"], checkpoint_hash=fold.checkpoint_hash, meta=fold.to_meta()
        )
        return replace(copy, sha256=snapshot_digest(copy))

    def entries(self, entries: Sequence[Entry], previous: str) -> list[Entry]:
        copies: list[Entry] = []
        for entry in entries:
            checkpoint = entry.checkpoint
            if checkpoint:
                self.in_entries.append(self.checkpoint(decode_checkpoint(checkpoint)))
                checkpoint = encode_checkpoint(self.in_entries[-1])
            content = {name: getattr(entry, name) for name in _CONTENT}
            copies.append(make_entry(previous, **{**content, **self._name, "checkpoint": checkpoint}))
            previous = copies[-1].hash
        return copies


_CONTENT = ("seq", "kind", "author", "time_ms", "paths", "payload")
"""What stays of an entry."""
