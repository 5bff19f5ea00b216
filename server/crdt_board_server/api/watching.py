"""The event stream of a board: its journal as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated
from weakref import WeakValueDictionary

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from crdt_board.control import refusal
from crdt_board.errors import BadRequest, BoardError
from crdt_board.history.narration import Narrator
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.publishing import PublishedEntry
from crdt_board.store.contract import Store
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.answers import WatchedEntry
from crdt_board_server.api.parameters import BoardId, Version
from crdt_board_server.api.problems import problem_responses

_PAGE_ENTRIES = 100

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


def add_watching(routes: APIRouter, host: BoardHost) -> None:
    """Add the route to ``routes``, for the boards of ``host``."""
    narrators: WeakValueDictionary[str, Narrator] = WeakValueDictionary()  # those of boards that somebody watches

    # Whatever is wrong with a request must be found before the stream begins.
    async def begin_of(board_id: BoardId, after: Version | None = None, last_event_id: LastEventId = None) -> int:
        head = await existing_head(host.store, check_board_id(board_id, host.limits))
        if last_event_id is not None:
            return _seq_of(last_event_id)
        return head.seq if after is None else after

    @routes.get(
        "/boards/{board_id}/events",
        summary="The entries of a board as they become durable, as server-sent events",
        description="Each event has the entry's `seq` as its id and its kind as its name; begins after entry `after`, "
        "or with what comes next. A client that connects again goes on where it was. `deeds` say who did what in an "
        "entry of coordination. An event `error` ends the stream.",
        response_class=EventSourceResponse,
        responses=problem_responses(404, 410),
    )
    async def events(
        request: Request, board_id: BoardId, begin: int = Depends(begin_of)
    ) -> AsyncIterator[ServerSentEvent]:
        async with host.board(board_id) as engine:
            bell = _Bell()
            narrator = narrators.setdefault(board_id, Narrator(host.store, board_id))
            engine.add_listener(bell)
            request.app.state.bells.add(bell.rung)
            try:
                async for event in _entries(host.store, narrator, begin, bell, request.app.state.stopping):
                    yield event
            finally:
                request.app.state.bells.discard(bell.rung)
                engine.remove_listener(bell)


async def _entries(
    store: Store, narrator: Narrator, after: int, bell: _Bell, stopping: asyncio.Event
) -> AsyncIterator[ServerSentEvent]:
    while not stopping.is_set():
        bell.rung.clear()
        # Without the payloads: a stream that nobody reads holds its page for as long as it is open.
        entries = await store.entries(narrator.board_id, after=after, limit=_PAGE_ENTRIES)
        told = await narrator.tell(entries)
        page = [WatchedEntry.telling(entry, told.get(entry.seq, ())) for entry in entries]
        del entries
        for entry in page:
            after = entry.seq
            yield ServerSentEvent(data=entry, event=entry.kind, id=str(entry.seq))
        if bell.error is not None:
            yield ServerSentEvent(data=refusal(bell.error).error, event="error")
            return
        if not page:
            await bell.rung.wait()


def _seq_of(last_event_id: str) -> int:
    if not last_event_id.isdecimal() or len(last_event_id) > 15:
        raise BadRequest(f"Last-Event-ID must be the number of an entry, not {last_event_id[:80]!r}")
    return int(last_event_id)
