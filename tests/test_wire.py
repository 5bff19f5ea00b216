from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board import wire
from crdt_board.errors import LimitExceeded, ProtocolError
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.presence import PresenceState
from crdt_board.updates import encode_state_vector
from crdt_board.varint import write_varuint

NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=128)
NUMBERS = st.integers(1, 2**53)
UPDATES = st.lists(st.binary(max_size=300), max_size=20).map(tuple)
STATES = st.lists(
    st.builds(
        PresenceState,
        st.integers(0, 2**53 - 1),
        st.integers(0, 2**53 - 1),
        st.sampled_from([None, "{}", '{"user":"Zoë 😀"}']),
    ),
    max_size=5,
).map(tuple)
FRAMES = st.one_of(
    st.builds(wire.SyncStep1, st.dictionaries(NUMBERS, NUMBERS).map(encode_state_vector)),
    st.builds(wire.SyncStep2, st.binary()),
    st.builds(wire.SyncUpdate, st.binary()),
    st.builds(wire.AwarenessFrame, STATES),
    st.builds(wire.QueryAwareness),
    st.builds(wire.AuthDenied, st.text()),
    st.builds(wire.Push, NUMBERS, NAMES, UPDATES),
    st.builds(wire.EntryFrame, st.integers(0, 2**53), NAMES | st.just(""), UPDATES),
)
EXAMPLES: list[wire.Frame] = [
    wire.SyncStep1(b"\x01\x07\x02"),
    wire.SyncStep2(b"\x00\x00"),
    wire.SyncUpdate(b"\x00" * 200),
    wire.AwarenessFrame((PresenceState(2**32, 3, '{"a":"é"}'), PresenceState(1, 2, None))),
    wire.QueryAwareness(),
    wire.AuthDenied("nö"),
    wire.Push(300, "planner ü", (b"abc", b"", b"x" * 200)),
    wire.EntryFrame(2**40, "writer", (b"abc",)),
]


def encode(frame: wire.Frame) -> bytes:
    if isinstance(frame, wire.QueryAwareness):
        return wire.encode_query_awareness()
    encoders: dict[type[wire.Frame], Callable[..., bytes]] = {
        wire.SyncStep1: wire.encode_step1,
        wire.SyncStep2: wire.encode_step2,
        wire.SyncUpdate: wire.encode_update,
        wire.AwarenessFrame: wire.encode_awareness,
        wire.AuthDenied: wire.encode_auth_denied,
        wire.Push: wire.encode_push,
        wire.EntryFrame: wire.encode_entry,
    }
    return encoders[type(frame)](*(getattr(frame, field.name) for field in fields(frame)))


