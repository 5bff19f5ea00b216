"""CRDT Board: a durable, typed board that teams of AI agents, and people, edit at the same time.

Declare a `BoardModel`, open it with `open_board` in this process, or with ``crdt_board_client.connect`` on a server.
"""

from __future__ import annotations

from crdt_board.artifacts import Artifact, ArtifactStore, open_artifacts
from crdt_board.board import Board
from crdt_board.board_link import AgentPresence
from crdt_board.checkpoints import Checkpoint, Pointer, parse_pointer
from crdt_board.coordination.approvals import ApprovalRecord, Decision
from crdt_board.errors import (
    ApprovalClosed,
    ApprovalMismatch,
    ArtifactCorrupt,
    BadRequest,
    BoardClosed,
    BoardCorrupt,
    BoardDeleted,
    BoardError,
    BoardExists,
    BoardReplaced,
    Conflict,
    ConnectionFailed,
    CursorMoved,
    EffectInDoubt,
    EffectLost,
    IdempotencyMismatch,
    InvalidBoardId,
    InvalidValue,
    LeaseHeld,
    LeaseLost,
    LimitExceeded,
    MalformedUpdate,
    ModelError,
    NotDone,
    NotFound,
    ProtocolError,
    ReactionLost,
    SchemaMismatch,
    StepLost,
    StoreUnavailable,
    TaskLost,
    TaskMismatch,
    Unavailable,
    VersionConflict,
    Violated,
    WriteRejected,
)
from crdt_board.history import Difference, Fork, Hunk, News, PathEdit, Problem, StateDiff, Stretch, Verification
from crdt_board.host import BoardHost
from crdt_board.live.anchors import Anchor
from crdt_board.live.cells import LiveCandidates, candidates_of
from crdt_board.live.record_list import LiveRecordList, items_of
from crdt_board.live.streams import EditStream
from crdt_board.local import open_board
from crdt_board.migrations import migrates
from crdt_board.policies import Candidate, Candidates, Max, Min, Scratch, Strict
from crdt_board.rejections import Rejection
from crdt_board.replica import Change
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.team.approvals import Approval
from crdt_board.team.claims import ClaimedTask
from crdt_board.team.following import Follower
from crdt_board.team.leases import Lease
from crdt_board.team.reactions import Event
from crdt_board.team.steps import StepResult
from crdt_board.team.task_info import Task
from crdt_board.version import __version__
from crdt_board.violation import Violation

__all__ = [
    "AgentPresence",
    "Anchor",
    "Approval",
    "ApprovalClosed",
    "ApprovalMismatch",
    "ApprovalRecord",
    "Artifact",
    "ArtifactCorrupt",
    "ArtifactStore",
    "BadRequest",
    "Board",
    "BoardClosed",
    "BoardCorrupt",
    "BoardDeleted",
    "BoardError",
    "BoardExists",
    "BoardHost",
    "BoardModel",
    "BoardReplaced",
    "Candidate",
    "Candidates",
    "Change",
    "Checkpoint",
    "ClaimedTask",
    "Conflict",
    "ConnectionFailed",
    "Counter",
    "CursorMoved",
    "Decision",
    "Difference",
    "EditStream",
    "EffectInDoubt",
    "EffectLost",
    "Event",
    "Follower",
    "Fork",
    "Hunk",
    "IdempotencyMismatch",
    "InvalidBoardId",
    "InvalidValue",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "LimitExceeded",
    "LiveCandidates",
    "LiveRecordList",
    "MalformedUpdate",
    "Max",
    "Min",
    "ModelError",
    "News",
    "NotDone",
    "NotFound",
    "PathEdit",
    "Pointer",
    "Problem",
    "ProtocolError",
    "ReactionLost",
    "Rejection",
    "SchemaMismatch",
    "Scratch",
    "StateDiff",
    "StepLost",
    "StepResult",
    "StoreUnavailable",
    "Stretch",
    "Strict",
    "Task",
    "TaskLost",
    "TaskMismatch",
    "Text",
    "Unavailable",
    "Verification",
    "VersionConflict",
    "Violated",
    "Violation",
    "WriteRejected",
    "__version__",
    "candidates_of",
    "items_of",
    "migrates",
    "open_artifacts",
    "open_board",
    "parse_pointer",
]
