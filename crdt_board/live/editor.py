"""What live values need from the replica that they edit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from crdt_board.document import Document


class Editor(Protocol):
    """One agent's access to a replica's document."""

    @property
    def document(self) -> Document: ...

    def edit(self) -> AbstractContextManager[None]:
        """Around every local write; joins the transaction that is open, if one is."""
        ...
