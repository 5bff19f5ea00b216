"""What the command ``crdt-board`` starts; works without the packages that the command line needs, to say so."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line, or say in one line what is not installed."""
    _open_closed_streams()
    try:
        from crdt_board_server import cli  # noqa: PLC0415 - the import is what is tried
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("crdt_board"):
            raise
        print(
            f"error: the command line needs {error.name}: pip install 'crdt-board[server]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    cli.main()


def _open_closed_streams() -> None:
    """Have all standard streams, so that no other file gets their numbers. Writing to one that was closed fails."""
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
