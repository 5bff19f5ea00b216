"""Paths of what is touched: ``field``, ``field/key`` and so on, escaped as in JSON Pointer (RFC 6901). Pure."""

from __future__ import annotations


def escape_path(part: str) -> str:
    """One part of a path, with ``~`` and ``/`` escaped."""
    return part.replace("~", "~0").replace("/", "~1") if "~" in part or "/" in part else part


def split_path(path: str) -> list[str]:
    """The parts of a path, unescaped."""
    return [part.replace("~1", "/").replace("~0", "~") if "~" in part else part for part in path.split("/")]


def field_of(path: str) -> str:
    """The name of the field that a path lies in, escaped as it is."""
    return path.partition("/")[0]
