"""What a record is: one JSON value in ``$team``, under a kind and a name. Knows no kinds."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue

NAME_CHARS_MAX = 200

Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX)]
"""What a lease, a task or the like is called; any printable characters."""

Token = Annotated[str, Field(min_length=16, max_length=64)]
"""A random text by which whoever asked for something is known again, also when the question is asked twice."""

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Record(Frozen):
    """A record is never changed: another takes its place under the same key."""

    prefix: ClassVar[str]
    """The kind, which is what its key begins with, before a colon."""

    comes_back: ClassVar[bool] = False
    """Whether a record that a fork made comes with its merge, where the board has none of that name."""

    name: str

    @property
    def key(self) -> str:
        """Where it is in ``$team``."""
        return f"{self.prefix}:{self.name}"

    def in_fork(self) -> Self | None:
        """The record that a fork begins with; None when it begins without: nobody is at work there yet."""
        return self

    @property
    def is_busy(self) -> bool:
        """Whether an agent is at it, or should be: then the board is not settled."""
        return False

    @property
    def watches(self) -> tuple[str, ...]:
        """Paths of the board whose change concerns it; see `Ledger.watching`."""
        return ()

    @property
    def deadline_ms(self) -> int | None:
        """When it changes by itself, in milliseconds since 1970 on the store's clock; None is never."""
        return None

    def run_out(self, now_ms: int) -> Self | None:
        """The record as it is from ``now_ms`` on, which is not before its deadline; None when it is no more."""
        raise NotImplementedError(f"{type(self).__name__} has no deadline")


def stored(record: Record) -> JsonValue:
    """A record as it stands in ``$team``."""
    content: JsonValue = record.model_dump(mode="json", exclude_defaults=True)
    return content
