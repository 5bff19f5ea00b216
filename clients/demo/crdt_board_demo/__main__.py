"""``python -m crdt_board_demo``: what ``crdt-board demo`` starts."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import signal
import sys
import tempfile
from pathlib import Path

from crdt_board_demo.director import Outcome, perform
from crdt_board_demo.processes import DemoFailed
from crdt_board_demo.screen import Screen, print_json
from crdt_board_demo.script import make_script

_INTERRUPTED = 130


def main() -> int:
    """0 when every check passed, 1 when not, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog="crdt-board demo")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character shows a "?" instead
    try:
        return asyncio.run(_run(options.seed, options.db, as_json=options.json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; all processes of the demo have ended", file=sys.stderr)
        return _INTERRUPTED
    except DemoFailed as error:
        if options.json:
            print_json({"passed": False, "error": str(error)})
        print(f"error: {error}", file=sys.stderr)
        return 1


async def _run(seed: int, database: Path | None, *, as_json: bool) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    script = make_script(seed)
    screen = Screen(script, quiet=as_json)
    with contextlib.ExitStack() as stack:
        if database is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="crdt-board-demo-"))
            database = Path(folder) / "boards.db"
        with screen:
            outcome = await perform(script, database, screen)
    state, checks = outcome.audit.state, outcome.checks
    screen.conclude(outcome.audit.checkpoints, state, checks)
    failed = [check.name for check in checks if not check.passed]
    verdict = f"{len(failed)} checks failed: {', '.join(failed)}" if failed else "All checks passed"
    screen.end(f"{verdict}, in {screen.seconds:.1f} s", passed=outcome.passed)
    if as_json:
        print_json(_as_json(outcome, seed, screen.seconds))
    return 0 if outcome.passed else 1


def _as_json(outcome: Outcome, seed: int, seconds: float) -> dict[str, object]:
    agents = {
        name: {
            "edits_sent": len(agent.edits),
            "edits_acknowledged": len(agent.durable),
            "edits_offline": agent.offline_edits,
            "starts": len(agent.starts),
        }
        for name, agent in outcome.record.agents.items()
    }
    return {
        "passed": outcome.passed,
        "seed": seed,
        "seconds": round(seconds, 2),
        "board": outcome.board_id,
        "checks": [{"name": made.name, "passed": made.passed, "detail": made.detail} for made in outcome.checks],
        "agents": agents,
        "checkpoints": [made.model_dump(mode="json") for made in outcome.audit.checkpoints],
        "state": outcome.audit.state.model_dump(mode="json")
        | {"dependencies": sorted(outcome.audit.state.dependencies)},
    }


if __name__ == "__main__":
    sys.exit(main())
