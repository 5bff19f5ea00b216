"""Steps: functions that run once for each board and version line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    IdempotencyMismatch,
    InvalidValue,
    LimitExceeded,
    StepLost,
    StepResult,
    Text,
    open_board,
)
from crdt_board.clock import ManualClock
from crdt_board.coordination.steps import BeginStep, FinishStep
from crdt_board.store.memory import MemoryStore
from support.pairs import pair
from support.waiting import eventually


class Job(BoardModel):
    status: str = ""
    notes: list[str] = []
    draft: Text


class Finding(BaseModel):
    title: str
    severity: int = 0


@contextlib.asynccontextmanager
async def embedded(clock: ManualClock | None = None) -> AsyncIterator[tuple[BoardHost, Board[Job]]]:
    store = MemoryStore(clock=clock)
    async with BoardHost(store, clock=clock) as host, open_board(host, "job", Job, agent="ann") as board:
        yield host, board


class Work:
    """Work whose runs are counted."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def find(self, title: str = "cast") -> Finding:
        self.runs.append(title)
        return Finding(title=title, severity=len(self.runs))

    async def find_slowly(self, title: str = "cast") -> StepResult[Finding]:
        self.runs.append(title)
        self.reached.set()
        await self.released.wait()
        return StepResult(Finding(title=title, severity=len(self.runs)), patch={"status": f"run {len(self.runs)}"})


async def test_a_finished_step_gives_its_output_in_every_later_process(tmp_path: Path) -> None:
    """It runs once; later calls, also after all processes have ended, return the recorded output."""
    work = Work()
    for _ in range(3):
        async with open_board(tmp_path / "boards.db", "job", Job, agent="ann") as board:
            for _ in range(2):
                assert await board.step("find")(work.find)() == Finding(title="cast", severity=1)
            assert board.version == 1
    assert work.runs == ["cast"]


async def test_of_two_agents_one_runs_a_step_and_the_other_waits(either_url: str | None, board_id: str) -> None:
    """Both get the output, and one version is made."""
    work = Work()
    async with pair(either_url, board_id, Job) as (ann, bob):
        calls = [asyncio.create_task(who.step("find").run(work.find_slowly)) for who in (ann, bob)]
        await work.reached.wait()
        work.released.set()
        assert await asyncio.gather(*calls) == [Finding(title="cast", severity=1)] * 2
        assert work.runs == ["cast"]
        assert [made.step for made in await bob.checkpoints()] == ["find"]


