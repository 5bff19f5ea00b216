"""Replicas that reach each other late, in any order and more than once."""

from __future__ import annotations

import random
from typing import Any

from crdt_board.schema import BoardModel
from support.agents import LiveAgent, exchange


class Network:
    """Replicas that get each other's updates late and more than once; those of one sender in their order."""

    def __init__(self, model: type[BoardModel], count: int, seed: int) -> None:
        self.agents = [LiveAgent(model) for _ in range(count)]
        self.random = random.Random(seed)
        self.waiting: list[list[list[bytes]]] = [[[] for _ in self.agents] for _ in self.agents]
        self.sent = [0] * count

    def send(self) -> None:
        for index, agent in enumerate(self.agents):
            news = [each.update for each in agent.replica.pending_after(self.sent[index])]
            self.sent[index] += len(news)
            for other, waiting in enumerate(self.waiting):
                if other != index:
                    waiting[index].extend(news)

    def deliver(self, index: int, *, everything: bool = False) -> None:
        self.send()
        senders = list(range(len(self.agents)))
        self.random.shuffle(senders)
        for sender in senders:
            waiting = self.waiting[index][sender]
            count = len(waiting) if everything else self.random.randint(0, len(waiting))
            self.agents[index].replica.receive(waiting[:count], agent=None, seq=None)
            self.waiting[index][sender] = waiting[max(0, count - 2) :]

    def settle(self) -> list[Any]:
        """Deliver all, then give each what its state vector says that it lacks, as a connection does."""
        for index in range(len(self.agents)):
            self.deliver(index, everything=True)
        exchange(*self.agents)
        return [agent.document.wire_state() for agent in self.agents]
