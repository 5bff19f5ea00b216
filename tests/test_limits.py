"""Limits, and the names that they bound."""

from __future__ import annotations

import dataclasses
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.errors import InvalidBoardId, InvalidValue, LimitExceeded
from crdt_board.limits import DEFAULT_LIMITS, Limits, check_board_id, check_name


@given(board_id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}", fullmatch=True))
def test_a_board_id_is_returned_as_it_is(board_id: str) -> None:
    """An id of the documented alphabet and length is accepted unchanged, and needs no quoting in a URL."""
    assert check_board_id(board_id) == board_id
    assert quote(board_id, safe=":") == board_id


@pytest.mark.parametrize(
    "board_id",
    [
        "", ".", "..", "../etc", "a/b", "a\\b", "%2e%2e", "a b", " a", "a\n", "a\0", "é", "ａ", "-a", "_a", "~a",
        "a" * 129, "a" * 10_000, "\ud800", None, 7, b"job", ["job"],
    ],
)  # fmt: skip
def test_what_is_no_board_id_is_refused(board_id: object) -> None:
    """H4: anything else, path tricks and wrong types included, is refused with a short message and the id."""
    with pytest.raises(InvalidBoardId) as caught:
        check_board_id(board_id)
    assert len(str(caught.value)) < 400
    assert len(caught.value.board_id) <= 80


def test_the_length_of_a_board_id_is_a_limit() -> None:
    """A smaller limit refuses what the default accepts."""
    assert check_board_id("a" * 128) == "a" * 128
    with pytest.raises(InvalidBoardId, match="1 to 5 of the characters"):
        check_board_id("abcdef", Limits(board_id_chars_max=5))


@pytest.mark.parametrize("name", ["planner", "Ada Lovelace", "研究者 🖋", "a" * 20])
def test_a_printable_name_is_returned_as_it_is(name: str) -> None:
    """A name may hold any printable characters of any script."""
    assert check_name(name, "agent", 20) == name


def test_a_name_that_is_empty_is_told_so() -> None:
    """It goes beyond no limit; whoever made it forgot something."""
    with pytest.raises(InvalidValue, match="agent is empty; give 1 to 20 printable characters") as caught:
        check_name("", "agent", 20)
    assert caught.value.path == "agent"


@pytest.mark.parametrize("name", ["a" * 21, "a\nb", "a\0", "\x1b[31m", "\ud800", "\u202e", None, 7, b"planner"])
def test_what_is_no_name_is_refused(name: object) -> None:
    """A long, unprintable or non-text name is refused, saying which name it was and what is allowed."""
    with pytest.raises(LimitExceeded, match="agent must be 1 to 20 printable characters") as caught:
        check_name(name, "agent", 20)
    assert (caught.value.limit, caught.value.maximum) == ("agent", 20)
    assert str(caught.value).isprintable()


def test_every_limit_is_positive() -> None:
    """No limit shuts everything out."""
    assert all(getattr(DEFAULT_LIMITS, field.name) > 0 for field in dataclasses.fields(DEFAULT_LIMITS))


def test_limits_that_depend_on_each_other_agree() -> None:
    """What one limit lets in, the next one down has room for."""
    limits = DEFAULT_LIMITS
    assert limits.inbox_bytes_max >= limits.update_bytes_max
    assert limits.control_bytes_max >= limits.checkpoint_metadata_bytes_max
    assert limits.artifact_bytes_max >= limits.artifact_memory_bytes_max >= limits.update_bytes_max
    assert limits.keepalive_seconds < 30
    assert limits.snapshots_kept >= 1
