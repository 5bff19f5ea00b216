"""What yrs does when it cannot go on, as errors that tell whether its document can be used any more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import pycrdt

from crdt_board.errors import MalformedUpdate


class DocumentBroken(Exception):
    """yrs panicked while it held the document: its content is no longer to be trusted and must be rebuilt."""


def guarded() -> AbstractContextManager[None]:
    """Turn a panic of yrs inside the block into `DocumentBroken`."""
    return _GUARD


def apply_update(doc: pycrdt.Doc[Any], update: bytes) -> MalformedUpdate | None:
    """Apply one update, inside a transaction; answer whether it was malformed (then it changed nothing).

    Raises:
        DocumentBroken: the document must not be used any more.
    """
    transaction = None if doc._txn is None else doc._txn._txn
    assert transaction is not None, "outside a transaction"
    try:
        # On the inner types: pycrdt's own wrapper opens a nested transaction for each, which takes as long again.
        doc._doc.apply_update(transaction, update)
    except ValueError as error:
        return MalformedUpdate(f"not a Yjs update: {error}")
    except RuntimeError as error:
        # yrs could not integrate a block, and may have integrated others before it.
        raise DocumentBroken(str(error)) from error
    return None


class _Guard:
    """Without a state, so that one serves all; a generator would cost 1 µs for each block."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # pyo3 raises panics as a BaseException whose class cannot be imported; [measured] a caught one leaves the
        # interpreter sound, but not the document.
        if kind is not None and kind.__name__ == "PanicException":
            raise DocumentBroken(str(error)) from error


_GUARD = _Guard()
