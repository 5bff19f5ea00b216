"""Approvals: questions to people that are decided once, and are closed when what they are about changes.

An approval is *bound*: to the newest checkpoint when it was asked, and to a digest of what its paths held then. The
writer of the board closes it with the very append that changes one of them, so that whatever is decided is about what
stands on the board at that place in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, JsonValue

from crdt_board.coordination.records import Frozen, Milliseconds, Name, Record, Token, stored
from crdt_board.errors import ApprovalClosed, ApprovalMismatch, IdempotencyMismatch, LimitExceeded, NotFound
from crdt_board.record_hashes import digest
from crdt_board.wire_values import invalid_value

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

DEFAULT_OPTIONS = ("approve", "reject")
EXPIRES_MS_MAX = 366 * 24 * 3600 * 1000
OPTIONS_MAX = 32
ABOUT_MAX = 32
PENDING_MAX = 1_000
"""Approvals of a board that are pending at once: each change of the board is compared with what these are about."""
CLOSED_MAX = 1_000
"""Closed approvals that stay on a board; beyond that the one goes that was closed first, when another is asked."""

_PROSE_CHARS_MAX = 10_000
_OPTION_CHARS_MAX = 100
_PATH_CHARS_MAX = 1_000

Outcome = Literal["decided", "expired", "superseded", "withdrawn"]
State = Literal["pending", "decided", "expired", "superseded", "withdrawn"]


def _prose(text: str) -> str:
    """What is shown to the person who decides must not be able to steer that person's terminal."""
    if not all(char.isprintable() or char in "\n\t" for char in text):
        raise ValueError("control characters other than line breaks and tabs are not allowed")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("only printable characters on one line are allowed")
    return text


def _distinct(options: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(options)) != len(options):
        raise ValueError("each option is there once")
    return options


ApprovalId = Annotated[Name, AfterValidator(_printable)]
Question = Annotated[str, Field(min_length=1, max_length=_PROSE_CHARS_MAX), AfterValidator(_prose)]
Option = Annotated[str, Field(min_length=1, max_length=_OPTION_CHARS_MAX), AfterValidator(_printable)]
Options = Annotated[tuple[Option, ...], Field(min_length=1, max_length=OPTIONS_MAX), AfterValidator(_distinct)]
Path = Annotated[str, Field(min_length=1, max_length=_PATH_CHARS_MAX), AfterValidator(_printable)]
About = Annotated[tuple[Path, ...], Field(max_length=ABOUT_MAX)]
Comment = Annotated[str, Field(max_length=_PROSE_CHARS_MAX), AfterValidator(_prose)]
ExpiresMs = Annotated[int, Field(ge=1, le=EXPIRES_MS_MAX)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Decision(Frozen):
    """How an approval ended.

    ``option`` is what was chosen, and None unless ``state`` is *decided*; so ``decision.option == "approve"`` is true
    for nothing else. ``agent`` is who decided, withdrew, or changed what it was about; None when it expired. ``path``
    is what was changed when it was superseded. ``at_ms`` is on the store's clock.
    """

    state: Outcome
    at_ms: Milliseconds
    option: str | None = None
    agent: str | None = None
    comment: str = ""
    path: str | None = None

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)

    def __str__(self) -> str:
        match self.state:
            case "decided":
                return f"{self.option}, by {self.agent}"
            case "superseded":
                return f"superseded: {self.agent} changed {self.path}"
            case "withdrawn":
                return f"withdrawn by {self.agent}"
            case _:
                return "expired"


