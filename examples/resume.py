"""A workflow that is killed in the middle and started again: it goes on where it was, and orders nothing twice.

    python examples/resume.py [folder]

This program starts the workflow in a process, ends that by `kill -9` at the worst moment, which is when the order was
sent and the answer is not there yet, and starts it again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from crdt_board import Board, BoardModel, EffectInDoubt, StepResult, open_board

SECONDS = 20


class Purchase(BoardModel):
    offers: dict[str, int] = {}
    chosen: str = ""
    order: int = 0
    report: str = ""


async def workflow(board: Board[Purchase], shop: Path) -> None:
    """Four steps. Each says so when it runs; one that was done before says nothing."""

    @board.step("collect")
    async def collect() -> StepResult[dict[str, int]]:
        print("runs collect", flush=True)
        offers = {"north": 120, "south": 99}
        return StepResult(offers, patch={"offers": offers}, confidence=0.8)

    @board.step("choose")
    async def choose(offers: dict[str, int]) -> StepResult[str]:
        print("runs choose", flush=True)
        best = min(offers, key=lambda shop: offers[shop])
        return StepResult(best, patch={"chosen": best}, handoff={"why": "cheapest"})

    @board.step("order", ttl=0.5)
    async def order(best: str) -> StepResult[int]:
        print("runs order", flush=True)

        async def send() -> int:
            with shop.open("a") as orders:
                orders.write(f"{best}\n")
            print("the order is sent", flush=True)
            await asyncio.sleep(0.5)  # the answer takes its time
            return count(shop)

        number = await board.effect("order", None, send, ttl=0.5)
        return StepResult(number, patch={"order": number})

    @board.step("report")
    async def report(number: int) -> StepResult[None]:
        print("runs report", flush=True)
        return StepResult(None, patch={"report": f"order {number} at {board.state.chosen}"})

    await report(await order(await choose(await collect())))


def count(shop: Path) -> int:
    return len(shop.read_text().splitlines()) if shop.exists() else 0


async def work(folder: Path) -> None:
    """The process that is killed. Should an order be in doubt, it looks into the shop's books."""
    shop = folder / "orders.txt"
    async with open_board(folder / "purchase.db", "purchase", Purchase, agent="buyer") as board:
        for step in board.steps:
            if step.state == "done":
                print(f"skips {step.name}: version {step.version} has its output, {step.output}", flush=True)
        try:
            await workflow(board, shop)
        except EffectInDoubt as doubt:
            print(f"in doubt: {doubt.effect} {doubt.key}", flush=True)
            orders = count(shop)
            await board.resolve_effect(doubt.effect, doubt.key, took_place=orders > 0, result=orders or None)
            await workflow(board, shop)
        print(f"done: {board.snapshot().report}", flush=True)


def start(folder: Path, kill_at: str = "") -> None:
    """Run the workflow in a process; kill that when it says ``kill_at``."""
    command = [sys.executable, __file__, "--work", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(f"  {process.pid}: {line}", end="")
            if kill_at and kill_at in line:
                print(f"kill -9 {process.pid}")
                process.kill()
        assert process.wait(SECONDS) in (0, -9)


def main(folder: Path) -> None:
    start(folder, kill_at="the order is sent")
    start(folder)
    assert count(folder / "orders.txt") == 1, "ordered once"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        asyncio.run(work(Path(sys.argv[2])))
    else:
        main(Path(*sys.argv[1:]))
