"""What users write, checked by mypy in strict mode with and without pydantic's plugin; see `test_typing`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Self, assert_type
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board import (
    Anchor,
    Artifact,
    Board,
    BoardHost,
    Candidate,
    Candidates,
    Checkpoint,
    EditStream,
    LiveCandidates,
    LiveRecordList,
    Max,
    Min,
    StepResult,
    Strict,
    Violation,
    candidates_of,
    items_of,
    migrates,
    open_board,
    sync,
)
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.sync import BlockingBoard
from crdt_board_client.sync import connect


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True)

    title: str
    severity: Annotated[int, Field(ge=0, le=10)] = 0


class Migration(BoardModel):
    target_service: str = ""
    status: Literal["PENDING", "ANALYSED", "DONE"] = "PENDING"
    level: Level = Level.LOW
    owner: UUID | None = None
    due: datetime | None = None
    price: Decimal = Decimal(0)
    dependencies: set[str] = set()
    findings: dict[str, Finding] = {}
    scores: dict[str, int] = {}
    extra: dict[str, JsonValue] = {}
    plan: list[str] = []
    draft: Text = Text()
    tokens_spent: Counter = Counter()
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.0


def edit(state: Migration) -> None:
    state.status = "ANALYSED"
    state.level = Level.HIGH
    state.dependencies.add("postgres-15")
    state.dependencies |= {"redis-7"}
    state.dependencies = {"postgres-15"}
    state.findings["f1"] = Finding(title="implicit cast", severity=3)
    state.scores.update(a=1)
    state.plan.append("read")
    state.plan[0:0] = ["think"]
    state.plan += ["write"]
    state.draft.replace("TODO: risks", "Risks: …")
    state.draft.replace("a", "b", count=2)
    state.draft.insert(0, "# Title\n")
    state.draft.append("end")
    state.draft.delete(-3, 100)
    state.draft.apply("new")
    state.draft += "more"
    anchor = state.draft.anchor("Title")
    state.draft.anchor(3, 5)
    state.draft.anchor(0, side="before")
    assert_type(state.draft.anchor_from(str(anchor)), Anchor)
    assert_type((anchor.start, anchor.stop, anchor.quote, anchor.gone), tuple[int, int, str, bool])
    state.tokens_spent += 812
    state.tokens_spent -= 2


async def stream(state: Migration) -> None:
    async with state.draft.edit_stream() as written:
        assert_type(written, EditStream)
        written.write("token")
    state.draft.edit_stream(3).close()


def take_back(board: Board[Migration]) -> None:
    board.enable_undo(depth=10)
    assert_type(board.undo() or board.redo(), bool)
    assert_type(board.violations, tuple[Violation, ...])


def read(state: Migration, taken: Migration) -> None:
    assert_type(state.draft, Text)
    assert_type(taken.draft.splitlines(), list[str])
    assert_type(taken.tokens_spent + 1, int)
    assert_type(state.findings["f1"].title, str)
    assert_type(taken.model_copy(update={"status": "DONE"}), Migration)
    assert_type(Migration(status="DONE"), Migration)


class Review(BoardModel):
    """Fields with a policy are declared, read and assigned as their values."""

    best: Annotated[float, Field(ge=0, le=1), Max()] = 0.0
    deadline: Annotated[datetime, Min()]
    verdict: Annotated[str, Candidates()] = "open"
    phase: Annotated[Literal["OPEN", "DONE"], Strict()] = "OPEN"
    report: Artifact | None = None


async def store(board: Board[Review]) -> None:
    ref = await board.artifacts.put(b"content", media_type="text/plain")
    assert_type(ref, Artifact)
    board.state.report = ref
    assert_type(await board.artifacts.get(ref), bytes)
    async for chunk in board.artifacts.stream(str(ref)):
        assert_type(chunk, bytes)


async def review(board: Board[Review]) -> None:
    state = board.state
    state.best = max(state.best, 0.5)
    state.verdict = "ship"
    assert_type(state.deadline, datetime)
    assert_type(state.phase, Literal["OPEN", "DONE"])
    verdict = candidates_of(state.verdict)
    assert_type(verdict, LiveCandidates[str])
    assert_type(verdict.candidates, tuple[Candidate[str], ...])
    assert_type((verdict.value, verdict.conflict, verdict.candidates[0].when), tuple[str, bool, datetime])
    verdict.choose("ship")
    verdict.choose(verdict.candidates[0])
    await board.commit("finish", patch={"phase": "DONE"}, expected_version=board.version)
    assert_type(board.snapshot().verdict, str)


class Job(BoardModel):
    """A model that migrates boards of an earlier one."""

    status: Literal["OPEN", "DONE"] = "OPEN"
    notes: Text

    @migrates(from_version=1)
    @classmethod
    def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {**old, "status": "DONE" if old.pop("done", False) else "OPEN"}

    @migrates(from_version=2)
    @classmethod
    def from_v2(cls, old: dict[str, JsonValue]) -> Self:
        assert_type(Job.from_v1(old), dict[str, JsonValue])
        return cls(status="DONE", notes=Text())

    @migrates(from_version=3)
    @staticmethod
    def from_v3(old: dict[str, Any]) -> Job:
        return Job.from_v2(old)


async def plain(host: BoardHost) -> None:
    async with open_board(host, "job", agent="ann") as board:
        assert_type(board, Board[dict[str, Any]])
        board.state["plan"] = ["a"]
        board.state["tokens"] += 812
        board.state.update(title="x")
        del board.state["plan"]
        assert_type(board.snapshot(), dict[str, Any])
        await board.commit("x", patch={"plan": []})
        await board.attempt(lambda seen: {"n": seen.get("n", 0) + 1}, step="count")
        assert_type(await board.wait_for(lambda state: "n" in state), dict[str, Any])
    async with open_board(host, "job", Job, agent="ann") as typed:
        assert_type(typed, Board[Job])


class Section(BoardModel):
    title: str = ""
    body: Text = Text()
    parts: list[Finding] = []


class Outline(BoardModel):
    """Lists of records are lists of their model, and more to those who ask."""

    sections: list[Section] = []


async def outline(board: Board[Outline]) -> None:
    state = board.state
    state.sections.append(Section(title="Costs"))
    state.sections.insert(0, Section())
    state.sections += [Section()]
    state.sections[0].title = "Risks"
    state.sections[0].body.append("None.")
    state.sections[1] = Section()
    state.sections[1:] = [Section()]
    state.sections = sorted(state.sections, key=lambda section: section.title)
    for section in state.sections:
        section.parts.append(Finding(title="x"))
    sections = items_of(state.sections)
    assert_type(sections, LiveRecordList[Section])
    sections.move(sections[-1], 0)
    sections.move(0, -1)
    assert_type(sections.by_id(sections.id_of(0)), Section)
    assert_type((sections.ids, sections[1:], sections.pop()), tuple[list[str], list[Section], Section])
    assert_type(board.snapshot().sections, list[Section])
    changed = [each.model_copy(update={"title": "x"}) for each in board.snapshot().sections]
    await board.commit("edit", patch={"sections": changed})


class Bare(BoardModel):
    """Containers need no default."""

    plan: list[str]
    draft: Text
    tokens: Counter


def bare(state: Bare) -> None:
    state.plan.append("a")
    state.draft.append("b")
    state.tokens += 1


async def steps_and_effects(board: Board[Migration]) -> None:
    async def ticket() -> int:
        return 7

    assert_type(await board.effect("ticket", "k", ticket), int)
    assert_type(await board.effect("ticket", "k", lambda: "x"), str)

    @board.step("extract")
    async def extract(path: str, *, limit: int = 3) -> StepResult[list[str]]:
        return StepResult([path] * limit, patch={"status": "DONE"}, confidence=0.5)

    @board.step("count", key=lambda path: path)
    async def count(path: str) -> int:
        return len(path)

    @board.step("plain")
    def plain(path: str) -> StepResult[Finding]:
        return StepResult(Finding(title=path))

    assert_type(await extract("a", limit=2), list[str])
    assert_type(await count("a"), int)
    assert_type(await plain("a"), Finding)


def blocking() -> None:
    with connect("ws://127.0.0.1:8765", "job", Migration, agent="a") as board:
        assert_type(board, BlockingBoard[Migration])
        assert_type(board.state.plan, list[str])
        assert_type(board.commit("step", patch={"status": "DONE"}, expected_version=1), Checkpoint)
        assert_type(board.snapshot(), Migration)
        assert_type(board.at(3).plan, list[str])
        assert_type(board.checkpoints(limit=3), list[Checkpoint])
        assert_type(board.effect("ticket", "k", lambda: 7), int)
        with board.lease("payments", ttl=5) as lease:
            assert_type(lease.fence, int)

        @board.step("extract")
        def extract(path: str) -> StepResult[int]:
            return StepResult(len(path))

        assert_type(extract("a"), int)
    with sync.open_board("boards.db", "job", agent="a") as plain:
        plain.state["anything"] = 1
