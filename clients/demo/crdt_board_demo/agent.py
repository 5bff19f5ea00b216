"""One agent of the demo as a process of its own: ``python -m crdt_board_demo.agent``."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys

from crdt_board.errors import BoardError
from crdt_board_client import connect
from crdt_board_demo import messages
from crdt_board_demo.model import TEAM, Migration, checksum
from crdt_board_demo.script import make_script
from crdt_board_demo.team import steps_for
from crdt_board_demo.worker import Worker, tell

_CONNECT_SECONDS = 20.0


def main() -> int:
    """Do what is left to do of an agent's script; 0 when all of it is done."""
    parser = argparse.ArgumentParser(prog="python -m crdt_board_demo.agent")
    parser.add_argument("--url", required=True)
    parser.add_argument("--board", required=True)
    parser.add_argument("--agent", required=True, choices=TEAM)
    parser.add_argument("--seed", required=True, type=int)
    options = parser.parse_args()
    try:
        asyncio.run(_run(options.url, options.board, options.agent, options.seed))
    except BoardError as error:
        print(f"{options.agent}: {error}", file=sys.stderr)
        return 1
    return 0


async def _run(url: str, board_id: str, agent: str, seed: int) -> None:
    async with connect(url, board_id, Migration, agent=agent, timeout=_CONNECT_SECONDS) as board:
        worker = Worker(board, random.Random(f"{agent} {seed}"))
        watch = asyncio.create_task(worker.watch_connection())
        try:
            await worker.work_off(steps_for(agent, make_script(seed)))
            await board.wait_for(lambda state: state.status == "DONE")
            await board.flush()
        finally:
            watch.cancel()
        done = worker.acknowledged
        tell(messages.Finished(version=board.version, checksum=checksum(board.snapshot()), acknowledged=done))


if __name__ == "__main__":
    sys.exit(main())
