"""The cells of `Max`, `Min` and `Candidates` fields: one key per replica in the field's root map. Needs no model.

**Max and Min.** A replica that raises the value writes its own cell and removes all others that it sees, which are
beaten. The greatest value ever written, m, is in a cell of every replica that has seen all updates: only two things
could remove the item that holds it. Another replica removes what it *sees*, an item and not a key, and only when it
writes more than m, which nobody does; its own replica writes over it only with more than m. Two replicas never write
one key, so no item is lost to another one that is written at the same time. Equal values stay side by side.

Taking back the removal of another replica's cell would break this, because it writes under that replica's key. Hence
cells are written when a transaction can no longer be taken back (`Document.put_cell`), and `Document.undoable_roots`
leaves these fields out: what was raised or proposed is changed by another write, not by an undo.

**Candidates.** A write replaces every cell that its replica sees, by the same means; a cell written at the same time is
not seen, and stays. These are the semantics of a multi-value register.

**What does not grow.** The cells of a field are those that were written at the same time since the last write that saw
them, however many replicas there ever were. What a removed cell leaves behind is the tombstone of its key: of 20,000
past replicas 20 bytes each in a snapshot, and 60 µs for a reading [measured]. Where client ids are used again, so are
keys, and not even these grow.

**Counters are different.** The sum needs every cell that was ever written. Adding another replica's cell to one's own
and removing it is safe only when nobody else does so, and when that replica never writes again: two replicas that fold
the same cell at once count it twice, and one that counts on in its folded cell writes the old part once more. So cells
are not folded. Instead client ids are used again (`crdt_board.client_ids`): the next replica counts on in the cell that
it finds under its id, so that there is one cell for each id, and not for each session. Cells of ids that were lost in a
crash stay, since their replica may come back and count on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol, cast

from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.layout import FieldKind
from crdt_board.orders import CellOrder

CELL_KINDS: frozenset[FieldKind] = frozenset({"max", "min", "candidates"})

_TIME_MS_MAX = 253_402_300_799_999  # the end of the year 9999


class CellField(Protocol):
    """What is known of a field with cells: a `FieldLayout`, or what a model says of it."""

    @property
    def kind(self) -> FieldKind: ...

    @property
    def order(self) -> CellOrder | None: ...


def reading(field: CellField, cells: Mapping[str, JsonValue]) -> JsonValue:
    """What a field reads as, in wire form; None when no cell fits.

    That is the greatest or least value of a `Max` or `Min` field, and the candidates, newest first, of a `Candidates`
    field. Cells that do not fit are passed over.
    """
    return cast(JsonValue, candidate_list(cells)) or None if field.kind == "candidates" else _extreme(field, cells)


def beats(field: CellField, one: JsonValue, other: JsonValue) -> bool:
    """Whether writing ``one`` changes a `Max` or `Min` field that reads as ``other``."""
    assert field.order is not None
    new, present = field.order.key(one), field.order.key(other)
    if new is None or present is None:
        return new is not None
    return bool(new > present if field.kind == "max" else new < present)


def fits(field: CellField, wire: JsonValue) -> bool:
    """Whether ``wire`` is a value that a `Max` or `Min` field can hold."""
    return field.order is not None and field.order.key(wire) is not None


def _extreme(field: CellField, cells: Mapping[str, JsonValue]) -> JsonValue:
    assert field.order is not None
    ranked = [(rank, wire) for wire in cells.values() if (rank := field.order.rank(wire)) is not None]
    if not ranked:
        return None
    return (max if field.kind == "max" else min)(ranked, key=lambda each: each[0])[1]


def candidate_list(cells: Mapping[str, JsonValue]) -> list[dict[str, JsonValue]]:
    """The candidates of a field: newest first, and of two of the same millisecond that of the greater client id.

    Clocks only order this list; which candidates there are does not depend on them.
    """
    found = [(key, entry) for key, cell in cells.items() if (entry := as_candidate(cell)) is not None]
    found.sort(key=lambda each: (each[1]["when_ms"], len(each[0]), each[0]), reverse=True)
    return [entry for _, entry in found]


def candidate_cell(value: JsonValue, agent: str, when_ms: int) -> dict[str, JsonValue]:
    """What a replica's cell holds."""
    return {"value": value, "agent": agent, "when_ms": when_ms}


def candidate_mark(candidate: JsonValue) -> str:
    """A short name for a candidate, equal for equal ones, by which a commit says what its agent had seen."""
    return hashlib.sha256(canonical_json(candidate)).hexdigest()[:16]


def seen_cells(cells: Mapping[str, JsonValue], marks: Iterable[str]) -> set[str]:
    """The keys of the candidates with these marks, and of cells that hold none."""
    known = set(marks)
    return {
        key for key, cell in cells.items() if (entry := as_candidate(cell)) is None or candidate_mark(entry) in known
    }


def free_key(client_id: int, taken: Iterable[str]) -> str:
    """A key for a cell that the writer of the board makes on behalf of an agent.

    It has several where agents that had not seen each other's candidate commit one after the other, and uses the
    smallest that is free, so that there are no more of them than there are candidates at once.
    """
    keys, key, number = set(taken), str(client_id), 0
    while key in keys:
        number += 1
        key = f"{client_id}.{number}"
    return key


def as_candidate(cell: JsonValue) -> dict[str, JsonValue] | None:
    """The candidate that a cell holds; None when it holds none."""
    if not isinstance(cell, dict) or "value" not in cell:
        return None
    agent, when = cell.get("agent"), cell.get("when_ms")
    if not isinstance(agent, str) or isinstance(when, bool) or not isinstance(when, int):
        return None
    return candidate_cell(cell["value"], agent, when) if 0 <= when <= _TIME_MS_MAX else None
