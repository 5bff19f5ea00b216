"""Looking back at a board: what differs between two versions, who wrote what and when, and whether it is all intact."""

from crdt_board.history.blame import Stretch
from crdt_board.history.board_history import BoardHistory, Fork
from crdt_board.history.differences import Difference, Hunk, StateDiff
from crdt_board.history.edits import PathEdit
from crdt_board.history.news import EntryPage, News
from crdt_board.history.retention import CompactionReport, Retention
from crdt_board.history.verification import Problem, Verification

__all__ = [
    "BoardHistory",
    "CompactionReport",
    "Difference",
    "EntryPage",
    "Fork",
    "Hunk",
    "News",
    "PathEdit",
    "Problem",
    "Retention",
    "StateDiff",
    "Stretch",
    "Verification",
]
