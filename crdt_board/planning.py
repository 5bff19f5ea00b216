"""From what is waiting to entries that can be appended: apply, attribute, check commits, seal.

Works on a `LoadedBoard` in memory; it neither waits nor stores. The engine calls it and deals with the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from crdt_board.applying import Accepted, Applying, Lessons, Poisoned
from crdt_board.cell_operations import Committer
from crdt_board.checkpoints import Checkpoint, CommitRequest, encode_checkpoint, make_checkpoint
from crdt_board.coordinating import (
    CoordinationItem,
    decide_item,
    draft_of_commit,
    superseding,
    touches_watched,
    undo_of_merge,
)
from crdt_board.document import Document, DocumentBroken, field_of
from crdt_board.errors import BoardError, MalformedUpdate, VersionConflict
from crdt_board.fold import NOWHERE, Fold, bounded_paths
from crdt_board.journal import Entry, EntryKind, make_entry, pack_updates
from crdt_board.layout import Layout
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.patch_rules import check_patch, outgrown, sizes_of
from crdt_board.patching import apply_patch
from crdt_board.schema_changes import SchemaItem, migrate, move_from_state, take_over
from crdt_board.submissions import Submission
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.validity import (
    Report,
    Unfolded,
    drop_recorded,
    is_outdated,
    record_report,
    refusal_of,
    refusal_of_merge,
    resolved_by,
)
from crdt_board.violation import Violation

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merged:
    """All that a fork holds, and the pointer to its newest version."""

    update: bytes
    pointer: str


@dataclass(slots=True, eq=False)
class CommitItem:
    """A commit that waits for its answer. ``base_seq``: where in the journal its preconditions start to look.

    ``schema`` is as in `Submission`.
    """

    request: CommitRequest
    answer: asyncio.Future[Checkpoint]
    base_seq: int = 0
    merged: Merged | None = None
    """What a fork has written, in place of a patch."""
    schema: int | None = None
    resolved: Sequence[Violation] = ()
    """The recorded violations that it drops."""
    records: Mapping[str, JsonValue] = field(default_factory=dict)
    """The leases, tasks and the like that it changes."""

    def finish(self, checkpoint: Checkpoint) -> None:
        if not self.answer.done():
            self.answer.set_result(checkpoint)

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class ReportItem:
    """A report that waits to be taken in, which is what ``answer`` tells."""

    report: Report
    answer: asyncio.Future[None]

    def finish(self) -> None:
        if not self.answer.done():
            self.answer.set_result(None)

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True, eq=False)
class Batch:
    """What is written in one append: submissions, then coordination, then at most one commit or report; or a schema
    alone.

    A commit ends its batch, so that the checksum of the document is that of the commit's own entry.
    """

    submissions: list[Submission] = field(default_factory=list)
    coordination: list[CoordinationItem] = field(default_factory=list)
    commit: CommitItem | None = None
    schema: SchemaItem | None = None
    report: ReportItem | None = None
    durable: bool = False

    @property
    def coordinates(self) -> bool:
        """Whether it asks for decisions that hold at one place in the journal and at one time only."""
        request = self.commit.request if self.commit is not None else None
        return bool(self.coordination or (request and (request.lease or request.operations)))

    def open_commit(self) -> CommitItem | None:
        """The commit, unless it was answered or given up."""
        return self.commit if self.commit is not None and not self.commit.answer.done() else None

    def refuse_outdated(self, refusal_of: Callable[[int | None], BoardError | None]) -> None:
        """Drop what was written under a schema that the board has left."""
        items = (*self.submissions, *([self.commit] if self.commit else ()))
        refusals = {schema: refusal_of(schema) for schema in {item.schema for item in items}}
        if not any(refusals.values()):
            return
        for item in items:
            refusal = refusals[item.schema]
            if refusal is not None:
                item.refuse(refusal)
        self.submissions = [submission for submission in self.submissions if not submission.decided]

    def refuse(self, error: BoardError) -> None:
        for submission in self.submissions:
            submission.refuse(error)
        for item in (*self.coordination, self.commit, self.report, self.schema):
            if item is not None:
                item.refuse(error)


@dataclass(slots=True, eq=False)
class Plan:
    """One entry to be; its updates are in the document already.

    ``source`` is whose they are, None for the engine's own. ``corrections`` are the parts of ``updates`` that take back
    what was refused, which the source does not have. ``supersedes``: it closes approvals that are pending.
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


def plan_submissions(loaded: LoadedBoard, batch: Batch, limits: Limits, lessons: Lessons) -> list[Plan]:
    """Apply all submissions, one transaction for each author and source, and plan their entries.

    A source whose author changes makes a new group, since its updates build on one another in their order.

    Raises:
        Poisoned: the document must be rebuilt before anything else.
    """
    groups: list[list[Submission]] = []
    newest: dict[int, list[Submission]] = {}
    for submission in batch.submissions:
        group = newest.get(id(submission.source))
        if group is None or group[0].author != submission.author:
            group = newest[id(submission.source)] = []
            groups.append(group)
        group.append(submission)
    plans: list[Plan] = []
    applying = Applying(loaded, limits, lessons, plans)
    for submissions in groups:
        accepted = applying.apply(submissions)
        misfit = loaded.document.take_misfit(limits.nesting_depth_max)
        if misfit is not None:
            updates = [verdict.received for verdict in accepted]
            raise Poisoned(updates, MalformedUpdate(f"{misfit} was given content that it cannot hold"))
        plan = _plan_group(loaded, submissions[0], accepted, limits)
        if plan is not None:
            plans.append(plan)
    return plans


