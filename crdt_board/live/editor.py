"""What live values need from the replica that they edit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pydantic import JsonValue

from crdt_board.document import Document


class Editor(Protocol):
    """One agent's access to a replica's document."""

    @property
    def document(self) -> Document: ...

    @property
    def agent(self) -> str:
        """The name under which it writes."""
        ...

    def now_ms(self) -> int:
        """The time that candidates are written with; see `crdt_board.clock.Clock`."""
        ...

    def edit(self, content: JsonValue = None, *, group: object = None) -> AbstractContextManager[None]:
        """Around every local write; joins the transaction that is open, if one is.

        ``content`` is what it writes, where that may be large. Writes of one ``group`` that follow each other are taken
        back by one undo.
        """
        ...
