"""Writing cells of `Max`, `Min` and `Candidates` fields into a document; the rules are in `crdt_board.cells`."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from crdt_board.cells import beats, candidate_cell, free_key, reading, seen_cells
from crdt_board.document import Document


def raise_cell(document: Document, field: str, wire: JsonValue) -> None:
    """Inside a transaction: write ``wire`` into this replica's cell, if it is beyond all cells, which it replaces."""
    layout, cells = document.layout.by_name[field], document.cells(field)
    present = reading(layout, cells)
    if present is None or beats(layout, wire, present):
        document.put_cell(field, str(document.client_id), wire, cells)


def write_candidate(document: Document, field: str, wire: JsonValue, agent: str, when_ms: int) -> None:
    """Inside a transaction: write a candidate in place of all that this replica sees."""
    cell = candidate_cell(wire, agent, when_ms)
    document.put_cell(field, str(document.client_id), cell, document.cells(field))


def propose(document: Document, field: str, wire: JsonValue, seen: Iterable[str], *, agent: str, when_ms: int) -> None:
    """Inside a transaction: write a candidate for an agent whose replica saw the candidates with the marks ``seen``."""
    cells = document.cells(field)
    replaced = seen_cells(cells, seen)
    key = free_key(document.client_id, cells.keys() - replaced)
    document.put_cell(field, key, candidate_cell(wire, agent, when_ms), replaced)
