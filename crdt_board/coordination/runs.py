"""What effects and steps have in common: it runs under a timed claim of one agent, until it is done for good."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from crdt_board.coordination.records import Milliseconds, Record

Fingerprint = Annotated[str, Field(max_length=64)]
"""Of what was asked for; empty when that cannot be compared."""


class RunRecord(Record):
    """Something that runs, has run, or is done. Its kind says what it is when its claim has run out."""

    state: str
    agent: str
    """Who runs it, or ran it last."""
    token: Annotated[str, Field(repr=False)]
    """That run's own."""
    fingerprint: Fingerprint = ""
    expires_ms: Milliseconds = 0
    """While it runs: until when it was promised to be heard of."""
    ttl_ms: int = 0
    """How long a renewal lasts, so that a clock that is set back makes no claim last longer."""

    @property
    def is_busy(self) -> bool:
        return self.state == "running"

    @property
    def deadline_ms(self) -> int | None:
        return self.expires_ms if self.state == "running" else None

    def when_set_back(self, now_ms: int) -> Self:
        return self.model_copy(update={"expires_ms": min(self.expires_ms, now_ms + self.ttl_ms)})

    def may_be_ended_by(self, token: str) -> bool:
        """Whether it is the run of this token, also when its claim has run out, and not done."""
        return self.token == token and self.state != "done"

    def kept(self, now_ms: int, ttl_ms: int) -> Self:
        """It still runs, for ``ttl_ms`` from now at least."""
        expires_ms = max(self.expires_ms, now_ms + ttl_ms)
        return self.model_copy(update={"state": "running", "expires_ms": expires_ms, "ttl_ms": ttl_ms})

    def differs_from(self, fingerprint: str) -> bool:
        """Whether both say what was asked for, and it is not the same."""
        return bool(self.fingerprint and fingerprint) and self.fingerprint != fingerprint
