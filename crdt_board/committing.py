"""The commits of one handle on a board: from a patch to the request that is sent, and what its answer means here."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.checkpoints import Checkpoint, CommitRequest, PatchOp, check_decisions
from crdt_board.commit_arguments import fingerprint_of
from crdt_board.errors import VersionConflict, Violated
from crdt_board.findings import Findings
from crdt_board.patching import state_after
from crdt_board.paths import field_of
from crdt_board.replica import Change
from crdt_board.rule_watch import RuleWatch
from crdt_board.schema import BoardModel
from crdt_board.views import Patch, View
from crdt_board.wire_values import invalid_value

_Answered = Callable[[Awaitable[Checkpoint], "float | None"], Awaitable[Checkpoint]]
"""Waits for an answer of the link, at most so many seconds."""


class Committing:
    """Makes and sends the commits of ``agent``."""

    def __init__(self, session: BoardSession, view: View, rules: RuleWatch, *, agent: str, answered: _Answered) -> None:
        self._session = session
        self._view = view
        self._rules = rules
        self._agent = agent
        self._answered = answered

    async def commit(self, request: CommitRequest, patch: Patch | None, timeout: float | None = None) -> Checkpoint:
        self._session.check()
        self._session.rejections.check("; this commit was not made")
        if patch is not None and not isinstance(patch, Mapping | BoardModel):
            raise invalid_value("patch", f"maps field names to values, or is a model, but not a {type(patch).__name__}")
        operations, wire = self._view.patch(patch or {})
        base = patch._board_base.state if isinstance(patch, BoardModel) else None
        return await self.send(request, operations, wire, timeout, findings=self.findings(operations, wire, base))

    async def send(
        self,
        request: CommitRequest,
        operations: Sequence[PatchOp],
        wire: dict[str, JsonValue],
        timeout: float | None,
        *,
        findings: Findings | None,
    ) -> Checkpoint:
        self._session.check()
        fingerprint = fingerprint_of(request, wire) if request.idempotency_key is not None else ""
        added = {"patch": tuple(operations), "fingerprint": fingerprint, "findings": findings}
        request = request.model_copy(update=added)
        check_decisions(request)
        checkpoint = await self._answered(self._session.link.commit(request), timeout)
        consequence = f"; the commit was made without it, as version {checkpoint.version}"
        self._session.rejections.check(consequence, version=checkpoint.version)
        return checkpoint

    def findings(
        self,
        operations: Sequence[PatchOp],
        wire: dict[str, JsonValue] | None = None,
        base: dict[str, JsonValue] | None = None,
    ) -> Findings | None:
        """What the model's rules say of operations on top of the present state; arguments as for `state_after`."""
        document, wanted = self._session.replica.document, bool(operations) and self._rules.has_rules
        return self._rules.findings(state_after(document, operations, wire, base) if wanted else None)

    async def caught_up_with(self, conflict: VersionConflict | Violated) -> None:
        """Wait until this replica holds what it was refused for: the newest entry of then, and its checkpoint."""
        replica = self._session.replica
        await self._session.waiters.until(
            lambda: replica.seq >= conflict.seq and replica.version >= conflict.current_version, None
        )

    @contextlib.contextmanager
    def refusing_neighbours(self, fields: Sequence[str]) -> Iterator[None]:
        """Raise a conflict when another handle on this replica edits one of ``fields`` inside the block."""
        touched: set[str] = set()

        def watch(changes: Sequence[Change]) -> None:
            touched.update(field_of(change.path) for change in changes if change.local and change.agent != self._agent)

        watchers = self._session.replica.watchers
        watchers.append(watch)
        try:
            yield
        finally:
            watchers.remove(watch)
        changed = sorted(touched.intersection(fields))
        if changed:
            replica = self._session.replica
            raise VersionConflict(
                f"{', '.join(changed)} was edited through another handle on this replica since it was read",
                current_version=replica.version,
                author="",
                changed=changed,
                seq=replica.seq,
            )
