"""A workflow of five steps that is killed anywhere goes on where it was, and does nothing outside twice."""

from __future__ import annotations

import contextlib
import json
import random
import secrets
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from crdt_board import Board, BoardHost, open_board
from crdt_board.clock import ManualClock
from crdt_board.store.memory import MemoryStore
from support.forking import Forking
from support.mortal import Cemetery, Died, PausingStore
from support.workflow import STEPS, Job, Outside, run_and_settle

_TURNS_MAX = 100_000
_TTL_MS = 31_000
_REAL_KILLS = 6
_AGENT = Path(__file__).resolve().parent / "support" / "workflow_agent.py"

Workflow = Callable[[Board[Job], Outside], Awaitable[list[JsonValue]]]

_EFFECTS = Counter([*STEPS, "receipt"])


@pytest.fixture
def cemetery() -> Iterator[Cemetery]:
    graves = Cemetery()
    yield graves
    graves.clear()


class World:
    """A database and an outside, and the processes that come and go over them."""

    def __init__(self, cemetery: Cemetery, workflow: Workflow = run_and_settle) -> None:
        self.outside = Outside()
        self._workflow = workflow
        self._clock = ManualClock()
        self._database: MemoryStore | None = None
        self._cemetery = cemetery

    def run(self, turns: int = _TURNS_MAX) -> tuple[dict[str, Any], int]:
        """Run the workflow in a new process until its end, or until it dies; then the claims of the dead run out."""
        try:
            return self._cemetery.run(self._process, turns)
        finally:
            self._clock.advance(_TTL_MS)

    async def _process(self) -> dict[str, Any]:
        if self._database is None:
            self._database = MemoryStore(clock=self._clock)
        store = PausingStore(self._database.peer())
        async with BoardHost(store, clock=self._clock) as host, open_board(host, "job", Job, agent="worker") as board:
            outputs = await self._workflow(board, self.outside)
            return {
                "outputs": outputs,
                "steps": [(made.step, made.output) for made in reversed(await board.checkpoints())],
                "tickets": board.snapshot().tickets,
                "lines": set(str(board.snapshot().draft).splitlines()),
            }


@pytest.mark.long
def test_killed_between_any_two_turns_it_does_each_effect_once(cemetery: Cemetery) -> None:
    """D1: wherever the process dies, the next one ends the workflow: each effect once, each step one version."""
    reference, turns = World(cemetery).run()
    assert reference["steps"] == list(zip(STEPS, reference["outputs"], strict=True))
    assert turns > 200
    for last in range(1, turns):
        world = World(cemetery)
        with pytest.raises(Died):
            world.run(last)
        found, _ = world.run()
        assert world.outside.counts() == _EFFECTS, f"killed after turn {last}"
        assert found == reference, f"killed after turn {last}"


def test_killed_again_while_it_resumes_it_does_each_effect_once(cemetery: Cemetery) -> None:
    """D1: so it is when the process that goes on is killed too, and the one after it."""
    reference, turns = World(cemetery).run()
    chance = random.Random(7)
    for _ in range(60):
        world = World(cemetery)
        deaths = [chance.randrange(1, turns) for _ in range(3)]
        for last in deaths:
            with contextlib.suppress(Died):
                world.run(last)
        found, _ = world.run()
        assert (world.outside.counts(), found) == (_EFFECTS, reference), f"killed after turns {deaths}"


def test_the_kills_find_a_workflow_that_does_things_twice(cemetery: Cemetery) -> None:
    """The canary: without effects, some of the same kills make the outside see something twice."""

    async def careless(board: Board[Job], outside: Outside) -> list[JsonValue]:
        for name in STEPS:
            if name not in board.snapshot().done:
                await outside.act(name)
                await board.commit(name, patch={"done": [*board.snapshot().done, name]})
        return []

    _, turns = World(cemetery, careless).run()
    doubled = 0
    for last in range(1, turns):
        world = World(cemetery, careless)
        with pytest.raises(Died):
            world.run(last)
        world.run()
        doubled += max(world.outside.counts().values()) > 1
    assert doubled


def _run_for_real(
    forking: Forking, where: str, board_id: str, outside: Path, turns: int = _TURNS_MAX
) -> dict[str, Any] | None:
    """What a process found at the end; None when it was killed before."""
    arguments = (where, board_id, str(outside), str(turns))
    status, said, errors = forking.run(_AGENT, *arguments, folder=outside.parent)
    if status == -signal.SIGKILL:
        return None
    assert status == 0, errors
    answer: dict[str, Any] = json.loads(said)
    return answer


@pytest.mark.long
@pytest.mark.parametrize("served", [False, True], ids=["embedded", "served"])
def test_killed_for_real_it_does_each_effect_once(
    served: bool, tmp_path: Path, forking: Forking, request: pytest.FixtureRequest
) -> None:
    """D1: the same with processes and SIGKILL, on a file and at a server."""
    where = request.getfixturevalue("shared_server").url if served else str(tmp_path / "boards.db")
    prefix = f"kills-{secrets.token_hex(4)}"
    reference = _run_for_real(forking, where, prefix, tmp_path / "reference")
    assert reference is not None
    killed = 0
    for number in range(_REAL_KILLS):
        outside = tmp_path / f"outside-{number}"
        last = reference["turns"] * (2 * number + 1) // (2 * _REAL_KILLS)
        killed += _run_for_real(forking, where, f"{prefix}-{number}", outside, last) is None
        ended = _run_for_real(forking, where, f"{prefix}-{number}", outside)
        assert ended is not None
        assert Counter(outside.read_text().split()) == _EFFECTS, f"killed after turn {last}"
        assert ended["found"] == reference["found"], f"killed after turn {last}"
    assert killed >= _REAL_KILLS // 2
