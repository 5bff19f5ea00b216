"""What no client should send, and what becomes of the server and of the others in the room."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable

from websockets.exceptions import ConnectionClosed, InvalidHandshake

from benchmarks.peers.client import Client, client
from benchmarks.peers.histories import FIRST_CLIENT_ID, history
from benchmarks.peers.processes import Server
from crdt_board import wire
from crdt_board.varint import write_varuint

_REACTION_SECONDS = 1.5
_SERVICE_SECONDS = 5.0
_LARGE = 50 * 1024 * 1024
_ROOM = "attacked"
_STUCK = "STUCK"
_ALICE, _BOB, _MALLORY, _NEWCOMER = 11, 12, 13, 14

_good = history("keys", 0, 600)
_chance = random.Random(7)

Send = Callable[[Client], None]


def attack(server: Server, send: Send | None) -> str:
    """What came of it, in words: DIED, STUCK (others, or newcomers, are not served), or what happened to the sender.

    ``send`` None: bytes that are not even HTTP.
    """
    with client(server, _ROOM, client_id=_ALICE) as alice, client(server, _ROOM, client_id=_BOB) as bob:
        for each in (alice, bob):
            if not each.wait_for_sync(_SERVICE_SECONDS):
                raise RuntimeError("no sync before the attack")
        alice.assign("before", 1)
        if not bob.wait_for_clock(_ALICE, 1, _SERVICE_SECONDS):
            raise RuntimeError("no update before the attack")
        sender = _knock(server) if send is None else _misbehave(server, send)
        noticed = _service(server, alice, bob)
        if not server.is_alive or (noticed == _STUCK and server.ends_within(_REACTION_SECONDS)):
            return "DIED"
        return noticed or sender


def _service(server: Server, alice: Client, bob: Client) -> str | None:
    """What the others notice; None when it is nothing."""
    try:
        alice.assign("after", 2)
        if not bob.wait_for_clock(_ALICE, 2, _SERVICE_SECONDS):
            return _STUCK
        with client(server, _ROOM, client_id=_NEWCOMER) as newcomer:
            if not newcomer.wait_for_clock(_ALICE, 2, _SERVICE_SECONDS):
                return _STUCK
    except (ConnectionClosed, InvalidHandshake, OSError):
        return _STUCK
    return f"passed on to others: {bob.unreadable} unreadable" if bob.unreadable else None


def _misbehave(server: Server, send: Send) -> str:
    with client(server, _ROOM, client_id=_MALLORY) as mallory:
        try:
            mallory.wait_for_sync(_SERVICE_SECONDS)
            send(mallory)
            end = time.monotonic() + _REACTION_SECONDS
            while time.monotonic() < end:
                mallory.take(_REACTION_SECONDS / 5)
        except ConnectionClosed as closed:
            return f"cut off ({closed.rcvd.code})" if closed.rcvd else "cut off"
        except OSError:
            return "cut off"
    return "ignored"


def _knock(server: Server) -> str:
    with socket.create_connection(("127.0.0.1", server.port), _REACTION_SECONDS) as knock:
        knock.sendall(b"\x16\x03\x01\x02\x00" + bytes(range(256)) * 40)
        knock.settimeout(_REACTION_SECONDS)
        try:
            return "answered" if knock.recv(4096) else "cut off"
        except TimeoutError:
            return "ignored"
        except OSError:
            return "cut off"


def _raw(data: bytes) -> Send:
    return lambda mallory: mallory.socket.socket.sendall(data)


def _frame(first: int, content: bytes) -> Send:
    """A small frame, masked with zeros, with anything as its first byte."""
    return _raw(bytes((first, 0x80 | len(content))) + bytes(4) + content)


def _message(content: bytes) -> Send:
    return lambda mallory: mallory.send(content)


def _update(content: bytes) -> Send:
    return _message(wire.encode_update(content))


def _bare(content: bytes | str) -> Send:
    """Without a name of a room before it."""
    return lambda mallory: mallory.socket.send(content)


def _each(*sends: Send) -> Send:
    def send_all(mallory: Client) -> None:
        for send in sends:
            send(mallory)

    return send_all


def _id(offset: int) -> bytes:
    return write_varuint(FIRST_CLIENT_ID + offset)


_IN_VALUES = b"\x28\x01\x06values\x01k"  # an item with content of any kind, under a key of the root
_CORRUPT = bytes(byte ^ 0xFF if at > 2 and at % 4 == 3 else byte for at, byte in enumerate(_good[30]))
_LARGE_VALUE = (
    b"\x01\x01" + _id(9) + b"\x00" + _IN_VALUES + b"\x01\x77" + write_varuint(_LARGE) + b"a" * _LARGE + b"\x00"
)

# Both make yrs 0.28 panic, which pycrdt raises as a BaseException.
_PANIC_CLOCK = b"\x01\x01" + _id(0) + b"\xff" * 7 + b"\x7f" + _IN_VALUES + b"\x01\x77\x01v\x00"
_PANIC_ORIGIN = b"\x01\x01" + _id(0) + b"\x01\x84\x80\x3c\xc1\x96\x0b\x00\x01b\x00"

HOSTILE_FRAMES: tuple[tuple[str, Send | None], ...] = (
    ("random bytes", _each(*(_bare(_chance.randbytes(64)) for _ in range(20)))),
    ("half an update", _message(wire.encode_update(_good[30])[:24])),
    ("a corrupt update", _update(_CORRUPT)),
    ("random bytes to the room", _each(*(_message(_chance.randbytes(64)) for _ in range(20)))),
    ("an empty message", _bare(b"")),
    ("a number without end", _message(b"\x80\x80\x80")),
    ("a length of 2^63", _message(b"\x00\x02" + b"\xff" * 8 + b"\x7fabc")),
    ("2^40 structs announced", _update(b"\x01" + write_varuint(2**40) + _id(3) + bytes(11))),
    ("2^50 clients announced", _update(write_varuint(2**50) + b"\x01" * 20)),
    ("2^31 values announced", _update(b"\x01\x01" + _id(4) + b"\x00" + _IN_VALUES + write_varuint(2**31) + b"\x7e")),
    ("2^45 deletions announced", _update(b"\x00" + write_varuint(2**45) + _id(0) + write_varuint(2**40))),
    ("a broken state vector", _message(b"\x00\x00\x04\xff\xff\xff\xff")),
    ("an unknown message", _message(b"\x63\x01\x02\x03")),
    ("an unknown sync message", _message(b"\x00\x63\x01\x00")),
    ("presence that is not JSON", _message(b"\x01\x0c\x01\x05\x01\x08{notjson")),
    ("2^48 presences announced", _message(b"\x01\x08" + write_varuint(2**48) + b"\x01")),
    ("a text message", _bare("hello")),
    ("a text that is not UTF-8", _frame(0x81, b"\xff\xfe\xfd")),
    ("50 MB that are no update", _message(b"\x00\x02" + write_varuint(_LARGE) + b"\xff" * _LARGE)),
    ("an update of 50 MB", _update(_LARGE_VALUE)),
    ("an update from the future", _update(_good[500])),
    ("a clock at the end of 64 bits", _each(_update(_good[0]), _update(_PANIC_CLOCK))),
    ("an origin that is not there", _each(_update(_good[0]), _update(_PANIC_ORIGIN))),
    ("an unknown opcode", _frame(0x83, b"x")),
    ("reserved bits", _frame(0xC2, b"x")),
    ("a frame without a mask", _raw(b"\x82\x04\x00\x00\x01\x00")),
    ("a frame of 2^62 bytes", _raw(b"\x82\xff" + struct.pack(">Q", 2**62) + bytes(4) + b"x" * 64)),
    ("a close of 202 bytes", _raw(b"\x88\xfe\x00\xca" + bytes(4) + b"\x03\xe8" + b"x" * 200)),
    ("bytes that are not HTTP", None),
)  # fmt: skip
