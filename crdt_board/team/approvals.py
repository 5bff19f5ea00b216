"""`board.ask`, `board.decide`: a question to people, and the wait for what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from crdt_board.commit_arguments import json_copy
from crdt_board.coordination.approvals import (
    EXPIRES_MS_MAX,
    ApprovalRecord,
    AskApproval,
    DecideApproval,
    Decision,
    State,
    WithdrawApproval,
)
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BadRequest, NotFound
from crdt_board.team.desk import Desk, new_token
from crdt_board.wire_values import invalid_value

_Asked = TypeVar("_Asked", AskApproval, DecideApproval, WithdrawApproval)


class Approval:
    """A question that was asked, and what has become of it. Made by `Board.ask`."""

    def __init__(self, desk: Desk, record: ApprovalRecord) -> None:
        self._desk = desk
        self._record = record

    def __repr__(self) -> str:
        return f"<Approval {self.id!r} {self.state}>"

    @property
    def id(self) -> str:
        """By which it is decided."""
        return self._record.name

    @property
    def record(self) -> ApprovalRecord:
        """All that is known of it, as this replica holds it now."""
        self._record = self._found() or self._record
        return self._record

    @property
    def state(self) -> State:
        """*pending*, *decided*, *expired*, *superseded* or *withdrawn*, as this replica knows it now."""
        return self.record.state

    @property
    def hash(self) -> str:
        """Names the question together with what it is about; see ``seen`` of `Board.decide`."""
        return self._record.hash

    async def decided(self, timeout: float | None = None) -> Decision:
        """Wait until it is not pending any more; return how it ended.

        Only a decision has an ``option``: it is None when the approval expired, was superseded because something that
        it is about changed, or was withdrawn, which ``state`` tells apart. Durable when this returns. Waiting may be
        cancelled and begun again, also by another process that asks with the same ``key``.

        Raises:
            TimeoutError: it is still pending after ``timeout`` seconds (None waits for ever).
            NotFound: it ended long ago, and is not on the board any more.
        """

        def ended() -> bool:
            found = self._found()
            return found is None or found.decision is not None

        try:
            await self._desk.until(ended, timeout)
        except TimeoutError:
            raise TimeoutError(f"approval {self.id} is still pending after {timeout} s") from None
        record = self._found()
        if record is None or record.decision is None:
            raise NotFound(f"approval {self.id} is not on the board any more")
        return record.decision

    async def withdraw(self) -> Decision:
        """See `Board.withdraw`."""
        return await withdraw(self._desk, self.id)

    def _found(self) -> ApprovalRecord | None:
        return self._desk.ledger.get(ApprovalRecord, self._record.name)


async def ask(
    desk: Desk,
    question: str,
    *,
    options: Sequence[str],
    about: Sequence[str],
    expires: timedelta | float | None,
    payload: JsonValue,
    key: str | None,
) -> Approval:
    """See `Board.ask`."""
    request = _request(
        AskApproval,
        name=new_token() if key is None else key,
        question=question,
        options=_texts(options, "options"),
        about=_texts(about, "about"),
        expires_in_ms=None if expires is None else _milliseconds(expires),
        payload=json_copy(payload, "payload"),
    )
    return Approval(desk, await _answer(desk, request))


async def decide(desk: Desk, approval_id: str, option: str, *, comment: str, seen: str | None) -> Decision:
    """See `Board.decide`."""
    known = desk.ledger.get(ApprovalRecord, approval_id)
    if seen is None and known is not None:
        seen = known.hash
    request = _request(DecideApproval, name=approval_id, option=option, comment=comment, token=new_token(), seen=seen)
    return _decision(await _answer(desk, request))


async def withdraw(desk: Desk, approval_id: str) -> Decision:
    """See `Board.withdraw`."""
    return _decision(await _answer(desk, _request(WithdrawApproval, name=approval_id)))


def all_approvals(desk: Desk) -> list[ApprovalRecord]:
    """See `Board.approvals`."""
    return sorted(desk.ledger.all(ApprovalRecord).values(), key=lambda each: each.number)


async def _answer(desk: Desk, request: Operation) -> ApprovalRecord:
    return ApprovalRecord.model_validate(await desk.ask_one(request))


def _decision(record: ApprovalRecord) -> Decision:
    assert record.decision is not None
    return record.decision


def _request(kind: type[_Asked], **content: Any) -> _Asked:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        argument = str(first["loc"][0])
        if argument == "name":
            argument = "key" if "question" in content else "approval_id"
        raise invalid_value(argument, first["msg"].removeprefix("Value error, ")) from None


def _texts(texts: Sequence[str], argument: str) -> tuple[str, ...]:
    if isinstance(texts, str):
        raise BadRequest(f"{argument} is a list of texts, like [{texts!r}]")
    return tuple(texts)


def _milliseconds(expires: timedelta | float) -> int:
    seconds = expires.total_seconds() if isinstance(expires, timedelta) else expires
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid_value("expires", f"is a timedelta or a number of seconds, not {type(seconds).__name__}")
    if not 0.001 <= seconds <= EXPIRES_MS_MAX / 1000:
        raise invalid_value("expires", f"must be from 0.001 to {EXPIRES_MS_MAX // 1000} seconds, got {seconds!r}")
    return round(seconds * 1000)
