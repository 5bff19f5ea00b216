"""Routes that answer although the store fails."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from crdt_board.errors import BoardError
from crdt_board.host import BoardHost
from crdt_board_server.patience import patiently


def patient_route(host: BoardHost) -> type[APIRoute]:
    """The class for routes about boards of ``host``; see `patiently`."""

    class PatientRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                def failure() -> BoardError | None:
                    engine = host.open_boards().get(request.path_params.get("board_id", ""))
                    return None if engine is None else engine.failure

                return await patiently(handle(request), failure, host.limits.answer_seconds_max)

            return answer

    return PatientRoute