async def test_who_waits_for_a_claim_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of a run that was killed nobody hears anything: the log says whose claim it is, and how long it stands."""
    caplog.set_level(logging.INFO, "crdt_board.team.claiming")
    clock, work = ManualClock(), Work()
    async with embedded(clock) as (_, board):
        await board.as_agent("eff")._desk.ask(BeginStep(name="find", token="token-of-the-dead", ttl_ms=30_000))
        waiting = asyncio.create_task(board.step("find").run(work.find))
        await eventually(lambda: "step find of board job is claimed by eff" in caplog.text, "it is logged")
        assert "for up to 30 s" in caplog.text
        clock.advance(30_000)
        await board._desk.ask()
        await waiting
    assert caplog.text.count("is claimed by") == 1


async def test_a_step_is_one_version_with_all_that_the_next_agent_needs() -> None:
    """Edits made inside and the patch are in its checkpoint; so are agent, output, confidence, trace and handoff."""
    async with embedded() as (_, board):

        @board.step("extract")
        async def extract() -> StepResult[list[Finding]]:
            board.state.draft.append("found one")
            return StepResult(
                [Finding(title="cast")],
                patch={"status": "FOUND"},
                confidence=0.8,
                trace="artifact:sha256:00",
                handoff={"next": "check"},
                tags=("release",),
            )

        assert await extract() == [Finding(title="cast")]
        [made] = await board.checkpoints()
        assert (made.step, made.agent, made.version) == ("extract", "ann", 1)
        assert made.output == [{"title": "cast", "severity": 0}]
        assert (made.confidence, made.trace, made.handoff, made.tags) == (
            0.8,
            "artifact:sha256:00",
            {"next": "check"},
            ("release",),
        )
        past = await board.at(1)
        assert (past.status, str(past.draft)) == ("FOUND", "found one")
        [step] = board.steps
        assert (step.name, step.state, step.version, step.runs) == ("extract", "done", 1, 1)


async def test_a_step_that_raised_runs_again() -> None:
    """Its patch was not made; what it edited stays, and the key of its effects is the same in the next run."""
    async with embedded() as (_, board):
        keys, fails = [], [True]

        @board.step("write")
        async def write() -> StepResult[str]:
            keys.append((board.effect_key(), board.effect_key("mail", 7)))
            board.state.notes.append("began")
            if fails.pop() if fails else False:
                raise OSError("no model answers")
            return StepResult("done", patch={"status": "WRITTEN"})

        with pytest.raises(OSError, match="no model"):
            await write()
        assert (board.version, board.snapshot().status, board.steps[0].state) == (0, "", "open")
        await board.commit("something else")
        assert await write() == "done"
        assert keys == [("job/write@0", "job/write@0/mail/7")] * 2
        assert (board.snapshot().notes, board.steps[0].runs) == (["began", "began"], 2)


async def test_a_step_belongs_to_its_arguments() -> None:
    """With others it is refused; a key makes it another step; what is no value is not compared."""
    work = Work()
    async with embedded() as (_, board):
        find = board.step("find")(work.find)
        await find("one")
        with pytest.raises(IdempotencyMismatch, match="other arguments by ann"):
            await find("two")
        each = board.step("each", key=lambda title: title)(work.find)
        for title in ("one", "two", "one"):
            assert (await each(title)).title == title
        assert work.runs == ["one", "one", "two"]
        assert [step.name for step in board.steps] == ["find", "each/one", "each/two"]

        @board.step("ask", key="model")
        async def ask(client: object, words: set[str], finding: Finding) -> int:
            return len(words)

        for _ in range(2):  # two clients, and sets in any order
            assert await ask(object(), {"a", "b", "c"}, Finding(title="x")) == 3
        with pytest.raises(IdempotencyMismatch):
            await ask(object(), {"a", "b", "c"}, Finding(title="y"))


async def test_an_output_is_read_back_as_it_is_annotated() -> None:
    """The first call and later ones give equal values of one type; without an annotation that is JSON."""
    async with embedded() as (_, board):

        def plain():  # type: ignore[no-untyped-def]
            return {"n": 1.0, "pair": (1, 2)}

        def pair_of() -> tuple[int, set[str]]:
            return 1, {"b", "a"}

        for _ in range(2):
            assert await board.step("plain")(plain)() == {"n": 1, "pair": [1, 2]}
            assert await board.step("pair")(pair_of)() == (1, {"a", "b"})
        with pytest.raises(BadRequest, match="cannot be evaluated"):

            @board.step("wrong")
            async def wrong() -> NoSuchType:  # type: ignore[name-defined]  # noqa: F821
                ...


async def test_an_output_that_does_not_fit_leaves_the_step_open() -> None:
    """Neither what cannot be recorded nor what is too large makes a version."""
    async with embedded() as (_, board):

        async def huge() -> str:
            return "x" * 70_000

        async def number() -> int:
            return "seven"  # type: ignore[return-value]

        for name, work, refusal in (("huge", huge, LimitExceeded), ("number", number, InvalidValue)):
            with pytest.raises(refusal):
                await board.step(name)(work)()
        with pytest.raises(InvalidValue, match="status"):
            await board.step("patch").run(lambda: StepResult(None, patch={"status": 7}))
        assert (board.version, {step.state for step in board.steps}) == (0, {"open"})


async def test_a_step_is_no_part_of_itself() -> None:
    """That would wait for its own end for ever; other steps may be inside one."""
    async with embedded() as (_, board):
        work = Work()

        @board.step("outer")
        async def outer() -> str:
            inner = await board.step("inner")(work.find)()
            await board.step("outer").run(lambda: None)
            return inner.title

        with pytest.raises(BadRequest, match="part of itself"):
            await outer()
        assert [(step.name, step.state) for step in board.steps] == [("outer", "open"), ("inner", "done")]


async def test_an_effect_with_the_key_of_its_step_is_there_once() -> None:
    """Two effects of one name in a step would get one result: the second has to have a key of its own."""
    async with embedded() as (_, board):

        @board.step("notify")
        async def notify() -> list[int]:
            first = await board.effect("mail", None, lambda: 1)
            with pytest.raises(BadRequest, match="twice"):
                await board.effect("mail", None, lambda: 2)
            return [first, await board.effect("mail", board.effect_key("second"), lambda: 2)]

        assert await notify() == [1, 2]
        assert [effect.effect_key for effect in board.effects] == ["job/notify@0", "job/notify@0/second"]


async def test_a_run_that_stood_still_commits_nothing() -> None:
    """D1: its step was begun by another when it wakes up: its patch is refused, and the other's output stays."""
    clock = ManualClock()
    async with embedded(clock) as (_, board):
        stalled, quick = Work(), Work()
        call = asyncio.create_task(board.step("find").run(stalled.find_slowly))
        await stalled.reached.wait()
        clock.advance(30_000)
        assert await board.as_agent("bob").step("find").run(quick.find) == Finding(title="cast", severity=1)
        stalled.released.set()
        with pytest.raises(StepLost):
            await call
        assert board.snapshot().status == ""
        assert [(made.agent, made.step) for made in await board.checkpoints()] == [("bob", "find")]


