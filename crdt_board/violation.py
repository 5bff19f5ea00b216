"""What a `Violation` is: a rule that edits break together, although each of them was valid. Knows nothing else."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

VIOLATIONS = "$violations"
"""The path under which `Board.changes` tells that the violations of a board are others than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule of the model that the board's present state breaks.

    ``path`` is where: a field, a record, or empty for the board as a whole. ``rule`` is a keyword of JSON Schema, as
    ``maxItems``, for the size of the field at ``path``, else the name of the model's validator. ``fields`` are those
    that the rule looks at, of the board or of the record at ``path``; none when it may look at any. ``agent`` is whose
    replica found it, and ``seq`` the newest journal entry up to which ``message`` is known to have been true; both are
    None for sizes, which every replica sees by itself.
    """

    path: str
    rule: str
    message: str
    fields: tuple[str, ...] = ()
    agent: str | None = None
    seq: int | None = None

    @property
    def key(self) -> str:
        """Rule and place: two violations with the same key are one."""
        return f"{self.rule}@{self.path}"

    def concerns(self, changed: Set[str]) -> bool:
        """Whether a change in one of these fields of the board can break the rule or resolve it."""
        if self.path:
            return self.path.partition("/")[0] in changed
        return not changed.isdisjoint(self.fields) if self.fields else bool(changed)

    def __str__(self) -> str:
        return f"{self.path}: {self.message} ({self.rule})" if self.path else f"{self.message} ({self.rule})"
