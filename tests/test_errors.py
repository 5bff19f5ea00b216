"""The error tree."""

from __future__ import annotations

import copy
import json
import pickle
import re

import pytest

from crdt_board import errors
from crdt_board.errors import BoardError, Unavailable, VersionConflict, error_types, from_details

KINDS = sorted(error_types().values(), key=lambda kind: kind.code)
DATA = {"path": "findings/f1", "current_version": 7, "fields": ["a", "b"], "seq": None}


def subclasses(kind: type[BoardError]) -> set[type[BoardError]]:
    return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))


def test_every_code_is_used_once() -> None:
    """Each class of the tree has a code of its own, in lower case and underscores."""
    kinds = subclasses(BoardError)
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert set(error_types().values()) == kinds
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code) for kind in kinds)


def test_the_tree_is_drawn_in_the_docstring() -> None:
    """The module's docstring names every class that it defines."""
    drawing = errors.__doc__ or ""
    assert all(re.search(rf"\b{kind.__name__}\b", drawing) for kind in KINDS if kind.__module__ == errors.__name__)


@pytest.mark.parametrize("kind", KINDS)
def test_details_round_trip(kind: type[BoardError]) -> None:
    """An error that crosses the wire as JSON arrives with its class, message and data."""
    sent = kind("what went wrong", **DATA)
    received = from_details(json.loads(json.dumps(sent.details())))
    assert type(received) is kind
    assert str(received) == received.message == "what went wrong"
    assert received.data == DATA


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clone", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_an_error_can_be_copied(kind: type[BoardError], clone: object) -> None:
    """An error that crosses a process or is copied keeps its class, message and data."""
    original = kind("what went wrong", **DATA)
    copied = clone(original)  # type: ignore[operator]
    assert type(copied) is kind
    assert (str(copied), copied.data) == (str(original), DATA)


def test_data_are_attributes() -> None:
    """Callers read data as attributes; one that was not given is an `AttributeError` that names it."""
    conflict = VersionConflict("too late", current_version=7, author="planner")
    assert (conflict.current_version, conflict.author) == (7, "planner")
    with pytest.raises(AttributeError, match="VersionConflict has no attribute 'colour'"):
        _ = conflict.colour


@pytest.mark.parametrize(
    "details",
    [{}, {"code": "from_the_future"}, {"code": None, "message": None, "data": None}, {"code": ["bad_request"]}],
)
def test_unknown_details_are_still_an_error(details: dict[str, object]) -> None:
    """What a newer peer sends, or a broken one, becomes a plain `BoardError` and nothing worse."""
    assert type(from_details(details)) is BoardError


@pytest.mark.parametrize("kind", KINDS)
def test_only_what_is_unavailable_is_worth_a_retry(kind: type[BoardError]) -> None:
    """``retryable`` is never set outside the branch of `Unavailable`."""
    assert not kind.retryable or issubclass(kind, Unavailable)
