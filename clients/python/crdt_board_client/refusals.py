"""What an HTTP answer in place of a websocket means. Pure."""

from __future__ import annotations

from websockets.http11 import Response

from crdt_board.errors import ConnectionFailed

_PASSING = {408, 425, 429}
"""Statuses below 500 that ask to come again: too slow, too early, too often."""

_REASON_CHARS_MAX = 300


def may_pass(response: Response) -> bool:
    """Whether something suggests that the same request is answered otherwise later."""
    return response.status_code >= 500 or response.status_code in _PASSING


def refusal(url: str, response: Response) -> ConnectionFailed:
    """The error that says who answers at ``url``, and what to do about it."""
    status = response.status_code
    if status in (401, 403, 407):
        reason = f"the connection to {url} was refused (HTTP {status})"
        return ConnectionFailed(f"{reason}: {_said(response) or 'whoever answers there does not let this client in'}")
    if may_pass(response):
        return ConnectionFailed(f"{url} takes no connections just now (HTTP {status})")
    said = _said(response)
    problem = f"something answers at {url}, but not as a board does (HTTP {status}{f', {said}' if said else ''})"
    return ConnectionFailed(f"{problem}: give the address of a CRDT Board server, without a path")


def _said(response: Response) -> str:
    """What a server of boards says of a refusal, a line of plain text; empty when it is something else."""
    if not response.headers.get("Content-Type", "").startswith("text/plain"):
        return ""
    text = (response.body or b"").decode(errors="replace").strip()
    return text if text.isprintable() and len(text) <= _REASON_CHARS_MAX else ""
