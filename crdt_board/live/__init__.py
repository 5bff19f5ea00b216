"""What ``board.state`` returns, and the snapshots that are taken of it."""

from crdt_board.live.editor import Editor
from crdt_board.live.snapshots import Snapshots, snapshot_from_wire
from crdt_board.live.state import LiveState

__all__ = ["Editor", "LiveState", "Snapshots", "snapshot_from_wire"]
