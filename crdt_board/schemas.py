"""The schemas of one board: numbered, stored with it, and how a model joins them (DESIGN §4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import ValidationError

from crdt_board.errors import BoardCorrupt, SchemaMismatch
from crdt_board.layout import Layout, check_successor, lost_by
from crdt_board.placement import place_fields
from crdt_board.store.contract import SchemaRecord, Store


class BoardSchemas:
    """What the store holds of a board's schemas, as far as it was read; numbers count from 1 without gaps.

    A schema is *live* while every one after it only added optional fields: who writes under it may go on.
    """

    def __init__(self, store: Store, board_id: str, records: Sequence[SchemaRecord]) -> None:
        self._store = store
        self._board_id = board_id
        self._layouts: list[Layout] = []
        self._oldest_live = 1
        self._joining = asyncio.Lock()
        self.extend(records)

    @property
    def number(self) -> int:
        """The newest; 0 when no model was ever used."""
        return len(self._layouts)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """All of them, in order of their numbers."""
        return tuple(self._layouts)

    @property
    def newest(self) -> Layout | None:
        return self._layouts[-1] if self._layouts else None

    def extend(self, records: Sequence[SchemaRecord]) -> None:
        """Take in records that are stored; those that are known already are passed over.

        Raises:
            BoardCorrupt: one of them is no schema, or does not follow the one before it.
        """
        for record in records:
            if not 1 <= record.number <= self.number:
                self._add(record)

    def _add(self, record: SchemaRecord) -> None:
        if record.number != self.number + 1:
            raise self._corrupt(f"schema {self.number + 1} is missing (found {record.number})")
        try:
            layout = Layout.model_validate_json(record.document)
        except ValidationError as error:
            raise self._corrupt(f"schema {record.number} cannot be read") from error
        if self._layouts and lost_by(self._layouts[-1], layout):
            self._oldest_live = record.number
        self._layouts.append(layout)

    async def reload(self) -> None:
        """Read what other processes have added."""
        self.extend(await self._store.schemas(self._board_id))

    async def layout_of(self, number: int) -> Layout | None:
        """The schema under ``number``; None for 0, which is the board before any model was used.

        Raises:
            BoardCorrupt: a checkpoint names a schema that is not stored.
        """
        if number > self.number:
            await self.reload()
        if number > self.number:
            raise self._corrupt(f"schema {number} is missing")
        return self._layouts[number - 1] if number else None

    def last_like(self, number: int) -> int:
        """The newest schema that is ``number``, or only adds optional fields to it."""
        while 0 < number < self.number and not lost_by(self._layouts[number - 1], self._layouts[number]):
            number += 1
        return number

    def refusal_of(self, number: int | None) -> SchemaMismatch | None:
        """Why who writes under schema ``number`` cannot go on, or None.

        None and 0 stand for who knows of no schema, and writes what every schema can take over.
        """
        if not number or number >= self._oldest_live:
            return None
        lost = lost_by(self._layouts[number - 1], self._layouts[-1]) or ["the board was migrated"]
        return SchemaMismatch(
            f"board {self._board_id} was migrated to schema {self.number}, and this replica writes under schema "
            f"{number}: {'; '.join(lost)}; open it again with the newer model",
            fields=lost,
            board_schema=self.number,
            model_schema=number,
        )

    def find(self, model: Layout, migrates: Sequence[int]) -> int | None:
        """The number under which a model uses the board as it is; None when schemas must be recorded before.

        ``migrates`` are the numbers of the schemas that the model has migrations from.

        Raises:
            SchemaMismatch: the model does not fit, or must migrate the board first; ``board_schema`` is its newest.
        """
        newest = self.newest
        if newest is None:
            return None
        if self.number in migrates:
            raise SchemaMismatch(
                f"{model.title} migrates board {self._board_id} from its schema {self.number}",
                fields=lost_by(newest, model),
                board_schema=self.number,
            )
        if newest.fingerprint == model.fingerprint:
            return self.number if self.number >= number_of(migrates) else None
        for number in range(self.number - 1, self._oldest_live - 1, -1):
            if self._layouts[number - 1].fingerprint == model.fingerprint:
                return number
        return None if check_successor(newest, model, self.number) else self.number

    def following(self, model: Layout, migrates: Sequence[int]) -> list[SchemaRecord]:
        """The records that make a model the board's newest schema.

        A model is schema ``n + 1`` when its newest migration is from ``n``, also on a board that begins with it, so
        that later migrations find each board under the number that they were written for.
        """
        number = self.number + 1
        layout = place_fields(model, self._layouts, number)
        document = layout.model_dump_json()
        return [
            SchemaRecord(number=each, fingerprint=layout.fingerprint, document=document)
            for each in range(number, max(number, number_of(migrates)) + 1)
        ]

    async def join(self, model: Layout, migrates: Sequence[int] = ()) -> int:
        """The number under which a model uses the board; recorded as a new one if it extends it.

        Raises:
            SchemaMismatch: the model does not fit; nothing was changed.
            StoreUnavailable: the store did not answer.
        """
        async with self._joining:
            while (number := self.find(model, migrates)) is None:
                for record in self.following(model, migrates):
                    await self._store.add_schema(self._board_id, record)
                await self.reload()  # ours, or that of a process that was first
            return number

    def _corrupt(self, reason: str) -> BoardCorrupt:
        return BoardCorrupt(f"board {self._board_id}: {reason}", board_id=self._board_id, seq=None)


def number_of(migrates: Sequence[int]) -> int:
    """The least number that a model with these migrations has on a board."""
    return max(migrates, default=0) + 1
