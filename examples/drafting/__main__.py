"""The command line of the drafting flow."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from crdt_board import Board, BoardError, open_board
from crdt_board_client import connect

from .board import Draft, Stuck
from .flow import Flow, Say
from .model import Model, ModelFailed
from .person import Terminal, yes
from .report import report, shown
from .scripted import Scripted

_TOPIC = "How SQLite keeps your data"
_COLOURS = {"planner": 35, "writer-1": 32, "writer-2": 36, "writer-3": 34, "fact-checker": 31, "editor": 33}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m examples.drafting",
        description="A planner, three writers, a fact checker, an editor and a person draft a text on one board. "
        "Kill it whenever you like; the same command goes on from there.",
        epilog="Without a model the agents follow a script, with one text for every topic. A model is asked when "
        "OPENAI_MODEL is set, at OPENAI_BASE_URL (by default that of OpenAI) with OPENAI_API_KEY: any endpoint that "
        "streams chat completions.",
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument("--db", default="drafting.db", metavar="FILE", help="SQLite file of the board [%(default)s]")
    where.add_argument("--url", metavar="ws://…", help="a server instead (crdt-board serve)")
    made.add_argument("--board", default="draft-1", metavar="ID", help="the board: one for each text [%(default)s]")
    made.add_argument("--topic", help=f"what to write about [{_TOPIC}]")
    made.add_argument("--yes", action="store_true", help="approve without asking a person")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:  # as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ModelFailed, Stuck, BoardError) as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, ModelFailed):
            print("The same command goes on from here.", file=sys.stderr)
        return 1
    return 0


async def _run(options: argparse.Namespace) -> None:
    say = speaker(colours=sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    model = _model()
    async with _board(options) as board:
        written = board.state.topic
        topic = " ".join((options.topic or written or _TOPIC).split())
        if written and topic != written:
            raise Stuck(f"board {options.board} is about {written!r}: leave out --topic, or give another --board")
        say(board.agent, f"is on board {options.board}, with {model}")
        place = f"--url {options.url}" if options.url else f"--db {shlex.quote(options.db)}"
        person = yes if options.yes else Terminal(f"crdt-board decide {place} {options.board}")
        await Flow(board, model, person, say).run(topic)
        print()
        async for line in report(board):
            print(shown(line))


def _board(options: argparse.Namespace) -> AbstractAsyncContextManager[Board[Draft]]:
    if options.url:
        return connect(options.url, options.board, Draft, agent="planner")
    return open_board(options.db, options.board, Draft, agent="planner")


def _model() -> Model:
    if not os.environ.get("OPENAI_MODEL"):
        return Scripted()
    from .endpoint import Endpoint  # noqa: PLC0415  # only this needs httpx

    return Endpoint.configured(os.environ) or Scripted()


def speaker(*, colours: bool) -> Say:
    """Prints a line for what an agent does, in the agent's colour."""

    def say(agent: str, what: str) -> None:
        name = f"{agent:>12}"
        if colours:
            name = f"\033[{_COLOURS.get(agent, 0)}m{name}\033[0m"
        print(f"{name}  {shown(what)}", flush=True)

    return say


if __name__ == "__main__":
    sys.exit(main())
