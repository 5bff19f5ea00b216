"""Websocket frames handled where they arrive, for the frames that need no waiting.

Waking a task for each frame takes longer than handling most of them. A shell that wants it gives `InlineFrames.inline`;
frames that it does not take, and all that come before those were handled, go the usual way of `recv`.
"""

from __future__ import annotations

from collections.abc import Callable

from websockets.asyncio.connection import Connection
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.http11 import Request, Response


class InlineFrames(Connection):
    """To be mixed into a connection of websockets.

    Invariant: `inline` is given a frame only while the shell waits in `next_message` and nothing is queued for it, so
    that frames are handled in the order in which they came.
    """

    inline: Callable[[bytes], bool] | None = None
    """Handles a whole binary frame and returns True, or leaves it and returns False. Must not raise and not wait."""

    arrived: Callable[[], None] | None = None
    """Called when `inline` was given all frames that arrived at once. Must not raise and not wait."""

    _is_waiting = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.arrived is not None:
            self.arrived()

    async def next_message(self) -> str | bytes:
        """As ``recv``."""
        self._is_waiting = True
        try:
            return await self.recv()
        finally:
            self._is_waiting = False

    def _take(self, frame: Frame) -> bool:
        is_whole = frame.opcode is Opcode.BINARY and frame.fin
        return is_whole and self.inline is not None and self.inline(bytes(frame.data))

    def process_event(self, event: Frame | Request | Response) -> None:
        if isinstance(event, Frame) and event.opcode in DATA_OPCODES:
            if self._is_waiting and self._take(event):
                return
            self._is_waiting = False
        super().process_event(event)
