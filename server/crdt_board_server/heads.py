"""How large the head of an HTTP request may be, and how slow. uvicorn bounds neither [measured: 200 MB of one header
were 214 MB of memory, for as long as the connection stayed open]; bodies are `api.bodies`'s."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from crdt_board.errors import LimitExceeded
from crdt_board.limits import Limits
from crdt_board_server.api.problems import problem_of

_FRAMING_PER_BYTE = 16
"""What a body may take around each of its bytes: a chunk of one byte takes five, and some write lengths with zeros."""


class BoundedHeads(HttpToolsProtocol):
    """An HTTP connection that ends when a head, or what stands between the pieces of a body, is too long, or when a
    head does not come in time. The read in which a request begins is not counted, which is 256 KiB at most.
    """

    limits: Limits
    """Set by `http_protocol`."""

    _framing = _body = 0  # bytes of the present request
    _begins = False  # a request, in what is read just now
    _has_begun = _is_in_body = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._begins, body = False, self._body
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if not self._begins:
            self._framing += len(data) - (self._body - body)
        if self._framing > self.limits.head_bytes_max + _FRAMING_PER_BYTE * self._body:
            self._refuse(self._too_large())
        elif not self._is_in_body and self._deadline is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        self._begins = self._has_begun = True
        self._framing = self._body = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_body:  # what comes behind a body is of no use to anybody
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._head_is_here()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_begun = self._is_in_body = False
        super().on_message_complete()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.limits.head_seconds_max, self._is_late)

    def _head_is_here(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_late(self) -> None:
        self._deadline = None
        if self._is_answering():
            self._expect_head()  # the one behind
        elif self._has_begun:
            self._refuse(self._too_slow())
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _refuse(self, error: LimitExceeded) -> None:
        """Answer, where nothing else is being answered, and close the connection."""
        self._head_is_here()
        if self._is_answering():
            self.transport.abort()
            return
        answer = problem_of(error)
        status = HTTPStatus(answer.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.transport.close()

    def _too_large(self) -> LimitExceeded:
        most = self.limits.head_bytes_max
        return LimitExceeded(
            f"the head of a request takes more than {most} bytes; nothing was done",
            limit="head_bytes_max",
            value=self._framing,
            maximum=most,
        )

    def _too_slow(self) -> LimitExceeded:
        most = self.limits.head_seconds_max
        return LimitExceeded(
            f"the head of a request did not come within {most:g} s; nothing was done",
            limit="head_seconds_max",
            value=most,
            maximum=most,
        )


def http_protocol(limits: Limits) -> type[BoundedHeads]:
    """The class to give uvicorn as its ``http`` protocol, one for each server: uvicorn makes the instances."""
    return type("BoundedHeads", (BoundedHeads,), {"limits": limits})
