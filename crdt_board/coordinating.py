"""Requests of agents that work together, on their way to a journal entry: decided on a `LoadedBoard` in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import CommitRequest
from crdt_board.coordination.approvals import supersede
from crdt_board.coordination.leases import check_claim
from crdt_board.coordination.ledger import Draft
from crdt_board.coordination.operations import Operation, decide
from crdt_board.coordination.records import Record, stored
from crdt_board.document import Document
from crdt_board.errors import BoardError, InvalidValue, LimitExceeded
from crdt_board.fold import Fold
from crdt_board.limits import Limits, check_name
from crdt_board.paths import split_path
from crdt_board.record_hashes import digest
from crdt_board.updates import EMPTY_UPDATE
from crdt_board.wire_values import check_wire, invalid_value


class Coordinated(BaseModel):
    """The answers of operations, in their order, and the journal entry up to which they are durable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    results: list[JsonValue]


@dataclass(slots=True, eq=False)
class CoordinationItem:
    """Operations of one agent that wait to be decided, all of them or none."""

    agent: str
    operations: Sequence[Operation]
    answer: asyncio.Future[Coordinated]
    results: list[JsonValue] = field(default_factory=list)

    def finish(self, seq: int) -> None:
        if not self.answer.done():
            self.answer.set_result(Coordinated(seq=seq, results=self.results))

    def refuse(self, error: BoardError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def check_operations(agent: str, operations: Sequence[Operation], limits: Limits) -> None:
    """Raises LimitExceeded or InvalidValue when these cannot be kept on a board, whatever is decided on them."""
    check_name(agent, "agent", limits.agent_chars_max)
    if len(operations) > limits.operations_max:
        raise LimitExceeded(
            f"{len(operations)} operations at once; {limits.operations_max} are allowed, send the others after them",
            limit="operations_max",
            value=len(operations),
            maximum=limits.operations_max,
        )
    for operation in operations:
        try:
            content = check_wire(
                operation.model_dump(), operation.op
            )  # as JSON, pydantic replaces lone surrogates of keys
            size = len(canonical_json(content))
        except (ValueError, RecursionError) as error:
            reason = f"must be JSON that every reader reads alike: {error}"
            raise InvalidValue(f"{operation.op} {reason}", path=operation.op, reason=reason) from None
        if size > limits.record_bytes_max:
            raise LimitExceeded(
                f"{operation.op} takes {size} bytes, {limits.record_bytes_max} are allowed; "
                "keep large content on the board or as an artifact, and name it",
                limit="record_bytes_max",
                value=size,
                maximum=limits.record_bytes_max,
            )


def draft_for(document: Document, fold: Fold, agent: str, now_ms: int) -> Draft:
    """A draft of the records of a board, with those whose deadline has passed as they are now."""

    def digest_of(paths: Sequence[str]) -> str:
        return digest({path: document.wire_at(path) for path in paths})

    def find(path: str) -> JsonValue:
        name = split_path(path)[0]
        if name not in document.kinds and name not in document.state_map:
            raise invalid_value(path, "the board has no such field")
        return document.wire_at(path)

    draft = Draft(document.ledger, agent, now_ms, fold.version, fold.checkpoint_hash, digest_of, find)
    draft.let_run_out()
    return draft


def draft_of_commit(
    document: Document, fold: Fold, request: CommitRequest, limits: Limits, now_ms: int
) -> Mapping[str, JsonValue]:
    """The records that a commit changes.

    Raises:
        LeaseLost: the lease that it is made under is not held any more.
        BoardError: one of its operations is refused.
    """
    if request.lease is None and not request.operations:
        return {}
    draft = draft_for(document, fold, request.agent, now_ms)
    draft.commits = True
    if request.lease is not None:
        check_claim(draft, request.lease)
    decide(draft, request.operations)
    _check_room(document, draft, limits)
    return draft.changes


def decide_item(document: Document, fold: Fold, item: CoordinationItem, limits: Limits, now_ms: int) -> bytes:
    """Decide on what an item asks for and write that into the document; `EMPTY_UPDATE` when nothing changes.

    A refused item is answered at once, and changes nothing.
    """
    draft = draft_for(document, fold, item.agent, now_ms)
    try:
        item.results = decide(draft, item.operations)
        _check_room(document, draft, limits)
    except BoardError as error:
        item.refuse(error)
        return EMPTY_UPDATE
    changes = draft.changes
    update = document.capture(lambda: document.write_records(changes)) if changes else EMPTY_UPDATE
    document.ledger.decided_at(now_ms)
    return update


def touches_watched(document: Document, touched: Sequence[str]) -> bool:
    """Whether a change at one of these paths may concern a record, which an approval is that waits."""
    return bool(document.ledger.watching.concerned(touched))


def superseding(document: Document, fold: Fold, touched: Sequence[str], *, agent: str, now_ms: int) -> bytes:
    """Close, in the document, the approvals that are about what ``agent`` has changed there at these paths.

    Costs nothing while none is pending; `EMPTY_UPDATE` when none is concerned.
    """
    if not touches_watched(document, touched):
        return EMPTY_UPDATE
    draft = draft_for(document, fold, agent, now_ms)
    supersede(draft, touched)
    changes = draft.changes
    return document.capture(lambda: document.write_records(changes)) if changes else EMPTY_UPDATE


def to_begin_anew(document: Document) -> dict[str, JsonValue]:
    """What brings the records of a document to what a fork begins with."""
    changes: dict[str, JsonValue] = {}
    for key, record in document.ledger.everything().items():
        after = record.in_fork()
        if after != record:
            changes[key] = None if after is None else stored(after)
    return changes


def undo_of_merge(before: Mapping[str, Record], document: Document, version: int) -> dict[str, JsonValue]:
    """What brings the records back to those of ``before`` after a fork was merged: its tasks and the like stay with it.

    Effects that took place and steps that were done there come along, where the board has none of that name.
    ``version`` is the one that the merge makes.
    """
    now = document.ledger.everything()
    changes: dict[str, JsonValue] = {}
    for key, record in now.items():
        if key not in before and (merged := record.as_merged(version)) != record:
            changes[key] = None if merged is None else stored(merged)
    changes.update((key, stored(record)) for key, record in before.items() if now.get(key) != record)
    return changes


def _check_room(document: Document, draft: Draft, limits: Limits) -> None:
    more = draft.growth()
    if more > 0 and len(document.ledger) + more > limits.records_max:
        raise LimitExceeded(
            f"a board keeps up to {limits.records_max} leases, tasks and the like; remove what is finished",
            limit="records_max",
            value=len(document.ledger) + more,
            maximum=limits.records_max,
        )
