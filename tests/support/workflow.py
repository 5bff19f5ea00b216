"""A workflow of five steps with effects, and the outside world that these act on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from crdt_board import Board, BoardModel, EffectInDoubt, StepResult, Text

STEPS = ("plan", "order", "pay", "write", "report")


class Job(BoardModel):
    done: list[str] = []
    tickets: dict[str, int] = {}
    draft: Text


Act = Callable[[str], Awaitable[int]]
"""Does something outside: asks for it by name, and gets the number under which it was done."""


async def run_workflow(board: Board[Job], act: Act, ttl: float = 30.0) -> list[JsonValue]:
    """All five steps, one after the other; each has an effect under the step's own key, ``pay`` one more."""
    outputs: list[JsonValue] = []
    for name in STEPS:

        @board.step(name, ttl=ttl)
        async def step(number: int, name: str = name) -> StepResult[list[int]]:
            tickets = [await board.effect(name, None, partial(act, name), ttl=ttl)]
            if name == "pay":
                tickets.append(
                    await board.effect("receipt", board.effect_key("mail"), partial(act, "receipt"), ttl=ttl)
                )
            board.state.draft.append(f"{name} {number}\n")
            return StepResult(
                tickets, patch={"tickets": {**board.snapshot().tickets, name: tickets[0]}}, confidence=0.9
            )

        outputs.append(await step(len(outputs)))
    return outputs


async def settle(board: Board[Job], took_place: Callable[[str], int | None]) -> list[str]:
    """What a person does about effects in doubt: look outside, and say so. Returns their names."""
    doubtful = [effect for effect in board.effects if effect.state == "in_doubt"]
    for effect in doubtful:
        number = took_place(effect.effect)
        await board.resolve_effect(effect.effect, effect.effect_key, took_place=number is not None, result=number)
    return [effect.effect for effect in doubtful]


class Outside:
    """The outside world, which outlives every process: it counts what was done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def act(self, name: str) -> int:
        await asyncio.sleep(0)
        self.done.append(name)
        await asyncio.sleep(0)
        return len(self.done)

    def took_place(self, name: str) -> int | None:
        return self.done.index(name) + 1 if name in self.done else None

    def counts(self) -> Counter[str]:
        return Counter(self.done)


class OutsideFile(Outside):
    """The same as a file, for processes that are killed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.look()

    def look(self) -> None:
        """Learn what others did."""
        self.done = self._path.read_text().splitlines() if self._path.exists() else []

    async def act(self, name: str) -> int:
        with self._path.open("a") as file:
            file.write(f"{name}\n")
        return await super().act(name)


async def run_and_settle(board: Board[Job], outside: Outside, ttl: float = 30.0) -> list[JsonValue]:
    """Run the workflow to its end; whenever an effect is in doubt, look outside, and go on."""
    while True:
        try:
            return await run_workflow(board, outside.act, ttl)
        except EffectInDoubt:
            assert await settle(board, outside.took_place)
