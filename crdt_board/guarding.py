"""What yrs does when it cannot go on, as errors that tell whether its document can be used any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pycrdt

from crdt_board.errors import MalformedUpdate


class DocumentBroken(Exception):
    """yrs panicked while it held the document: its content is no longer to be trusted and must be rebuilt."""


def guarded() -> AbstractContextManager[None]:
    """Turn a panic of yrs inside the block into `DocumentBroken`."""
    return _guard()


def apply_update(doc: pycrdt.Doc[Any], update: bytes) -> MalformedUpdate | None:
    """Apply one update, inside a transaction; answer whether it was malformed (then it changed nothing).

    Raises:
        DocumentBroken: the document must not be used any more.
    """
    try:
        doc.apply_update(update)
    except ValueError as error:
        return MalformedUpdate(f"not a Yjs update: {error}")
    except RuntimeError as error:
        # yrs could not integrate a block, and may have integrated others before it.
        raise DocumentBroken(str(error)) from error
    return None


@contextmanager
def _guard() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        # pyo3 raises panics as a BaseException whose class cannot be imported; [measured] a caught one leaves the
        # interpreter sound, but not the document.
        if type(error).__name__ == "PanicException":
            raise DocumentBroken(str(error)) from error
        raise
