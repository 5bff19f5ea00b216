"""What came to a board, entry by entry, for those who follow it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from crdt_board.checkpoints import decode_checkpoint
from crdt_board.journal import Entry
from crdt_board.paths import split_path


class News(BaseModel):
    """A journal entry that changed something, or made a version.

    ``paths`` are what it touched, in alphabetical order: fields, or keys or records in them; an entry that touched very
    much names whole fields. ``version`` and ``step`` are those of the commit, if it was one. With ``squashed`` it
    stands for everything up to ``seq``, of which the single entries were compacted away: any path may have been
    changed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    agent: str
    time_ms: int
    paths: tuple[str, ...] = ()
    version: int | None = None
    step: str | None = None
    squashed: bool = False


class EntryPage(BaseModel):
    """News in the order of ``seq``, and the entry up to which there is no other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    news: tuple[News, ...]
    until: int


def news_of(entry: Entry, path: str) -> News | None:
    """What an entry tells somebody who follows ``path``, everything when that is empty; None when that is nothing."""
    paths = tuple(touched for touched in entry.paths if not path or _meets(touched, path))
    if not paths and (path or not entry.checkpoint):
        return None
    made = decode_checkpoint(entry.checkpoint) if entry.checkpoint else None
    return News(
        seq=entry.seq,
        agent=entry.author,
        time_ms=entry.time_ms,
        paths=paths,
        version=made.version if made else None,
        step=made.step if made else None,
    )


def _meets(one: str, other: str) -> bool:
    """Whether one of two paths is the other, or holds it."""
    return all(own == its for own, its in zip(split_path(one), split_path(other), strict=False))
