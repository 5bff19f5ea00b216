"""Where the command line finds approvals: in a database file, or at a server. Both give the same answers."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from crdt_board.coordination.approvals import DecideApproval, WithdrawApproval
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id, check_name
from crdt_board.values import from_validation_error
from crdt_board_server.api.approval_answers import (
    AllApprovalsPage,
    ApprovalPage,
    AskRequest,
    BoardApproval,
    ShownApproval,
)
from crdt_board_server.api.approval_lists import ApprovalLists

_PAGE = 1_000

_Answer = TypeVar("_Answer", bound=BaseModel)

_Operation = TypeVar("_Operation", DecideApproval, WithdrawApproval)

Ask = Callable[..., Awaitable[httpx.Response]]
"""Sends a request to a server, and raises what it answers if that is an error."""


class ApprovalSource(Protocol):
    """Approvals to look at and to decide. What is not there raises `NotFound`."""

    async def everywhere(self) -> list[BoardApproval]:
        """Those of all boards."""
        ...

    async def of(self, board_id: str) -> list[BoardApproval]: ...

    async def one(self, board_id: str, approval_id: str) -> ShownApproval: ...

    async def ask(self, board_id: str, wanted: AskRequest) -> BoardApproval: ...

    async def decide(self, approval: BoardApproval, option: str, *, comment: str, agent: str) -> BoardApproval:
        """Decide on what ``approval`` shows."""
        ...

    async def withdraw(self, board_id: str, approval_id: str, agent: str) -> BoardApproval: ...


class StoredApprovals:
    """Those in the store of a host."""

    def __init__(self, host: BoardHost) -> None:
        self._lists = ApprovalLists(host)

    async def everywhere(self) -> list[BoardApproval]:
        found: list[BoardApproval] = []
        after: str | None = ""
        while after is not None:
            page, after = await self._lists.page(after=after, limit=_PAGE)
            found += page
        return found

    async def of(self, board_id: str) -> list[BoardApproval]:
        return await self._lists.of(board_id)

    async def one(self, board_id: str, approval_id: str) -> ShownApproval:
        return await self._lists.one(board_id, approval_id)

    async def ask(self, board_id: str, wanted: AskRequest) -> BoardApproval:
        return await self._lists.coordinate(board_id, wanted.agent, wanted.operation())

    async def decide(self, approval: BoardApproval, option: str, *, comment: str, agent: str) -> BoardApproval:
        content = {"name": approval.id, "option": option, "comment": comment, "seen": approval.hash}
        operation = _checked(DecideApproval, token=secrets.token_hex(12), **content)
        return await self._lists.coordinate(approval.board, agent, operation)

    async def withdraw(self, board_id: str, approval_id: str, agent: str) -> BoardApproval:
        return await self._lists.coordinate(board_id, agent, _checked(WithdrawApproval, name=_named(approval_id)))


def _named(approval_id: str) -> str:
    return check_name(approval_id, "the name of an approval", NAME_CHARS_MAX)


def _checked(kind: type[_Operation], **content: Any) -> _Operation:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise from_validation_error(error, "") from None


class ServedApprovals:
    """Those of a server, over its HTTP API."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def everywhere(self) -> list[BoardApproval]:
        found: list[BoardApproval] = []
        after: str | None = ""
        while after is not None:
            page = await self._read(AllApprovalsPage, "GET", "/api/approvals", params={"after": after, "limit": _PAGE})
            found, after = [*found, *page.approvals], page.after
        return found

    async def of(self, board_id: str) -> list[BoardApproval]:
        return (await self._read(ApprovalPage, "GET", _address(board_id))).approvals

    async def one(self, board_id: str, approval_id: str) -> ShownApproval:
        return await self._read(ShownApproval, "GET", _address(board_id, approval_id))

    async def ask(self, board_id: str, wanted: AskRequest) -> BoardApproval:
        return await self._read(BoardApproval, "POST", _address(board_id), json=wanted.model_dump(mode="json"))

    async def decide(self, approval: BoardApproval, option: str, *, comment: str, agent: str) -> BoardApproval:
        body = {"option": option, "comment": comment, "seen": approval.hash, "agent": agent}
        address = f"{_address(approval.board, approval.id)}/decision"
        return await self._read(BoardApproval, "POST", address, json=body)

    async def withdraw(self, board_id: str, approval_id: str, agent: str) -> BoardApproval:
        address = f"{_address(board_id, approval_id)}/withdrawal"
        return await self._read(BoardApproval, "POST", address, json={"agent": agent})

    async def _read(self, kind: type[_Answer], method: str, address: str, **content: Any) -> _Answer:
        return kind.model_validate_json((await self._ask(method, address, **content)).content)


def _address(board_id: str, approval_id: str | None = None) -> str:
    board = f"/api/boards/{check_board_id(board_id)}/approvals"
    return board if approval_id is None else f"{board}/{quote(_named(approval_id), safe='')}"
