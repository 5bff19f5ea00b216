"""A model with one field of every kind."""

from __future__ import annotations

from datetime import datetime

from crdt_board.merge_types import Counter, Text
from crdt_board.schema import BoardModel


class Report(BoardModel):
    title: str = ""
    due: datetime | None = None
    draft: Text
    plan: list[str] = []
    sources: set[str] = set()
    scores: dict[str, int] = {}
    spent: Counter
