"""A story that ends the process when yrs frees a record in which something is kept for a history."""

from __future__ import annotations

from crdt_board.schema import BoardModel
from support.agents import LiveAgent, exchange

_RECORDS = 200


class Note(BoardModel):
    title: str = ""
    scores: dict[str, int]


class Notes(BoardModel):
    notes: dict[str, Note]


def main() -> None:
    """In each record ann deletes a value, writes one, takes that back and edits on; then bob removes all records."""
    ann, bob = LiveAgent(Notes, 1), LiveAgent(Notes, 2)
    ann.history = ann.replica.new_history(1000)
    for number in range(_RECORDS):
        bob.state.notes[str(number)] = Note(scores={"cost": 1})
    exchange(ann, bob)
    for number in range(_RECORDS):
        scores = ann.state.notes[str(number)].scores
        del scores["cost"]
        scores["risk"] = 1
        assert ann.replica.undo("ann", ann.history)
        scores["risk"] = 2
    exchange(ann, bob)
    bob.state.notes = {}
    exchange(ann, bob)
    for number in range(_RECORDS):  # takes the memory of what was freed
        ann.state.notes[f"new {number}"] = Note(title="y" * number)
    fresh = LiveAgent(Notes, 3)
    exchange(ann, fresh)  # all of it is encoded
    assert fresh.document.wire_state() == ann.document.wire_state()
    assert len(fresh.state.notes) == _RECORDS
