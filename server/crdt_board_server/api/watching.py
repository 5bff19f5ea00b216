"""The event stream of a board: its journal as it grows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, cast
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.types import Send

from crdt_board.control import refusal
from crdt_board.errors import BadRequest, BoardError
from crdt_board.history.narration import Listener, Narrator
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.publishing import PublishedEntry
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.answers import WatchedEntry
from crdt_board_server.api.parameters import BoardId, Version
from crdt_board_server.api.problems import problem_responses

_PAGE_ENTRIES = 100
_KEEPALIVE_SECONDS = 15.0

LastEventId = Annotated[str | None, Header(description="Sent by a client that connects again: the last event it got.")]


class _Bell:
    """Rings when something was published, or nothing will be any more."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.error: BoardError | None = None

    def published(self, _entries: Sequence[PublishedEntry]) -> None:
        self.rung.set()

    def schema_changed(self) -> None:
        pass

    def stopped(self, error: BoardError) -> None:
        self.error = error
        self.rung.set()


class _EventStream(StreamingResponse):
    """Server-sent events. What makes them is closed in any case, also when the client leaves in the middle of one: the
    response of FastAPI fails then, as its keeper-alive writes into what is closed.
    """

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        async with contextlib.aclosing(cast(AsyncGenerator[bytes], self.body_iterator)):
            await super().stream_response(send)


def add_watching(routes: APIRouter, host: BoardHost) -> None:
    """Add the route to ``routes``, for the boards of ``host``."""
    # Those of boards that somebody watches, by name and epoch: what was told of a deleted board is not the new one's.
    narrators: WeakValueDictionary[tuple[str, str], Narrator] = WeakValueDictionary()

    # Whatever is wrong with a request must be found before the stream begins.
    async def begin_of(
        board_id: BoardId, after: Version | None = None, last_event_id: LastEventId = None
    ) -> tuple[str, int]:
        head = await existing_head(host.store, check_board_id(board_id, host.limits))
        if last_event_id is not None:
            return head.epoch, _seq_of(last_event_id)
        return head.epoch, head.seq if after is None else after

    @routes.get(
        "/boards/{board_id}/events",
        summary="The entries of a board as they become durable, as server-sent events",
        description="Each event has the entry's `seq` as its id and its kind as its name; begins after entry `after`, "
        "or with what comes next. A client that connects again goes on where it was. `deeds` say who did what in an "
        "entry of coordination. An event `error` ends the stream.",
        response_class=_EventStream,
        responses=problem_responses(404, 410),
    )
    async def events(request: Request, board_id: BoardId, begin: tuple[str, int] = Depends(begin_of)) -> _EventStream:
        epoch, after = begin
        narrator = narrators.setdefault((board_id, epoch), Narrator(host.store, board_id))
        app = request.app.state
        stream = _events(host, narrator, after, bells=app.bells, stopping=app.stopping)
        return _EventStream(stream, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


async def _events(
    host: BoardHost, narrator: Narrator, after: int, *, bells: set[asyncio.Event], stopping: asyncio.Event
) -> AsyncGenerator[bytes]:
    """The entries behind one, for as long as the board can be read."""
    bell, listener = _Bell(), Listener(narrator)
    bells.add(bell.rung)
    try:
        async with host.board(narrator.board_id) as engine:
            engine.add_listener(bell)
            try:
                while not stopping.is_set():
                    bell.rung.clear()
                    # Without the payloads: a stream that nobody reads holds its page for as long as it is open.
                    page = await _page(host, narrator.board_id, listener, after)
                    for entry in page:
                        after = entry.seq
                        yield _event(entry.kind, entry, after)
                    if bell.error is not None:
                        raise bell.error
                    if not page and not await _is_rung(bell):
                        yield KEEPALIVE_COMMENT
            finally:
                engine.remove_listener(bell)
    except BoardError as error:
        yield _event("error", refusal(error).error)
    finally:
        bells.discard(bell.rung)


async def _page(host: BoardHost, board_id: str, listener: Listener, after: int) -> list[WatchedEntry]:
    entries = await host.store.entries(board_id, after=after, limit=_PAGE_ENTRIES)
    told = await listener.hear(entries)
    return [WatchedEntry.telling(entry, told.get(entry.seq, ())) for entry in entries]


async def _is_rung(bell: _Bell) -> bool:
    """Whether it rings before the client needs a sign of life."""
    try:
        async with asyncio.timeout(_KEEPALIVE_SECONDS):
            return await bell.rung.wait()
    except TimeoutError:
        return False


def _event(name: str, content: BaseModel, seq: int | None = None) -> bytes:
    return format_sse_event(data_str=content.model_dump_json(), event=name, id=None if seq is None else str(seq))


def _seq_of(last_event_id: str) -> int:
    if not last_event_id.isdecimal() or len(last_event_id) > 15:
        raise BadRequest(f"Last-Event-ID must be the number of an entry, not {last_event_id[:80]!r}")
    return int(last_event_id)
