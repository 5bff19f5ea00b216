"""How large the body of a request may be: it is read into memory before anything is known of it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crdt_board.errors import LimitExceeded
from crdt_board.limits import Limits
from crdt_board_server.api.problems import problem_of

_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")
_STREAMED = ("/api/imports", "/api/artifacts")


class BodyLimit:
    """Refuses bodies of more than ``control_bytes_max``, which is what a client may send over a websocket too.

    Exports and artifacts are left to their routes, which read them piece by piece.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._most = limits.control_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] in ("GET", "HEAD", "DELETE", "OPTIONS")
            or scope["path"] in _STREAMED
        ):
            await self._app(scope, receive, send)
            return
        try:
            received = await self._read(Headers(scope=scope), receive)
        except LimitExceeded as error:
            await problem_of(error)(scope, receive, send)
            return

        async def replay() -> Message:
            return received.pop(0) if received else await receive()

        await self._app(scope, replay, send)

    async def _read(self, headers: Headers, receive: Receive) -> list[Message]:
        """The messages of the body.

        Raises:
            LimitExceeded: it is too large; the rest of it was not read.
        """
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._most:
            raise self._too_large(int(announced))
        received: list[Message] = []
        size = 0
        while not received or received[-1].get("more_body", False):
            received.append(await receive())
            size += len(received[-1].get("body", b""))
            if size > self._most:
                raise self._too_large(size)
        return received

    def _too_large(self, size: int) -> LimitExceeded:
        return LimitExceeded(
            f"a request body of {size} bytes or more; {self._most} are allowed",
            limit="control_bytes_max",
            value=size,
            maximum=self._most,
        )
