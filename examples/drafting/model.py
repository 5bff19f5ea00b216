"""What the agents want of a language model. `scripted` does without one, `endpoint` asks one over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from pydantic import BaseModel, Field


class ModelFailed(Exception):
    """The model gave no answer, or none that can be used; the message is for the person at the terminal."""


class Outline(BaseModel):
    title: str = Field(pattern=r"\S")
    brief: str


class Remark(BaseModel):
    """``quote`` is copied from the text, character by character."""

    quote: str
    comment: str


class Verdict(BaseModel):
    accepted: bool
    reason: str


class Model(Protocol):
    """Each method raises ModelFailed. They may be called again for the same thing, when a process died in between."""

    async def plan(self, topic: str, sections: int) -> list[Outline]: ...

    def write(self, topic: str, title: str, brief: str) -> AsyncGenerator[str, None]:
        """The body of a section, piece by piece."""
        ...

    async def check(self, title: str, body: str) -> list[Remark]: ...

    async def propose(self, quote: str, comment: str) -> str:
        """What the passage should say instead."""
        ...

    async def judge(self, old: str, new: str, comment: str) -> Verdict: ...
