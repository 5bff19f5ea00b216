"""Everything that agents ask the writer of a board for when they work together, and who decides on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue

from crdt_board.coordination import approvals, cursors, effects, leases, reactions, steps, task_operations, tasks
from crdt_board.coordination.approvals import ApprovalOperation
from crdt_board.coordination.cursors import CursorOperation
from crdt_board.coordination.effects import EffectOperation
from crdt_board.coordination.leases import LeaseOperation
from crdt_board.coordination.ledger import Draft
from crdt_board.coordination.reactions import ReactionOperation
from crdt_board.coordination.steps import StepOperation
from crdt_board.coordination.task_operations import TaskOperation

Operation = Annotated[
    LeaseOperation
    | TaskOperation
    | CursorOperation
    | ReactionOperation
    | EffectOperation
    | StepOperation
    | ApprovalOperation,
    Field(discriminator="op"),
]

_DECISIONS: dict[type, Callable[[Draft, Any], JsonValue]] = {
    leases.AcquireLease: leases.acquire,
    leases.RenewLease: leases.renew,
    leases.ReleaseLease: leases.release,
    leases.BreakLease: leases.break_lease,
    task_operations.PutTask: tasks.put,
    task_operations.ClaimTask: tasks.claim,
    task_operations.RenewTask: tasks.renew,
    task_operations.CompleteTask: tasks.complete,
    task_operations.FailTask: tasks.fail,
    task_operations.ReleaseTask: tasks.release,
    task_operations.CancelTask: tasks.cancel,
    task_operations.RetryTask: tasks.retry,
    task_operations.ClearTasks: tasks.clear,
    cursors.MoveCursor: cursors.move,
    cursors.DropCursor: cursors.drop,
    reactions.ClaimReaction: reactions.claim,
    reactions.FinishReaction: reactions.finish,
    reactions.FailReaction: reactions.fail,
    reactions.ReleaseReaction: reactions.release,
    reactions.RearmReaction: reactions.rearm,
    reactions.RetryReaction: reactions.retry,
    approvals.AskApproval: approvals.ask,
    approvals.DecideApproval: approvals.decide,
    approvals.WithdrawApproval: approvals.withdraw,
    effects.BeginEffect: effects.begin,
    effects.RenewEffect: effects.renew,
    effects.FinishEffect: effects.finish,
    effects.AbandonEffect: effects.abandon,
    effects.ResolveEffect: effects.resolve,
    steps.BeginStep: steps.begin,
    steps.RenewStep: steps.renew,
    steps.FinishStep: steps.finish,
    steps.ReleaseStep: steps.release,
    steps.ReopenSteps: steps.reopen,
}


def decide(draft: Draft, operations: Sequence[Operation]) -> list[JsonValue]:
    """Decide on operations in their order, each on what those before it have changed; return their answers.

    Raises:
        BoardError: one is refused; then the draft is to be thrown away.
    """
    return [_DECISIONS[type(operation)](draft, operation) for operation in operations]
