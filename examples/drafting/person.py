"""The person who approves: on the terminal, or from anywhere else with ``crdt-board decide``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading

from crdt_board import Approval, ApprovalClosed, Board

from .board import Draft
from .report import shown


async def yes(board: Board[Draft], approval: Approval) -> None:
    """Approve by itself."""
    with contextlib.suppress(ApprovalClosed):
        await board.as_agent("person").decide(approval.id, "approve", comment="by --yes")


class Terminal:
    """``elsewhere`` is how the question can be answered from another terminal, up to the option."""

    def __init__(self, elsewhere: str) -> None:
        self._elsewhere = elsewhere

    async def __call__(self, board: Board[Draft], approval: Approval) -> None:
        print(f"\n{shown(str(board.state.draft))}\n{approval.record.question} From elsewhere:")
        print(f"  {self._elsewhere} {approval.id} approve    (or: reject)", flush=True)
        option = None
        while option is None and sys.stdin.isatty():
            print("Approve? [y/n] ", end="", flush=True)
            line = await _line()
            if not line:  # the terminal is gone
                return
            option = {"y": "approve", "yes": "approve", "n": "reject", "no": "reject"}.get(line.strip().lower())
        if option is not None:
            with contextlib.suppress(ApprovalClosed):  # decided elsewhere meanwhile
                await board.as_agent("person").decide(approval.id, option, seen=approval.hash)


async def _line() -> str:
    """A line of the terminal. Read by a thread that keeps nobody from leaving: neither Ctrl-C nor the interpreter."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def give(line: str) -> None:
        if not answer.done():
            answer.set_result(line)

    def read() -> None:
        line = os.read(sys.stdin.fileno(), 1_000).decode(errors="replace")
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, line)

    threading.Thread(target=read, daemon=True).start()
    return await answer
