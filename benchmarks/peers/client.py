"""A Yjs client with a document, that can also send what no client should."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pycrdt
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from benchmarks.peers.processes import Server
from crdt_board import wire
from crdt_board.errors import BoardError
from crdt_board.limits import Limits
from crdt_board.updates import clock_of
from crdt_board.varint import read_varuint, write_varuint

_LIMITS = Limits(update_bytes_max=1 << 30)
_OPEN_SECONDS = 10.0
_TURN_SECONDS = 0.5
_AUTH, _SYNC_REPLY = 2, 4
_AUTHENTICATED = 2


class Client:
    """One connection to a room. Its document takes in what arrives while one of the methods that wait runs."""

    def __init__(self, socket: ClientConnection, server: Server, room: str, client_id: int | None) -> None:
        self.socket = socket
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=client_id)
        self.is_synced = False
        self.unreadable = 0
        """Messages of the server that a client cannot make sense of."""
        self.arrived_at = 0.0
        """When the last message came, before it was looked at; as `time.monotonic`."""
        encoded = room.encode()
        self._address = write_varuint(len(encoded)) + encoded if server.contestant.is_named else b""
        if self._address:
            self.send(bytes((_AUTH, 0, 0)))
        else:
            self.send(wire.encode_step1(self.doc.get_state()))

    def clock(self, client_id: int) -> int:
        """How many operations of ``client_id`` it holds."""
        return clock_of(client_id, self.doc.get_state())

    def send(self, message: bytes) -> None:
        """Send one message to the room."""
        self.socket.send(self._address + message)

    def assign(self, key: str, value: Any) -> None:
        """Set a key in the document, and send the update."""
        updates: list[bytes] = []
        subscription = self.doc.observe(lambda event: updates.append(event.update))
        self.doc.get("values", type=pycrdt.Map)[key] = value
        self.doc.unobserve(subscription)
        for update in updates:
            self.send(wire.encode_update(update))

    def wait_for_sync(self, timeout: float) -> bool:
        """Take in messages until it holds what the room held; False as with `wait_for_clock`."""
        return self._wait_for(lambda: self.is_synced, timeout)

    def wait_for_clock(self, client_id: int, clock: int, timeout: float) -> bool:
        """Take in messages until it holds so many operations of ``client_id``.

        False when the time is up, or the connection is closed, before.
        """
        return self._wait_for(lambda: self.clock(client_id) >= clock, timeout)

    def _wait_for(self, holds: Callable[[], bool], timeout: float) -> bool:
        end = time.monotonic() + timeout
        with contextlib.suppress(ConnectionClosed):
            while not holds():
                if time.monotonic() > end:
                    return False
                self.take(min(_TURN_SECONDS, timeout))
            return True
        return False

    def take(self, timeout: float) -> None:
        """Take in one message, if one comes in this time.

        Raises:
            ConnectionClosed: by the server.
        """
        try:
            data = self.socket.recv(timeout)
        except TimeoutError:
            return
        self.arrived_at = time.monotonic()
        if isinstance(data, bytes):
            try:
                self._take_message(data)
            except (BoardError, ValueError, IndexError):  # the last two from pycrdt
                self.unreadable += 1

    def _take_message(self, data: bytes) -> None:
        if self._address:
            length, start = read_varuint(data, 0)
            data = data[start + length :]
            if data[0] == _AUTH:
                if data[1] == _AUTHENTICATED:
                    self.send(wire.encode_step1(self.doc.get_state()))
                return
            if data[0] > _SYNC_REPLY:  # what only Hocuspocus says
                return
            if data[0] == _SYNC_REPLY:
                data = b"\x00" + data[1:]
        match wire.decode_frame(data, _LIMITS):
            case wire.SyncStep1(state_vector):
                self.send(wire.encode_step2(self.doc.get_update(state_vector)))
            case wire.SyncStep2(update):
                self.doc.apply_update(update)
                self.is_synced = True
            case wire.SyncUpdate(update):
                self.doc.apply_update(update)


@contextlib.contextmanager
def client(server: Server, room: str, *, client_id: int | None = None) -> Iterator[Client]:
    """A client in a room; it has asked for what the room holds, and has taken in nothing."""
    path = server.contestant.path.replace("%s", room)
    socket = connect(
        f"ws://127.0.0.1:{server.port}{path}",
        compression=None,
        max_size=None,
        ping_interval=None,
        open_timeout=_OPEN_SECONDS,
        close_timeout=1,
    )
    try:
        yield Client(socket, server, room, client_id)
    finally:
        socket.close()
