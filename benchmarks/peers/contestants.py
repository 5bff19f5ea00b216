"""Which servers are measured, how each is started, and what each promises of its store."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import PROJECT

FILES = Path(__file__).resolve().parent / "files"
NODE = "node"
"""The folder of the Node packages in the cache."""
VENV = "venv"
"""The environment of the Python peers in the cache."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server. In ``command`` and ``environment`` stand ``{port}``, ``{data}`` and ``{cache}``."""

    name: str
    command: tuple[str, ...]
    store: str
    """When what it sends to others is on the disk."""
    needs: str | None = None
    """`NODE` or `VENV`, where it is not this project's."""
    path: str = "/%s"
    """Of a room's websocket."""
    is_named: bool = False
    """Whether each message begins with the name of its room, as Hocuspocus has it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    is_floor: bool = False
    """Whether it is no peer but what the libraries take for the same work, which ours is held against."""


OURS = "crdt-board"
CONTESTANTS = (
    Contestant(
        OURS,
        (
            *(sys.executable, "-m", "crdt_board_server", "serve"),
            *("--db", "{data}/boards.db", "--port", "{port}", "--log-level", "warning"),
        ),
        "SQLite; synced to the disk before anybody is sent it",
        path="/ws/%s",
    ),
    Contestant(
        "y-websocket",
        ("node", "{cache}/node/node_modules/@y/websocket-server/src/server.js"),
        "LevelDB; written after it was sent, not synced",
        needs=NODE,
        environment={"HOST": "127.0.0.1", "PORT": "{port}", "YPERSISTENCE": "{data}/level"},
    ),
    Contestant(
        "hocuspocus",
        ("node", "{cache}/node/hocuspocus.mjs", "{port}", "{data}"),
        "SQLite; the whole document, 2 to 10 s after it was sent",
        needs=NODE,
        path="/",
        is_named=True,
    ),
    Contestant(
        "yjs-server",
        ("node", "{cache}/node/yjs_server.mjs", "{port}", "{data}"),
        "LevelDB; written after it was sent, not synced",
        needs=NODE,
    ),
    Contestant(
        "pycrdt-websocket",
        (
            *("{cache}/venv/bin/uvicorn", "pycrdt_websocket:app", "--app-dir", str(FILES)),
            *("--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning"),
        ),
        "SQLite; committed after it was sent",
        needs=VENV,
        environment={"DATA": "{data}"},
    ),
    Contestant(
        "floor",
        (sys.executable, "-m", "benchmarks.peers.floor", "{port}", "{data}"),
        "SQLite; synced to the disk before anybody is sent it",
        environment={"PYTHONPATH": str(PROJECT)},
        is_floor=True,
    ),
)
