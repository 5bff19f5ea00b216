"""Random histories of several replicas; ``make test-histories`` runs many more of them."""

from __future__ import annotations

from support.histories import run_histories

COUNT = 2_000


def test_replicas_agree_after_any_history() -> None:
    """M9: all kinds of fields, records opened and removed and made again, updates late, in any order and again."""
    assert run_histories(range(COUNT)) == COUNT
