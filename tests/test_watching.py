"""Which records a change concerns: the same answer as comparing every path with every other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crdt_board.coordination.approvals import overlaps
from crdt_board.coordination.watching import Watching

_PATHS = st.lists(st.lists(st.sampled_from(("a", "ab", "", "~1")), min_size=1, max_size=4).map("/".join), max_size=5)


@given(st.lists(st.tuples(st.sampled_from("xyz"), _PATHS), max_size=12), _PATHS)
def test_what_is_concerned_are_the_records_of_which_a_path_is_touched_or_lies_above_or_below(
    records: list[tuple[str, list[str]]], touched: list[str]
) -> None:
    watching = Watching()
    for key, paths in records:
        watching.replace(key, paths)
    now = {key: paths for key, paths in dict(records).items() if paths}
    assert len(watching) == len(now)
    assert watching.concerned(touched) == sorted(
        key for key, paths in now.items() if any(overlaps(paths, path) for path in touched)
    )
    for key in now:
        watching.replace(key, ())
    assert not watching
    assert watching.concerned(touched) == []
