"""Applying what peers submit to the document of a board's writer: audited, and split where something is amiss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from crdt_board.audit import Audit, Certain
from crdt_board.document_clocks import NotReady
from crdt_board.errors import BoardError, LimitExceeded, MalformedUpdate
from crdt_board.guarding import DocumentBroken
from crdt_board.intake import Intake
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.paths import field_of
from crdt_board.readiness import Extent, is_ready
from crdt_board.rejections import Rejection
from crdt_board.rules import Problem
from crdt_board.submissions import Rejected, Submission, is_of_several
from crdt_board.trimming import ready_part
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.verdicts import AppliedTogether, Suspects, Verdict, judged


class Planned(Protocol):
    """What is known of an entry to be that comes before."""

    @property
    def origin(self) -> str: ...

    @property
    def paths(self) -> tuple[str, ...]: ...


class Poisoned(Exception):
    """The document must be rebuilt without some of ``updates``: one of them makes yrs panic.

    With ``error`` it is known that all of them must go, and why. With ``suspect`` none of them need to, but what this
    source sent must be applied one by one. ``several``: they are of several sources, which must be told apart first.
    """

    def __init__(
        self,
        updates: Sequence[bytes],
        error: BoardError | None = None,
        *,
        suspect: object = None,
        several: bool = False,
    ) -> None:
        super().__init__(f"{len(updates)} updates")
        self.updates = updates
        self.error = error
        self.suspect = suspect
        self.several = several


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """What earlier attempts to apply a batch have shown.

    ``refused`` are updates that must not be applied, and why; ``one_by_one``: each in its own transaction; so are those
    of ``suspects``. ``apart``: no two sources in one transaction.
    """

    suspects: Suspects
    refused: Mapping[bytes, BoardError] = field(default_factory=dict)
    one_by_one: bool = False
    apart: bool = False

    def learned(self, poisoned: Poisoned) -> Lessons:
        """What to do after the document was ``poisoned``."""
        if poisoned.several:
            return replace(self, apart=True)
        if poisoned.suspect is not None:
            # The others in this batch, too: more of them may be guilty, even more than are watched at a time, and to
            # rebuild the document for each of them takes longer.
            return replace(self, one_by_one=True)
        error, refused = poisoned.error, dict(self.refused)
        if self.one_by_one or error is not None:
            found = error or MalformedUpdate("an update that the CRDT engine cannot apply")
            refused |= dict.fromkeys(poisoned.updates, found)
        return replace(self, refused=refused, one_by_one=self.one_by_one or error is None)


class Accepted(NamedTuple):
    """What of an update belongs in the journal; see `Verdict`."""

    received: bytes
    update: bytes
    correction: bytes = EMPTY_UPDATE


class _Received(NamedTuple):
    """An update, and at which ``place`` it stands in its submission."""

    submission: Submission
    place: int
    update: bytes

    @property
    def extent(self) -> Extent:
        return self.submission.extents[self.place]


class Applying:
    """Applies submissions to a board's document; ``plans`` are those of the batch so far, which its owner adds to."""

    def __init__(self, loaded: LoadedBoard, limits: Limits, lessons: Lessons, plans: Sequence[Planned]) -> None:
        if loaded.audit is None:
            loaded.audit = Audit(loaded.document, limits)
        self._loaded = loaded
        if loaded.intake is None:
            loaded.intake = Intake(loaded.document.doc)
        self._audit = loaded.audit
        self._intake = loaded.intake
        self._limits = limits
        self._lessons = lessons
        self._plans = plans

    def apply(self, submissions: Sequence[Submission]) -> list[Accepted]:
        """Apply what one author sent lately, and return what of it belongs in the journal.

        In one transaction, which costs a third of one for each update, unless something is amiss. What was refused is
        noted on each submission.

        Raises:
            Poisoned: as `plan_submissions`.
        """
        lessons = self._lessons
        is_split = lessons.one_by_one or bool(lessons.refused) or lessons.suspects.is_watched(submissions[0].source)
        together: list[_Received] = []
        accepted: list[Accepted] = []
        for submission in submissions:
            submission.first_unready = None
            submission.rejected.clear()
            refused = [lessons.refused[update] for update in submission.updates if update in lessons.refused]
            submission.error = refused[0] if refused else None
            is_split = is_split or submission.is_difference
        for submission in submissions:
            for index, update in enumerate(submission.updates):
                if update in lessons.refused:
                    continue
                if is_split:
                    accepted += self._apply_group([_Received(submission, index, update)])
                else:
                    together.append(_Received(submission, index, update))
        return accepted + self._apply_group(together) if together else accepted

    def _apply_group(self, group: list[_Received]) -> list[Accepted]:
        """Apply updates of one author in one transaction."""
        submission = group[0].submission
        updates = [each.update for each in group]
        self._audit.begin(strays=submission.schema is not None)
        try:
            try:
                accepted = self._accepted(group)
            finally:
                self._audit.end()
            received = [each.update for each in accepted]
            self._loaded.nesting.check(self._loaded.document, received, self._limits.nesting_depth_max)
            if not self._audit.has_news or not accepted:
                return accepted
            first = next(each for each in group if each.update is accepted[0].received)
            verdict = self._judged(first.submission, received)
        except (MalformedUpdate, LimitExceeded) as error:
            raise Poisoned(updates, error, several=is_of_several([each.submission for each in group])) from error
        except AppliedTogether as together:
            if is_of_several([each.submission for each in group]):
                raise Poisoned((), several=True) from together
            self._lessons.suspects.watch(submission.source)
            raise Poisoned((), suspect=submission.source) from together
        except (DocumentBroken, ValueError) as broken:  # a list that does not hold what it says [measured]
            raise Poisoned(updates) from broken
        if verdict is None:
            return accepted
        self._lessons.suspects.watch(first.submission.source)
        self._note_rejected(first.submission, first.place, verdict.problems)
        return [Accepted(first.update, verdict.update, verdict.correction)]

    def _judged(self, submission: Submission, received: Sequence[bytes]) -> Verdict | None:
        """``submission`` is the one of the only update, where it is only one."""
        return judged(
            self._loaded.document,
            self._audit,
            received,
            self._certain(submission),
            partial(self._lessons.suspects.spend, submission.source),
        )

    def _accepted(self, group: list[_Received]) -> list[Accepted]:
        document, first = self._loaded.document, group[0]
        if first.submission.is_difference:
            try:
                return [Accepted(first.update, news) for news in self._news(first)]
            except MalformedUpdate as error:
                first.submission.error = first.submission.error or error
                return []
        accepted: list[Accepted] = []
        problems = document.apply_ready([(each.update, each.extent) for each in group], self._intake)
        for each, problem in zip(group, problems, strict=True):
            if problem is None:
                accepted.append(Accepted(each.update, each.update))
            elif isinstance(problem, bytes):
                if problem != EMPTY_UPDATE:
                    accepted.append(Accepted(each.update, problem))
            elif isinstance(problem, NotReady):
                earlier = each.submission.first_unready
                each.submission.first_unready = each.place if earlier is None else min(each.place, earlier)
            else:
                each.submission.error = each.submission.error or problem
        return accepted

    def _news(self, difference: _Received) -> list[bytes]:
        """What is new in a difference, as far as it is ready: its sender has no more, so it is not asked again."""
        document, update = self._loaded.document, difference.update
        known = document.clocks()
        if not is_ready(difference.extent, known):
            update = ready_part(update, known, self._limits.nesting_depth_max)
        news = document.news_in(self._intake.sound(update, known))
        return [] if news == EMPTY_UPDATE else [news]

    def _note_rejected(self, submission: Submission, index: int, problems: Sequence[Problem]) -> None:
        room = self._limits.rejections_told_max - sum(len(each.values) for each in submission.rejected)
        if room > 0:
            told = (Rejection(each.path, each.rule, each.message, submission.author) for each in problems[:room])
            submission.rejected.append(Rejected(index, tuple(told)))

    def _certain(self, submission: Submission) -> Certain:
        """Whether nobody but the sender has changed a field since it had seen everything."""
        since, fold, plans = submission.since, self._loaded.fold, self._plans
        if since is None or submission.is_difference:
            return _never

        def certain(field: str) -> bool:
            others = [plan for plan in plans if not plan.origin or plan.origin != submission.origin]
            return field not in fold.changed_since(since, apart_from=submission.origin) and not any(
                field_of(path) == field for plan in others for path in plan.paths
            )

        return certain


def _never(_field: str) -> bool:
    return False
