"""Where the command line finds effects and steps: in a database file, or at a server. Both give the same answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import httpx

from crdt_board import Board
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.local import open_board
from crdt_board.store.lookup import existing_head
from crdt_board.views import PlainModel
from crdt_board_server.api.effect_answers import (
    BoardEffect,
    BoardStep,
    EffectPage,
    Resolution,
    ResolutionRequest,
    StepPage,
)

Ask = Callable[..., Awaitable[httpx.Response]]
"""Sends a request to a server, and raises what it answers if that is an error."""


class EffectSource(Protocol):
    """Effects and steps to look at. A board that is not there raises `NotFound`."""

    async def effects(self, board_id: str) -> list[BoardEffect]: ...

    async def steps(self, board_id: str) -> list[BoardStep]: ...

    async def resolve(self, board_id: str, wanted: ResolutionRequest) -> BoardEffect | None: ...


class StoredEffects:
    """Those in the store of a host."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host

    async def effects(self, board_id: str) -> list[BoardEffect]:
        async with self._opened(board_id) as board:
            return [BoardEffect.of(record) for record in board.effects]

    async def steps(self, board_id: str) -> list[BoardStep]:
        async with self._opened(board_id) as board:
            return [BoardStep.of(record) for record in board.steps]

    async def resolve(self, board_id: str, wanted: ResolutionRequest) -> BoardEffect | None:
        async with self._opened(board_id, wanted.agent) as board:
            record = await board.resolve_effect(
                wanted.effect, wanted.key, took_place=wanted.took_place, result=wanted.result
            )
            return None if record is None else BoardEffect.of(record)

    @asynccontextmanager
    async def _opened(self, board_id: str, agent: str = "api") -> AsyncIterator[Board[PlainModel]]:
        await existing_head(self._host.store, check_board_id(board_id, self._host.limits))
        async with open_board(self._host, board_id, agent=agent) as board:
            yield board


class ServedEffects:
    """Those of a server, over its HTTP API."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def effects(self, board_id: str) -> list[BoardEffect]:
        answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/effects")
        return EffectPage.model_validate_json(answer.content).effects

    async def steps(self, board_id: str) -> list[BoardStep]:
        answer = await self._ask("GET", f"/api/boards/{check_board_id(board_id)}/steps")
        return StepPage.model_validate_json(answer.content).steps

    async def resolve(self, board_id: str, wanted: ResolutionRequest) -> BoardEffect | None:
        address = f"/api/boards/{check_board_id(board_id)}/resolutions"
        answer = await self._ask("POST", address, json=wanted.model_dump())
        return Resolution.model_validate_json(answer.content).effect
