"""The binary frames of a connection: y-websocket's, and two of our own. Pure; knows nothing of order or of sockets.

Stock frames are those of y-websocket and y-protocols, one message a frame: those packages write one, and read the
first and pass over what follows. Own frames carry a CRC, since a quarter of random byte flips pass yrs' decoder::

    push   0x64  varuint first number  varstring agent   varuint count  (varuint length, update)*  crc32
    entry  0x65  varuint seq           varstring author  varuint count  (varuint length, update)*  crc32

The CRC is over everything before it, 4 bytes little endian. Strings are UTF-8 with their length in bytes before them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crdt_board.errors import InvalidValue, LimitExceeded, MalformedUpdate, ProtocolError
from crdt_board.limits import Limits, check_name
from crdt_board.presence import PresenceState, decode_states, encode_states
from crdt_board.reader import Reader
from crdt_board.varint import write_varuint

SUBPROTOCOL = "crdt-board.v1"

_SYNC, _AWARENESS, _AUTH, _QUERY_AWARENESS = 0, 1, 2, 3
_STEP_1, _STEP_2, _UPDATE = 0, 1, 2
_PERMISSION_DENIED = 0
_PUSH, _ENTRY = 0x64, 0x65
_CRC_BYTES = 4
_HEADER_BYTES_MAX = 1024
_STOCK_UPDATE_HEAD = bytes((_SYNC, _UPDATE))
_STOCK_UPDATE_BYTES_MIN = 5  # the empty update
_PUSH_HEADS = (_STOCK_UPDATE_HEAD, bytes((_PUSH,)))

KEEPALIVE = b"\x01\x01\x00"
"""An awareness message about nobody: any peer takes it as a sign of life."""


@dataclass(frozen=True, slots=True)
class SyncStep1:
    """Asks for what the sender's state vector lacks."""

    state_vector: bytes


@dataclass(frozen=True, slots=True)
class SyncStep2:
    """Answers a step 1."""

    update: bytes


@dataclass(frozen=True, slots=True)
class SyncUpdate:
    """A change, as stock peers send it."""

    update: bytes


@dataclass(frozen=True, slots=True)
class AwarenessFrame:
    states: tuple[PresenceState, ...]


@dataclass(frozen=True, slots=True)
class QueryAwareness:
    """Asks for all presence states."""


@dataclass(frozen=True, slots=True)
class AuthDenied:
    reason: str


@dataclass(frozen=True, slots=True)
class Push:
    """Updates of one agent, client to server; they are numbered ``first``, ``first + 1`` … on this connection."""

    first: int
    agent: str
    updates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EntryFrame:
    """One journal entry of another peer, server to client.

    Without an author it is no entry, but says that the client now holds everything up to ``seq``, ``updates`` included.
    """

    seq: int
    author: str
    updates: tuple[bytes, ...]


Frame = SyncStep1 | SyncStep2 | SyncUpdate | AwarenessFrame | QueryAwareness | AuthDenied | Push | EntryFrame


def is_push(data: bytes) -> bool:
    """Whether a frame is one of a client's updates: a push, or a stock update."""
    return data.startswith(_PUSH_HEADS)


def stock_update(data: bytes) -> bytes | None:
    """The update in a stock update frame of less than 16 kB; None when it is anything else, or not whole.

    `decode_frame` for the frames that come most often, at a fourth of the cost.
    """
    if not data.startswith(_STOCK_UPDATE_HEAD) or len(data) < _STOCK_UPDATE_BYTES_MIN:
        return None
    length, start = data[2], 3
    if length >= 0x80:
        if data[3] >= 0x80:
            return None
        length, start = length & 0x7F | data[3] << 7, 4
    return data[start:] if len(data) - start == length else None


def is_entry(data: bytes) -> bool:
    """Whether a frame is a journal entry."""
    return data[:1] == bytes((_ENTRY,))


def frame_bytes_max(limits: Limits) -> int:
    """The size of the largest binary frame that is accepted."""
    return limits.update_bytes_max + _HEADER_BYTES_MAX


