"""How far each client has come in one document, so that yrs is given only what is ready."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pycrdt

from crdt_board.errors import MalformedUpdate
from crdt_board.guarding import apply_update, guarded
from crdt_board.intake import Intake
from crdt_board.readiness import Extent, is_ready
from crdt_board.text_edits import TextEdits
from crdt_board.updates import clock_of, decode_state_vector

_LOOKS_MAX = 8


class NotReady(Exception):
    """An update builds on something that the document lacks; it was not given to yrs."""


class DocumentClocks:
    """The clocks of one document.

    Invariant: no client has come less far than is known here; and none but the document's own further, unless they lag.
    """

    def __init__(self, doc: pycrdt.Doc[Any], edits: TextEdits) -> None:
        self._doc = doc
        self._edits = edits
        self._clocks: dict[int, int] = {}
        self.lag = True
        """Whether the document was changed since in a way that was not counted here."""

    def state_vector(self) -> bytes:
        self._edits.settle()
        return self._doc.get_state()

    def all(self) -> dict[int, int]:
        """How far each client has come."""
        self._clocks = decode_state_vector(self.state_vector())
        self.lag = False
        return self._clocks

    def apply_ready(
        self, updates: Sequence[tuple[bytes, Extent]], intake: Intake | None = None
    ) -> list[MalformedUpdate | NotReady | bytes | None]:
        """Apply those updates that are ready when their turn comes; answer for each why it changed nothing, or what was
        applied in its place as ``intake`` demands.

        In one transaction, or two.

        Raises:
            DocumentBroken: yrs panicked; this document must not be used any more.
        """
        if intake is not None and self.lag:
            self._look_up({client for _, extent in updates for client in extent.ends})
        answers = self._apply_ready(updates, intake)
        late = [index for index, answer in enumerate(answers) if isinstance(answer, NotReady)]
        if late and self._catch_up(updates[late[0]][1]):
            again = self._apply_ready([updates[index] for index in late], intake)
            for index, answer in zip(late, again, strict=True):
                answers[index] = answer
        return answers

    def _apply_ready(
        self, updates: Sequence[tuple[bytes, Extent]], intake: Intake | None
    ) -> list[MalformedUpdate | NotReady | bytes | None]:
        answers: list[MalformedUpdate | NotReady | bytes | None] = []
        clocks = self._clocks
        with guarded(), self._doc.transaction():
            for update, extent in updates:
                if not is_ready(extent, clocks):
                    answers.append(NotReady())
                    continue
                instead: bytes | None = None
                if intake is not None and not intake.is_sound(extent, clocks):
                    try:
                        instead = intake.sound(update, clocks)
                    except MalformedUpdate as error:
                        answers.append(error)
                        continue
                problem = apply_update(self._doc, update if instead is None else instead)
                answers.append(problem or instead)
                if problem is None:
                    if extent.types and intake is not None and instead is None:
                        intake.remember(extent, clocks)
                    for client, end in extent.ends.items():
                        if end > clocks.get(client, 0):
                            clocks[client] = end
        return answers

    def _look_up(self, clients: Collection[int]) -> None:
        """Learn how far these have come, which costs little while they are few."""
        if len(clients) > _LOOKS_MAX:
            self.all()
            return
        state = self.state_vector()
        for client in clients:
            self._clocks[client] = clock_of(client, state)

    def _catch_up(self, extent: Extent) -> bool:
        """Whether an update that did not seem to be ready is; the own clock is looked up first, which costs less."""
        if extent.needs is None:
            return False
        own = self._doc.client_id
        if own in extent.needs:
            self._clocks[own] = clock_of(own, self.state_vector())
            if is_ready(extent, self._clocks):
                return True
        return self.lag and is_ready(extent, self.all())
