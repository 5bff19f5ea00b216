"""How long to wait before connecting again. Pure: randomness is an argument."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_FIRST_SECONDS = 0.1
_MAX_SECONDS = 5.0

_PAUSES_PER_CLAIM = 10
"""A third of a claim's time may be over when the connection is lost, and a server takes some seconds to start again."""


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with full jitter, so that many clients of one server come back spread over time.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog.
    """

    random: random.Random = field(default_factory=random.Random)
    _ceiling: float = _FIRST_SECONDS

    def next_seconds(self, claim_seconds: float | None = None) -> float:
        """The pause before the next try, between a tenth of the present ceiling and all of it.

        ``claim_seconds`` is how long the shortest claim lasts that is lost unless it is renewed: the pause is a tenth
        of that at most, or of a second. Who has no claim does not hurry, so the others find the server less busy.
        """
        highest = _MAX_SECONDS if claim_seconds is None else min(claim_seconds / _PAUSES_PER_CLAIM, _MAX_SECONDS)
        pause = min(self._ceiling, max(highest, _FIRST_SECONDS)) * self.random.uniform(0.1, 1.0)
        self._ceiling = min(self._ceiling * 2, _MAX_SECONDS)
        return pause

    def reset(self) -> None:
        """A connection came about: the next loss starts again with short pauses."""
        self._ceiling = _FIRST_SECONDS
