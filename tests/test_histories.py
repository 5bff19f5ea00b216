"""Random histories of several replicas; ``make test-histories`` runs many more of them."""

from __future__ import annotations

import pytest

from support.histories import run_histories

PROCESSES = 2


@pytest.mark.long
@pytest.mark.parametrize("count", [500, pytest.param(2_000, marks=pytest.mark.slow)])
def test_replicas_agree_after_any_history(count: int) -> None:
    """M9: all kinds of fields, records opened and removed and made again, undo, redo and transactions that fail.

    Updates arrive late, in any order and again. In processes of their own, because yrs may end one.
    """
    assert sum(run_histories(range(count), PROCESSES)) == count
