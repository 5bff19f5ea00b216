"""How large the body of a request may be, and how slow."""

from __future__ import annotations

import asyncio
import math

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crdt_board.errors import BoardError, LimitExceeded, Unavailable
from crdt_board.limits import Limits
from crdt_board_server.api.problems import problem_of

_WITHOUT_BODY = ("GET", "HEAD", "DELETE", "OPTIONS")
_STREAMED = ("/api/imports", "/api/artifacts")


class BodyLimit:
    """Refuses bodies that come too slowly, and those of more than ``control_bytes_max``, which is what a client may
    send over a websocket too: they are read into memory before anything is known of them.

    Exports and artifacts may be larger. Their routes read them piece by piece.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._most = limits.control_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self._limits)
        state = scope["app"].state
        state.bells.add(body)
        if state.stopping.is_set():
            body.set()
        try:
            await self._handle(scope, body)
        finally:
            state.bells.discard(body)

    async def _handle(self, scope: Scope, body: _Body) -> None:
        if scope["path"] in _STREAMED:
            await self._app(scope, body.receive, body.send)
            return
        try:
            received = await self._read(Headers(scope=scope), body)
        except BoardError as error:
            await problem_of(error)(scope, body.receive, body.send)
            return
        if received[-1]["type"] == "http.disconnect":
            return

        async def replay() -> Message:
            return received.pop(0) if received else await body.receive()

        await self._app(scope, replay, body.send)

    async def _read(self, headers: Headers, body: _Body) -> list[Message]:
        """The messages of the body.

        Raises:
            LimitExceeded: it is too large or too slow; the rest of it was not read.
            Unavailable: the server stops.
        """
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._most:
            raise self._too_large(int(announced))
        received: list[Message] = []
        while not body.has_ended:
            received.append(await body.receive())
            if body.size > self._most:
                raise self._too_large(body.size)
        return received

    def _too_large(self, size: int) -> LimitExceeded:
        return LimitExceeded(
            f"a request body of {size} bytes or more; {self._most} are allowed",
            limit="control_bytes_max",
            value=size,
            maximum=self._most,
        )


class _Body:
    """The body of one request as it comes in, and the answer to it.

    What counts is the time for which the server has waited for the client, not the time that it took itself. When the
    server stops, it waits for `close_seconds_max` more.
    """

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._waited = 0.0
        self._stopped_at = math.inf
        self._timeout: asyncio.Timeout | None = None
        self._is_given_up = False
        self.size = 0
        self.has_ended = False
        """Also when the client is gone."""

    async def receive(self) -> Message:
        """The next piece.

        Raises:
            LimitExceeded: it does not come in time.
            Unavailable: the server stops.
        """
        if self.has_ended:
            return await self._receive()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout_at(min(begun + self._seconds_left(), self._stopped_at)) as self._timeout:
                message = await self._receive()
        except TimeoutError:
            self._is_given_up = True
            if loop.time() >= self._stopped_at:
                raise Unavailable("the server stops, and nothing was done; send this request again") from None
            raise self._too_slow(self._waited + loop.time() - begun) from None
        finally:
            self._timeout = None
        self._waited += loop.time() - begun
        self.size += len(message.get("body", b""))
        self.has_ended = not message.get("more_body", False)
        return message

    def set(self) -> None:
        """Called once, as bells are, when the server stops."""
        self._stopped_at = asyncio.get_running_loop().time() + self._limits.close_seconds_max
        if self._timeout is not None:
            self._timeout.reschedule(min(self._timeout.when() or math.inf, self._stopped_at))

    async def send(self, message: Message) -> None:
        """Answer; nothing is read from the connection any more when the rest of the body may still come."""
        if self._is_given_up and message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await self._send(message)

    def _seconds_left(self) -> float:
        silent, rate = self._limits.body_silent_seconds, self._limits.body_bytes_per_second_min
        return max(0, min(silent, silent + self.size / rate - self._waited))

    def _too_slow(self, seconds: float) -> LimitExceeded:
        silent, rate = self._limits.body_silent_seconds, self._limits.body_bytes_per_second_min
        return LimitExceeded(
            f"the body of this request came too slowly: {self.size} bytes in {seconds:.0f} s, and nothing was done; "
            f"send {rate} bytes a second or more, and do not pause for {silent:g} s",
            limit="body_silent_seconds",
            value=round(seconds, 1),
            maximum=silent,
        )
