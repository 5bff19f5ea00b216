"""Three agents research and write at once, in one process, on one SQLite file; run it twice and it resumes.

    python examples/research_team.py [boards.db]

The agents are plain coroutines; where they wait, yours would call a model.
"""

from __future__ import annotations

import asyncio
import sys

from crdt_board import Board, BoardModel, Counter, Text, open_board

TOPICS = {"storage": ("sqlite", "journal"), "network": ("websocket", "backoff")}


class Research(BoardModel):
    question: str = ""
    terms: set[str] = set()
    findings: dict[str, str] = {}
    report: Text
    tokens: Counter


async def researcher(board: Board[Research], topic: str) -> None:
    """Find something out; a step that was committed in an earlier run is not done again."""
    if any(made.step == f"research {topic}" for made in await board.checkpoints()):
        print(f"{board.agent}: {topic} was done before")
        return
    for term in TOPICS[topic]:
        await asyncio.sleep(0.01)  # a model call
        board.state.terms.add(term)
        board.state.tokens += 250
    board.state.findings[topic] = f"It depends on {' and '.join(TOPICS[topic])}."
    made = await board.commit(f"research {topic}", idempotency_key=f"research-{topic}", confidence=0.8)
    print(f"{board.agent}: {made.pointer}")


async def writer(board: Board[Research]) -> None:
    """Write as soon as everything is there, and correct by quoting."""
    seen = await board.wait_for(lambda state: len(state.findings) == len(TOPICS), timeout=30)
    if "Summary" in seen.report:
        print(f"{board.agent}: the report was written before")
        return
    board.state.report.append("Summary: TODO\n")
    for topic, finding in seen.findings.items():
        board.state.report.append(f"{topic}: {finding}\n")
    board.state.report.replace("TODO", f"{len(seen.findings)} topics, {len(seen.terms)} terms")
    made = await board.commit("write", idempotency_key="write", handoff={"next": "a person reads it"})
    print(f"{board.agent}: {made.pointer}")


async def main(path: str) -> None:
    async with open_board(path, "research-1", Research, agent="planner") as planner:
        planner.state.question = "What does a durable board need?"
        async with asyncio.TaskGroup() as team:
            for topic in TOPICS:
                team.create_task(researcher(planner.as_agent(f"{topic}-researcher"), topic))
            team.create_task(writer(planner.as_agent("writer")))
        print(planner.snapshot().report)
        print(f"{planner.snapshot().tokens} tokens, version {planner.version}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "research.db"))
