"""What the agents of one connection say of themselves, and what they hear of others."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crdt_board.board_link import AgentPresence
from crdt_board.limits import Limits
from crdt_board.presence import PresenceState, PresenceTable, said_by, state_text

_SERVER = "server"


class AgentTable:
    """Agents on a board: our own, by name, and everybody else's, by client id."""

    def __init__(self, limits: Limits) -> None:
        # The server speaks for everybody on the board, who are far more than one client may speak for.
        self._limits = replace(limits, presence_states_max=limits.presence_clients_max)
        self._others = PresenceTable(self._limits)
        self._own: dict[str, AgentPresence] = {}
        self._client_ids: dict[str, int] = {}
        self._clock = 0

    def announce(self, presence: AgentPresence) -> None:
        self._own[presence.agent] = presence
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
        self._others = PresenceTable(self._limits)

    def agents(self) -> list[AgentPresence]:
        others = [said_by(state.state) for state in self._others.all_states() if state.state is not None]
        return [*self._own.values(), *(AgentPresence(**said) for said in others if said is not None)]


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
