"""What the routes of approvals take and answer with."""

from __future__ import annotations

import secrets
from typing import Annotated, Self

from pydantic import BaseModel, Field, JsonValue

from crdt_board.coordination.approvals import (
    DEFAULT_OPTIONS,
    EXPIRES_MS_MAX,
    About,
    ApprovalId,
    ApprovalRecord,
    AskApproval,
    Comment,
    Decision,
    Option,
    Options,
    Question,
    Sha256,
    State,
)
from crdt_board_server.api.answers import AgentName, Body


class AskRequest(Body):
    """A question to people. `about` names fields, or places in them: when one changes, it is superseded."""

    question: Question = Field(examples=["Ship it?"])
    options: Options = DEFAULT_OPTIONS
    about: About = ()
    payload: JsonValue = Field(default=None, description="For whoever shows the question.")
    expires_seconds: Annotated[float, Field(ge=0.001, le=EXPIRES_MS_MAX / 1000)] | None = None
    key: ApprovalId | None = Field(
        default=None, description="Becomes its id; the same question under the same key is asked once."
    )
    agent: AgentName = "api"

    def operation(self) -> AskApproval:
        return AskApproval(
            name=self.key or secrets.token_hex(12),
            question=self.question,
            options=self.options,
            about=self.about,
            payload=self.payload,
            expires_in_ms=None if self.expires_seconds is None else round(self.expires_seconds * 1000),
        )


class DecisionRequest(Body):
    """What a person has chosen; `seen` is the `hash` of the approval that was shown."""

    option: Option = Field(examples=["approve"])
    comment: Comment = ""
    seen: Sha256 | None = None
    agent: AgentName = "api"


class WithdrawalRequest(Body):
    """Who takes the question back."""

    agent: AgentName = "api"


class BoardApproval(BaseModel):
    """A question on a board. `version` and `checkpoint_hash` are those of the newest checkpoint when it was asked (of
    the board that this one was forked from, when `forked`); `hash` names the question and all that it is about.
    """

    board: str
    id: str
    state: State
    question: str
    options: tuple[str, ...]
    about: tuple[str, ...]
    payload: JsonValue
    agent: str = Field(description="Who asked.")
    asked_ms: int
    expires_ms: int | None
    version: int
    checkpoint_hash: str
    forked: bool
    hash: str
    decision: Decision | None

    @classmethod
    def of(cls, board_id: str, record: ApprovalRecord, **more: JsonValue) -> Self:
        shown = record.model_dump(exclude={"name", "number", "subject", "token", "decision"})
        return cls(
            board=board_id, id=record.name, state=record.state, hash=record.hash, decision=record.decision,
            **shown, **more,
        )  # fmt: skip


class ShownApproval(BoardApproval):
    """The same, with what is at each path of `about` now, in wire form; null where nothing is."""

    content: dict[str, JsonValue]


class ApprovalPage(BaseModel):
    """The approvals of one board."""

    approvals: list[BoardApproval]


class AllApprovalsPage(BaseModel):
    """Approvals in the order of their boards' ids; `after` goes on, null at the end."""

    approvals: list[BoardApproval]
    after: str | None
