"""Claiming what is run once: an effect, or a step."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from crdt_board.coordination.effects import AbandonEffect, BeginEffect
from crdt_board.coordination.runs import RunRecord
from crdt_board.coordination.steps import BeginStep, ReleaseStep
from crdt_board.team.desk import Desk
from crdt_board.team.keeping import give_up

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=RunRecord)


async def claimed(
    desk: Desk, kind: type[R], name: str, begin: BeginEffect | BeginStep, undo: AbandonEffect | ReleaseStep
) -> R:
    """The record of what is done, or is to be run now under the token of ``begin``; waits while another runs it.

    Raises what the writer refuses ``begin`` with. When that is cancelled, ``undo`` takes the claim back.
    """

    def found() -> R | None:
        return desk.ledger.get(kind, name)

    def is_run_by(token: str) -> bool:
        record = found()
        return record is not None and record.state == "running" and record.token == token

    waits = False
    while True:
        record = found()
        if record is None or record.state != "done":  # what is done never changes any more
            try:
                record = kind.model_validate(await desk.ask_one(begin))
            except asyncio.CancelledError as error:
                # The writer may have made the claim, and nothing has run under it.
                await give_up(desk, undo, error, ttl_ms=begin.ttl_ms)
                raise
        if record.state == "done" or record.token == begin.token:
            return record
        if not waits:
            waits = True
            tell_of_wait(desk, f"{kind.prefix} {name}", record.agent, record.ttl_ms)
        other = record.token
        await desk.until(lambda: not is_run_by(other))  # noqa: B023 - it is over when this goes on


def tell_of_wait(desk: Desk, what: str, agent: str, ttl_ms: int) -> None:
    """Log that somebody else is at it, who may be gone."""
    logger.info(
        "%s of board %s is claimed by %s: waiting for its end, or, should it be gone, for up to %g s",
        what,
        desk.session.link.board_id,
        agent,
        ttl_ms / 1000,
    )