class ApprovalRecord(Record):
    """A question, what it is bound to, and how it ended. ``agent`` is who asked."""

    prefix: ClassVar[str] = "approval"

    question: str
    options: tuple[str, ...]
    about: tuple[str, ...] = ()
    payload: JsonValue = None
    agent: str
    number: int = 0
    """The order in which approvals of the board were asked."""
    asked_ms: int
    expires_ms: int | None = None
    version: int = 0
    """The newest checkpoint when it was asked; 0 is none."""
    checkpoint_hash: str = ""
    subject: str = ""
    """The digest of what is at the paths of ``about``."""
    forked: bool = False
    """Whether it was asked on a board that this one was forked from, whose ``version`` it then is."""
    decision: Decision | None = None
    token: Annotated[str, Field(repr=False)] = ""
    """That of the request that decided."""

    @property
    def state(self) -> State:
        return self.decision.state if self.decision is not None else "pending"

    @property
    def hash(self) -> str:
        """Names the question together with what it is about: what a person who decides has seen."""
        bound = {"name", "question", "options", "about", "payload", "version", "checkpoint_hash", "subject"}
        return digest(self.model_dump(mode="json", include=bound))

    @property
    def deadline_ms(self) -> int | None:
        return self.expires_ms if self.decision is None else None

    def run_out(self, now_ms: int) -> ApprovalRecord:
        assert self.expires_ms is not None
        assert self.expires_ms <= now_ms
        return self.closed("expired", self.expires_ms)

    def as_of(self, now_ms: int) -> ApprovalRecord:
        """The same, expired if that is so by now and nobody has written it down yet."""
        return self.run_out(now_ms) if self.deadline_ms is not None and self.deadline_ms <= now_ms else self

    def in_fork(self) -> ApprovalRecord:
        """What was pending is pending in the fork too, which begins with the same content."""
        return self.model_copy(update={"forked": True})

    @property
    def watches(self) -> tuple[str, ...]:
        return self.about if self.decision is None else ()

    def closed(self, state: Outcome, at_ms: int, **more: str | None) -> ApprovalRecord:
        decision = Decision.model_validate({"state": state, "at_ms": at_ms, **more})
        return self.model_copy(update={"decision": decision})


class AskApproval(Frozen):
    """Ask people to choose one of ``options``; the same question under the same name is asked once."""

    op: Literal["ask_approval"] = "ask_approval"
    name: ApprovalId
    question: Question
    options: Options = DEFAULT_OPTIONS
    about: About = ()
    payload: JsonValue = None
    expires_in_ms: ExpiresMs | None = None


class DecideApproval(Frozen):
    """Choose an option. ``seen`` is the hash of the approval that the person saw."""

    op: Literal["decide_approval"] = "decide_approval"
    name: Name
    option: str
    comment: Comment = ""
    token: Token
    seen: Sha256 | None = None


class WithdrawApproval(Frozen):
    """Take a question back that nobody needs an answer to any more."""

    op: Literal["withdraw_approval"] = "withdraw_approval"
    name: Name


ApprovalOperation = AskApproval | DecideApproval | WithdrawApproval


def ask(draft: Draft, op: AskApproval) -> JsonValue:
    """Answers with the approval, in whatever state it is when it was asked before.

    Raises:
        IdempotencyMismatch: another question was asked under this name.
        InvalidValue: it is about a path where nothing is.
        LimitExceeded: too many are pending.
    """
    known = draft.get(ApprovalRecord, op.name)
    if known is not None:
        if (known.question, known.options, known.about) != (op.question, op.options, op.about) or (
            digest(known.payload) != digest(op.payload)
        ):
            raise IdempotencyMismatch(
                f"approval {op.name} asks something else: {known.question!r}; choose another key for another question",
                key=op.name,
                version=known.version,
            )
        return stored(known)
    for path in op.about:
        if draft.find(path) is None and "/" in path:
            raise invalid_value("about", f"there is nothing at {path} that somebody could decide about")
    _make_room(draft)
    approval = ApprovalRecord(
        name=op.name,
        question=op.question,
        options=op.options,
        about=op.about,
        payload=op.payload,
        agent=draft.agent,
        number=1 + max((each.number for each in draft.all(ApprovalRecord)), default=0),
        asked_ms=draft.now_ms,
        expires_ms=None if op.expires_in_ms is None else draft.now_ms + op.expires_in_ms,
        version=draft.version,
        checkpoint_hash=draft.checkpoint_hash,
        subject=draft.digest(op.about),
    )
    draft.put(approval)
    return stored(approval)


