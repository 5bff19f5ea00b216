"""What the demo prints: lines as things happen, bars in a terminal, tables at the end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from crdt_board.checkpoints import Checkpoint
from crdt_board_demo import messages
from crdt_board_demo.checks import Check
from crdt_board_demo.model import PLANNER, RESEARCHERS, REVIEWER, TEAM, WRITER, Migration
from crdt_board_demo.script import Script

_COLOURS = {
    PLANNER: "cyan",
    RESEARCHERS[0]: "green",
    RESEARCHERS[1]: "yellow",
    WRITER: "magenta",
    REVIEWER: "blue",
    "server": "red",
}
_NAME_WIDTH = max(len(name) for name in _COLOURS)
_PLAIN_WIDTH = 120
_HASH_CHARS = 16


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads any more: end everything, as at a Ctrl-C."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGINT)


class Screen:
    """Prints while the demo runs. ``quiet`` prints nothing; without a terminal there are no bars and no colours."""

    def __init__(self, script: Script, *, quiet: bool) -> None:
        console: Console = _Console(quiet=quiet, highlight=False)
        if not console.is_terminal:
            console = _Console(quiet=quiet, highlight=False, width=_PLAIN_WIDTH)
        self._console = console
        self._begun = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} edits durable"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._bars: dict[str, TaskID] = {
            name: self._progress.add_task(_coloured(name), total=len(script.edits_of(name))) for name in TEAM
        }

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._begun

    def say(self, name: str, text: str, *, alarm: bool = False) -> None:
        """One line about an agent or the server."""
        shown = f"[bold red]{escape(text)}[/]" if alarm or name == "server" else escape(text)
        self._console.print(f"[dim]{self.seconds:6.2f} s[/]  {_coloured(name)}  {shown}", soft_wrap=True)

    def show(self, name: str, message: messages.Message, *, durable: int) -> None:
        """A message of an agent, of whose edits ``durable`` are so by now."""
        self._progress.update(self._bars[name], completed=durable)
        match message:
            case messages.Started(pid=pid, version=version, steps_done=()):
                self.say(name, f"joins as pid {pid}, at version {version}")
            case messages.Started(pid=pid, version=version, steps_done=steps):
                self.say(name, f"is back as pid {pid}, at version {version}, and goes on after its step “{steps[-1]}”")
            case messages.Noted(text=text):
                self.say(name, text)
            case messages.Connection(online=online):
                self.say(name, "is connected again" if online else "lost the server, goes on working", alarm=not online)
            case messages.Committed(version=version, step=step, hash=made):
                self.say(name, f"commits “{step}” as version {version}, {made[:_HASH_CHARS]}")
            case messages.Finished():
                self.say(name, "is done")

    def conclude(self, checkpoints: list[Checkpoint], state: Migration, checks: list[Check]) -> None:
        """The checkpoints, the final state and the checks."""
        self._console.print()
        self._console.print(_checkpoint_table(checkpoints))
        self._console.print(Panel(_describe(state), title="Final state", title_align="left"))
        self._console.print(_check_table(checks))

    def end(self, text: str, *, passed: bool) -> None:
        self._console.print(f"[bold {'green' if passed else 'red'}]{escape(text)}[/]", soft_wrap=True)


def print_json(content: dict[str, object]) -> None:
    """The machine-readable result, on standard output."""
    print(json.dumps(content, indent=2, ensure_ascii=False))


def _coloured(name: str) -> str:
    return f"[{_COLOURS[name]}]{name:<{_NAME_WIDTH}}[/]"


def _checkpoint_table(checkpoints: list[Checkpoint]) -> Table:
    table = Table(title="Checkpoints", title_justify="left")
    for heading in ("version", "step", "agent", "fields that changed", "hash"):
        table.add_column(heading, justify="right" if heading == "version" else "left")
    for made in checkpoints:
        table.add_row(
            str(made.version),
            escape(made.step),
            _coloured(made.agent),
            escape(", ".join(made.fields)),
            made.hash[:_HASH_CHARS],
        )
    return table


def _describe(state: Migration) -> str:
    lines = {
        "target_service": state.target_service,
        "status": state.status,
        "plan": f"{len(state.plan)} items",
        "dependencies": ", ".join(sorted(state.dependencies)),
        "findings": f"{len(state.findings)}, with {len(state.evidence)} pieces of evidence",
        "tokens_spent": f"{int(state.tokens_spent):,}",
    }
    width = max(len(name) for name in lines)
    shown = [f"[bold]{name:<{width}}[/]  {escape(value)}" for name, value in lines.items()]
    return "\n".join([*shown, "[bold]draft[/]", escape(str(state.draft).rstrip("\n"))])


def _check_table(checks: list[Check]) -> Table:
    table = Table(title="Checks", title_justify="left")
    for heading in ("check", "result", "found"):
        table.add_column(heading)
    for check in checks:
        colour = "green" if check.passed else "bold red"
        result = "ok" if check.passed else "FAILED"
        table.add_row(f"[{colour}]{check.name}[/]", f"[{colour}]{result}[/]", escape(check.detail))
    return table
