"""Claiming what is run once: an effect, or a step."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from crdt_board.coordination.effects import AbandonEffect, BeginEffect
from crdt_board.coordination.runs import RunRecord
from crdt_board.coordination.steps import BeginStep, ReleaseStep
from crdt_board.team.desk import Desk
from crdt_board.team.keeping import give_up

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
        other = record.token
        await desk.until(lambda: not is_run_by(other))  # noqa: B023 - it is over when this goes on
