"""The command line: ``crdt-board serve`` and ``demo``; those over boards are in `looking`, `changing`, `working`,
`deciding` and `resolving`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from crdt_board import __version__
from crdt_board_server import artifact_commands, changing, deciding, looking, resolving, working
from crdt_board_server.terminal import SERVE, WORK_TOGETHER, Commands

app = typer.Typer(
    name="crdt-board",
    cls=Commands,
    help="A durable board that teams of AI agents, and people, edit at the same time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command line."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crdt-board {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command("serve", rich_help_panel=SERVE)
def serve_command(
    *,
    db: Annotated[
        Path, typer.Option(help="SQLite file with the boards, made if it is not there; :memory: keeps nothing.")
    ] = Path("boards.db"),
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8765,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Site whose web pages may use the server, as https://boards.example; can be repeated."),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Folder, or bucket as s3://bucket/prefix, for artifacts; DB-artifacts beside the database without.",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve the boards of a database over websockets, until Ctrl-C or SIGTERM.

    Agents connect to ws://HOST:PORT; any Yjs client to ws://HOST:PORT/ws with the board as its room. GET /healthz and
    /readyz tell whether the process and its database answer, GET /docs what else there is.

    Web pages of other sites are refused unless --origin names them; those of this machine may use a server that listens
    on it only.
    """
    from crdt_board_server.serving import run_server  # noqa: PLC0415 - half of what the other commands start in

    run_server(db, host, port, origin=origin or [], artifacts=artifacts, log_level=log_level)


@app.command("demo", rich_help_panel=SERVE)
def demo_command(
    seed: Annotated[int, typer.Option(help="Decides what the agents find, and their pace.")] = 1,
    db: Annotated[Path | None, typer.Option(help="SQLite file to use and keep; without it a temporary one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Watch five agents work on one board while its server, and one of them, are killed.

    Needs no model and no key, and takes ten to thirty seconds. The exit code is 1 when anything was lost or done twice.
    """
    options = ["--seed", str(seed)]
    if db is not None:
        options += ["--db", str(db)]
    if as_json:
        options += ["--json"]
    # The demo takes this process over, so that signals reach it and its exit code is that of the command.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "crdt_board_demo", *options])


looking.add_commands(app)
changing.add_commands(app)
working.add_commands(app)
deciding.add_commands(app)
resolving.add_commands(app)
app.add_typer(artifact_commands.app, rich_help_panel=WORK_TOGETHER)
