"""Frames that a server reads by itself: the same ones, in the same order, as websockets would give it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from crdt_board_server.masked_frames import MaskedFrames

BYTES_MAX = 70_000

contents = st.binary(max_size=40) | st.sampled_from([b"x" * size for size in (125, 126, 65_535, 65_536, BYTES_MAX + 1)])
whole = st.builds(Frame, st.sampled_from([Opcode.BINARY, Opcode.BINARY, Opcode.TEXT]), st.just(b"") | contents)
pings = st.builds(Frame, st.sampled_from([Opcode.PING, Opcode.PONG]), st.binary(max_size=125))
fragmented = st.lists(contents, min_size=2, max_size=4).map(
    lambda parts: [
        Frame(Opcode.CONT if number else Opcode.BINARY, part, fin=number == len(parts) - 1)
        for number, part in enumerate(parts)
    ]
)
messages = st.lists((whole | pings).map(lambda frame: [frame]) | fragmented, max_size=12)


class Received:
    """What comes out of a connection: frames that were handled at once, and those that websockets read."""

    def __init__(self, willing: Iterator[bool]) -> None:
        self.frames: list[tuple[Opcode, bytes]] = []
        self.protocol = Protocol(Side.SERVER)
        self._masked = MaskedFrames(BYTES_MAX)
        self._willing = willing
        self.handled = 0

    def feed(self, data: bytes) -> None:
        takes = self.protocol.state is State.OPEN and self.protocol.current_size is None
        self.protocol.receive_data(self._masked.take(data, self._handle if takes else None))
        for event in self.protocol.events_received():
            assert isinstance(event, Frame)
            self.frames.append((event.opcode, bytes(event.data)))

    def _handle(self, content: bytes) -> bool:
        if next(self._willing, False):
            self.frames.append((Opcode.BINARY, content))
            self.handled += 1
            return True
        return False


def serialized(frames: list[Frame]) -> bytes:
    return b"".join(frame.serialize(mask=True) for frame in frames)


@given(messages, st.lists(st.booleans(), max_size=12), st.data())
def test_frames_come_as_they_were_sent(sent: list[list[Frame]], willing: list[bool], data: st.DataObject) -> None:
    """Wherever the bytes are cut, whatever is taken, and whatever comes in between."""
    frames = [frame for message in sent for frame in message]
    stream = serialized(frames)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    received = Received(iter(willing))
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received.feed(stream[begin:end])
    assert received.frames == [(frame.opcode, bytes(frame.data)) for frame in frames]


def test_a_cut_anywhere_leaves_one_frame_to_websockets() -> None:
    """The one that it goes through; those of the next read are handled here again."""
    frames = [Frame(Opcode.BINARY, bytes([number]) * size) for number, size in enumerate((3, 130, 0, 5))]
    stream = serialized(frames)
    for cut in range(len(stream)):
        received = Received(iter([True] * 20))
        for part in (stream[:cut], stream[cut:], stream):
            received.feed(part)
        assert received.frames == [(Opcode.BINARY, bytes(frame.data)) for frame in frames * 2]
        assert received.handled >= len(frames)


def test_a_byte_at_a_time_is_read_too() -> None:
    """Headers of all three lengths."""
    frames = [Frame(Opcode.BINARY, b"x" * size) for size in (0, 1, 126, 65_536)]
    received = Received(iter([True] * 9))
    for byte in serialized(frames):
        received.feed(bytes([byte]))
    assert received.frames == [(Opcode.BINARY, bytes(frame.data)) for frame in frames]


def test_small_frames_are_handled_and_nothing_is_left() -> None:
    """What this is for: websockets is given none of them."""
    frames = [Frame(Opcode.BINARY, bytes([number])) for number in range(9)]
    handled: list[bytes] = []
    left = MaskedFrames(BYTES_MAX).take(serialized(frames), lambda content: not handled.append(content))  # type: ignore[func-returns-value]
    assert (left, handled) == (b"", [bytes([number]) for number in range(9)])


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (Frame(Opcode.BINARY, b"x").serialize(mask=False), CloseCode.PROTOCOL_ERROR),
        (b"\xc2\x81\0\0\0\0x", CloseCode.PROTOCOL_ERROR),
        (b"\x83\x81\0\0\0\0x", CloseCode.PROTOCOL_ERROR),
    ],
    ids=["not masked", "a reserved bit", "an unknown opcode"],
)
def test_what_is_wrong_is_left_to_websockets(bad: bytes, code: CloseCode) -> None:
    """Which ends the connection as it does without us; what came before it was handled."""
    received = Received(iter([True] * 9))
    received.feed(serialized([Frame(Opcode.BINARY, b"good")]) + bad)
    assert received.frames[0] == (Opcode.BINARY, b"good")
    assert received.protocol.close_code == code or received.protocol.state is not State.OPEN