def decide(draft: Draft, op: DecideApproval) -> JsonValue:
    """Answers with the decided approval.

    Raises:
        NotFound: there is none of this name.
        ApprovalClosed: it was decided, or ended otherwise, before.
        ApprovalMismatch: the person saw something else than what it is about.
        InvalidValue: that is none of its options.
        IdempotencyMismatch: the token was used to choose another option.
    """
    approval = _existing(draft, op.name)
    if approval.token == op.token and approval.decision is not None:
        if approval.decision.option != op.option:
            raise IdempotencyMismatch(
                f"this request has decided approval {op.name} before, as {approval.decision.option}",
                key=op.name,
                version=approval.version,
            )
        return stored(approval)
    if approval.decision is not None:
        raise _closed_error(approval, approval.decision)
    if op.seen is not None and op.seen != approval.hash:
        raise ApprovalMismatch(
            f"what was seen is not what approval {op.name} is about on this board: look at it again, then decide",
            approval=op.name,
            hash=approval.hash,
        )
    if op.option not in approval.options:
        raise invalid_value("option", f"approval {op.name} is decided by one of {', '.join(approval.options)}")
    decided = approval.closed("decided", draft.now_ms, option=op.option, agent=draft.agent, comment=op.comment)
    decided = decided.model_copy(update={"token": op.token})
    draft.put(decided)
    return stored(decided)


def withdraw(draft: Draft, op: WithdrawApproval) -> JsonValue:
    """Answers with the withdrawn approval. Raises NotFound, and ApprovalClosed when it has ended otherwise."""
    approval = _existing(draft, op.name)
    if approval.decision is None:
        approval = approval.closed("withdrawn", draft.now_ms, agent=draft.agent)
        draft.put(approval)
    elif approval.decision.state != "withdrawn":
        raise _closed_error(approval, approval.decision)
    return stored(approval)


def supersede(draft: Draft, touched: Sequence[str]) -> None:
    """Close the approvals that are about what was changed at one of these paths. ``draft.agent`` changed it."""
    digests: dict[tuple[str, ...], str] = {}
    for key in draft.ledger.watching.concerned(touched):
        approval = draft.get(ApprovalRecord, key.removeprefix(f"{ApprovalRecord.prefix}:"))
        if approval is None or approval.decision is not None:
            continue
        if approval.about not in digests:  # many may be about the same, and it may be large
            digests[approval.about] = draft.digest(approval.about)
        if digests[approval.about] != approval.subject:
            path = next(path for path in touched if overlaps(approval.about, path))
            draft.put(approval.closed("superseded", draft.now_ms, agent=draft.agent, path=path))


def overlaps(watched: Sequence[str], touched: str) -> bool:
    """Whether a change at ``touched`` may be one of what is at a watched path."""
    return any(touched == path or touched.startswith(f"{path}/") or path.startswith(f"{touched}/") for path in watched)


def _existing(draft: Draft, name: str) -> ApprovalRecord:
    approval = draft.get(ApprovalRecord, name)
    if approval is None:
        raise NotFound(f"there is no approval {name}")
    return approval


def _closed_error(approval: ApprovalRecord, decision: Decision) -> ApprovalClosed:
    return ApprovalClosed(
        f"approval {approval.name} is not open any more: {decision}",
        approval=approval.name,
        **decision.model_dump(mode="json"),
    )


def _make_room(draft: Draft) -> None:
    pending = sum(each.decision is None for each in draft.all(ApprovalRecord))
    if pending >= PENDING_MAX:
        raise LimitExceeded(
            f"{PENDING_MAX} approvals are pending on this board; decide some, or withdraw them",
            limit="approvals_pending_max",
            value=pending + 1,
            maximum=PENDING_MAX,
        )
    closed = [
        (each.decision.at_ms, each.number, each) for each in draft.all(ApprovalRecord) if each.decision is not None
    ]
    if len(closed) >= CLOSED_MAX:
        draft.drop(min(closed)[2])