def with_crc(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


@settings(deadline=None)
@given(FRAMES)
def test_every_frame_round_trips(frame: wire.Frame) -> None:
    """What was encoded is decoded."""
    assert wire.decode_frame(encode(frame), DEFAULT_LIMITS) == frame


@pytest.mark.parametrize(
    ("frame", "encoded"),
    [
        (wire.SyncStep1(b"\x01\x07\x02"), "000003010702"),
        (wire.SyncStep2(bytes.fromhex("01010700040101740368c3a900")), "00010d01010700040101740368c3a900"),
        (wire.SyncUpdate(bytes.fromhex("01010700040101740368c3a900")), "00020d01010700040101740368c3a900"),
        (wire.AuthDenied("nö"), "0200036ec3b6"),
        (wire.AwarenessFrame(()), "010100"),
        (wire.QueryAwareness(), "03"),
    ],
)
def test_stock_frames_are_those_of_y_protocols(frame: wire.Frame, encoded: str) -> None:
    """The bytes are those that y-protocols 1.0.7 writes."""
    assert encode(frame).hex() == encoded


def test_the_keepalive_is_an_awareness_message_about_nobody() -> None:
    """W1: stock clients accept it as a message and change nothing."""
    assert wire.decode_frame(wire.KEEPALIVE, DEFAULT_LIMITS) == wire.AwarenessFrame(())


@settings(deadline=None)
@given(st.integers(0, 300) | st.sampled_from([16_383, 16_384]), st.binary(max_size=3), st.integers(0, 3))
def test_the_short_way_to_a_stock_update_agrees_with_the_decoder(size: int, noise: bytes, at: int) -> None:
    """H3: it gives the update that the decoder gives, or leaves the frame to it; whole frames under 16 kB it takes."""
    update = b"x" * size
    frame = wire.encode_update(update)
    assert wire.stock_update(frame) == (update if 2 <= size < 1 << 14 else None)
    for changed in (frame[:at] + noise + frame[at:], frame[: len(frame) - at], frame[:at] + noise):
        short = wire.stock_update(changed)
        if short is not None:
            assert wire.decode_frame(changed, DEFAULT_LIMITS) == wire.SyncUpdate(short)


@pytest.mark.parametrize("frame", EXAMPLES)
def test_a_frame_cut_anywhere_is_a_protocol_error(frame: wire.Frame) -> None:
    """H3: half frames are refused at every byte."""
    encoded = encode(frame)
    for end in range(len(encoded)):
        with pytest.raises(ProtocolError):
            wire.decode_frame(encoded[:end], DEFAULT_LIMITS)


@pytest.mark.parametrize("frame", EXAMPLES)
def test_a_byte_too_many_is_a_protocol_error(frame: wire.Frame) -> None:
    """H3: nothing follows the one message of a frame."""
    with pytest.raises(ProtocolError):
        wire.decode_frame(encode(frame) + b"\x00", DEFAULT_LIMITS)


@pytest.mark.parametrize("frame", [frame for frame in EXAMPLES if isinstance(frame, wire.Push | wire.EntryFrame)])
def test_any_flipped_bit_of_an_own_frame_fails_its_checksum(frame: wire.Frame) -> None:
    """A damaged push or entry is recognised as damaged, so that it can be sent again."""
    encoded = encode(frame)
    for bit in range(8, len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError) as caught:
            wire.decode_frame(bytes(damaged), DEFAULT_LIMITS)
        assert caught.value.reason == "checksum"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_raise_only_protocol_errors(data: bytes) -> None:
    """H1: whatever arrives is a frame or a protocol error, also behind a checksum that fits."""
    for frame in (data, with_crc(b"\x64" + data), with_crc(b"\x65" + data), b"\x00\x02" + data, b"\x01" + data):
        try:
            wire.decode_frame(frame, DEFAULT_LIMITS)
        except ProtocolError:
            continue


@settings(deadline=None)
@given(FRAMES, st.randoms(use_true_random=False))
def test_mutated_frames_raise_only_protocol_errors(frame: wire.Frame, source: random.Random) -> None:
    """H1: mutations of every kind of frame, the checksum made to fit again, are read or refused."""
    data = bytearray(encode(frame))
    for _ in range(source.randint(1, 4)):
        data[source.randrange(len(data))] = source.randrange(256)
    for mutated in (bytes(data), with_crc(bytes(data[:-4]))):
        try:
            wire.decode_frame(mutated, DEFAULT_LIMITS)
        except ProtocolError:
            continue


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x04", "type 4 is unknown"),
        (b"\x00\x03\x00", "sync message type 3"),
        (b"\x02\x01\x00", "auth message"),
        (b"\x80" * 12, "63 bits"),
        (b"\x02\x00\x01\xff", "UTF-8"),
        (b"\x00\x00" + write_varuint(2**40), "announced"),
        (b"\x00\x00\x04" + write_varuint(2**27), "announced"),
        (b"\x01\x05" + write_varuint(2**32 - 1), "announced"),
        (with_crc(b"\x64\x01\x01a" + write_varuint(2**32)), "announced"),
        (with_crc(b"\x64\x00\x01a\x00"), "numbered from 1"),
        (with_crc(b"\x64\x01\x00\x00"), "printable"),
        (with_crc(b"\x64\x01\x01\x07\x00"), "printable"),
        (with_crc(b"\x64\x01" + write_varuint(129) + b"a" * 129 + b"\x00"), "128"),
    ],
)
def test_the_error_says_what_is_wrong(data: bytes, sentence: str) -> None:
    """H2, H3: unknown types, over-long numbers, bad text, and counts beyond the frame are each named."""
    with pytest.raises(ProtocolError, match=sentence):
        wire.decode_frame(data, DEFAULT_LIMITS)


def test_frames_and_awareness_messages_have_a_greatest_size() -> None:
    """H3: an oversize frame is refused unread, naming the limit."""
    limits = replace(DEFAULT_LIMITS, update_bytes_max=2_000, awareness_bytes_max=100)
    largest = wire.encode_update(b"x" * 2_000)
    wire.decode_frame(largest, limits)
    with pytest.raises(LimitExceeded) as caught:
        wire.decode_frame(b"\x00" * (wire.frame_bytes_max(limits) + 1), limits)
    assert caught.value.limit == "update_bytes_max"
    with pytest.raises(LimitExceeded) as caught:
        wire.decode_frame(wire.encode_awareness([PresenceState(1, 1, '{"a":"%s"}' % ("x" * 100))]), limits)
    assert caught.value.limit == "awareness_bytes_max"
