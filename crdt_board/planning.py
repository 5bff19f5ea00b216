"""From what is waiting to entries that can be sealed: apply, attribute, plan. Commits are in `commit_planning`.

Works on a `LoadedBoard` in memory; it neither waits nor stores. The engine calls it and deals with the store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from crdt_board.applying import Accepted, Applying, Lessons, Poisoned
from crdt_board.batches import Batch
from crdt_board.cell_operations import Committer
from crdt_board.conflicts import check_unchanged
from crdt_board.coordinating import decide_item, superseding, touches_watched
from crdt_board.errors import BoardError, MalformedUpdate
from crdt_board.fold import NOWHERE, bounded_paths
from crdt_board.guarding import DocumentBroken
from crdt_board.layout import Layout
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.plans import SEVERAL, Plan, unfolded_by
from crdt_board.schema_changes import SchemaItem, migrate, move_from_state, take_over
from crdt_board.submissions import Submission, is_of_several
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.validity import Report, record_report

logger = logging.getLogger(__name__)


def plan_submissions(loaded: LoadedBoard, batch: Batch, limits: Limits, lessons: Lessons) -> list[Plan]:
    """Apply all submissions, one transaction for each of `grouped`, and plan their entries.

    Raises:
        Poisoned: the document must be rebuilt before anything else.
    """
    plans: list[Plan] = []
    applying = Applying(loaded, limits, lessons, plans)
    for submissions in grouped(batch.submissions, lessons):
        accepted = applying.apply(submissions)
        misfit = loaded.document.take_misfit(limits.nesting_depth_max)
        if misfit is not None:
            updates = [verdict.received for verdict in accepted]
            error = MalformedUpdate(f"{misfit} was given content that it cannot hold")
            raise Poisoned(updates, error, several=is_of_several(submissions))
        plan = _plan_group(loaded, submissions, accepted, limits)
        if plan is not None:
            plans.append(plan)
    return plans


def grouped(submissions: Iterable[Submission], lessons: Lessons) -> list[list[Submission]]:
    """``submissions`` by author and source, or by author alone where they may share an entry, so that an entry and a
    transaction are not needed for each of many sources.

    What is of one source stays in its order, since it builds on itself: where its author changes, a new group begins.
    """
    groups: list[list[Submission]] = []
    shared: dict[str, list[Submission]] = {}
    newest: dict[int, list[Submission]] = {}
    for submission in submissions:
        author, source = submission.author, id(submission.source)
        own, common = newest.get(source), shared.get(author)
        shares = (own is None or own is common) and _may_share(submission, lessons)
        group = common if shares else own
        if group is None or (not shares and (group is common or group[0].author != author)):
            group = []
            groups.append(group)
            if shares:
                shared[author] = group
        newest[source] = group
        group.append(submission)
    return groups


def plan_superseding(loaded: LoadedBoard, before: Sequence[Plan], now_ms: int) -> list[Plan]:
    """Close the approvals that are about what the plans before have changed: in the same append, so that none is
    decided in between."""
    plans: list[Plan] = []
    for plan in before:
        update = closing_updates(loaded, plan.paths, plan.author, now_ms)
        if update:
            plans.append(Plan("coordination", plan.author, None, update, (), supersedes=True))
    return plans


def must_plan_anew(loaded: LoadedBoard, plans: Sequence[Plan]) -> bool:
    """Whether others' entries that came in between may decide which approvals these plans close."""
    return any(plan.supersedes or touches_watched(loaded.document, plan.paths) for plan in plans)


def plan_coordination(loaded: LoadedBoard, batch: Batch, limits: Limits, now_ms: int) -> list[Plan]:
    """Decide on what agents ask for who work together, in order, each on what those before it have changed.

    Raises:
        Poisoned: yrs panicked; the document must be rebuilt.
    """
    plans: list[Plan] = []
    for item in batch.coordination:
        if item.answer.done():
            continue
        try:
            update = decide_item(loaded.document, loaded.fold, item, limits, now_ms)
        except DocumentBroken as panic:
            item.refuse(MalformedUpdate("a record that the CRDT engine cannot hold"))
            raise Poisoned(()) from panic
        if update != EMPTY_UPDATE:
            plans.append(Plan("coordination", item.agent, None, [update], ()))
    return plans


def plan_schema(loaded: LoadedBoard, item: SchemaItem, layout: Layout, limits: Limits, now_ms: int) -> Plan:
    """Bring the document to a new schema, whose layout is ``layout``, and plan the entry.

    Raises:
        BoardError: the state does not fit it, or was changed since the agent read it; the document must be rebuilt.
    """
    document, request = loaded.document, item.migration
    committer = Committer(item.agent, now_ms)
    try:
        if request is None:
            update = take_over(document, layout, committer, item.schema_version)
        else:
            check_unchanged(loaded.fold, request.seq)
            update = migrate(document, layout, request, committer)
    except DocumentBroken as panic:
        raise MalformedUpdate("a migration that the CRDT engine cannot apply") from panic
    paths = bounded_paths(document.take_touched(), limits.entry_paths_max)
    updates = [] if update == EMPTY_UPDATE else [update]
    return Plan("migration", item.agent, None, updates + closing_updates(loaded, paths, item.agent, now_ms), paths)


def plan_move(loaded: LoadedBoard, names: Sequence[str], author: str, limits: Limits, now_ms: int) -> Plan | None:
    """Bring what was written into ``state`` under these names to where their fields are; None when nothing fits."""
    document, committer = loaded.document, Committer(author, now_ms)
    updates: list[bytes] = []
    for name in names:
        try:
            updates.append(move_from_state(document, [name], committer))
        except BoardError as error:
            logger.warning("%s was written as a plain value that it cannot hold, which is not read: %s", name, error)
    paths = bounded_paths(document.take_touched(), limits.entry_paths_max)
    return (
        Plan("update", author, None, updates + closing_updates(loaded, paths, author, now_ms), paths)
        if updates
        else None
    )


def plan_report(loaded: LoadedBoard, report: Report, before: Sequence[Plan], limits: Limits) -> Plan | None:
    """What a report changes in the record of violations; None when that is nothing."""
    unfolded = unfolded_by(before, report.origin)
    update = record_report(loaded.document, loaded.fold, report, before=unfolded, limits=limits)
    return None if update == EMPTY_UPDATE else Plan("update", report.agent, None, [update], ())


def closing_updates(loaded: LoadedBoard, paths: Sequence[str], agent: str, now_ms: int) -> list[bytes]:
    """What closes the approvals that are about what ``agent`` changed; empty when none is."""
    update = superseding(loaded.document, loaded.fold, paths, agent=agent, now_ms=now_ms)
    return [] if update == EMPTY_UPDATE else [update]


def _may_share(submission: Submission, lessons: Lessons) -> bool:
    return (
        submission.is_shared
        and not submission.is_difference
        and not lessons.apart
        and not lessons.suspects.is_watched(submission.source)
    )


def _plan_group(
    loaded: LoadedBoard, submissions: Sequence[Submission], accepted: Sequence[Accepted], limits: Limits
) -> Plan | None:
    """The plan of what one author sent; None when nothing of it belongs in the journal."""
    paths = bounded_paths(loaded.document.take_touched(), limits.entry_paths_max)
    if not accepted:
        return None
    updates = [each.update for each in accepted]
    corrections = [each.correction for each in accepted if each.correction != EMPTY_UPDATE]
    first, of_several = submissions[0], is_of_several(submissions)
    source, origin = (SEVERAL, NOWHERE) if of_several else (first.source, first.origin)
    return Plan("update", first.author, source, updates, paths, origin, corrections=corrections)
