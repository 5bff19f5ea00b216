"""A model that needs no key: one text, whatever the topic is, with two mistakes in it; the same at every run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

from .model import ModelFailed, Outline, Remark, Verdict

TEXT = {
    "Where it comes from": (
        "SQLite was begun in the spring of 2000, for software on board of a ship that had to go on working when its "
        "database server did not. The first release came out in August 2005, and stored its rows by way of gdbm. "
        "Four years later version 3 brought the file format that is still in use, and that its authors have promised "
        "to keep readable until 2050."
    ),
    "What happens at a commit": (
        "Before a page of the database is changed, its old content goes to a journal that is synced to the disk. If "
        "the machine stops half way, whoever opens the file next puts the old pages back. "
        "Readers go on reading with a rollback journal while a transaction is written to the database. "
        "Only one transaction writes at a time, which is less of a limit than it sounds, as most take a millisecond."
    ),
    "Where it ends": (
        "A database may be 281 terabytes at most. Long before that, other limits are felt: one machine, one writer at "
        "a time, and a file system whose locks must work, which many network file systems do not offer. Where many "
        "machines write at once, a server in front of the file, or another database, is the better choice."
    ),
}
BRIEFS = ("Who made it, when and why.", "How a transaction survives a crash.", "What it is not made for.")

# What a passage says, what the fact checker says to that, what the editor proposes, and how its author decides.
REVIEW = (
    (
        "The first release came out in August 2005, and stored its rows by way of gdbm.",
        "Version 1.0 is from August 2000; the work had begun that spring.",
        "The first release came out in August 2000, and stored its rows by way of gdbm.",
        Verdict(accepted=True, reason="That was a slip."),
    ),
    (
        "Readers go on reading with a rollback journal while a transaction is written to the database.",
        "That is so in WAL mode. With a rollback journal the writer locks them out while it writes the database.",
        "Readers go on reading in WAL mode while a transaction is written to the log beside the database.",
        Verdict(accepted=True, reason="The checker is right."),
    ),
    (
        "A database may be 281 terabytes at most.",
        "Is that not too exact for an overview?",
        "A database may be very large.",
        Verdict(accepted=False, reason="It is the documented limit, and a number says more than 'very large'."),
    ),
)


class Scripted:
    """``pace`` is how long a word takes, in seconds."""

    def __init__(self, pace: float = 0.02) -> None:
        self._pace = pace

    def __str__(self) -> str:
        return "a script (no model is asked)"

    async def plan(self, topic: str, sections: int) -> list[Outline]:
        await self._think()
        outlines = [Outline(title=title, brief=brief) for title, brief in zip(TEXT, BRIEFS, strict=True)]
        return outlines[:sections]

    async def write(self, topic: str, title: str, brief: str) -> AsyncGenerator[str, None]:
        if title not in TEXT:
            raise ModelFailed(f"the script has no section {title!r}: the board was begun with a model")
        for word in re.findall(r"\S+\s*", TEXT[title]):
            await asyncio.sleep(self._pace)
            yield word

    async def check(self, title: str, body: str) -> list[Remark]:
        await self._think()
        return [Remark(quote=quote, comment=comment) for quote, comment, _, _ in REVIEW if quote in body]

    async def propose(self, quote: str, comment: str) -> str:
        await self._think()
        return next((new for old, _, new, _ in REVIEW if old == quote), quote)

    async def judge(self, old: str, new: str, comment: str) -> Verdict:
        await self._think()
        known = (verdict for before, _, after, verdict in REVIEW if (before, after) == (old, new))
        return next(known, Verdict(accepted=False, reason="The script does not know this passage."))

    async def _think(self) -> None:
        await asyncio.sleep(10 * self._pace)
