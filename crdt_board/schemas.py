"""The schemas of one board: numbered, stored with it, and how a model joins them (DESIGN §4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crdt_board.errors import BoardCorrupt
from crdt_board.layout import Layout, check_successor
from crdt_board.store.contract import SchemaRecord, Store


class BoardSchemas:
    """What the store holds of a board's schemas, as far as it was read; numbers count from 1 without gaps."""

    def __init__(self, store: Store, board_id: str, records: Sequence[SchemaRecord]) -> None:
        self._store = store
        self._board_id = board_id
        self._records = list(records)
        self._layouts: dict[int, Layout] = {}
        self._joining = asyncio.Lock()

    @property
    def number(self) -> int:
        """The newest; 0 when no model was ever used."""
        return len(self._records)

    @property
    def newest(self) -> Layout | None:
        return self._layout(self.number) if self._records else None

    async def reload(self) -> None:
        """Read what other processes have added."""
        found = await self._store.schemas(self._board_id)
        if len(found) > len(self._records):
            self._records = found

    async def layout_of(self, number: int) -> Layout | None:
        """The schema under ``number``; None for 0, which is the board before any model was used.

        Raises:
            BoardCorrupt: a checkpoint names a schema that is not stored.
        """
        if number > self.number:
            await self.reload()
        if number > self.number:
            raise BoardCorrupt(f"board {self._board_id}: schema {number} is missing", board_id=self._board_id, seq=None)
        return self._layout(number) if number else None

    async def join(self, layout: Layout) -> int:
        """The number under which a model with this layout uses the board; recorded as a new one if it extends it.

        Raises:
            SchemaMismatch: the model does not fit; nothing was changed.
            StoreUnavailable: the store did not answer.
        """
        async with self._joining:
            while True:
                for record in self._records:
                    if record.fingerprint == layout.fingerprint:
                        return record.number
                newest = self.newest
                if newest is not None and not check_successor(newest, layout, self.number):
                    return self.number
                number = self.number + 1
                document = layout.model_dump_json()
                record = SchemaRecord(number=number, fingerprint=layout.fingerprint, document=document)
                await self._store.add_schema(self._board_id, record)
                await self.reload()  # ours, or that of a process that was first

    def _layout(self, number: int) -> Layout:
        if number not in self._layouts:
            self._layouts[number] = Layout.model_validate_json(self._records[number - 1].document)
        return self._layouts[number]
