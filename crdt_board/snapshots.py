"""Taking snapshots: captured in the writer's task, verified and compressed beside it, then stored.

The newest ones make opening fast. Of older ones a bounded number stays, spread over the journal, so that a version far
back is never far from one of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from crdt_board.errors import BoardError
from crdt_board.fold import Fold
from crdt_board.layout import Layout
from crdt_board.limits import Limits
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
        raw=encode_snapshot(loaded.document),
        checksum=loaded.document.checksum(),
        layout=loaded.document.layout,
        seq=fold.seq,
        entry_hash=fold.hash,
        version=fold.version,
        checkpoint_hash=fold.checkpoint_hash,
        meta=fold.to_meta(),
    )


Compress = Callable[[bytes, Layout, str], Awaitable[bytes | None]]
"""As `compress_snapshot`, while the event loop goes on."""


async def compress_in_thread(data: bytes, layout: Layout, expected_checksum: str) -> bytes | None:
    """As `compress_snapshot`. All other threads wait while yrs loads the bytes, since it holds the interpreter's lock:
    half a millisecond for a thousand items."""
    return await asyncio.to_thread(compress_snapshot, data, layout, expected_checksum)


async def record_of(
    board_id: str, captured: CapturedBoard, compress: Compress = compress_in_thread
) -> SnapshotRecord | None:
    """The captured board as a record, or None when its bytes do not load back to the state that they were taken
    from."""
    data = await compress(captured.raw, captured.layout, captured.checksum)
    if data is None:
        return None
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
    return replace(record, sha256=snapshot_digest(record))


async def save(store: Store, board_id: str, captured: CapturedBoard, limits: Limits, compress: Compress) -> None:
    """Verify the captured bytes by loading them back, and store them; older snapshots are thinned out.

    A failure is logged and nothing else: the journal holds everything, and the next snapshot may work.
    """
    try:
        record = await record_of(board_id, captured, compress)
        if record is None:
            logger.error("board %s: the snapshot at entry %d does not load back", board_id, captured.seq)
            return
        seqs = sorted({*await store.snapshot_seqs(board_id), captured.seq})
        apart = len(captured.raw) // limits.snapshot_bytes_per_entry
        drop = superfluous(seqs, newest=limits.snapshots_kept, spread=limits.snapshots_spread, apart=apart)
        await store.save_snapshot(record, drop=drop)
    except BoardError as error:
        logger.warning("board %s: no snapshot at entry %d: %s", board_id, captured.seq, error)
    except Exception:  # the boundary of a background task
        logger.exception("board %s: no snapshot at entry %d", board_id, captured.seq)


def superfluous(seqs: Sequence[int], *, newest: int, spread: int, apart: int) -> list[int]:
    """Which of the ascending ``seqs`` to drop, so that the ``newest`` stay and at most ``spread`` before them.

    Those go first that leave the smallest gap: what stays is about evenly apart, at most twice as far as it could be.
    Nor do any stay that are nearer to their neighbours than ``apart`` entries.
    """
    older, dropped = [0, *seqs[:-newest], *seqs[-newest:][:1]], []

    def gap_without(index: int) -> int:
        return older[index + 1] - older[index - 1]

    while len(older) > 2:
        victim = min(range(1, len(older) - 1), key=gap_without)
        if len(older) - 2 <= spread and gap_without(victim) >= 2 * apart:
            break
        dropped.append(older.pop(victim))
    return dropped
