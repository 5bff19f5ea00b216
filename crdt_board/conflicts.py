"""Whether others have changed what a request was made on, from the fold and the entries planned before it; pure."""

from __future__ import annotations

from collections.abc import Sequence

from crdt_board.batches import CommitItem
from crdt_board.errors import VersionConflict
from crdt_board.fold import Fold
from crdt_board.plans import Plan, unfolded_by


def conflict_of(fold: Fold, commit: CommitItem, before: Sequence[Plan]) -> VersionConflict | None:
    """Why a commit must be refused, or None. ``before`` are entries that will precede it.

    With ``reads`` it is refused when one of these fields was changed after ``base_seq``, committed or not, but for the
    edits of the replica that asks; without, when ``expected_version`` is not the newest version. A strict field that it
    sets counts as read. A version that there never was is a conflict in either case.
    """
    request = commit.request
    is_known = request.expected_version is None or 0 <= request.expected_version <= fold.version
    if request.reads is not None and is_known:
        watched = {*request.reads, *request.decides}
        changed = set(fold.changed_since(commit.base_seq, apart_from=request.origin))
        changed.update(unfolded_by(before, request.origin).others)
        overlap = sorted(changed & watched)
        return _conflict(fold, f"{', '.join(overlap)} changed since it was read", overlap) if overlap else None
    if request.expected_version is None or request.expected_version == fold.version:
        return None
    return _conflict(fold, f"version {request.expected_version} was expected", fold.changed_since(commit.base_seq))


def check_unchanged(fold: Fold, seq: int) -> None:
    """Raise VersionConflict when an entry after ``seq`` changed the state."""
    changed = fold.changed_since(seq)
    if changed:
        raise _conflict(fold, f"{', '.join(changed)} changed while the board was being migrated", changed)


def _conflict(fold: Fold, sentence: str, changed: list[str]) -> VersionConflict:
    return VersionConflict(
        f"{sentence}; the board is at version {fold.version}"
        + (f", committed by {fold.version_author}" if fold.version else "")
        + (f"; changed: {', '.join(changed)}" if changed else ""),
        current_version=fold.version,
        author=fold.version_author,
        changed=changed,
        seq=fold.seq,
    )
