"""The command line: ``crdt-board serve`` and ``demo``; those over boards are in `looking`, `changing` and `working`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import structlog
import typer

from crdt_board import __version__
from crdt_board.artifacts import ArtifactStore, open_artifacts
from crdt_board.errors import BoardError
from crdt_board.store.contract import Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server import artifact_commands, changing, looking, working
from crdt_board_server.app import bind, serve
from crdt_board_server.origins import Origins
from crdt_board_server.terminal import fail

app = typer.Typer(
    name="crdt-board",
    help="A durable board that teams of AI agents, and people, edit at the same time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_EXIT_USAGE = 2
_OBJECTS_PER_COLLECTION = 20_000


looking.add_commands(app)
changing.add_commands(app)
app.add_typer(artifact_commands.app)
working.add_commands(app)


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


@app.command("serve")
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
    _set_up_logging(log_level)
    if not host:
        fail(
            "--host is empty, which would be every network: name an address, 127.0.0.1 for this machine only",
            _EXIT_USAGE,
        )
    allowed = origin or []
    try:
        Origins(allowed)
        place = None if artifacts is None else open_artifacts(artifacts)
    except BoardError as error:
        fail(str(error), _EXIT_USAGE)
    try:
        listening = bind(host, port)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror or error}. Choose another with --port or --host.")
    try:
        with contextlib.closing(listening), contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_serve(db, host, listening, allowed, place))
    except BoardError as error:
        fail(str(error))


async def _serve(
    db: Path, host: str, listening: socket.socket, allowed: Sequence[str], artifacts: ArtifactStore | None
) -> None:
    # What waits to be written is many small objects without cycles. Looking through them again and again took a tenth
    # of what an update costs [measured]; what was imported is not looked through at all.
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])
    store: Store = MemoryStore() if str(db) == ":memory:" else await SqliteStore.open(db)
    place = f"[{host}]" if ":" in host else host
    place += f":{listening.getsockname()[1]}"
    typer.echo(f"CRDT Board serves {db} on http://{place} and ws://{place} (Ctrl-C stops it)", err=True)
    if not ipaddress.ip_address(listening.getsockname()[0]).is_loopback:
        typer.echo(
            "Anybody who reaches this address can read and write every board: there are no accounts yet", err=True
        )
    await serve(store, listening, artifacts=artifacts, allowed=allowed)
    typer.echo("CRDT Board stopped; everything acknowledged is on disk", err=True)


@app.command("demo")
def demo_command(
    seed: Annotated[int, typer.Option(help="Decides what the agents find, and their pace.")] = 1,
    db: Annotated[Path | None, typer.Option(help="SQLite file to use and keep; without it a temporary one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")] = False,
) -> None:
    """Watch five agents work on one board while its server, and one of them, are killed.

    Needs no model and no key, and takes about ten seconds. The exit code is 1 when anything was lost or done twice.
    """
    options = ["--seed", str(seed)]
    if db is not None:
        options += ["--db", str(db)]
    if as_json:
        options += ["--json"]
    # The demo takes this process over, so that signals reach it and its exit code is that of the command.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "crdt_board_demo", *options])


def _set_up_logging(level: str) -> None:
    names = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
    if level.lower() not in names:
        fail(f"--log-level {level}: choose one of {', '.join(names)}", _EXIT_USAGE)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso"),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=names[level.lower()], handlers=[handler], force=True)
    for noisy in ("uvicorn.error", "crdt_board_server.wire", "aiosqlite", "asyncio"):
        logging.getLogger(noisy).setLevel(max(names[level.lower()], logging.WARNING))
