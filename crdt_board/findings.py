"""What a replica whose agent knows the model tells the writer of a board of rules that only the model knows. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board.violation import Violation

PATH_CHARS_MAX = 1_000
MESSAGE_CHARS_MAX = 500
FIELDS_MAX = 100
"""So that findings, at their largest, are one control message."""
FINDINGS_MAX = 100
"""Rules that one report names as broken, or as kept; a replica tells of more once some of these are settled."""

_Name = Annotated[str, Field(max_length=200)]
_Path = Annotated[str, Field(max_length=PATH_CHARS_MAX)]
_Key = Annotated[str, Field(max_length=PATH_CHARS_MAX + 201)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Frozen):
    """A rule that the state of a replica breaks; see `Violation`."""

    path: _Path
    rule: _Name
    message: Annotated[str, Field(max_length=MESSAGE_CHARS_MAX)]
    fields: Annotated[tuple[_Name, ...], Field(max_length=FIELDS_MAX)] = ()

    def violation(self, agent: str, seq: int) -> Violation:
        return Violation(agent=agent, seq=seq, **dict(self))


class Findings(_Frozen):
    """``seq`` is the newest journal entry that the replica held when it looked."""

    seq: Annotated[int, Field(ge=0, le=2**53 - 1)]
    broken: Annotated[tuple[Finding, ...], Field(max_length=FINDINGS_MAX)] = ()
    """What is broken, with the patch or without it."""
    refused: Annotated[tuple[Finding, ...], Field(max_length=FINDINGS_MAX)] = ()
    """What only the patch of the commit breaks."""
    kept: Annotated[tuple[_Key, ...], Field(max_length=FINDINGS_MAX)] = ()
    """Keys of recorded violations that do not hold: the rule is kept, or what it was about is gone."""

    dismissed: Annotated[tuple[_Key, ...], Field(max_length=FINDINGS_MAX)] = ()
    """Keys of recorded violations that an agent wants gone, whatever it finds."""

    @property
    def tells(self) -> bool:
        return bool(self.broken or self.kept)


def stored(violation: Violation) -> dict[str, JsonValue]:
    """A violation as it is recorded."""
    return {
        "path": violation.path,
        "rule": violation.rule,
        "message": violation.message,
        "fields": list(violation.fields),
        "agent": violation.agent,
        "seq": violation.seq,
    }
