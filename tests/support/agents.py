"""Replicas with live state, without a writer: they exchange everything they have."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pydantic import JsonValue

from crdt_board.document import Document
from crdt_board.live import LiveState, snapshot
from crdt_board.replica import Replica
from crdt_board.schema import BoardModel


class LiveAgent:
    """One replica with its live state."""

    def __init__(self, model: type[BoardModel], client_id: int | None = None) -> None:
        self.model = model
        self.replica = Replica(model.board_layout(), client_id=client_id)
        self.state: Any = LiveState(model, self)

    @property
    def document(self) -> Document:
        return self.replica.document

    def edit(self, content: JsonValue = None) -> AbstractContextManager[None]:
        return self.replica.edit("agent", content)

    def updates(self) -> int:
        return len(self.replica.pending)

    def snapshot(self) -> Any:
        return snapshot(self.document, self.model)


def exchange(*agents: LiveAgent) -> None:
    for receiver in agents:
        for sender in agents:
            if sender is not receiver:
                news = sender.document.encode(receiver.document.state_vector())
                receiver.replica.receive([news], agent=None, seq=None)
