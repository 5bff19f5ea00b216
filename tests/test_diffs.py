"""Smallest edits, and moving them onto a sequence that others changed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crdt_board.diffs import Splice, apply_splices, middle_splice, rebase, splices

TEXTS = st.text(alphabet="abé😀 ", max_size=30)
LISTS = st.lists(st.sampled_from([-1, -2, 0, "a", "b", ("t", 1)]), max_size=12)


@given(TEXTS, TEXTS)
def test_splices_of_texts_lead_from_old_to_new(old: str, new: str) -> None:
    """Applying splices(a, b) to a gives b, and so does the single middle splice."""
    assert apply_splices(splices(old, new), old) == new
    middle = middle_splice(old, new)
    assert apply_splices([middle] if middle else [], old) == new


@given(LISTS, LISTS)
def test_splices_of_lists_lead_from_old_to_new(old: list[object], new: list[object]) -> None:
    """Applying splices(a, b) to a gives b for lists, also of items with equal hashes such as -1 and -2."""
    assert apply_splices(splices(old, new), old) == new


@given(TEXTS, TEXTS)
def test_splices_are_ascending_and_apart(old: str, new: str) -> None:
    """Splices neither overlap nor touch, and each changes something."""
    edits = splices(old, new)
    assert all(before.stop < after.start for before, after in pairwise(edits))
    assert all(old[edit.start : edit.stop] != edit.new for edit in edits)


@given(TEXTS, TEXTS, TEXTS)
def test_rebase_onto_an_unchanged_sequence_changes_nothing(base: str, mine: str, theirs: str) -> None:
    """Onto the base itself splices stay as they are; no splices stay none."""
    edits = splices(base, mine)
    assert rebase(edits, base, base) == edits
    assert rebase([], base, theirs) == []


@given(st.text(alphabet="abc", max_size=20), st.data())
def test_rebase_keeps_what_both_sides_inserted(base: str, data: st.DataObject) -> None:
    """When both sides only insert, every inserted item is there once and the base is still a subsequence."""
    mine = theirs = base
    for mark in "XYZ":
        position = data.draw(st.integers(0, len(mine)))
        mine = mine[:position] + mark + mine[position:]
    for mark in "123":
        position = data.draw(st.integers(0, len(theirs)))
        theirs = theirs[:position] + mark + theirs[position:]
    merged = apply_splices(rebase(splices(base, mine), base, theirs), theirs)
    assert sorted(merged) == sorted(base + "XYZ123")
    assert "".join(each for each in merged if each not in "XYZ") == theirs


@given(st.lists(st.integers(0, 2**32), unique=True, max_size=12), st.data())
def test_rebase_keeps_what_both_sides_removed(base: list[int], data: st.DataObject) -> None:
    """When both sides only remove, what is left is what neither removed."""
    mine = data.draw(st.lists(st.sampled_from(base), unique=True)) if base else []
    theirs = data.draw(st.lists(st.sampled_from(base), unique=True)) if base else []
    mine_left = [each for each in base if each not in mine]
    theirs_left = [each for each in base if each not in theirs]
    merged = apply_splices(rebase(splices(base, mine_left), base, theirs_left), theirs_left)
    assert merged == [each for each in base if each not in mine and each not in theirs]


def test_appends_of_both_sides_are_kept_in_order() -> None:
    """What others appended comes first, then ours."""
    base, current = "plan:", "plan: theirs"
    assert apply_splices(rebase([Splice(5, 5, " ours")], base, current), current) == "plan: theirs ours"


def test_a_replaced_word_keeps_what_others_put_into_it() -> None:
    """Removing a stretch leaves what others inserted inside it."""
    edits = rebase([Splice(0, 4, "new")], "abcd", "ab!cd")
    assert apply_splices(edits, "ab!cd") == "new!"


def test_long_differences_are_replaced_whole() -> None:
    """Above the bound on cost there is a single splice of the differing middle."""
    old, new = "<" + "ab" * 5_000 + ">", "<" + "cd" * 5_000 + ">"
    assert splices(old, new) == [Splice(1, 10_001, "cd" * 5_000)]
