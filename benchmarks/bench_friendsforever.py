"""Served: two people who typed into one text at the same time, each a client process, through a real server."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import PROJECT, Figure, Run, recording, require, run_program
from benchmarks.servers import board_server
from crdt_board import BoardModel, Text, open_board
from crdt_board_client import connect

_FILE = "friendsforever.json.gz"
_BOARD = "friends"
_LINE_BYTES_MAX = 1 << 24


class Typing(BoardModel):
    """One text."""

    text: Text


async def start_typist(author: int, port: int) -> asyncio.subprocess.Process:
    """An author's process, connected and waiting for its start."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.typist", _FILE, str(author), str(port), _BOARD),
        cwd=PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )
    assert process.stdout is not None
    require(await process.stdout.readline() == b"ready\n", f"author {author} did not connect")
    return process


async def result_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Let an author type, and wait for their end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    line = await process.stdout.readline()
    require(bool(line), "an author ended early")
    result: dict[str, Any] = json.loads(line)
    return result


async def replay(end_content: str) -> tuple[float, int]:
    """Seconds until both authors hold everything and all of it is durable, and the number of updates."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "boards.db"
        processes: list[asyncio.subprocess.Process] = []
        async with board_server(database, pin=False) as port:
            try:
                for author in (0, 1):
                    processes.append(await start_typist(author, port))  # noqa: PERF401 - those that started are ended
                began = time.perf_counter()
                results = await asyncio.gather(*map(result_of, processes))
                seconds = time.perf_counter() - began
            finally:
                for process in processes:
                    if process.returncode is None:
                        process.kill()
                    await process.wait()
            require(
                all(result["text"] == end_content for result in results), "an author's text is not the recorded one"
            )
            async with connect(f"ws://127.0.0.1:{port}", _BOARD, Typing, agent="reader") as board:
                require(str(board.state.text) == end_content, "a late client's text is not the recorded one")
        async with open_board(database, _BOARD, Typing, agent="reader") as board:
            require(str(board.state.text) == end_content, "the text on the disk is not the recorded one")
    return seconds, sum(result["updates"] for result in results)


def main() -> None:
    """Run from the command line."""
    run = Run.begin("Served, durable: friendsforever, two people typing at once", argparse.ArgumentParser(), repeat=3)
    end_content = recording(_FILE)["endContent"]
    rounds: list[tuple[float, int]] = []
    for number in range(1, run.options.repeat + 1):
        run.progress(f"round {number}")
        rounds.append(asyncio.run(replay(end_content)))
    updates = rounds[0][1]
    run.finish(
        [
            Figure("from the first key to both holding everything, durably", "s", [seconds for seconds, _ in rounds]),
            Figure("durable updates a second", "", [count / seconds for seconds, count in rounds]),
        ],
        [
            f"{updates:,} updates, each made on the state of its recorded parents",
            "the recorded text is held by both authors, by a client that comes later, and by the file opened again",
        ],
    )


if __name__ == "__main__":
    run_program(main)
