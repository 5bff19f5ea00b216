"""Leases, tasks and who is present, on the boards of a host: for the HTTP API, and for the command line over a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel

from crdt_board.coordination.leases import LeaseRecord
from crdt_board.coordination.reactions import ReactionRecord, ReactionState
from crdt_board.coordination.records import Record
from crdt_board.coordination.task_record import TaskRecord, TaskState
from crdt_board.document import Document
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.presence import said_by
from crdt_board.store.lookup import existing_head
from crdt_board.team.task_info import Task
from crdt_board_server.api.team_bodies import BoardAgent, BoardLease, BoardReaction, ReactionPage, TaskPage, TeamRequest
from crdt_board_server.rooms import Rooms

_R = TypeVar("_R", bound=Record)


async def decide(host: BoardHost, board_id: str, request: TeamRequest) -> BaseModel:
    """Have the writer of a board decide on a request; durable on return.

    Raises:
        NotFound, BoardDeleted: there is no such board.
        BoardError: the request is refused; nothing was changed.
    """
    await existing_head(host.store, check_board_id(board_id, host.limits))
    async with host.board(board_id) as engine:
        answered = await engine.coordinate(request.agent, [request.operation()])
    return request.answer(answered.results[0])


async def leases_of(host: BoardHost, board_id: str) -> list[BoardLease]:
    """What is held on a board now, in alphabetical order."""
    held = (lease for lease in await _records(host, board_id, LeaseRecord) if lease.holders)
    return [BoardLease.of(lease) for lease in sorted(held, key=_name)]


async def tasks_of(
    host: BoardHost, board_id: str, *, states: Sequence[TaskState], queue: str | None, after: int, limit: int
) -> TaskPage:
    """Up to ``limit`` tasks behind number ``after``, in the order in which they were put."""
    chosen = [
        task
        for task in await _records(host, board_id, TaskRecord)
        if task.number > after and queue in (None, task.queue) and (not states or task.state in states)
    ]
    page = sorted(chosen, key=lambda task: task.number)[:limit]
    return TaskPage(tasks=[Task.of(task) for task in page], after=page[-1].number if len(page) < len(chosen) else None)


async def reactions_of(
    host: BoardHost, board_id: str, *, states: Sequence[ReactionState], after: str, limit: int
) -> ReactionPage:
    """Up to ``limit`` reactions behind the record named ``after``, in the order of their names and paths."""
    chosen = [
        record
        for record in await _records(host, board_id, ReactionRecord)
        if record.name > after and (not states or record.state in states)
    ]
    page = sorted(chosen, key=_name)[:limit]
    return ReactionPage(
        reactions=[BoardReaction.of(record) for record in page],
        after=page[-1].name if len(page) < len(chosen) else None,
    )


async def agents_of(rooms: Rooms, board_id: str) -> list[BoardAgent]:
    """Who is connected to this server on a board, in alphabetical order."""
    await existing_head(rooms.host.store, check_board_id(board_id, rooms.host.limits))
    room = rooms.find(board_id)
    said = [said_by(each.state) for each in room.presence.all_states() if each.state is not None] if room else []
    return sorted((BoardAgent.model_validate(each) for each in said if each is not None), key=lambda each: each.agent)


async def _records(host: BoardHost, board_id: str, kind: type[_R]) -> list[_R]:
    """The records of a board as they are now, also when nobody has had it open since their time was over."""
    await existing_head(host.store, check_board_id(board_id, host.limits))
    now_ms = await host.store.now_ms()

    def look(document: Document) -> list[_R]:
        records = document.ledger.all(kind).values()
        return [now for now in (_as_of(record, now_ms) for record in records) if now is not None]

    async with host.board(board_id) as engine:
        return await engine.read(look)


def _as_of(record: _R, now_ms: int) -> _R | None:
    deadline_ms = record.deadline_ms
    return record if deadline_ms is None or deadline_ms > now_ms else record.run_out(now_ms)


def _name(record: Record) -> str:
    return record.name
