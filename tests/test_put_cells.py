"""Cells that are written at the end of a transaction."""

from __future__ import annotations

import json
from typing import Any

import pycrdt
import pytest

from crdt_board.put_cells import PutCells


@pytest.fixture
def root() -> pycrdt.Map[Any]:
    """The root of a field with two cells."""
    content: pycrdt.Map[Any] = pycrdt.Doc(client_id=1).get("best", type=pycrdt.Map)
    content["ann"], content["bob"] = 3, 4
    return content


def test_what_was_put_is_read_before_it_is_written(root: pycrdt.Map[Any]) -> None:
    """In place of the cells that it replaces; the document has the old ones until `write`."""
    cells = PutCells({"best": root})
    cells.put("best", "ann", 7, ["bob", "who was never there"])
    assert cells.cells("best") == {"ann": 7}
    assert json.loads(str(root)) == {"ann": 3, "bob": 4}
    cells.write()
    assert json.loads(str(root)) == {"ann": 7} == cells.cells("best")


def test_what_is_forgotten_was_never_put(root: pycrdt.Map[Any]) -> None:
    """The fields where something was put are named, once."""
    cells = PutCells({"best": root})
    cells.put("best", "ann", 7, ["bob"])
    assert cells.forget() == ["best"]
    assert cells.cells("best") == {"ann": 3, "bob": 4}
    cells.write()
    assert json.loads(str(root)) == {"ann": 3, "bob": 4}
    assert cells.forget() == []
