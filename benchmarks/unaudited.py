"""`crdt-board serve` without the audit, to measure against: the same program, with the part taken out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from crdt_board.audit import Audit
from crdt_board_server.entry import main


def _nothing(_audit: Audit, *, strays: bool = False) -> None:
    pass


@contextlib.contextmanager
def unaudited(wanted: bool) -> Iterator[None]:
    """Nothing is looked at inside the block, unless not ``wanted``."""
    begin = Audit.begin
    if wanted:
        Audit.begin = _nothing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Audit.begin = begin  # type: ignore[method-assign]


if __name__ == "__main__":
    with unaudited(True):
        main()