async def test_a_run_that_nobody_took_over_is_done_after_all() -> None:
    """Its time ran out, but nobody else has begun the step: nothing is lost."""
    clock = ManualClock()
    async with embedded(clock) as (_, board):
        work = Work()
        call = asyncio.create_task(board.step("find").run(work.find_slowly))
        await work.reached.wait()
        clock.advance(30_000)
        await board.commit("meanwhile")
        assert board.steps[0].state in {"open", "running"}
        work.released.set()
        assert await call == Finding(title="cast", severity=1)


async def _three_steps(board: Board[Job], runs: list[str]) -> None:
    for name in ("one", "two", "three"):

        def work(name: str = name) -> StepResult[str]:
            runs.append(name)
            return StepResult(name, patch={"status": name})

        await board.step(name)(work)()


async def test_a_fork_has_the_steps_that_were_done_at_its_version() -> None:
    """Those after it run there, in the fork's own line; the board has its own."""
    async with embedded() as (host, board):
        runs: list[str] = []
        await _three_steps(board, runs)
        await board.fork("trial", at=1)
        async with open_board(host, "trial", Job, agent="bob") as fork:
            await _three_steps(fork, runs)
            assert [step.begun_at for step in fork.steps] == [0, 1, 2]
        await _three_steps(board, runs)
        assert runs == ["one", "two", "three", "two", "three"]


async def test_a_restore_forgets_the_steps_that_were_done_since() -> None:
    """They run again, with other keys for their effects; those before stay done."""
    async with embedded() as (_, board):
        runs: list[str] = []
        await _three_steps(board, runs)
        await board.restore(1)
        assert ([step.name for step in board.steps], board.snapshot().status) == (["one"], "one")
        await _three_steps(board, runs)
        assert runs == ["one", "two", "three", "two", "three"]
        assert [step.begun_at for step in board.steps] == [0, 4, 5]
        assert board.snapshot().status == "three"


async def test_steps_of_a_fork_come_with_its_merge_and_go_with_a_restore() -> None:
    """They count as done in the version of the merge, whatever number they had in the fork."""
    async with embedded() as (host, board):
        runs: list[str] = []
        await board.step("zero").run(lambda: 0)
        await board.fork("trial")
        async with open_board(host, "trial", Job, agent="bob") as fork:
            await _three_steps(fork, runs)
            await fork.restore(1)
            assert [step.name for step in fork.steps] == ["zero"], "what the board did before the fork stays done"
            await _three_steps(fork, runs)
        await board.merge_from("trial")
        await _three_steps(board, runs)
        assert len(runs) == 6
        assert {step.version for step in board.steps} == {1, 2}
        await board.restore(1)
        assert [step.name for step in board.steps] == ["zero"]


async def test_cancelling_a_step_leaves_it_open_at_once() -> None:
    """The next one need not wait for the claim to run out."""
    async with embedded() as (_, board):
        slow, quick = Work(), Work()
        call: asyncio.Task[Any] = asyncio.create_task(board.step("find", ttl=3600).run(slow.find_slowly))
        await slow.reached.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await board.step("find").run(quick.find) == Finding(title="cast", severity=1)


async def test_a_step_is_finished_by_a_commit_only() -> None:
    """Without one there is no version in which it is done: the writer refuses it, and it runs still."""
    async with embedded() as (_, board):
        token = "token-of-the-first"
        await board._desk.ask(BeginStep(name="extract", token=token, ttl_ms=60_000))
        with pytest.raises(BadRequest, match="finish_step goes with the commit"):
            await board._desk.ask(FinishStep(name="extract", token=token, output=1))
        assert [(step.state, step.version) for step in board.steps] == [("running", 0)]


@pytest.mark.parametrize("name", ["a/b", "", "x" * 201, 7])
async def test_a_name_is_a_name(name: Any) -> None:
    """Refused at once, where it was given."""
    async with embedded() as (_, board):
        with pytest.raises((InvalidValue, LimitExceeded)):
            board.step(name)
