"""What the command ``crdt-board`` starts; works without the packages that the command line needs, to say so."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say in one line what is not installed."""
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
