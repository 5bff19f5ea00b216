"""The workflow of `support.workflow` in a process that kills itself.

``workflow_agent.py <file or address> <board> <file of the outside> <turns>`` ends by SIGKILL after so
many turns of its event loop, or prints what it found at the end, and how many turns it took.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from crdt_board import open_board
from crdt_board_client import connect
from support.mortal import MortalLoop
from support.workflow import Job, OutsideFile, run_and_settle

_TTL_SECONDS = 0.5


class KilledLoop(MortalLoop):
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


async def run(where: str, board_id: str, outside: OutsideFile) -> dict[str, Any]:
    opened = connect if where.startswith("ws:") else open_board
    async with opened(where, board_id, Job, agent="worker") as board:
        outputs = await run_and_settle(board, outside, _TTL_SECONDS)
        return {
            "outputs": outputs,
            "steps": [[made.step, made.output] for made in reversed(await board.checkpoints())],
            "tickets": board.snapshot().tickets,
        }


def main(where: str, board_id: str, outside: str, turns: int) -> None:
    loop = KilledLoop(turns)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        found = runner.run(run(where, board_id, OutsideFile(Path(outside))))
        print(json.dumps({"found": found, "turns": turns - loop.turns_left}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
