"""Removing the artifacts that no board refers to, while boards and artifacts are in use."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel

from crdt_board.artifacts.contract import StoredArtifact
from crdt_board.artifacts.references import References, strike_out_referenced
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.clock import Clock, SystemClock
from crdt_board.errors import BadRequest
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.contract import Store

GRACE = timedelta(seconds=DEFAULT_LIMITS.artifact_grace_seconds)
_READINGS_MAX = 10
_COARSE_MS = 1_000
"""Buckets tell times in whole seconds."""


class SweepReport(BaseModel):
    """What a sweep removed, or with ``dry_run`` would remove: ``removed``, in the order of their hashes.

    ``young`` and ``referenced`` count the artifacts that stay, and why.
    """

    dry_run: bool
    young: int
    referenced: int
    removed: list[StoredArtifact]

    @property
    def removed_bytes(self) -> int:
        return sum(each.size for each in self.removed)

    def __str__(self) -> str:
        verb = "would go" if self.dry_run else "went"
        return (
            f"{len(self.removed)} artifacts with {self.removed_bytes} bytes {verb}; {self.referenced} stay because "
            f"boards refer to them, {self.young} because they are too new"
        )


async def sweep(
    store: Store,
    artifacts: ArtifactStore,
    *,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    clock: Clock | None = None,
) -> SweepReport:
    """Remove the artifacts that are older than ``grace`` and that no board of ``store`` refers to.

    A board refers to an artifact when its hash stands in what the board holds now, in its journal, or in a version that
    can be read: as a value, in a text, in ``trace``, ``output`` or ``handoff``. Forks are boards. What stands in other
    databases, exported files and offline replicas is not seen; ``artifacts`` must belong to ``store`` alone.

    An artifact that is put while this runs stays. After an error or a cancellation some may be gone that nothing refers
    to.

    Raises:
        BadRequest: ``grace`` is negative.
        BoardCorrupt: a board cannot be read, so that nothing is known of what it refers to; nothing was removed.
        StoreUnavailable: a store did not answer.
    """
    if grace < timedelta(0):
        raise BadRequest("the grace period is negative")
    before_ms = (clock or SystemClock()).now_ms() - int(grace.total_seconds() * 1000) - _COARSE_MS
    every = [each async for each in artifacts.all()]
    old = {each.sha256: each for each in every if each.stored_ms < before_ms}
    references = References(set(old))
    for _ in range(_READINGS_MAX):
        # Once more what boards wrote meanwhile, until nobody did: a pointer may be moved from one board to another.
        if not references.wanted or not await strike_out_referenced(store, references):
            break
    unreferenced = [old[digest] for digest in sorted(references.wanted)]
    if not dry_run:
        unreferenced = [each for each in unreferenced if await artifacts.remove(each.sha256, before_ms=before_ms)]
        await artifacts.tidy(before_ms)
    return SweepReport(
        dry_run=dry_run,
        young=len(every) - len(old),
        referenced=len(old) - len(references.wanted),
        removed=unreferenced,
    )
