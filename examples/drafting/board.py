"""What the team shares: the text, who writes which section, what was remarked and proposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from crdt_board import BoardModel, Text

Record = TypeVar("Record", bound=BoardModel)


class Stuck(Exception):
    """The draft cannot be finished until somebody does something; the message says what."""


class Section(BoardModel):
    """A heading of the text; ``brief`` tells its writer what belongs below it."""

    title: str = ""
    brief: str = ""
    order: int = 0
    state: Literal["planned", "written", "checked"] = "planned"
    writer: str = ""


class Comment(BoardModel):
    """A remark on a passage. ``anchor`` says where the passage is now, ``quote`` what it said then."""

    section: str = ""
    anchor: str = ""
    quote: str = ""
    text: str = ""
    state: Literal["open", "answered"] = "open"


class Proposal(BoardModel):
    """What a passage could say instead; its author, who wrote the section, accepts or refuses it."""

    anchor: str = ""
    old: str = ""
    new: str = ""
    author: str = ""
    state: Literal["proposed", "accepted", "refused"] = "proposed"
    reason: str = ""


class Draft(BoardModel):
    topic: str = ""
    status: Literal["drafting", "published", "rejected"] = "drafting"
    draft: Text
    sections: dict[str, Section] = {}
    comments: dict[str, Comment] = {}
    proposals: dict[str, Proposal] = {}


def changed(records: Mapping[str, Record], key: str, **values: Any) -> dict[str, Record]:
    """All records, one of them with other values: a commit writes only what differs."""
    return {**records, key: records[key].model_copy(update=values)}


def outline(topic: str, titles: list[str]) -> str:
    """The text before anybody has written: headings, each with room below it."""
    return f"# {topic}\n" + "".join(f"\n## {title}\n\n\n" for title in titles)


def room_below(text: str, title: str) -> tuple[int, int]:
    """Where the body of a section begins and ends, without the line ends around it. Raises Stuck."""
    heading = f"\n## {title}\n\n"
    if heading not in text:
        raise Stuck(f"the heading '## {title}' is not in the text any more: put it back")
    start = text.index(heading) + len(heading)
    stop = text.find("\n\n## ", start)
    return start, stop if stop >= 0 else len(text) - 1


def body(text: str, title: str) -> str:
    start, stop = room_below(text, title)
    return text[start:stop]
