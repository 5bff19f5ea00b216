"""Boards for programs without an event loop: a `Board` on a loop in a thread of its own, behind the same names.

`crdt_board.sync.open_board` and ``crdt_board_client.sync.connect`` give one.
"""

from crdt_board.blocking.board import BlockingBoard, blocking
from crdt_board.blocking.team import BlockingStep

__all__ = ["BlockingBoard", "BlockingStep", "blocking"]
