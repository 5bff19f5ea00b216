"""What a record is: one JSON value in ``$team``, under a kind and a name. Knows no kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

if TYPE_CHECKING:
    from crdt_board.coordination.ledger import Draft

NAME_CHARS_MAX = 200
TTL_MS_MIN = 100
TTL_MS_MAX = 24 * 3600 * 1000


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("has characters that cannot be printed")
    return name


Name = Annotated[str, Field(min_length=1, max_length=NAME_CHARS_MAX), AfterValidator(_printable)]
"""What a lease, a task or the like is called; any printable characters."""

Token = Annotated[str, Field(min_length=16, max_length=64, pattern=r"^[!-~]+$")]
"""A random text, ASCII without spaces, by which whoever asked for something is known again, also when the question is
asked twice."""

TtlMs = Annotated[int, Field(ge=TTL_MS_MIN, le=TTL_MS_MAX)]
"""How long a claim lasts unless it is renewed."""

Milliseconds = Annotated[int, Field(ge=0, le=2**53 - 1)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Index(Protocol):
    """What is kept beside the records of a kind, so that a decision need not look at all of them."""

    def replace(self, old: Record | None, new: Record | None) -> None:
        """``new`` takes the place of ``old``, which has the same name; None is no record."""
        ...


class Record(Frozen):
    """A record is never changed: another takes its place under the same key."""

    prefix: ClassVar[str]
    """The kind, which is what its key begins with, before a colon."""

    index: ClassVar[type[Index] | None] = None
    """Made without arguments, one for each `Ledger`."""

    name: str

    @property
    def key(self) -> str:
        """Where it is in ``$team``."""
        return f"{self.prefix}:{self.name}"

    def in_fork(self) -> Self | None:
        """The record that a fork begins with; None when it begins without: nobody is at work there yet."""
        return self

    def as_merged(self, version: int) -> Self | None:
        """The record that comes with the merge of a fork that made it, where the board has none of that name.

        None when it stays with the fork. ``version`` is the one that the merge makes.
        """
        return None

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

    def end(self, draft: Draft) -> None:
        """Write what it is when its deadline has passed."""
        draft.put_or_drop(self, self.run_out(draft.now_ms))

    def when_set_back(self, now_ms: int) -> Self:
        """The record after the clock was set back to ``now_ms``: no claim may last the longer for that."""
        return self


def stored(record: Record) -> JsonValue:
    """A record as it stands in ``$team``."""
    content: JsonValue = record.model_dump(mode="json", exclude_defaults=True)
    return content
