"""How long to wait before connecting again. Pure: randomness is an argument."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_FIRST_SECONDS = 0.1
_MAX_SECONDS = 5.0


@dataclass(slots=True)
class Backoff:
    """Exponential backoff with full jitter, so that many clients of one server come back spread over time.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog.
    """

    random: random.Random = field(default_factory=random.Random)
    _ceiling: float = _FIRST_SECONDS

    def next_seconds(self) -> float:
        """The pause before the next try, between a tenth of the present ceiling and all of it."""
        pause = self._ceiling * self.random.uniform(0.1, 1.0)
        self._ceiling = min(self._ceiling * 2, _MAX_SECONDS)
        return pause

    def reset(self) -> None:
        """A connection came about: the next loss starts again with short pauses."""
        self._ceiling = _FIRST_SECONDS
