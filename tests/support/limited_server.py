"""The server with other limits than the default ones: ``python -m support.limited_server --limit=name=value …``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from crdt_board.limits import DEFAULT_LIMITS
from crdt_board_server.app import ServerConfig, bind, serve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", action="append", default=[])
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    changes = dict(item.split("=") for item in arguments.limit)
    kinds = {name: type(getattr(DEFAULT_LIMITS, name)) for name in changes}
    limits = replace(DEFAULT_LIMITS, **{name: kinds[name](value) for name, value in changes.items()})
    listening = bind("127.0.0.1", arguments.port)
    print(f"serving on http://127.0.0.1:{listening.getsockname()[1]} ", file=sys.stderr, flush=True)
    with listening:
        asyncio.run(serve(ServerConfig(database=arguments.db, limits=limits), listening))


if __name__ == "__main__":
    main()
