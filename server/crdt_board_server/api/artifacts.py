"""The routes for artifacts: content that boards point to, by its hash.

It comes from anybody and may be a page with scripts: so it is always sent as a download of no type, which no browser
shows or runs. What type it is stands in the pointer.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import timedelta
from email.utils import formatdate
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.types import Send

from crdt_board.artifacts import Artifact, ArtifactStore, StoredArtifact
from crdt_board.artifacts.pointer import OCTETS, check_digest, check_media_type
from crdt_board.artifacts.sweep import SweepReport, sweep
from crdt_board.errors import BadRequest, BoardError, LimitExceeded, NotFound
from crdt_board.host import BoardHost
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board_server.api.answers import Body
from crdt_board_server.api.parameters import Limit
from crdt_board_server.api.problems import problem_responses
from crdt_board_server.api.ranges import range_of

_SECONDS_MAX = 10**10
_CONTENT = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
_SAFE_HEADERS = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, max-age=31536000, immutable",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}

Digest = Annotated[str, Path(description="The hash in the pointer: 64 digits 0-9 a-f.", examples=["9f2c" * 16])]
OneRange = Annotated[str | None, Header(alias="Range", description="One part of it, as bytes=0-1023.")]
IfRange = Annotated[str | None, Header(description="The ETag of which the other parts are.")]
IfNoneMatch = Annotated[str | None, Header(description="ETags that the client has.")]

logger = logging.getLogger(__name__)


class ArtifactPage(BaseModel):
    """Artifacts in the order of their hashes; ``after`` goes on, None at the end."""

    artifacts: list[StoredArtifact]
    after: str | None


class SweepRequest(Body):
    """Which artifacts to remove that no board refers to: those that are older."""

    grace_seconds: int = Field(default=DEFAULT_LIMITS.artifact_grace_seconds, ge=0, le=_SECONDS_MAX)
    dry_run: bool = Field(default=False, description="Only say what would go.")


class _Download(StreamingResponse):
    """An answer that is cut off when what is stored turns out to be damaged, so that nobody takes it for whole."""

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except BoardError as error:
            logger.error("a download was cut off: %s", error)
            return  # without an end: the server then closes the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def artifact_routes(host: BoardHost) -> APIRouter:
    """The routes under ``/api/artifacts``, over the artifacts of ``host``."""
    routes = APIRouter(prefix="/api/artifacts", tags=["artifacts"])

    @routes.post(
        "",
        status_code=201,
        summary="Store content, which comes as the body",
        description="Durable when it is answered. Its type is taken from `Content-Type`, for the pointer only.",
        responses=problem_responses(),
        openapi_extra={"requestBody": {"required": True, "content": _CONTENT}},
    )
    async def put(request: Request) -> Artifact:
        store = artifacts_of(host)
        media_type = check_media_type(request.headers.get("content-type", OCTETS))
        _check_announced(request, host.limits.artifact_bytes_max)
        return await store.put(_body(request), media_type)

    @routes.get("", summary="All artifacts", responses=problem_responses())
    async def artifacts(after: Annotated[str, Query(max_length=64)] = "", limit: Limit = 100) -> ArtifactPage:
        found = await artifacts_of(host).page(after=after, limit=limit)
        return ArtifactPage(artifacts=found, after=found[-1].sha256 if len(found) == limit else None)

    @routes.get(
        "/{sha256}",
        summary="The content of an artifact",
        description="Always as a download. An answer that is shorter than it says is that of a damaged artifact.",
        response_class=Response,
        responses={
            200: {"content": _CONTENT},
            206: {"content": _CONTENT, "description": "The part that was asked for; a part is not verified."},
            304: {"description": "The client has it."},
            **problem_responses(404, 416, 500),
        },
    )
    async def get(
        sha256: Digest, wanted: OneRange = None, if_range: IfRange = None, if_none_match: IfNoneMatch = None
    ) -> Response:
        store, found = await _existing(host, sha256)
        headers = _headers(found)
        if if_none_match is not None and _names(if_none_match, headers["ETag"]):
            return Response(status_code=304, headers=headers)
        try:
            part = range_of(wanted, found.size) if if_range in (None, headers["ETag"]) else None
        except IndexError:
            raise HTTPException(416, headers={"Content-Range": f"bytes */{found.size}"}) from None
        if part is None:
            content = await _begun(store.read(sha256))
            return _download(content, 200, {**headers, "Content-Length": str(found.size)})
        start, stop = part
        length = {"Content-Length": str(stop - start), "Content-Range": f"bytes {start}-{stop - 1}/{found.size}"}
        content = await _begun(store.read_range(sha256, start, stop))
        return _download(content, 206, {**headers, **length})

    @routes.head(
        "/{sha256}",
        summary="How large an artifact is",
        response_class=Response,
        responses={200: {"content": _CONTENT}, **problem_responses(404)},
    )
    async def head(sha256: Digest) -> Response:
        _, found = await _existing(host, sha256)
        return Response(media_type=OCTETS, headers={**_headers(found), "Content-Length": str(found.size)})

    @routes.post(
        "/sweeps",
        summary="Remove the artifacts that no board refers to",
        description="With `dry_run` the answer says what would go, and nothing is changed.",
        responses=problem_responses(500),
    )
    async def sweeps(wanted: SweepRequest) -> SweepReport:
        grace = timedelta(seconds=wanted.grace_seconds)
        return await sweep(host.store, artifacts_of(host), grace=grace, dry_run=wanted.dry_run)

    return routes


def artifacts_of(host: BoardHost) -> ArtifactStore:
    """Raises BadRequest when the host has no place for artifacts."""
    if host.artifacts is None:
        raise BadRequest("this server has no place for artifacts; start it with --artifacts")
    return host.artifacts


async def _existing(host: BoardHost, sha256: str) -> tuple[ArtifactStore, StoredArtifact]:
    store = artifacts_of(host)
    found = await store.stat(check_digest(sha256))
    if found is None:
        raise NotFound(f"there is no artifact {sha256}; it was never put here, or was swept", sha256=sha256)
    return store, found


def _headers(found: StoredArtifact) -> dict[str, str]:
    return {
        **_SAFE_HEADERS,
        "Content-Disposition": f'attachment; filename="{found.sha256}"',
        "ETag": f'"{found.sha256}"',
        "Last-Modified": formatdate(found.stored_ms / 1000, usegmt=True),
    }


def _names(if_none_match: str, etag: str) -> bool:
    return if_none_match.strip() == "*" or etag in [
        each.strip().removeprefix("W/") for each in if_none_match.split(",")
    ]


async def _begun(content: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """The same content, of which the first chunk is read already: what is wrong before it is an error of its own."""
    first = await anext(content, b"")

    async def all_of_it() -> AsyncIterator[bytes]:
        async with contextlib.aclosing(content):
            yield first
            async for chunk in content:
                yield chunk

    return all_of_it()


def _download(content: AsyncIterator[bytes], status: int, headers: dict[str, str]) -> _Download:
    return _Download(content, status_code=status, media_type=OCTETS, headers=headers)


def _check_announced(request: Request, maximum: int) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > maximum:
        raise LimitExceeded(
            f"an artifact has at most {maximum} bytes; split this one into several",
            limit="artifact_bytes_max",
            value=int(announced),
            maximum=maximum,
        )


async def _body(request: Request) -> AsyncIterator[bytes]:
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise BadRequest("the content was cut off, and was not stored") from None
