"""Presence: who is on a board and what they are at, in the encoding and by the rules of y-protocols' awareness.

Nothing here is stored. A state is JSON text that is handed on as it was received; what it says is the peers' business.
Rules and encoding: https://github.com/yjs/y-protocols, ``awareness.js``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from crdt_board.errors import InvalidValue, LimitExceeded, MalformedUpdate, ProtocolError
from crdt_board.limits import Limits
from crdt_board.reader import Reader
from crdt_board.varint import write_varuint

_NUMBER_MAX = 2**53 - 1  # what a JavaScript number carries exactly
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PresenceState:
    """What one client says of itself; ``clock`` grows with each change. ``state`` is a JSON object, or None: gone."""

    client_id: int
    clock: int
    state: str | None


def state_text(value: Mapping[str, JsonValue]) -> str:
    """``value`` as JSON text, in the form that JavaScript writes it.

    Raises:
        InvalidValue: it is no JSON.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"a presence state must be JSON: {error}", path="presence", reason=str(error)) from None
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def said_by(text: str) -> dict[str, Any] | None:
    """The name of the agent that a state is about, and what it tells of itself, under the names of `AgentPresence`.

    None without a name; ``user.name`` is where editors of the Yjs world put theirs.
    """
    content = json.loads(text)
    user = content.get("user")
    name = content.get("agent") or (user.get("name") if isinstance(user, dict) else None)
    if not isinstance(name, str):
        return None
    said = {key: content[key] for key in ("role", "step", "focus") if isinstance(content.get(key), str)}
    said |= {key: True for key in ("reacts", "settling") if content.get(key) is True}
    idle_at = content.get("idle_at")
    return {"agent": name, "idle_at": idle_at if type(idle_at) is int else None, **said}


def encode_states(states: Iterable[PresenceState]) -> bytes:
    """The content of an awareness message."""
    encoded = [_encode_state(item) for item in states]
    return write_varuint(len(encoded)) + b"".join(encoded)


def _encode_state(item: PresenceState) -> bytes:
    text = (item.state or "null").encode()
    return write_varuint(item.client_id) + write_varuint(item.clock) + write_varuint(len(text)) + text


def decode_states(data: bytes, limits: Limits) -> tuple[PresenceState, ...]:
    """The inverse of `encode_states`.

    Raises:
        LimitExceeded: more than ``awareness_bytes_max`` bytes.
        ProtocolError: not an awareness message, or a state that is neither a JSON object nor null.
    """
    if len(data) > limits.awareness_bytes_max:
        raise LimitExceeded(
            f"an awareness message of {len(data)} bytes is larger than {limits.awareness_bytes_max}",
            limit="awareness_bytes_max",
            value=len(data),
            maximum=limits.awareness_bytes_max,
        )
    reader = Reader(data)
    try:
        states = tuple(_read_state(reader) for _ in range(reader.count(bytes_each=4)))
        reader.finish()
    except MalformedUpdate as error:
        raise ProtocolError(f"an awareness message is malformed: {error.message}") from None
    return states


def _read_state(reader: Reader) -> PresenceState:
    client_id, clock, text = reader.varuint(), reader.varuint(), reader.string()
    if client_id > _NUMBER_MAX or clock > _NUMBER_MAX:
        raise MalformedUpdate("a client id or clock beyond 2^53-1")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise MalformedUpdate(f"the state of client {client_id} is not JSON") from None
    if value is None:
        return PresenceState(client_id, clock, None)
    if not isinstance(value, dict):
        raise MalformedUpdate(f"the state of client {client_id} is neither an object nor null")
    return PresenceState(client_id, clock, text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(slots=True)
class _Known:
    state: PresenceState
    owner: Hashable | None


class PresenceTable:
    """The presence of one board, with the connection (*owner*) that speaks for each client id.

    Invariants:

    1. A state with a content has an owner, and only its owner changes it. Stock clients send on what they hear of
       others, so that such a change is passed over and is no fault.
    2. The clock of a client id does not fall, also after it is gone: an echo of its last state that is still under
       way would otherwise bring it back for ever.
    3. At most ``presence_clients_max`` client ids are known; those that are gone longest are forgotten first.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[int, _Known] = {}
        self._owned: dict[Hashable, set[int]] = {}

    def apply(self, states: Iterable[PresenceState], owner: Hashable) -> tuple[PresenceState, ...]:
        """Take over what is new in ``states`` and return that, in order: what the other peers must be told.

        Raises:
            LimitExceeded: ``owner`` speaks for more than ``presence_states_max`` client ids, or the board is full;
                states before the one that is too much are taken over.
        """
        return tuple(state for state in states if self._accept(state, owner))

    def drop_owner(self, owner: Hashable) -> tuple[PresenceState, ...]:
        """Remove every state of ``owner``; return the removals that the other peers must be told.

        They carry the last clock and not the next one, which peers accept for a removal. The client's next change,
        one clock on, then counts everywhere when it comes back by another connection.
        """
        removals = []
        for client_id in sorted(self._owned.pop(owner, ())):
            removal = replace(self._known[client_id].state, state=None)
            self._put(removal, None)
            removals.append(removal)
        return tuple(removals)

    def all_states(self) -> tuple[PresenceState, ...]:
        """Every state with a content: what a peer that joins must be told."""
        return tuple(known.state for known in self._known.values() if known.state.state is not None)

    def _accept(self, state: PresenceState, owner: Hashable) -> bool:
        known = self._known.get(state.client_id)
        if known is None:
            if state.state is None:
                return False
        else:
            if known.owner not in (None, owner):  # invariant 1
                return False
            removes = state.state is None and known.state.state is not None
            if state.clock < known.state.clock or (state.clock == known.state.clock and not removes):  # invariant 2
                return False
        self._put(state, owner if state.state is not None else None)
        return True

    def _put(self, state: PresenceState, owner: Hashable | None) -> None:
        client_id = state.client_id
        if owner is None:
            known = self._known.pop(client_id)  # to the end: the order is that of going
            if known.owner in self._owned:
                self._owned[known.owner].discard(client_id)
        else:
            self._make_room(client_id, owner)
            self._owned.setdefault(owner, set()).add(client_id)
        self._known[client_id] = _Known(state, owner)

    def _make_room(self, client_id: int, owner: Hashable) -> None:
        owned = self._owned.get(owner, set())
        if client_id not in owned and len(owned) >= self._limits.presence_states_max:
            raise _full("presence_states_max", self._limits.presence_states_max)
        if client_id in self._known or len(self._known) < self._limits.presence_clients_max:
            return
        gone = next((key for key, known in self._known.items() if known.owner is None), None)
        if gone is None:
            raise _full("presence_clients_max", self._limits.presence_clients_max)
        del self._known[gone]  # invariant 3


def _full(limit: str, maximum: int) -> LimitExceeded:
    return LimitExceeded(f"presence of more than {maximum} clients", limit=limit, value=maximum + 1, maximum=maximum)
