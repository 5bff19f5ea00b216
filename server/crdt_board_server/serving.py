"""What ``crdt-board serve`` runs: checks what it was told, sets up logging, serves until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import typer

from crdt_board.artifacts import ArtifactStore, open_artifacts
from crdt_board.document import Document
from crdt_board.errors import BoardError
from crdt_board.store.contract import Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.app import bind, serve
from crdt_board_server.descriptors import AcceptWarnings, raise_limit
from crdt_board_server.gathering import gathering_loop
from crdt_board_server.origins import Origins
from crdt_board_server.terminal import fail

_EXIT_USAGE = 2
_OBJECTS_PER_COLLECTION = 20_000
_SWITCH_SECONDS = 0.001


def run_server(db: Path, host: str, port: int, *, origin: Sequence[str], artifacts: str | None, log_level: str) -> None:
    """Serve until Ctrl-C or SIGTERM; ends the command when something is wrong with what it was told."""
    _set_up_logging(log_level)
    if not host:
        fail(
            "--host is empty, which would be every network: name an address, 127.0.0.1 for this machine only",
            _EXIT_USAGE,
        )
    try:
        Origins(origin)
        place = None if artifacts is None else open_artifacts(artifacts)
    except BoardError as error:
        fail(str(error), _EXIT_USAGE)
    try:
        listening = bind(host, port)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {error.strerror or error}. Choose another with --port or --host.")
    try:
        with (
            contextlib.closing(listening),
            contextlib.suppress(KeyboardInterrupt),
            asyncio.Runner(loop_factory=gathering_loop) as runner,
        ):
            runner.run(_serve(db, host, listening, origin, place))
    except BoardError as error:
        fail(str(error))


async def _serve(
    db: Path, host: str, listening: socket.socket, allowed: Sequence[str], artifacts: ArtifactStore | None
) -> None:
    raise_limit()
    asyncio.get_running_loop().set_exception_handler(AcceptWarnings())
    Document()  # the first one in a process imports for 13 ms [measured], which the first client would wait for
    # What waits to be written is many small objects without cycles. Looking through them again and again took a tenth
    # of what an update costs [measured]; what was imported is not looked through at all.
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION, *gc.get_threshold()[1:])
    # The store's thread takes the interpreter's lock back after each statement: it waited 5 ms each time, as is usual.
    sys.setswitchinterval(_SWITCH_SECONDS)
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
