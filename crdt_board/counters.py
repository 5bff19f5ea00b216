"""The cells of a counter: one key per replica in the field's root map, which add up to its value."""

from __future__ import annotations

import json
from typing import Any

import pycrdt

from crdt_board.canonical import SAFE_INTEGER
from crdt_board.wire_values import child_path, document_wire, invalid_value


def check_amount(amount: object, path: str) -> int:
    """Return ``amount`` when a counter can be changed by it.

    Raises:
        InvalidValue: it is not an int, or beyond 2^53-1.
    """
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise invalid_value(path, f"counts in whole numbers, not {type(amount).__name__}: give an int, as round() does")
    if abs(amount) > SAFE_INTEGER:
        raise invalid_value(path, "an increment must stay within 2^53-1")
    return int(amount)


def raised_cell(cells: pycrdt.Map[Any], client_id: int, amount: int, path: str) -> int:
    """What the cell of ``client_id`` will hold after ``amount`` was added.

    Raises:
        InvalidValue: it would go beyond 2^53-1, or holds something else than a number.
    """
    key = str(client_id)
    part = (_cell(document_wire(cells[key]), child_path(path, key)) if key in cells else 0) + amount
    if abs(part) > SAFE_INTEGER:
        raise invalid_value(path, "what one replica adds to a counter must stay within 2^53-1")
    return part


def total(cells: pycrdt.Map[Any], path: str) -> int:
    """The counter's value.

    Raises:
        InvalidValue: another client wrote something else than a number into a cell.
    """
    return sum(_cell(content, child_path(path, key)) for key, content in json.loads(str(cells)).items())


def _cell(content: object, path: str) -> int:
    if isinstance(content, bool) or not isinstance(content, int):
        raise invalid_value(path, f"a counter's cell holds {content!r}")
    return content
