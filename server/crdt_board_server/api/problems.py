"""Errors over HTTP: every answer that is none is a problem document (RFC 9457), from the one table of errors."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, JsonValue
from starlette.exceptions import HTTPException
from starlette.routing import Match

from crdt_board.control import refusal
from crdt_board.errors import BadRequest, BoardError, MethodNotAllowed, NotFound, Unavailable
from crdt_board_server.close_codes import closing_of

PROBLEM_TYPE = "application/problem+json"

_RETRY_AFTER_SECONDS = "1"

_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")

logger = logging.getLogger(__name__)


class ProblemDocument(BaseModel):
    """What went wrong. ``code`` is stable and listed in the documentation; ``data`` is what the error carries."""

    title: str
    status: int
    detail: str
    code: str
    data: dict[str, JsonValue] = {}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The part of a route's description that says with which statuses it answers problems."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in (400, 413, *statuses, 422, 503)
    }


class DescribedApp(FastAPI):
    """FastAPI with the problem document in its description once, where all routes refer to it.

    Declared as the model of each answer that is one, it makes an app take twice as long to build [measured], and is
    described as plain JSON too.
    """

    def openapi(self) -> dict[str, Any]:
        described = super().openapi()
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        described["components"]["schemas"] |= {**problem.pop("$defs"), ProblemDocument.__name__: problem}
        return described


def install_problems(app: FastAPI) -> None:
    """Answer every error of ``app`` with a problem document."""

    @app.exception_handler(BoardError)
    async def of_board(_request: Request, error: BoardError) -> JSONResponse:
        return problem_of(error)

    @app.exception_handler(RequestValidationError)
    async def of_request(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            why = first.get("ctx", {}).get("error", "")
            return problem_of(BadRequest(f"the body is not JSON: {why} at character {first['loc'][-1]}"))
        if first["loc"] == ("body",) and "json" not in request.headers.get("content-type", ""):
            return problem_of(
                BadRequest("send a JSON object as the body, with the header Content-Type: application/json")
            )
        place = ".".join(str(part) for part in first["loc"])
        data = {"errors": [{"path": each["loc"], "reason": each["msg"]} for each in error.errors()]}
        return _answer(
            ProblemDocument(
                title="BadRequest",
                status=422,
                detail=f"{place}: {first['msg']}",
                code="bad_request",
                data=jsonable_encoder(data),
            )
        )

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        kind: type[BoardError]
        match error.status_code:
            case 404:
                kind, detail = NotFound, "there is nothing at this address; GET /docs shows what there is"
            case 405:
                headers["Allow"] = allowed = ", ".join(_allowed_methods(app, request))
                kind, detail = MethodNotAllowed, f"this address takes {allowed}, not {request.method}"
            case _:
                kind, detail = BadRequest, error.detail
        return _answer(
            ProblemDocument(title=kind.__name__, status=error.status_code, detail=detail, code=kind.code), headers
        )

    @app.exception_handler(Exception)
    async def of_anything(_request: Request, error: Exception) -> JSONResponse:
        logger.error("a request failed", exc_info=error)
        return _answer(
            ProblemDocument(
                title="Unavailable",
                status=500,
                detail="the server failed on this request; its log says more",
                code="unavailable",
            )
        )


def problem_of(error: BoardError) -> JSONResponse:
    """The answer that says what went wrong."""
    details = refusal(error).error
    title, status = type(error).__name__, closing_of(error).http_status
    headers = {"Retry-After": _RETRY_AFTER_SECONDS} if isinstance(error, Unavailable) and error.retryable else None
    problem = ProblemDocument(title=title, status=status, detail=details.message, code=details.code, data=details.data)
    return _answer(problem, headers)


def _allowed_methods(app: FastAPI, request: Request) -> list[str]:
    """The methods of all routes at the address; starlette names those of the first one only."""

    def is_allowed(method: str) -> bool:
        return any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in app.routes)

    return [method for method in _METHODS if is_allowed(method)]


def _answer(problem: ProblemDocument, headers: Any = None) -> JSONResponse:
    return JSONResponse(
        problem.model_dump(mode="json"), status_code=problem.status, media_type=PROBLEM_TYPE, headers=headers
    )
