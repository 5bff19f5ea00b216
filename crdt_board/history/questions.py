"""Answers about a board's past in the form in which they cross the wire."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, JsonValue

from crdt_board.control import Blame, Diff, ListEdits, ListEntries, ListForks, Measure, Question, Verify
from crdt_board.history.board_history import BoardHistory


async def answer_question(history: BoardHistory, question: Question) -> JsonValue:
    """The answer as JSON; see `crdt_board.control.Answer` for what it is. Errors are those of `BoardHistory`."""
    answer: BaseModel | Sequence[BaseModel]
    match question:
        case Diff(before=before, after=after):
            answer = await history.diff(before, after)
        case ListEdits(path=path, before=before, limit=limit):
            answer = await history.edits(path, before=before, limit=limit)
        case ListEntries(after=after, path=path, limit=limit):
            answer = await history.entries(path, after=after, limit=limit)
        case Blame(path=path, version=version):
            answer = await history.blame(path, version)
        case Verify():
            answer = await history.verify()
        case Measure():
            answer = await history.sizes()
        case ListForks():
            answer = await history.forks()
    return _plain(answer) if isinstance(answer, BaseModel) else [_plain(each) for each in answer]


def _plain(answer: BaseModel) -> dict[str, JsonValue]:
    return answer.model_dump(mode="json")
