"""What agents did with leases, tasks and the like, in words: told from the records before and after an entry. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from crdt_board.coordination.approvals import ApprovalRecord
from crdt_board.coordination.cursors import CursorRecord
from crdt_board.coordination.effects import EffectRecord
from crdt_board.coordination.leases import LeaseRecord
from crdt_board.coordination.reactions import NAME_END, ReactionRecord
from crdt_board.coordination.records import Record
from crdt_board.coordination.steps import StepRecord
from crdt_board.coordination.task_record import TaskRecord

_PROSE_CHARS_MAX = 200


class Deed(BaseModel):
    """One thing that was done. ``kind`` is that of the record (``task``, ``lease``), ``name`` what it is called.

    ``text`` says who did what, on one line of printable characters.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str
    text: str


Records = Mapping[str, Record | None]
"""Records by their keys; None where there is none."""


def deeds_of(before: Records, after: Records, who: str, now_ms: int) -> Iterator[Deed]:
    """What ``who`` did, or time did by itself, to each of these records: the same keys before and after."""
    for key, record in after.items():
        known = record or before[key]
        tell = None if known is None else _TELLERS.get(type(known))
        if known is None or tell is None or record == before[key]:
            continue
        for text in tell(before[key], record, who, now_ms):
            yield Deed(kind=known.prefix, name=known.name, text=_one_line(text))


def _lease(before: LeaseRecord | None, after: LeaseRecord | None, who: str, now_ms: int) -> Iterator[str]:
    name = _name(before, after)
    old = {} if before is None else {holder.token: holder for holder in before.holders}
    new = {} if after is None else {holder.token: holder for holder in after.holders}
    for token, holder in old.items():
        if token in new:
            if new[token] != holder:
                yield f"{holder.agent} keeps lease {name}"
        elif holder.expires_ms <= now_ms:
            yield f"lease {name} of {holder.agent} has run out"
        else:
            yield (
                f"{who} gives lease {name} back"
                if holder.agent == who
                else f"{who} takes lease {name} from {holder.agent}"
            )
    for token, holder in new.items():
        if token not in old:
            yield f"{holder.agent} takes lease {name} (fence {holder.fence})"


def _task(before: TaskRecord | None, after: TaskRecord | None, who: str, now_ms: int) -> Iterator[str]:
    what = f"task {_name(before, after)}"
    if before is None or after is None:
        yield f"{who} puts {what}" if before is None else f"{who} removes {what}"
    elif after.status == "claimed":
        is_same = (before.status, before.token) == ("claimed", after.token)
        attempt = f"(attempt {after.attempt} of {after.attempts})"
        yield f"{who} keeps {what}" if is_same else f"{after.agent} claims {what} {attempt}"
    elif after.status in ("done", "cancelled"):
        yield f"{who} {'completes' if after.status == 'done' else 'cancels'} {what}"
    elif before.status == "claimed":
        yield from _end_of_attempt(before, after, who, now_ms)
    elif before.is_finished:
        yield f"{who} opens {what} again"
    else:
        yield f"{what} is {after.state} now"


def _end_of_attempt(before: TaskRecord, after: TaskRecord, who: str, now_ms: int) -> Iterator[str]:
    what = f"task {after.name}"
    then = "" if after.status == "open" else ", which has failed"
    if after.status == "open" and after.attempt < before.attempt:
        yield f"{who} gives {what} back"
    elif before.expires_ms is not None and before.expires_ms <= now_ms:
        yield f"the claim of {before.agent} to {what} has run out{then}"
    else:
        yield f"{who} fails at {what}{then}: {_short(after.error)}"


def _approval(before: ApprovalRecord | None, after: ApprovalRecord | None, who: str, _: int) -> Iterator[str]:
    what = f"approval {_name(before, after)}"
    if after is None:
        yield f"{what} is not kept any more"
    elif after.decision is None:
        yield f"{who} asks for {what}: {_short(after.question)}"
    else:
        how = "decided: " if after.decision.state == "decided" else ""
        yield f"{what} {how}{after.decision}"


def _effect(before: EffectRecord | None, after: EffectRecord | None, who: str, _: int) -> Iterator[str]:
    what = f"effect {_name(before, after).replace('/', ' ', 1)}"
    if after is None:
        yield f"{who} says that {what} took no place"
    elif after.state == "in_doubt":
        yield f"{what} of {after.agent} is in doubt: {_short(after.reason)}"
    elif after.state == "done":
        yield f"{who} says that {what} took place" if after.resolved_by else f"{who} finishes {what}"
    else:
        is_same = before is not None and before.token == after.token
        yield f"{who} keeps {what}" if is_same else f"{who} begins {what}"


def _step(before: StepRecord | None, after: StepRecord | None, who: str, now_ms: int) -> Iterator[str]:
    what = f"step {_name(before, after)}"
    if after is None:
        yield f"{who} forgets {what}"
    elif after.state == "running":
        is_same = before is not None and (before.state, before.token) == ("running", after.token)
        yield f"{who} keeps {what}" if is_same else f"{who} begins {what} (run {after.runs})"
    elif after.state == "done":
        yield f"{who} finishes {what}"
    elif before is None or before.state == "done":
        yield f"{who} opens {what} again"
    elif before.expires_ms <= now_ms:
        yield f"the claim of {before.agent} to {what} has run out"
    else:
        yield f"{who} leaves {what}"


def _reaction(before: ReactionRecord | None, after: ReactionRecord | None, who: str, now_ms: int) -> Iterator[str]:
    reaction, _, path = _name(before, after).partition(NAME_END)
    what = f"reaction {reaction} at {_short(path)}"
    if after is None:
        yield f"{who} forgets {what}"
        return
    was = "armed" if before is None else before.state
    match after.state:
        case "running":
            yield f"{who} keeps {what}" if was == "running" else f"{who} runs {what}"
        case "done":
            yield f"{who} has run {what}"
        case "waiting" | "failed":
            then = "is tried again" if after.state == "waiting" else "has failed for good"
            yield f"{what} {then}: {_short(after.error)}"
        case _ if before is not None and before.until_ms is not None and before.until_ms <= now_ms:
            yield f"{what} is armed again: the {'pause' if was == 'waiting' else f'claim of {before.agent}'} is over"
        case _:
            yield f"{who} arms {what} again"


def _cursor(before: CursorRecord | None, after: CursorRecord | None, who: str, _: int) -> Iterator[str]:
    name = _name(before, after)
    yield f"{who} forgets cursor {name}" if after is None else f"{who} moves cursor {name} to entry {after.seq}"


_TELLERS: dict[type[Record], Callable[[Any, Any, str, int], Iterator[str]]] = {
    ApprovalRecord: _approval,
    CursorRecord: _cursor,
    EffectRecord: _effect,
    LeaseRecord: _lease,
    ReactionRecord: _reaction,
    StepRecord: _step,
    TaskRecord: _task,
}
"""Of every kind but fences, of which those of leases tell."""


def _name(before: Record | None, after: Record | None) -> str:
    known = after or before
    assert known is not None
    return known.name


def _short(prose: str | None) -> str:
    text = prose or ""
    return text if len(text) <= _PROSE_CHARS_MAX else f"{text[: _PROSE_CHARS_MAX - 1]}…"


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
