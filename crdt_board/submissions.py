"""Updates that a peer hands to the writer of a board, and what it is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crdt_board.errors import BoardError
from crdt_board.fold import NOWHERE
from crdt_board.readiness import Extent
from crdt_board.rejections import Rejection


@dataclass(frozen=True, slots=True)
class Rejected:
    """Values that were refused, in the update at ``index`` of a submission."""

    index: int
    values: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a submission.

    ``seq`` is the journal's end at which it is durable. ``first_unready``: the index of the first update that builds
    on something which is missing here; nothing is kept of such updates, and the sender is to send them again after the
    difference to the board's state vector. ``error``: the updates
    that were malformed are refused, the others are durable; or all are refused, and ``seq`` is None. ``rejected``:
    values that the board's schema does not allow; they were taken back, and everything else is durable.
    """

    seq: int | None
    first_unready: int | None = None
    error: BoardError | None = None
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Submission:
    """Updates of one peer, in order. ``written`` is called once, when their fate is decided; it must not raise.

    ``is_difference``: an answer to a state vector (step 2), which repeats every deletion; only its news is kept.
    ``since``: the journal's end when the peer had seen everything, None when that is not known.
    """

    updates: Sequence[bytes]
    author: str
    source: object
    origin: str = NOWHERE
    written: Callable[[Receipt], None]
    is_difference: bool = False
    since: int | None = None
    schema: int | None = None
    """The number of the schema that their author writes under; None when it knows of none."""
    is_shared: bool = False
    """Whether one entry may hold them with what other sources of the same author sent: nobody asks which of them wrote
    what."""
    extents: Sequence[Extent] = ()
    """What each of the updates holds and builds on; made when it is submitted."""
    first_unready: int | None = None
    error: BoardError | None = None
    rejected: list[Rejected] = field(default_factory=list)
    decided: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.updates))

    def finish(self, seq: int) -> None:
        self._decide(
            Receipt(seq=seq, first_unready=self.first_unready, error=self.error, rejected=tuple(self.rejected))
        )

    def refuse(self, error: BoardError) -> None:
        self._decide(Receipt(seq=None, error=error))

    def _decide(self, receipt: Receipt) -> None:
        if not self.decided:
            self.decided = True
            self.written(receipt)


def is_of_several(submissions: Sequence[Submission]) -> bool:
    """Whether they are of more than one source."""
    first = submissions[0].source
    return any(submission.source is not first for submission in submissions)
