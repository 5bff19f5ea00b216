"""The websocket side of the one port: uvicorn hands an upgraded connection to a `ServerConnection` of websockets.

ASGI is left out of the way of frames: [measured] it halves the fan-out. What uvicorn wants of such a class is the
constructor below and `shutdown`; what `ServerConnection` wants of its server is in `_Acceptor`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote

from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.asyncio.server import ServerConnection
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from crdt_board.errors import BoardError
from crdt_board.inline_frames import InlineFrames
from crdt_board.limits import Limits, check_board_id, check_name
from crdt_board.session import PeerKind
from crdt_board.wire import SUBPROTOCOL, frame_bytes_max
from crdt_board_server.close_codes import closing_of
from crdt_board_server.connection import GUEST, Peer
from crdt_board_server.masked_frames import MaskedFrames
from crdt_board_server.origins import Origins
from crdt_board_server.rooms import Rooms

_PATH_PREFIX = "/ws/"
_OPEN_SECONDS = 10.0
_PING_SECONDS = 20.0
_PINGS_UNANSWERED_MAX = 3
"""A peer that only stopped reading for a while is not cut off; one whose machine is gone is, in the end."""

_FULL_MAX = 15
"""After so many rounds, five minutes, without a moment in which it could take more, a peer is cut off unasked."""

_CONNECTIONS_AT_ONCE = 100

_CLOSE_SECONDS = 5.0
_FRAMES_QUEUED = 8
"""Frames of one peer that may wait to be handled; most are taken as they arrive and never do."""

logger = logging.getLogger(__name__)
_wire_logger = logging.getLogger("crdt_board_server.wire")


class Peers:
    """Everybody who is connected to this server."""

    def __init__(self, rooms: Rooms, limits: Limits, origins: Origins | None = None) -> None:
        self.rooms = rooms
        self.limits = limits
        self.origins = origins or Origins()
        self.stopping = False
        self._connections: set[BoardConnection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: BoardConnection) -> None:
        """Keep a connection alive from now on, and look whether its peer is."""
        self._connections.add(connection)

    def remove(self, connection: BoardConnection) -> None:
        self._connections.discard(connection)

    async def keep_alive(self) -> None:
        """Give every silent connection a sign of life, for ever."""
        while True:
            await asyncio.sleep(self.limits.keepalive_seconds)
            await self._with_each(BoardConnection.keep_alive)

    async def look_for_dead(self) -> None:
        """Ping everybody and cut off who does not answer, for ever. One task for all: websockets' own takes 1.2 KB of
        each connection [measured]."""
        while True:
            await asyncio.sleep(_PING_SECONDS)
            await self._with_each(BoardConnection.ping_or_cut_off)

    async def _with_each(self, act: Callable[[BoardConnection], None]) -> None:
        """Act on every connection, some at a time: what there is to do for others goes on between them."""
        for index, connection in enumerate(list(self._connections)):
            if index % _CONNECTIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                act(connection)
            except Exception:  # the boundary between one connection and the others
                logger.exception("a connection could not be kept alive")


class _Acceptor:
    """What a `ServerConnection` calls its server; one for all."""

    def __init__(self, peers: Peers) -> None:
        self.handler_tasks: set[asyncio.Task[None]] = set()
        self.logger = _wire_logger
        self._peers = peers

    def is_serving(self) -> bool:
        return not self._peers.stopping

    async def handler(self, connection: BoardConnection) -> None:
        try:
            await self._open(connection)
            if connection.protocol.state is not State.OPEN:
                return
            await self._serve(connection)
        except TimeoutError:
            logger.debug("a connection did not finish its handshake within %g s", _OPEN_SECONDS)
        except Exception:  # the boundary of this connection
            logger.exception("a websocket connection failed")
        finally:
            task = asyncio.current_task()
            assert task is not None
            self.handler_tasks.discard(task)
            connection.transport.abort()

    async def _open(self, connection: BoardConnection) -> None:
        async with asyncio.timeout(_OPEN_SECONDS):
            await connection.handshake(process_request=_check_request, server_header=None)

    async def _serve(self, connection: BoardConnection) -> None:
        assert connection.request is not None
        board_id, agent = _address(connection.request, self._peers.limits)
        connection.forget_handshake()
        kind: PeerKind = "own" if connection.subprotocol == SUBPROTOCOL else "stock"
        peer = connection.peer = Peer(connection, kind, agent, self._peers.limits)
        self._peers.add(connection)
        try:
            async with connection:
                await peer.run(self._peers.rooms, board_id)
        finally:
            self._peers.remove(connection)


class BoardConnection(InlineFrames, ServerConnection):
    """A websocket connection that uvicorn accepted on its port."""

    __slots__ = ("_frames", "_full_for", "_pings_unanswered", "_server_state", "peer")  # see `InlineFrames`

    peers: Peers
    acceptor: _Acceptor
    """Both set by `board_protocol`."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: object = None
    ) -> None:
        limits = self.peers.limits
        protocol = ServerProtocol(
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            select_subprotocol=_select_subprotocol,
            max_size=frame_bytes_max(limits),
            logger=_wire_logger,
        )
        super().__init__(
            protocol,
            self.acceptor,  # the part of websockets' Server that it uses
            ping_interval=None,  # see `Peers.look_for_dead`
            close_timeout=_CLOSE_SECONDS,
            max_queue=_FRAMES_QUEUED,
            write_limit=limits.send_buffer_bytes_max,
        )
        self.peer: Peer | None = None
        self._server_state = server_state
        self._frames: MaskedFrames | None = None  # until uvicorn has handed over the handshake, by itself
        self._pings_unanswered = self._full_for = 0
        self.logger = protocol.logger = _wire_logger  # websockets makes one for each connection

    def forget_handshake(self) -> None:
        """Let go of the headers, 3 KiB that nobody needs any more. websockets keeps the request for good."""
        if self.request is not None:
            self.request.headers.clear()
        self.response = None

    def keep_alive(self) -> None:
        """Called every ``keepalive_seconds``."""
        if self.peer is not None:
            self.peer.keep_alive()

    def ping_or_cut_off(self) -> None:
        """Called every `_PING_SECONDS`. Who does not read now, or is not read, cannot answer, and is not asked."""
        self._full_for = self._full_for + 1 if self.paused else 0
        if self._full_for == _FULL_MAX:
            self.transport.abort()
        if self.protocol.state is not State.OPEN or self.paused or not self.transport.is_reading():
            return
        if self._pings_unanswered == _PINGS_UNANSWERED_MAX:
            self.protocol.fail(CloseCode.INTERNAL_ERROR, "no answer to pings")
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)
        else:
            self._pings_unanswered += 1
            self.protocol.send_ping(b"")
        self.send_data()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn calls only `shutdown` on it
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._pings_unanswered = 0
        if self._frames is None:
            self._frames = MaskedFrames(frame_bytes_max(self.peers.limits))
        else:
            data = self._frames.take(data, self.inline_now)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server_state.connections.discard(self)
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.peer is not None:
            self.peer.drained()

    def shutdown(self) -> None:
        """Called by uvicorn for each connection when it stops."""
        self.peers.stopping = True
        if self.peer is not None:
            self.peer.shut_down()
        else:
            self.transport.abort()


