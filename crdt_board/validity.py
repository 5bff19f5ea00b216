"""Whether a commit may be made on the state that it meets, and what reports change in the record of violations.

Works on a `LoadedBoard` in memory, and without the model: rules that only the model knows are what agents have told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from crdt_board.cell_operations import Committer
from crdt_board.checkpoints import CommitRequest
from crdt_board.document import Document
from crdt_board.errors import BoardError, MalformedUpdate, Violated
from crdt_board.findings import FINDINGS_MAX, Findings, stored
from crdt_board.fold import NOWHERE, Fold
from crdt_board.guarding import DocumentBroken
from crdt_board.layout import VIOLATION_PREFIX
from crdt_board.limits import Limits
from crdt_board.operations import patched
from crdt_board.paths import field_of
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.violation import Violation
from crdt_board.wire_values import invalid_value


@dataclass(frozen=True, slots=True)
class Unfolded:
    """The entries that precede a commit or report and are not in the fold yet: how many, and which fields they change.

    ``others`` are those that another replica has changed than the one that asks.
    """

    entries: int = 0
    fields: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()


NOTHING_UNFOLDED = Unfolded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``agent`` finds on the state of a board, from the replica ``origin``."""

    agent: str
    findings: Findings
    origin: str = NOWHERE


def refusal_of_merge(document: Document, fold: Fold, merged: bytes) -> BoardError | None:
    """Why what a fork holds must not be merged; None when the state afterwards breaks no rule, as far as is known."""
    copy = Document(document.layout, strays=document.strays)
    try:
        copy.apply_or_raise([document.encode(), merged])
    except MalformedUpdate as error:
        return error
    except DocumentBroken:
        return MalformedUpdate("a fork that the CRDT engine cannot apply")
    return violated(fold, copy.standing.all(copy))


def refusal_of(
    document: Document, fold: Fold, request: CommitRequest, committer: Committer, before: Unfolded
) -> BoardError | None:
    """Why a commit must not be made, from the rules of the board; None when it may be. The patch is not applied yet.

    A copy of the document is patched when a size is not allowed, or when the patch might make one so.
    """
    findings = request.findings
    if findings is not None and findings.refused:
        first = findings.refused[0]
        return invalid_value(first.path, f"with this patch: {first.message}", rule=first.rule)
    resolved = resolved_by(document, fold, request, before)
    left = {key: each for key, each in document.standing.recorded(document).items() if key not in resolved}
    if findings is not None:
        told = (finding.violation(request.agent, findings.seq) for finding in findings.broken)
        left = {**{each.key: each for each in told}, **left}
    sizes = document.standing.sizes(document)
    if request.patch and (sizes or not document.standing.surely_allows(document, request.patch)):
        excess = {each.key: much for each, much in sizes}
        try:
            copy = patched(document, request.patch, committer)
        except BoardError as error:
            return error
        except DocumentBroken:
            return MalformedUpdate("a patch that the CRDT engine cannot apply")
        sizes = copy.standing.sizes(copy)
        worse = next((each for each, much in sizes if much > excess.get(each.key, 0)), None)
        if worse is not None:
            return invalid_value(worse.path, f"with this patch it {worse.message}", rule=worse.rule)
    return violated(fold, [*left.values(), *(each for each, _ in sizes)])


def resolved_by(document: Document, fold: Fold, request: CommitRequest, before: Unfolded) -> dict[str, Violation]:
    """The recorded violations, by key, that a commit says its patch or what came before it resolves.

    It is believed where something could have resolved them since they were recorded, and nobody else has changed what
    they are about since the replica that says so looked.
    """
    findings = request.findings
    if findings is None:
        return {}
    recorded = document.standing.recorded(document)
    claimed = {key: recorded[key] for key in findings.kept if key in recorded}
    return {
        key: each
        for key, each in claimed.items()
        if not is_outdated(each, fold, request, before.others)
        and (each.concerns(_reached(request)) or _may_be_resolved(each, fold, before.fields))
    }


def is_outdated(violation: Violation, fold: Fold, request: CommitRequest, others: Iterable[str] = ()) -> bool:
    """Whether others have changed what a violation is about since the replica that asks for a commit looked."""
    assert request.findings is not None
    return violation.concerns({*fold.changed_since(request.findings.seq, apart_from=request.origin), *others})


def violated(fold: Fold, standing: Sequence[Violation]) -> Violated | None:
    """The refusal of a commit while these stand; None when there are none."""
    if not standing:
        return None
    ordered = sorted(standing, key=lambda each: (each.path, each.rule))
    more = f", and {len(ordered) - 1} more" if len(ordered) > 1 else ""
    return Violated(
        f"the board breaks a rule of its model: {ordered[0]}{more}; resolve that by edits or with the commit's patch",
        standing=[stored(each) for each in ordered[:FINDINGS_MAX]],
        current_version=fold.version,
        seq=fold.seq,
    )


def drop_recorded(document: Document, keys: Iterable[str]) -> None:
    """Inside a transaction: these violations do not stand any more."""
    content = document.board_map
    for key in keys:
        if VIOLATION_PREFIX + key in content:
            del content[VIOLATION_PREFIX + key]


def record_report(
    document: Document, fold: Fold, report: Report, *, before: Unfolded = NOTHING_UNFOLDED, limits: Limits
) -> bytes:
    """Record what is found broken, once for each rule and place, and drop what is found kept or dismissed.

    What somebody reported stays as long as nothing that it is about has changed since: then whoever finds the rule kept
    has another model. Returns the update; `EMPTY_UPDATE` when there is nothing to do.
    """
    recorded, findings = document.standing.recorded(document), report.findings
    kept = [key for key in findings.kept if key in recorded and _may_be_resolved(recorded[key], fold, before.fields)]
    kept += [key for key in findings.dismissed if key in recorded]
    room = limits.violations_max - len(recorded)
    since = {*fold.changed_since(findings.seq, apart_from=report.origin), *before.others}
    found = [each.violation(report.agent, findings.seq) for each in findings.broken]
    # The replica had sent all of its own edits before: it saw the state of now, unless others have changed that since.
    found = [each if each.concerns(since) else replace(each, seq=fold.seq + before.entries) for each in found]
    new = {each.key: each for each in found if each.key not in recorded}
    if not (kept or (new and room > 0)):
        return EMPTY_UPDATE

    def write() -> None:
        drop_recorded(document, kept)
        for each in list(new.values())[: max(0, room)]:
            document.board_map[VIOLATION_PREFIX + each.key] = stored(each)

    return document.capture(write)


def _reached(request: CommitRequest) -> set[str]:
    """The fields that a patch changes."""
    return {field_of(operation.field) for operation in request.patch}


def _may_be_resolved(violation: Violation, fold: Fold, changed: Iterable[str]) -> bool:
    return violation.concerns({*fold.changed_since(violation.seq or 0), *changed})
