"""Replicas with live state, without a writer: they exchange everything they have."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from pydantic import JsonValue

from crdt_board.clock import ManualClock
from crdt_board.document import Document
from crdt_board.live import LiveState
from crdt_board.replica import Replica
from crdt_board.schema import BoardModel
from crdt_board.undo import UndoHistory
from support.snapshots import snapshot


class LiveAgent:
    """One replica with its live state, or another handle on the replica of ``beside``."""

    def __init__(
        self,
        model: type[BoardModel],
        client_id: int | None = None,
        name: str = "agent",
        *,
        beside: LiveAgent | None = None,
    ) -> None:
        self.model = model
        self.name = name
        self.clock = ManualClock()
        self.replica = beside.replica if beside else Replica(model.board_layout(), client_id=client_id)
        self.history: UndoHistory | None = None
        self.state: Any = LiveState(model, self)

    @property
    def document(self) -> Document:
        return self.replica.document

    @property
    def agent(self) -> str:
        return self.name

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def edit(self, content: JsonValue = None, *, group: object = None) -> AbstractContextManager[None]:
        return self.replica.edit("agent", content, history=self.history, group=group)

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
