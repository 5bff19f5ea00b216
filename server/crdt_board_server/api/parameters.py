"""Parameters that several routes take."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Header, Path, Query

from crdt_board.errors import BadRequest
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

IfMatch = Annotated[str | None, Header(description='A version in quotes, as "12"; see ETag.', examples=['"12"'])]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=DEFAULT_LIMITS.idempotency_key_chars_max, description="Names this request."),
]

_ETAG = re.compile(r'(?:W/)?"(\d{1,15})"|(\d{1,15})')


def version_of(if_match: str | None) -> int | None:
    """The version that an ``If-Match`` header names; None when there is no header, or it is ``*``.

    Raises:
        BadRequest: it is something else.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    match = _ETAG.fullmatch(if_match.strip())
    if match is None:
        raise BadRequest(f'If-Match must be one version in quotes, like "12", not {if_match[:80]}')
    return int(match[1] or match[2])
