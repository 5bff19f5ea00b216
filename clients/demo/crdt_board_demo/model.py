"""What the team of the demo works on."""

from __future__ import annotations

import hashlib
from typing import Literal

from crdt_board.canonical import canonical_json
from crdt_board.schema import BoardModel, Counter, Text

PLANNER, WRITER, REVIEWER = "planner", "writer", "reviewer"
RESEARCHERS = ("researcher-1", "researcher-2")
TEAM = (PLANNER, *RESEARCHERS, WRITER, REVIEWER)


class Migration(BoardModel):
    """One service that is to be moved, and what the team finds, plans and writes about it."""

    target_service: str = ""
    status: Literal["PENDING", "ANALYSED", "DONE"] = "PENDING"
    dependencies: set[str] = set()
    findings: dict[str, str] = {}
    evidence: list[str] = []
    plan: list[str] = []
    draft: Text
    tokens_spent: Counter


def checksum(state: Migration) -> str:
    """sha256 over the canonical JSON of a snapshot; equal for equal states."""
    content = state.model_dump(mode="json")
    content["dependencies"] = sorted(state.dependencies)
    return hashlib.sha256(canonical_json(content)).hexdigest()
