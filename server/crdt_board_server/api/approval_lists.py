"""Approvals of boards that nobody needs to have open: read from the store, and kept until the board has moved."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from crdt_board.coordination.approvals import ApprovalOperation, ApprovalRecord
from crdt_board.document import Document
from crdt_board.errors import BoardClosed, BoardCorrupt, BoardDeleted, NotFound
from crdt_board.history import BoardHistory
from crdt_board.host import BoardHost
from crdt_board.limits import check_board_id
from crdt_board.store.contract import BoardHead
from crdt_board.store.lookup import existing_head
from crdt_board_server.api.approval_answers import BoardApproval, ShownApproval

_BOARDS_KEPT = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The approvals of a board as of an entry of its journal."""

    epoch: str
    seq: int
    records: tuple[ApprovalRecord, ...]


class ApprovalLists:
    """The approvals of the boards of a host, each as of now: what has run out is shown as expired."""

    def __init__(self, host: BoardHost) -> None:
        self._host = host
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    async def of(self, board_id: str) -> list[BoardApproval]:
        """Those of one board, in the order of asking.

        Raises:
            NotFound, BoardDeleted: there is no such board.
        """
        head = await existing_head(self._host.store, check_board_id(board_id, self._host.limits))
        return await self._of(head, await self._host.store.now_ms())

    async def page(self, *, after: str, limit: int) -> tuple[list[BoardApproval], str | None]:
        """Those of up to ``limit`` boards whose id is greater than ``after``, and where to go on; None at the end.

        A board that cannot be read is left out, which the log says.
        """
        heads = await self._host.store.boards(after=after, limit=limit)
        now_ms = await self._host.store.now_ms()
        found: list[BoardApproval] = []
        for head in heads:
            try:
                found += await self._of(head, now_ms)
            except (NotFound, BoardDeleted):
                continue
            except BoardCorrupt as error:
                logger.warning("the approvals of board %s are left out: %s", head.board_id, error)
        return found, heads[-1].board_id if len(heads) == limit else None

    async def one(self, board_id: str, approval_id: str) -> ShownApproval:
        """One approval, with what is at its paths now.

        Raises:
            NotFound, BoardDeleted: there is no such board, or no such approval.
        """
        await existing_head(self._host.store, check_board_id(board_id, self._host.limits))
        document = (await BoardHistory(self._host.store, board_id).load(None)).document
        record = document.ledger.get(ApprovalRecord, approval_id)
        if record is None:
            raise NotFound(f"there is no approval {approval_id} on board {board_id}")
        content = {path: document.wire_at(path) for path in record.about}
        return ShownApproval.of(board_id, record.as_of(await self._host.store.now_ms()), content=content)

    async def coordinate(self, board_id: str, agent: str, operation: ApprovalOperation) -> BoardApproval:
        """Have the writer of a board decide on an operation; return the approval as it is then. Durable on return.

        Raises:
            NotFound, BoardDeleted: there is no such board.
            BoardError: it is refused.
        """
        await existing_head(self._host.store, check_board_id(board_id, self._host.limits))
        async with self._host.board(board_id) as engine:
            engine.refresh()  # another process may have asked
            coordinated = await engine.coordinate(agent, [operation])
        return BoardApproval.of(board_id, ApprovalRecord.model_validate(coordinated.results[0]))

    async def _of(self, head: BoardHead, now_ms: int) -> list[BoardApproval]:
        records = sorted(await self._records(head), key=lambda each: each.number)
        return [BoardApproval.of(head.board_id, record.as_of(now_ms)) for record in records]

    async def _records(self, head: BoardHead) -> Sequence[ApprovalRecord]:
        seen = self._seen.get(head.board_id)
        if seen is None or (seen.epoch, seen.seq) != (head.epoch, head.seq):
            seen = self._seen[head.board_id] = await self._read(head)
        self._seen.move_to_end(head.board_id)
        if len(self._seen) > _BOARDS_KEPT:
            self._seen.popitem(last=False)
        return seen.records

    async def _read(self, head: BoardHead) -> _Seen:
        def look(document: Document) -> tuple[ApprovalRecord, ...]:
            return tuple(document.ledger.all(ApprovalRecord).values())

        engine = self._host.open_boards().get(head.board_id)
        if engine is not None and engine.failure is None and engine.seq >= head.seq:
            try:
                seq = engine.seq  # what is read may be newer, and is then read once more
                return _Seen(engine.epoch, seq, await engine.read(look))
            except BoardClosed:
                pass
        loaded = await BoardHistory(self._host.store, head.board_id).load(None)
        return _Seen(head.epoch, loaded.fold.seq, look(loaded.document))
