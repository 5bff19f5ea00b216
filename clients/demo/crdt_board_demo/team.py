"""What each role of the team does in its steps. Every edit is skipped when the board shows that it was made."""

from __future__ import annotations

from functools import partial

from crdt_board.board import Board
from crdt_board_demo.model import PLANNER, REVIEWER, TEAM, WRITER, Migration
from crdt_board_demo.script import CONCLUSION, Finding, PlanItem, Script, Sentence
from crdt_board_demo.worker import Step, Worker

_PLANNING_SECONDS = 0.12
_RESEARCH_SECONDS = 0.22
_TYPING_SECONDS = 0.035
_REVIEW_SECONDS = 0.25
_CHECKPOINTS_MAX = 1000


def steps_for(agent: str, script: Script) -> list[Step]:
    """The steps of an agent, in order."""
    if agent == PLANNER:
        planning = [Step(name=name, run=partial(_plan, script, items)) for name, items in script.planning.items()]
        wait = partial(_wait_for_the_others, script)
        return [*planning, Step(name=CONCLUSION, run=wait, status="DONE", exclusive=True)]
    if agent == WRITER:
        return [Step(name=name, run=partial(_draft, sentences)) for name, sentences in script.drafting.items()]
    if agent == REVIEWER:
        return [Step(name=name, run=partial(_review, sentences)) for name, sentences in script.reviewing.items()]
    *others, last = script.research[agent].items()
    research = [Step(name=name, run=partial(_research, findings)) for name, findings in others]
    return [*research, Step(name=last[0], run=partial(_research, last[1]), status="ANALYSED")]


async def _plan(script: Script, items: tuple[PlanItem, ...], worker: Worker) -> None:
    state = worker.board.state

    def write(item: PlanItem) -> None:
        with worker.board.transaction():
            state.target_service = script.target_service
            state.plan.append(item.text)

    for item in items:
        done, note = item.text in state.plan, f"plans “{item.text}”"
        await worker.edit(item.id, partial(write, item), done=done, seconds=_PLANNING_SECONDS, note=note)


async def _wait_for_the_others(script: Script, worker: Worker) -> None:
    """Until the checkpoints show the last step of everybody else."""
    board = worker.board
    awaited = {(agent, script.steps_of(agent)[-1]) for agent in TEAM if agent != PLANNER}
    seen: set[tuple[str, str]] = set()
    while not awaited <= seen:
        version = board.version
        seen = {(made.agent, made.step) for made in await board.checkpoints(limit=_CHECKPOINTS_MAX)}
        if not awaited <= seen:
            await board.wait_for(partial(_has_passed, board, version))


def _has_passed(board: Board[Migration], version: int, _state: Migration) -> bool:
    return board.version > version


async def _research(findings: tuple[Finding, ...], worker: Worker) -> None:
    state = worker.board.state

    def write(finding: Finding) -> None:
        with worker.board.transaction():
            state.findings[finding.key] = finding.text
            state.evidence.append(finding.evidence)
            state.dependencies.add(finding.dependency)
            state.tokens_spent += finding.tokens

    await worker.board.wait_for(lambda state: len(state.plan) > 0)
    for finding in findings:
        done, note = finding.key in state.findings, f"finds {finding.key}: {finding.text}"
        await worker.edit(finding.id, partial(write, finding), done=done, seconds=_RESEARCH_SECONDS, note=note)
        if done:
            worker.note(f"had found {finding.key} before it was killed: skipped")


async def _draft(sentences: tuple[Sentence, ...], worker: Worker) -> None:
    draft = worker.board.state.draft
    await worker.board.wait_for(lambda state: len(state.findings) > 0)
    for sentence in sentences:
        typed = _stretches_typed(worker.board, sentence)
        for index, stretch in enumerate(sentence.stretches):
            write = partial(draft.append, stretch)
            done = index < typed
            await worker.edit(sentence.stretch_id(index), write, done=done, seconds=_TYPING_SECONDS)
        worker.note(f"typed “{sentence.typed.strip()}”")


def _stretches_typed(board: Board[Migration], sentence: Sentence) -> int:
    """How many stretches of a sentence the draft has; only this agent appends to it."""
    draft = str(board.state.draft)
    if sentence.mark in draft:
        return len(sentence.stretches)
    counts = range(len(sentence.stretches), -1, -1)
    return next(count for count in counts if draft.endswith("".join(sentence.stretches[:count])))


async def _review(sentences: tuple[Sentence, ...], worker: Worker) -> None:
    draft = worker.board.state.draft
    for sentence in sentences:
        state = await worker.board.wait_for(partial(_is_typed, sentence))
        write = partial(draft.replace, sentence.quoted, sentence.replacement)
        note = f"replaces “{sentence.quoted}” by “{sentence.replacement}”"
        done = sentence.reviewed in state.draft
        await worker.edit(sentence.review_id, write, done=done, seconds=_REVIEW_SECONDS, note=note)


def _is_typed(sentence: Sentence, state: Migration) -> bool:
    return sentence.typed in state.draft or sentence.reviewed in state.draft
