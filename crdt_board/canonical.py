"""Canonical JSON (RFC 8785), fast for the values that boards hold most.

``json.dumps`` with sorted keys writes the same bytes as RFC 8785 unless a float that is not a whole number, or a key
outside the Basic Multilingual Plane, is involved: the first has another notation there, the second another order.
Those go to the ``rfc8785`` package, which is pure Python and some thirty times slower.

Numbers are IEEE doubles there: an integer beyond 2^53-1 is written as the double that it stands for. Rust prints
whole floats up to 2^63 as integers, so a document's JSON holds such integers when a float field is that large.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder
from typing import Any, cast

import rfc8785

SAFE_INTEGER = 2**53 - 1
"""The largest integer that a JSON number carries exactly everywhere (I-JSON, RFC 7493)."""


_PLAIN = (str, bool, type(None))


def json_writer(*, ensure_ascii: bool = True, sort_keys: bool = False) -> Callable[[Any], str]:
    """What writes JSON values without blanks, as `json.dumps` does, but for values that contain themselves.

    `json.JSONEncoder.encode` makes the encoder of the C module anew at each call, which takes as long as it then takes
    to write a dozen short values.
    """
    whole = json.JSONEncoder(ensure_ascii=ensure_ascii, sort_keys=sort_keys, separators=(",", ":"))
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # no CPython
        return whole.encode
    string = encoder.encode_basestring_ascii if ensure_ascii else encoder.encode_basestring
    write = make(None, whole.default, string, None, ":", ",", sort_keys, whole.skipkeys, whole.allow_nan)
    return lambda value: "".join(cast("tuple[str, ...]", write(value, 0)))


_encode = json_writer(ensure_ascii=False, sort_keys=True)


def canonical_json(value: Any) -> bytes:
    """The canonical JSON bytes of a JSON value; equal values give equal bytes on every replica.

    Raises:
        ValueError: the value has no canonical form (NaN, infinity, an integer beyond every double, a lone surrogate).
    """
    if _is_plain(value):
        return _encode(value).encode()
    return rfc8785.dumps(_as_doubles(value))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return -SAFE_INTEGER <= value <= SAFE_INTEGER  # type: ignore[no-any-return]
    if kind is dict:
        for key, item in value.items():  # no generator: twice as fast, and each commit does this some five times
            if type(key) is not str or not key.isascii() or not (type(item) in _PLAIN or _is_plain(item)):
                return False
        return True
    return kind in (list, tuple) and all(map(_is_plain, value))


def _as_doubles(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > SAFE_INTEGER:
        try:
            return float(value)
        except OverflowError:
            raise ValueError("an integer that is larger than every double") from None
    if isinstance(value, list | tuple):
        return [_as_doubles(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_doubles(item) for key, item in value.items()}
    return value
