"""What the agents of one connection say of themselves, and what they hear of others."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from crdt_board.board_link import AgentPresence
from crdt_board.errors import LimitExceeded
from crdt_board.limits import Limits
from crdt_board.presence import PresenceState, PresenceTable, encode_states, said_by, state_text

_SERVER = "server"
_NUMBER_MAX = 2**53 - 1


class AgentTable:
    """Agents on a board: our own, by name, and everybody else's, by client id."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The server speaks for everybody on the board, who are far more than one client may speak for.
        self._limits_of_others = replace(limits, presence_states_max=limits.presence_clients_max)
        self._others = PresenceTable(self._limits_of_others)
        self._own: dict[str, AgentPresence] = {}
        self._client_ids: dict[str, int] = {}
        self._clock = 0

    def announce(self, presence: AgentPresence) -> None:
        """Take what one of our agents says of itself.

        Raises:
            LimitExceeded: the server would refuse what all of ours say together, and with it the connection; nothing is
                changed.
        """
        own = {**self._own, presence.agent: presence}
        _check_limits(own.values(), self._limits)
        self._own = own
        self._client_ids.setdefault(presence.agent, secrets.randbits(53))

    def own_states(self) -> list[PresenceState]:
        """Our own states under a new clock: to be sent after a change, and now and then as a sign of life."""
        self._clock += 1
        return [
            PresenceState(self._client_ids[name], self._clock, _encode(presence))
            for name, presence in self._own.items()
        ]

    def take_in(self, states: Iterable[PresenceState]) -> None:
        own = set(self._client_ids.values())
        self._others.apply((state for state in states if state.client_id not in own), _SERVER)

    def forget_others(self) -> None:
        """The connection is gone, and with it what is known of others."""
        self._others = PresenceTable(self._limits_of_others)

    def agents(self) -> list[AgentPresence]:
        others = [said_by(state.state) for state in self._others.all_states() if state.state is not None]
        return [*self._own.values(), *(AgentPresence(**said) for said in others if said is not None)]


def _check_limits(own: Collection[AgentPresence], limits: Limits) -> None:
    """Refuse what is too much now, or would become so by an agent telling that it is idle."""
    if len(own) > limits.presence_states_max:
        raise LimitExceeded(
            f"more than {limits.presence_states_max} agents of one connection announce themselves, react, follow or "
            "wait until all is settled; give the others a connection of their own",
            limit="presence_states_max",
            value=len(own),
            maximum=limits.presence_states_max,
        )
    longest = (replace(presence, reacts=True, settling=True, idle_at=_NUMBER_MAX) for presence in own)
    size = len(encode_states(PresenceState(_NUMBER_MAX, _NUMBER_MAX, _encode(presence)) for presence in longest))
    if size > limits.awareness_bytes_max:
        raise LimitExceeded(
            f"what the agents of this connection say of themselves has {size} bytes, more than "
            f"{limits.awareness_bytes_max}; keep long texts on the board",
            limit="awareness_bytes_max",
            value=size,
            maximum=limits.awareness_bytes_max,
        )


def _encode(presence: AgentPresence) -> str:
    """``user.name`` is where editors of the Yjs world look for a name."""
    content: dict[str, Any] = {"user": {"name": presence.agent}, "agent": presence.agent}
    for name in ("role", "step", "focus"):
        value = getattr(presence, name)
        if value is not None:
            content[name] = value
    if presence.idle_at is not None:
        content["idle_at"] = presence.idle_at
    for name in ("reacts", "settling"):
        if getattr(presence, name):
            content[name] = True
    return state_text(content)
