"""Which error closes a websocket with which code and answers HTTP with which status.

44xx: connecting again unchanged cannot help. 45xx: try again, with backoff. Codes from 4000 on are free for
applications (RFC 6455 §7.4.2). The table is in ``docs/protocol.md`` and both are held together by a test.
"""

from __future__ import annotations

from dataclasses import dataclass

from crdt_board.errors import BoardError

SHUTTING_DOWN = 4500
"""The server is stopping; everything that it acknowledged is durable."""

UNFORESEEN = 4599
"""A fault of the server that it did not foresee; its log says more."""


@dataclass(frozen=True, slots=True)
class Closing:
    """How an error ends a connection or a request."""

    close_code: int
    http_status: int


CLOSINGS: dict[str, Closing] = {
    "board_error": Closing(4400, 400),
    "bad_request": Closing(4400, 400),
    "model_error": Closing(4401, 400),
    "invalid_value": Closing(4402, 422),
    "invalid_board_id": Closing(4403, 404),
    "malformed_update": Closing(4404, 400),
    "protocol_error": Closing(4405, 400),
    "limit_exceeded": Closing(4406, 413),
    "not_found": Closing(4407, 404),
    "forbidden_origin": Closing(4408, 403),
    "write_rejected": Closing(4408, 422),
    "method_not_allowed": Closing(4409, 405),
    "conflict": Closing(4410, 409),
    "version_conflict": Closing(4411, 409),
    "idempotency_mismatch": Closing(4412, 409),
    "schema_mismatch": Closing(4413, 409),
    "board_replaced": Closing(4414, 409),
    "board_deleted": Closing(4415, 410),
    "board_exists": Closing(4416, 409),
    "board_violated": Closing(4417, 409),
    "lease_held": Closing(4418, 409),
    "lease_lost": Closing(4419, 409),
    "task_lost": Closing(4430, 409),
    "task_mismatch": Closing(4431, 409),
    "cursor_moved": Closing(4460, 409),
    "reaction_lost": Closing(4461, 409),
    "approval_closed": Closing(4450, 409),
    "approval_mismatch": Closing(4451, 409),
    "board_corrupt": Closing(4420, 500),
    "artifact_corrupt": Closing(4421, 500),
    "effect_in_doubt": Closing(4440, 409),
    "effect_lost": Closing(4441, 409),
    "step_lost": Closing(4442, 409),
    "unavailable": Closing(4510, 503),
    "store_unavailable": Closing(4511, 503),
    "connection_failed": Closing(4512, 503),
    "board_closed": Closing(4513, 503),
    "not_done": Closing(4540, 503),
}
"""By `BoardError.code`; complete."""


def closing_of(error: BoardError) -> Closing:
    return CLOSINGS[error.code]


def is_final(close_code: int) -> bool:
    """Whether a client should not try again by itself."""
    return 4400 <= close_code < 4500
