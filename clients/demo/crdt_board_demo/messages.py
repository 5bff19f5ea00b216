"""What an agent process tells the demo that started it: JSON lines on its standard output."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Started(_Message):
    """Connected; ``steps_done`` are the agent's own steps that the checkpoints say are finished."""

    type: Literal["started"] = "started"
    pid: int
    version: int
    steps_done: tuple[str, ...]


class Edited(_Message):
    """Edit ``id`` was made. Of this process's edits, ``acknowledged`` are durable; they are so in order."""

    type: Literal["edited"] = "edited"
    id: str
    online: bool
    acknowledged: int


class Found(_Message):
    """Edit ``id`` was on the board already when this process came to it."""

    type: Literal["found"] = "found"
    id: str


class Connection(_Message):
    """The connection was lost, or is there again."""

    type: Literal["connection"] = "connection"
    online: bool
    acknowledged: int


class Noted(_Message):
    """Something for people to read."""

    type: Literal["noted"] = "noted"
    text: str


class Committed(_Message):
    type: Literal["committed"] = "committed"
    version: int
    step: str
    hash: str
    acknowledged: int


class Finished(_Message):
    """All steps of everybody are done; ``checksum`` is that of this replica's snapshot."""

    type: Literal["finished"] = "finished"
    version: int
    checksum: str
    acknowledged: int


Message = Annotated[
    Started | Edited | Found | Connection | Noted | Committed | Finished,
    Field(discriminator="type"),
]

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def encode(message: Message) -> bytes:
    """One line, its newline included."""
    return message.model_dump_json().encode() + b"\n"


def decode(line: bytes) -> Message:
    """The inverse of `encode`."""
    return _MESSAGE.validate_json(line)
