"""What is no longer used is freed, although yrs holds callbacks where Python's garbage collector does not see them."""

from __future__ import annotations

import gc
import weakref

from crdt_board import open_board
from crdt_board.document import Document
from crdt_board.replica import Replica
from support.model import Report


def test_document() -> None:
    """A document that nobody uses any more is freed with its content."""
    document = Document(Report.board_layout())
    document.state_map["title"] = "x"
    freed = weakref.ref(document)
    del document
    gc.collect()
    assert freed() is None


def test_replica() -> None:
    """A replica that nobody uses any more is freed with its document."""
    replica = Replica(Report.board_layout())
    with replica.transaction("writer"):
        replica.document.state_map["title"] = "x"
    freed = weakref.ref(replica)
    del replica
    gc.collect()
    assert freed() is None


async def test_boards() -> None:
    """W11: opening, writing, reading back and closing boards leaves as many documents after twenty as after ten."""
    counts: list[int] = []
    for number in range(20):
        async with open_board(":memory:", f"b{number}", Report, agent="writer") as board:
            board.state.title = "x"
            made = await board.commit("write")
            assert (await board.at(made.version)).title == "x"
        gc.collect()
        counts.append(sum(isinstance(each, Document) for each in gc.get_objects()))
    assert counts[19] == counts[9]