def decode_frame(data: bytes, limits: Limits) -> Frame:
    """The one message in ``data``. Updates and state vectors in it are not decoded.

    Raises:
        LimitExceeded: larger than `frame_bytes_max`, or an awareness message over ``awareness_bytes_max``.
        ProtocolError: anything else that is wrong with it. With ``reason="checksum"`` in its data the frame is one of
            our own whose CRC does not fit, so that sending it again may help.
    """
    if len(data) > frame_bytes_max(limits):
        raise LimitExceeded(
            f"a frame of {len(data)} bytes is larger than {frame_bytes_max(limits)}",
            limit="update_bytes_max",
            value=len(data),
            maximum=limits.update_bytes_max,
        )
    try:
        reader = Reader(data)
        kind = reader.varuint()
        if kind in (_PUSH, _ENTRY):
            return _read_numbered(kind, data, limits)
        frame = _read_stock(kind, reader, limits)
        reader.finish()
        return frame
    except MalformedUpdate as error:
        raise ProtocolError(f"a malformed frame: {error.message}") from None


def encode_step1(state_vector: bytes) -> bytes:
    return _message(_SYNC, _STEP_1, state_vector)


def encode_step2(update: bytes) -> bytes:
    return _message(_SYNC, _STEP_2, update)


def encode_update(update: bytes) -> bytes:
    return _message(_SYNC, _UPDATE, update)


def encode_awareness(states: Iterable[PresenceState]) -> bytes:
    content = encode_states(states)
    return bytes((_AWARENESS,)) + write_varuint(len(content)) + content


def encode_query_awareness() -> bytes:
    return bytes((_QUERY_AWARENESS,))


def encode_auth_denied(reason: str) -> bytes:
    return _message(_AUTH, _PERMISSION_DENIED, reason.encode())


def encode_push(first: int, agent: str, updates: Sequence[bytes]) -> bytes:
    return _numbered(_PUSH, first, agent, updates)


def encode_entry(seq: int, author: str, updates: Sequence[bytes]) -> bytes:
    return _numbered(_ENTRY, seq, author, updates)


def _message(kind: int, subkind: int, content: bytes) -> bytes:
    return bytes((kind, subkind)) + write_varuint(len(content)) + content


def _numbered(kind: int, number: int, name: str, updates: Sequence[bytes]) -> bytes:
    encoded_name = name.encode()
    parts = [bytes((kind,)), write_varuint(number), write_varuint(len(encoded_name)), encoded_name]
    parts.append(write_varuint(len(updates)))
    for update in updates:
        parts += write_varuint(len(update)), update
    body = b"".join(parts)
    return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")


def _read_stock(kind: int, reader: Reader, limits: Limits) -> Frame:
    if kind == _SYNC:
        return _read_sync(reader)
    if kind == _AWARENESS:
        return AwarenessFrame(decode_states(reader.chunk(), limits))
    if kind == _QUERY_AWARENESS:
        return QueryAwareness()
    if kind == _AUTH:
        return _read_auth(reader)
    raise MalformedUpdate(f"the message type {kind} is unknown")


def _read_sync(reader: Reader) -> Frame:
    subkind = reader.varuint()
    if subkind == _STEP_1:
        state_vector = reader.chunk()
        Reader(state_vector).count(bytes_each=2)  # yrs reserves memory for what is announced
        return SyncStep1(state_vector)
    if subkind == _STEP_2:
        return SyncStep2(reader.chunk())
    if subkind == _UPDATE:
        return SyncUpdate(reader.chunk())
    raise MalformedUpdate(f"the sync message type {subkind} is unknown")


def _read_auth(reader: Reader) -> Frame:
    if reader.varuint() != _PERMISSION_DENIED:
        raise MalformedUpdate("an auth message of an unknown kind")
    return AuthDenied(reader.string())


def _read_numbered(kind: int, data: bytes, limits: Limits) -> Frame:
    body = data[:-_CRC_BYTES]
    if zlib.crc32(body) != int.from_bytes(data[-_CRC_BYTES:], "little"):
        raise ProtocolError("the checksum of a frame does not fit", reason="checksum")
    reader = Reader(body)
    reader.varuint()
    number = reader.varuint()
    name = reader.string()
    updates = tuple(reader.chunk() for _ in range(reader.count()))
    reader.finish()
    if kind == _ENTRY and not name:
        return EntryFrame(number, name, updates)
    try:
        check_name(name, "agent", limits.agent_chars_max)
    except (InvalidValue, LimitExceeded) as error:
        raise ProtocolError(error.message) from None
    if kind == _ENTRY:
        return EntryFrame(number, name, updates)
    if number == 0:
        raise ProtocolError("pushed updates are numbered from 1")
    return Push(number, name, updates)
