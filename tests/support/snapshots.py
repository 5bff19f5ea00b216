"""Reading a document as a model from nothing but what it holds."""

from __future__ import annotations

from typing import TypeVar

from crdt_board import BoardModel
from crdt_board.document import Document
from crdt_board.live import snapshot_from_wire

ModelT = TypeVar("ModelT", bound=BoardModel)


def snapshot(document: Document, model: type[ModelT]) -> ModelT:
    """The present state as a model; shares nothing with the document, and with nothing that was read before."""
    return snapshot_from_wire(document.wire_state(), model)
