"""The routes of effects and steps: what was done once, and the word of people about what is in doubt."""

from __future__ import annotations

from fastapi import APIRouter

from crdt_board.host import BoardHost
from crdt_board_server.api.effect_answers import EffectPage, Resolution, ResolutionRequest, StepPage
from crdt_board_server.api.parameters import BoardId
from crdt_board_server.api.problems import problem_responses
from crdt_board_server.effect_sources import StoredEffects


def add_resolving(routes: APIRouter, host: BoardHost) -> None:
    """Add the routes to ``routes``, for the boards of ``host``."""
    boards = StoredEffects(host)

    @routes.get(
        "/boards/{board_id}/effects",
        summary="What is done outside at most once: running, in doubt, or done with its result",
        responses=problem_responses(404, 410),
    )
    async def effects(board_id: BoardId) -> EffectPage:
        return EffectPage(effects=await boards.effects(board_id))

    @routes.post(
        "/boards/{board_id}/resolutions",
        summary="Say of an effect in doubt whether it took place",
        description="Who comes second is answered with what the first has said.",
        responses=problem_responses(404, 409, 410, 413),
    )
    async def resolve(board_id: BoardId, wanted: ResolutionRequest) -> Resolution:
        return Resolution(effect=await boards.resolve(board_id, wanted))

    @routes.get(
        "/boards/{board_id}/steps",
        summary="The steps that were begun, and the outputs of those that are done",
        responses=problem_responses(404, 410),
    )
    async def steps(board_id: BoardId) -> StepPage:
        return StepPage(steps=await boards.steps(board_id))