def plan_superseding(loaded: LoadedBoard, before: Sequence[Plan], now_ms: int) -> list[Plan]:
    """Close the approvals that are about what the plans before have changed: in the same append, so that none is
    decided in between."""
    plans: list[Plan] = []
    for plan in before:
        update = _superseding(loaded, plan.paths, plan.author, now_ms)
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


def plan_commit(
    loaded: LoadedBoard, commit: CommitItem, before: Sequence[Plan], limits: Limits, now_ms: int
) -> Plan | None:
    """Check a commit against the fold and the plans before it, and apply its patch; None when it was refused.

    Raises:
        Poisoned: yrs panicked on the patch, or it made a field too large; it was refused, and the document must be
            rebuilt.
    """
    document, request = loaded.document, commit.request
    committer, unfolded = Committer(request.agent, now_ms), _unfolded(before, request.origin)
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
    superseded = _superseding(loaded, paths, request.agent, now_ms)
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
    return Plan("migration", item.agent, None, updates + _superseding(loaded, paths, item.agent, now_ms), paths)


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
        Plan("update", author, None, updates + _superseding(loaded, paths, author, now_ms), paths) if updates else None
    )


def check_unchanged(fold: Fold, seq: int) -> None:
    """Raise VersionConflict when an entry after ``seq`` changed the state."""
    changed = fold.changed_since(seq)
    if changed:
        raise _conflict(fold, f"{', '.join(changed)} changed while the board was being migrated", changed)


def plan_report(loaded: LoadedBoard, report: Report, before: Sequence[Plan], limits: Limits) -> Plan | None:
    """What a report changes in the record of violations; None when that is nothing."""
    unfolded = _unfolded(before, report.origin)
    update = record_report(loaded.document, loaded.fold, report, before=unfolded, limits=limits)
    return None if update == EMPTY_UPDATE else Plan("update", report.agent, None, [update], ())


def may_be_violated(loaded: LoadedBoard, commit: CommitItem) -> bool:
    """Whether a planned commit, whose patch is in the document, must be planned anew: others' entries came in between,
    and with them a violation stands, or what it resolves was changed."""
    document = loaded.document
    outdated = (is_outdated(each, loaded.fold, commit.request) for each in commit.resolved)
    return bool(document.standing.all(document)) or any(outdated)


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
        changed.update(_unfolded(before, request.origin).others)
        overlap = sorted(changed & watched)
        return _conflict(fold, f"{', '.join(overlap)} changed since it was read", overlap) if overlap else None
    if request.expected_version is None or request.expected_version == fold.version:
        return None
    return _conflict(fold, f"version {request.expected_version} was expected", fold.changed_since(commit.base_seq))


def seal(loaded: LoadedBoard, plans: Sequence[Plan], *, board_id: str, schema_version: int, now_ms: int) -> list[Entry]:
    """The entries that continue the journal after the fold, chained; a commit's carries its checkpoint."""
    fold = loaded.fold
    entries: list[Entry] = []
    previous = fold.hash
    for seq, plan in enumerate(plans, start=fold.seq + 1):
        checkpoint = ""
        if plan.commit is not None:
            made = _checkpoint(
                plan, plan.commit.request, plans, fold,
                board_id=board_id, seq=seq, schema_version=schema_version, now_ms=now_ms,
            )  # fmt: skip
            checkpoint = encode_checkpoint(made)
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


def _superseding(loaded: LoadedBoard, paths: Sequence[str], agent: str, now_ms: int) -> list[bytes]:
    """What closes the approvals that are about what ``agent`` changed; empty when none is."""
    update = superseding(loaded.document, loaded.fold, paths, agent=agent, now_ms=now_ms)
    return [] if update == EMPTY_UPDATE else [update]


def _unfolded(plans: Sequence[Plan], origin: str) -> Unfolded:
    strange = [plan for plan in plans if not plan.origin or plan.origin != origin]
    fields, others = (frozenset(field_of(path) for plan in each for path in plan.paths) for each in (plans, strange))
    return Unfolded(len(plans), fields, others)


def _plan_group(loaded: LoadedBoard, first: Submission, accepted: Sequence[Accepted], limits: Limits) -> Plan | None:
    """The plan of what one author of a source sent; None when nothing of it belongs in the journal."""
    paths = bounded_paths(loaded.document.take_touched(), limits.entry_paths_max)
    if not accepted:
        return None
    updates = [each.update for each in accepted]
    corrections = [each.correction for each in accepted if each.correction != EMPTY_UPDATE]
    return Plan("update", first.author, first.source, updates, paths, first.origin, corrections=corrections)


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
