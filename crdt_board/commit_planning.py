"""From a commit that waits to the entry that makes it: check it, apply its patch, plan.

Works on a `LoadedBoard` in memory; it neither waits nor stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crdt_board.applying import Poisoned
from crdt_board.batches import CommitItem, Merged
from crdt_board.cell_operations import Committer
from crdt_board.conflicts import conflict_of
from crdt_board.coordinating import draft_of_commit, undo_of_merge
from crdt_board.document import Document
from crdt_board.errors import BoardError, MalformedUpdate
from crdt_board.fold import bounded_paths
from crdt_board.guarding import DocumentBroken
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.patch_rules import check_patch, outgrown, sizes_of
from crdt_board.patching import apply_patch
from crdt_board.planning import closing_updates
from crdt_board.plans import Plan, unfolded_by
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.validity import drop_recorded, is_outdated, refusal_of, refusal_of_merge, resolved_by


def plan_commit(
    loaded: LoadedBoard, commit: CommitItem, before: Sequence[Plan], limits: Limits, now_ms: int
) -> Plan | None:
    """Check a commit against the fold and the plans before it, and apply its patch; None when it was refused.

    Raises:
        Poisoned: yrs panicked on the patch, or it made a field too large; it was refused, and the document must be
            rebuilt.
    """
    document, request = loaded.document, commit.request
    committer, unfolded = Committer(request.agent, now_ms), unfolded_by(before, request.origin)
    refusal: BoardError | None = conflict_of(loaded.fold, commit, before)
    if refusal is None:
        try:
            commit.records = draft_of_commit(document, loaded.fold, request, limits, now_ms)
        except BoardError as error:
            refusal = error
    if refusal is None and commit.merged is not None:
        refusal = refusal_of_merge(document, loaded.fold, commit.merged.update)
    elif refusal is None:
        refusal = refusal_of(document, loaded.fold, request, committer, unfolded)
    if refusal is not None:
        commit.refuse(refusal)
        return None
    resolved = resolved_by(document, loaded.fold, request, unfolded)
    commit.resolved = tuple(resolved.values())
    updates = _apply_commit(loaded, commit, limits, resolved, committer)
    if updates is None:
        return None
    paths = bounded_paths(document.take_touched(), limits.entry_paths_max)
    superseded = closing_updates(loaded, paths, request.agent, now_ms)
    return Plan(
        "commit",
        request.agent,
        None,
        updates + superseded,
        paths,
        commit=commit,
        checksum=document.checksum(),
        supersedes=bool(superseded),
    )


def _apply_commit(
    loaded: LoadedBoard,
    commit: CommitItem,
    limits: Limits,
    resolved: Iterable[str],
    committer: Committer,
) -> list[bytes] | None:
    """The updates that a commit makes in the document; None when it was refused.

    Raises:
        Poisoned: as `plan_commit`.
    """
    document, patch = loaded.document, commit.request.patch

    def write() -> None:
        apply_patch(document, patch, committer)
        drop_recorded(document, resolved)
        document.write_records(commit.records)

    if not (patch or commit.merged is not None or resolved or commit.records):
        return []
    try:
        check_patch(document, patch)
        sizes = sizes_of(document, patch)
        if commit.merged is not None:
            updates = _merge(document, commit.merged, loaded.fold.version + 1)
        else:
            update = document.capture(write)
            updates = [] if update == EMPTY_UPDATE else document.apart(update)
    except BoardError as error:
        commit.refuse(error)
        return None
    except DocumentBroken as panic:
        commit.refuse(MalformedUpdate("a patch that the CRDT engine cannot apply"))
        raise Poisoned(()) from panic
    too_large = outgrown(document, sizes, limits)
    if too_large is not None:
        commit.refuse(too_large.error())
        raise Poisoned(())
    return updates


def _merge(document: Document, merged: Merged, version: int) -> list[bytes]:
    """The updates that bring what a fork has written into the document, without its leases, tasks and the like."""
    before = document.ledger.everything()
    update = document.news_in(merged.update)
    if update == EMPTY_UPDATE:
        return []
    own = undo_of_merge(before, document, version)
    return [update, document.capture(lambda: document.write_records(own))] if own else [update]


def may_be_violated(loaded: LoadedBoard, commit: CommitItem) -> bool:
    """Whether a planned commit, whose patch is in the document, must be planned anew: others' entries came in between,
    and with them a violation stands, or what it resolves was changed."""
    document = loaded.document
    outdated = (is_outdated(each, loaded.fold, commit.request) for each in commit.resolved)
    return bool(document.standing.all(document)) or any(outdated)
