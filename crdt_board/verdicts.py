"""Applying the updates of peers as the writer of a board does: audited, with what is refused taken back at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pycrdt

from crdt_board.audit import Audit, Certain, NotReadable, Refusal
from crdt_board.compensation import take_back
from crdt_board.document import Document
from crdt_board.errors import LimitExceeded
from crdt_board.limits import Limits
from crdt_board.rules import Problem
from crdt_board.updates import EMPTY_UPDATE

_SUSPECTS_MAX = 1_000
_SCAN_SHARE = 16
"""Looking through the whole document costs as much as writing a part of it."""


class AppliedTogether(Exception):
    """Something among several updates of one transaction is to be refused: they must be applied one by one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``update`` is what belongs in the journal: what was received, and the ``correction`` that takes back parts."""

    update: bytes
    correction: bytes = EMPTY_UPDATE
    problems: tuple[Problem, ...] = ()


class Suspects:
    """The peers of which something was refused: their updates are applied one by one from then on.

    Otherwise each refusal would need the document to be rebuilt, so that what else came in its batch is not lost.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spent: OrderedDict[int, int] = OrderedDict()  # by id; another object of the same id is merely watched too

    def watch(self, source: object) -> None:
        self._spent.setdefault(id(source), 0)
        while len(self._spent) > _SUSPECTS_MAX:
            self._spent.popitem(last=False)

    def is_watched(self, source: object) -> bool:
        return id(source) in self._spent

    def spend(self, source: object, cost: int) -> None:
        """Count what a correction costs, in bytes.

        Raises:
            LimitExceeded: this peer has cost too much.
        """
        self.watch(source)
        spent = self._spent[id(source)] = self._spent[id(source)] + cost
        if spent > self._limits.corrections_bytes_max:
            raise LimitExceeded(
                f"taking back what was refused has cost more than {self._limits.corrections_bytes_max} bytes; "
                "write what the board's schema allows",
                limit="corrections_bytes_max",
                value=spent,
                maximum=self._limits.corrections_bytes_max,
            )


def judged(
    document: Document, audit: Audit, updates: Sequence[bytes], certain: Certain, spend: Callable[[int], None]
) -> Verdict | None:
    """Take back what of ``updates``, which were just applied, breaks a rule; None when nothing does.

    Raises:
        AppliedTogether: there is something, and it is not known of which of several updates.
        MalformedUpdate, LimitExceeded: the document must be rebuilt without the update.
    """
    try:
        problems: list[Problem] = []
        corrections: list[bytes] = []
        misplaced = audit.misplaced(updates)
        if misplaced is not None:
            spend(len(document.encode()) // _SCAN_SHARE)
            problems = [Problem(root, "type", "content that it cannot hold") for root in misplaced.fields]
            corrections.append(document.capture(lambda: document.doc.apply_update(misplaced.removal)))
        refusals = audit.refusals(updates, certain, removed=misplaced is not None)
    except NotReadable as error:
        raise AppliedTogether from error
    if not refusals and not problems:
        return None
    if len(updates) != 1:
        raise AppliedTogether
    if refusals:
        corrections.append(_taken_back(document, refusals))
        problems += dict.fromkeys(refusal.problem for refusal in refusals)
    spend(sum(map(len, corrections)))
    correction = corrections[0] if len(corrections) == 1 else pycrdt.merge_updates(*corrections)
    return Verdict(pycrdt.merge_updates(updates[0], correction), correction, tuple(problems))


def _taken_back(document: Document, refusals: Sequence[Refusal]) -> bytes:
    return document.capture(lambda: take_back(document, [refusal.undo for refusal in refusals]))
