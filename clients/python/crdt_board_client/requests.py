"""Requests to the server that were not answered yet; they outlive the connections on which they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from crdt_board.control import RequestBody
from crdt_board.errors import BoardError


@dataclass(slots=True, eq=False)
class Request:
    id: int
    body: RequestBody
    answer: asyncio.Future[JsonValue]


class Requests:
    """The open requests of one link.

    Invariant: a request is handed out by `take_unsent` once, and again after `send_again`, until it is answered.
    """

    def __init__(self, on_new: Callable[[], None]) -> None:
        self._on_new = on_new
        self._open: dict[int, Request] = {}
        self._unsent: list[Request] = []
        self._numbered = 0

    async def ask(self, body: RequestBody) -> JsonValue:
        """The result that the server answers with, or the error. Cancelling does not take the request back."""
        self._numbered += 1
        request = Request(self._numbered, body, asyncio.get_running_loop().create_future())
        self._open[request.id] = request
        self._unsent.append(request)
        self._on_new()
        try:
            return await request.answer
        finally:
            self._open.pop(request.id, None)

    def send_again(self) -> None:
        """There is a new connection: what was sent on the last one may not have arrived."""
        self._unsent = list(self._open.values())

    def take_unsent(self) -> list[Request]:
        """What is to be sent, in the order in which it was asked."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def answer(self, request_id: int, result: JsonValue) -> None:
        request = self._open.get(request_id)
        if request is not None and not request.answer.done():
            request.answer.set_result(result)

    def refuse(self, request_id: int, error: BoardError) -> None:
        request = self._open.get(request_id)
        if request is not None and not request.answer.done():
            request.answer.set_exception(error)

    def refuse_all(self, error: BoardError) -> None:
        for request_id in self._open:
            self.refuse(request_id, error)
