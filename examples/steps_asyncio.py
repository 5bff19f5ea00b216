"""A pipeline of plain coroutines as steps: each runs once, and a second start goes on where the first one ended.

    python examples/steps_asyncio.py [boards.db]

Where the functions wait, yours would call a model or any agent framework: a step neither knows nor minds what it runs.
"""

from __future__ import annotations

import asyncio
import sys

from pydantic import BaseModel

from crdt_board import Board, BoardModel, Counter, StepResult, open_board

SOURCES = ("billing", "orders", "users")


class Finding(BaseModel):
    source: str
    tables: int


class Audit(BoardModel):
    findings: dict[str, int] = {}
    verdict: str = ""
    tokens: Counter


async def run(board: Board[Audit]) -> str:
    """The pipeline. Nothing in it asks what was done before."""

    @board.step("scan", key=lambda source: source)
    async def scan(source: str) -> StepResult[Finding]:
        print(f"scan {source}")
        await asyncio.sleep(0.01)  # a model call
        board.state.tokens += 300
        found = Finding(source=source, tables=len(source))
        return StepResult(
            found, patch={"findings": {**board.snapshot().findings, source: found.tables}}, confidence=0.9
        )

    @board.step("judge")
    async def judge(findings: list[Finding]) -> StepResult[str]:
        print("judge")
        verdict = f"{sum(each.tables for each in findings)} tables in {len(findings)} services"
        return StepResult(verdict, patch={"verdict": verdict}, handoff={"next": "a person signs it"})

    @board.step("tell")
    async def tell(verdict: str) -> int:
        return await board.effect("mail", None, lambda: send_mail("team@example.org", verdict))

    findings = await asyncio.gather(*map(scan, SOURCES))  # several steps may run at once
    verdict = await judge(findings)
    print(f"told as message {await tell(verdict)}")
    return verdict


async def send_mail(to: str, text: str) -> int:
    """Something outside, which must not happen twice."""
    print(f"mail to {to}: {text}")
    return 1


async def main(file: str) -> None:
    async with open_board(file, "audit", Audit, agent="auditor") as board:
        print(f"{len([step for step in board.steps if step.state == 'done'])} steps were done before")
        verdict = await run(board)
        state = board.snapshot()
        assert state.verdict == verdict == "18 tables in 3 services"
        assert state.tokens == 900, "every scan was paid once"
        print(f"{verdict}; version {board.version}, {state.tokens} tokens")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["steps.db"]))
