"""Agents that block, in threads, on one board: no event loop, no `async`.

    python examples/blocking_agent.py [boards.db | ws://127.0.0.1:8765]

With the address of a server (`crdt-board serve`) the board is there, otherwise in a file.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import AbstractContextManager

from crdt_board import BoardModel, StepResult, Text, sync
from crdt_board.sync import BlockingBoard
from crdt_board_client.sync import connect


class Notes(BoardModel):
    summaries: dict[str, str] = {}
    report: Text


def call_model(prompt: str) -> str:
    """Where this blocks, yours would call a model."""
    time.sleep(0.01)
    return prompt.upper()


def reader(board: BlockingBoard[Notes], document: str) -> None:
    """One agent in a thread of its own. What it has paid for once it does not pay for again."""

    @board.step("read", key=document)
    def read() -> StepResult[str]:
        print(f"{threading.current_thread().name} reads {document}")
        summary = call_model(document)
        board.state.summaries[document] = summary
        return StepResult(summary, confidence=0.7)

    read()


def writer(board: BlockingBoard[Notes], documents: list[str]) -> None:
    """Waits for the others, and writes."""
    seen = board.wait_for(lambda state: len(state.summaries) == len(documents), timeout=30)

    @board.step("write")
    def write() -> None:
        with board.transaction():  # others see all lines at once
            for document in documents:
                board.state.report.append(f"{document}: {seen.summaries[document]}\n")

    write()


def open_notes(where: str) -> AbstractContextManager[BlockingBoard[Notes]]:
    if where.startswith("ws"):
        return connect(where, "notes", Notes, agent="reader")
    return sync.open_board(where, "notes", Notes, agent="reader")


def main(where: str) -> None:
    documents = ["alpha", "beta", "gamma"]
    with open_notes(where) as board:
        threads = [threading.Thread(target=reader, args=(board, each)) for each in documents]
        threads.append(threading.Thread(target=writer, args=(board.as_agent("writer"), documents)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        board.flush()
        print(board.snapshot().report)
        assert str(board.snapshot().report).count("\n") == len(documents)
        assert {made.step: made.agent for made in board.checkpoints()}["write"] == "writer"


if __name__ == "__main__":
    main(*sys.argv[1:] or ["notes.db"])
