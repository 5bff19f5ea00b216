"""Websocket frames handled where they arrive, for the frames that need no waiting.

Waking a task for each frame takes longer than handling most of them. A shell that wants it gives `InlineFrames.inline`;
frames that it does not take, and all that come before those were handled, go the usual way of `recv`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from websockets.asyncio.connection import Connection
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State

_ARRIVING_BYTES = 1 << 18


class _Arriving(threading.local):
    """Where the event loop of a thread puts what arrives, until it is handled in the same turn.

    asyncio otherwise asks the system for so many bytes at each read, which takes five times as long as reading a small
    message [measured].
    """

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(_ARRIVING_BYTES))


_arriving = _Arriving()


class InlineFrames(Connection, asyncio.BufferedProtocol):
    """To be mixed into a connection of websockets.

    Invariant: `inline` is given a frame only while the shell waits in `next_message` and nothing is queued for it, so
    that frames are handled in the order in which they came.
    """

    # With 30 attributes in its dictionary an object takes 1.3 KB more [measured], and websockets' own have 27.
    __slots__ = ("_is_waiting", "arrived", "inline")

    inline: Callable[[bytes], bool] | None
    """Handles a whole binary frame and returns True, or leaves it and returns False. Must not raise and not wait."""

    arrived: Callable[[], None] | None
    """Called when `inline` was given all frames that arrived at once. Must not raise and not wait."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.inline = self.arrived = None
        self._is_waiting = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return _arriving.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(_arriving.buffer[:nbytes]))

    @property
    def inline_now(self) -> Callable[[bytes], bool] | None:
        """`inline`, if it may be given whole frames that websockets is not given; else None."""
        protocol = self.protocol
        is_plain = protocol.state is State.OPEN and protocol.current_size is None and not protocol.debug
        return self.inline if self._is_waiting and is_plain else None

    def data_received(self, data: bytes) -> None:
        if data:
            super().data_received(data)
        if self.arrived is not None:
            self.arrived()

    def stop_reading(self) -> None:
        """Leave what arrives with the system, until `read_on`."""
        self.transport.pause_reading()

    def read_on(self) -> None:
        """The end of `stop_reading`. While more is queued than websockets wants, it reads on by itself when it can."""
        if not self.recv_messages.paused and not self.transport.is_closing():
            self.transport.resume_reading()

    async def next_message(self) -> str | bytes:
        """As ``recv``."""
        self._is_waiting = True
        try:
            return await self.recv()
        finally:
            self._is_waiting = False

    async def flush(self) -> None:
        """Return when the system has taken all that was written. Cancelling it changes nothing else."""
        self.transport.set_write_buffer_limits(high=0)
        try:
            await self.drain()
        finally:
            self.transport.set_write_buffer_limits(self.write_limit_high, self.write_limit_low)

    def _take(self, frame: Frame) -> bool:
        is_whole = frame.opcode is Opcode.BINARY and frame.fin
        return is_whole and self.inline is not None and self.inline(bytes(frame.data))

    def process_event(self, event: Frame | Request | Response) -> None:
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            if self._is_waiting and self._take(event):
                return
            self._is_waiting = False
        super().process_event(event)
