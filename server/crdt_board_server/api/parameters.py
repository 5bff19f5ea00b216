"""Parameters that several routes take."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from crdt_board.limits import DEFAULT_LIMITS

_NUMBER_MAX = 2**53 - 1
_PATH_CHARS_MAX = 1_000

BoardId = Annotated[str, Path(description="The board.", examples=["job-884"])]
Limit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
AfterBoard = Annotated[str, Query(max_length=DEFAULT_LIMITS.board_id_chars_max, description="A board id.")]
Version = Annotated[int, Query(ge=0, le=_NUMBER_MAX)]
Agent = Annotated[str, Query(min_length=1, max_length=DEFAULT_LIMITS.agent_chars_max)]
FieldPath = Annotated[
    str,
    Query(
        min_length=1,
        max_length=_PATH_CHARS_MAX,
        description="A field, or a key or record inside one, as in findings/f1/title.",
        examples=["draft"],
    ),
]
