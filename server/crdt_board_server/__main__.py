"""``python -m crdt_board_server`` is ``crdt-board``."""

from crdt_board_server.cli import main

main()
