"""Facts about Yjs v1 updates and state vectors, taken from their bytes without applying them to a document."""

from __future__ import annotations

from collections.abc import Mapping

from crdt_board.errors import LimitExceeded
from crdt_board.limits import Limits
from crdt_board.reader import Reader
from crdt_board.readiness import Extent
from crdt_board.update_walk import walk
from crdt_board.usual_updates import usual_extent
from crdt_board.varint import write_varuint

EMPTY_UPDATE = b"\x00\x00"
"""The update that changes nothing."""

NOTHING_KNOWN = b"\x00"
"""The state vector of a replica that holds nothing."""

_CLOCK_END = 1 << 32  # clocks are 32 bit in yrs, so a larger number in a state vector is a client id
_LARGE_STATE_BYTES = 1024
_LOOKS_MAX = 8
_CONTINUED = bytes(range(0x80, 0x100))  # all but the last byte of a number


def check_update(update: bytes, limits: Limits) -> Extent:
    """What ``update`` holds and builds on, when it is safe to hand to pycrdt once that is there.

    Deep values overflow yrs' stack and end the process (100,000 levels, 200 kB: SIGSEGV in ``apply_update``,
    ``merge_updates``, ``get_state`` and ``get_update``); so does deleting or printing a chain of 100,000 nested shared
    types, which are applied without complaint (over many updates: see `crdt_board.nesting`). An update of a million
    announced clients makes yrs reserve and clear the room for them. What else is refused is in
    `crdt_board.update_walk`.

    Costs about 0.6 µs for an update of one struct, 1 µs for each struct of a small one of the common kinds; else 3 µs a
    struct and 0.5 µs a value (0.1 s for a list of 50,000 small objects).

    Raises:
        LimitExceeded: it has more than ``update_bytes_max`` bytes.
        MalformedUpdate: it is empty, announces more than it holds, is nested deeper than ``nesting_depth_max``, or
            holds what no Yjs client writes and yrs comes to harm of.
    """
    size = len(update)
    if size > limits.update_bytes_max:
        raise LimitExceeded(
            f"an update of {size} bytes is larger than {limits.update_bytes_max}",
            limit="update_bytes_max",
            value=size,
            maximum=limits.update_bytes_max,
        )
    return usual_extent(update, limits.nesting_depth_max) or walk(update, limits.nesting_depth_max)


def decode_state_vector(data: bytes) -> dict[int, int]:
    """Client ids and the clocks that they have reached.

    Raises:
        MalformedUpdate: ``data`` is not a state vector.
    """
    reader = Reader(data)
    clocks = {reader.varuint(): reader.varuint() for _ in range(reader.count(bytes_each=2))}
    reader.finish()
    return clocks


def clock_of(client_id: int, state_vector: bytes) -> int:
    """The clock that a client has reached; 0 when it has written nothing. Usually without decoding all of it."""
    at = _behind_client(client_id, write_varuint(client_id), state_vector)
    if at is None:
        return decode_state_vector(state_vector).get(client_id, 0)
    if at == 0:
        return 0
    found = Reader(state_vector)
    found.position = at
    return found.varuint()


def encode_state_vector(clocks: Mapping[int, int]) -> bytes:
    """The inverse of `decode_state_vector`."""
    parts = [write_varuint(len(clocks))]
    for client, clock in clocks.items():
        parts += write_varuint(client), write_varuint(clock)
    return b"".join(parts)


def _behind_client(client: int, encoded: bytes, state_vector: bytes) -> int | None:
    """The position of a client's clock in a state vector, 0 when the client is not in it.

    What is found is a number when the byte before it ends one, and a client when it cannot be a clock, or when an odd
    count of numbers is before it (the count of clients, and pairs). None when many clocks look like the client.
    """
    at = state_vector.find(encoded, 1)
    for _ in range(_LOOKS_MAX):
        if at < 0:
            return 0
        if state_vector[at - 1] < 0x80 and (
            client >= _CLOCK_END or len(state_vector[:at].translate(None, _CONTINUED)) % 2
        ):
            return at + len(encoded)
        at = state_vector.find(encoded, at + 1)
    return None
