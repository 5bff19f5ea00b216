"""Canonical JSON."""

from __future__ import annotations

import json

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.canonical import SAFE_INTEGER, canonical_json, json_writer

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE_INTEGER, SAFE_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(value=VALUES)
def test_the_bytes_are_those_of_rfc_8785(value: object) -> None:
    """Both ways of writing give the bytes of the reference implementation, whatever the value."""
    assert canonical_json(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


@given(value=VALUES, ensure_ascii=st.booleans(), sort_keys=st.booleans())
def test_a_writer_writes_what_dumps_does(value: object, ensure_ascii: bool, sort_keys: bool) -> None:
    """A writer that is made once gives the text of `json.dumps`, whatever the value."""
    wanted = json.dumps(value, ensure_ascii=ensure_ascii, sort_keys=sort_keys, separators=(",", ":"))
    assert json_writer(ensure_ascii=ensure_ascii, sort_keys=sort_keys)(value) == wanted


def test_a_writer_needs_no_c_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Python has no encoder in C, a writer writes the same."""
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert json_writer(sort_keys=True)({"b": [1, "ö"], "a": None}) == '{"a":null,"b":[1,"\\u00f6"]}'


@given(value=VALUES)
def test_the_order_of_keys_does_not_matter(value: object) -> None:
    """Equal values give equal bytes, in whatever order their keys were set."""

    def turned(node: object) -> object:
        if isinstance(node, dict):
            return {name: turned(node[name]) for name in reversed(node)}
        return [turned(item) for item in node] if isinstance(node, list) else node

    assert canonical_json(turned(value)) == canonical_json(value)


def as_doubles(node: object) -> object:
    """The value as a reader sees it whose only numbers are doubles."""
    return json.loads(json.dumps(node), parse_int=float)


@given(value=VALUES)
def test_the_bytes_are_json_of_the_value(value: object) -> None:
    """Reading the bytes gives the value back, as exactly as a double can hold it."""
    assert as_doubles(json.loads(canonical_json(value))) == as_doubles(value)


@given(value=st.integers(SAFE_INTEGER, 2**1000) | st.integers(-(2**1000), -SAFE_INTEGER))
def test_a_large_integer_is_written_as_its_double(value: int) -> None:
    """An integer and the float that stands for it in a document give the same bytes, at any depth."""
    assert canonical_json({"a": [value]}) == canonical_json({"a": [float(value)]})


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), 10**400, [-(10**400)], "\ud800", {"\udfff": 1}, [["\ud800"]]],
)
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    """M6: a value that cannot be carried exactly is refused with `ValueError`."""
    with pytest.raises(ValueError, match=r".+"):
        canonical_json(value)