def board_protocol(peers: Peers) -> type[BoardConnection]:
    """The class to give uvicorn as its ``ws`` protocol; uvicorn makes the instances, hence a class for each server."""
    return type("BoardConnection", (BoardConnection,), {"peers": peers, "acceptor": _Acceptor(peers)})


def _check_request(connection: ServerConnection, request: Request) -> Response | None:
    assert isinstance(connection, BoardConnection)
    headers = request.headers
    try:
        _address(request, connection.peers.limits)
        connection.peers.origins.check_all(headers.get_all("Host"), headers.get_all("Origin"))
    except BoardError as error:
        return connection.respond(closing_of(error).http_status, f"{error}\n")
    return None


def _address(request: Request, limits: Limits) -> tuple[str, str]:
    """The board id and the agent's name in the address of a request: ``/ws/<board>?agent=<name>``.

    Raises:
        InvalidBoardId, InvalidValue, LimitExceeded: the address does not name a board, or the agent's name is not one.
    """
    path, _, query = request.path.partition("?")
    board_id = check_board_id(unquote(path.removeprefix(_PATH_PREFIX)) if path.startswith(_PATH_PREFIX) else "", limits)
    agent = parse_qs(query).get("agent", [GUEST])[0]
    return board_id, check_name(agent, "agent", limits.agent_chars_max)


def _select_subprotocol(_protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Ours when it is offered, none otherwise: stock clients offer none, and must not be refused for another."""
    return Subprotocol(SUBPROTOCOL) if SUBPROTOCOL in offered else None
