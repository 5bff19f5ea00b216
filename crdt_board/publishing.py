"""Showing durable entries to everybody who follows a board in this process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BoardClosed, BoardError
from crdt_board.journal import Entry

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedEntry:
    """A durable entry on its way to everybody but ``source``, whose own it is (None: the engine or another process).

    ``corrections`` are the parts of ``updates`` that take back what was refused: the source does not have them.
    """

    entry: Entry
    updates: Sequence[bytes]
    source: object
    checkpoint: Checkpoint | None
    corrections: Sequence[bytes] = ()


class Listener(Protocol):
    """Somebody who shows a board to others: a room, or a replica in this process."""

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        """Take in durable entries, in order of ``seq`` and without gaps. Must not wait; whoever raises is removed."""
        ...

    def schema_changed(self) -> None:
        """The board has a new schema; entries published from now on are written under it. Must not wait or raise."""
        ...

    def stopped(self, error: BoardError) -> None:
        """Nothing more will come, because of ``error``. Must not raise."""
        ...


class Listeners:
    """The listeners of one engine. A faulty one is removed and does not disturb the others."""

    def __init__(self, board_id: str) -> None:
        self._board_id = board_id
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def all(self) -> tuple[Listener, ...]:
        return tuple(self._listeners)

    def publish(self, entries: Sequence[PublishedEntry]) -> None:
        for listener in list(self._listeners):
            try:
                listener.published(entries)
            except Exception:  # the boundary between the board and those who follow it
                logger.exception("board %s: a listener failed and is removed", self._board_id)
                self.remove(listener)
                listener.stopped(BoardClosed(f"board {self._board_id}: this replica failed; open it again"))

    def tell_schema(self) -> None:
        for listener in list(self._listeners):
            listener.schema_changed()

    def stop(self, error: BoardError) -> None:
        for listener in list(self._listeners):
            listener.stopped(error)
