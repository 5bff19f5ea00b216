"""Taking snapshots: captured in the writer's task, verified and compressed in a thread, then stored."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from crdt_board.errors import BoardError
from crdt_board.fold import Fold
from crdt_board.layout import Layout
from crdt_board.loading import LoadedBoard, compress_snapshot, encode_snapshot, snapshot_digest
from crdt_board.store.contract import SnapshotRecord, Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CapturedBoard:
    """A board's bytes at one ``seq``, taken between two batches, so that they hold durable content only."""

    raw: bytes
    checksum: str
    layout: Layout
    seq: int
    entry_hash: str
    version: int
    checkpoint_hash: str
    meta: str


def capture(loaded: LoadedBoard) -> CapturedBoard:
    """Copy the board as it is now; the counters since the last snapshot start again."""
    fold: Fold = loaded.fold
    loaded.entries_since_snapshot = loaded.bytes_since_snapshot = 0
    return CapturedBoard(
        raw=encode_snapshot(loaded.document, loaded.waiting),
        checksum=loaded.document.checksum(),
        layout=loaded.document.layout,
        seq=fold.seq,
        entry_hash=fold.hash,
        version=fold.version,
        checkpoint_hash=fold.checkpoint_hash,
        meta=fold.to_meta(),
    )


async def save(store: Store, board_id: str, captured: CapturedBoard, *, keep: int) -> None:
    """Verify the captured bytes by loading them back, and store them.

    A failure is logged and nothing else: the journal holds everything, and the next snapshot may work.
    """
    try:
        data = await asyncio.to_thread(compress_snapshot, captured.raw, captured.layout, captured.checksum)
        if data is None:
            logger.error("board %s: the snapshot at entry %d does not load back", board_id, captured.seq)
            return
        record = SnapshotRecord(
            board_id=board_id,
            seq=captured.seq,
            entry_hash=captured.entry_hash,
            version=captured.version,
            checkpoint_hash=captured.checkpoint_hash,
            meta=captured.meta,
            data=data,
            sha256="",
        )
        await store.save_snapshot(replace(record, sha256=snapshot_digest(record)), keep=keep)
    except BoardError as error:
        logger.warning("board %s: no snapshot at entry %d: %s", board_id, captured.seq, error)
    except Exception:  # the boundary of a background task
        logger.exception("board %s: no snapshot at entry %d", board_id, captured.seq)
