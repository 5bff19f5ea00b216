"""A store that fails, waits or answers too late when it is told to, for tests of what stands on a store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import StoreUnavailable
from crdt_board.journal import Entry
from crdt_board.store.contract import (
    Append,
    AppendResult,
    BaseMove,
    BaseRecord,
    BoardHead,
    KeyRecord,
    NewBoard,
    SchemaRecord,
    SnapshotRecord,
    Store,
    StoredSizes,
    Tombstone,
)

T = TypeVar("T")
When = Literal["before", "after"]


@dataclass(slots=True)
class Gate:
    """A call that is held: ``reached`` is set when it has come, and it goes on after ``release``."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.released.set()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.released.wait()


class FaultyStore:
    """A `Store` around another one, with faults on order.

    Methods are named as in the contract; ``call`` counts the calls of that method from 1, those before the order
    included (``calls`` holds the counts so far). ``when="before"`` leaves the inner store untouched; ``"after"``
    lets it finish first, as when a commit is on disk and the answer is lost.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()
        self._failures: dict[tuple[str, int], When] = {}
        self._gates: dict[tuple[str, int], tuple[When, Gate]] = {}
        self._broken: dict[str, When] = {}

    def fail(self, method: str, *, call: int | None = None, when: When = "before") -> None:
        """Let one call raise `StoreUnavailable`: the next one, or the ``call``-th."""
        self._failures[self._order(method, call)] = when

    def hold(self, method: str, *, call: int | None = None, when: When = "before") -> Gate:
        """Let one call wait at the returned gate: the next one, or the ``call``-th."""
        gate = Gate()
        self._gates[self._order(method, call)] = (when, gate)
        return gate

    def break_down(self, *methods: str, when: When = "before") -> None:
        """Let every call of these methods raise `StoreUnavailable` until `repair`."""
        for method in methods:
            assert hasattr(self.inner, method), method
            self._broken[method] = when

    def repair(self) -> None:
        """End what `break_down` began."""
        self._broken.clear()

    def _order(self, method: str, call: int | None) -> tuple[str, int]:
        assert hasattr(self.inner, method), method
        number = self.calls[method] + 1 if call is None else call
        assert number > self.calls[method], f"{method} was called {self.calls[method]} times already"
        return (method, number)

    async def _through(self, method: str, inner: Callable[[], Awaitable[T]]) -> T:
        self.calls[method] += 1
        order = (method, self.calls[method])
        await self._disturb(order, "before")
        result = await inner()
        await self._disturb(order, "after")
        return result

    async def _disturb(self, order: tuple[str, int], moment: When) -> None:
        held_when, gate = self._gates.get(order, (None, None))
        if gate and held_when == moment:
            await gate.pass_through()
        if moment in (self._failures.get(order), self._broken.get(order[0])):
            raise StoreUnavailable(f"fault on order {moment} call {order[1]} of {order[0]}")

    async def close(self) -> None:
        await self._through("close", self.inner.close)

    async def now_ms(self) -> int:
        return await self._through("now_ms", self.inner.now_ms)

    async def head(self, board_id: str) -> BoardHead | None:
        return await self._through("head", lambda: self.inner.head(board_id))

    async def create(self, board_id: str, *, epoch: str, created_ms: int, anew: bool = False) -> BoardHead:
        return await self._through(
            "create", lambda: self.inner.create(board_id, epoch=epoch, created_ms=created_ms, anew=anew)
        )

    async def create_with(self, board: NewBoard) -> bool:
        return await self._through("create_with", lambda: self.inner.create_with(board))

    async def forks(self, board_id: str, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        return await self._through("forks", lambda: self.inner.forks(board_id, after=after, limit=limit))

    async def delete(self, tombstone: Tombstone) -> bool:
        return await self._through("delete", lambda: self.inner.delete(tombstone))

    async def tombstones(self, board_id: str) -> list[Tombstone]:
        return await self._through("tombstones", lambda: self.inner.tombstones(board_id))

    async def boards(self, *, after: str = "", limit: int = 100) -> list[BoardHead]:
        return await self._through("boards", lambda: self.inner.boards(after=after, limit=limit))

    async def append(self, requests: Sequence[Append]) -> list[AppendResult]:
        return await self._through("append", lambda: self.inner.append(requests))

    async def entries(self, board_id: str, *, after: int, limit: int) -> list[Entry]:
        return await self._through("entries", lambda: self.inner.entries(board_id, after=after, limit=limit))

    async def checkpoints(self, board_id: str, *, before: int | None = None, limit: int = 100) -> list[Checkpoint]:
        return await self._through("checkpoints", lambda: self.inner.checkpoints(board_id, before=before, limit=limit))

    async def checkpoint(self, board_id: str, version: int) -> Checkpoint | None:
        return await self._through("checkpoint", lambda: self.inner.checkpoint(board_id, version))

    async def keys(self, board_id: str, keys: Sequence[str]) -> dict[str, KeyRecord]:
        return await self._through("keys", lambda: self.inner.keys(board_id, keys))

    async def used_keys(self, board_id: str, *, after: str = "", limit: int = 1000) -> list[KeyRecord]:
        return await self._through("used_keys", lambda: self.inner.used_keys(board_id, after=after, limit=limit))

    async def schemas(self, board_id: str) -> list[SchemaRecord]:
        return await self._through("schemas", lambda: self.inner.schemas(board_id))

    async def add_schema(self, board_id: str, schema: SchemaRecord) -> bool:
        return await self._through("add_schema", lambda: self.inner.add_schema(board_id, schema))

    async def take_client_ids(self, board_id: str, limit: int) -> list[int]:
        return await self._through("take_client_ids", lambda: self.inner.take_client_ids(board_id, limit))

    async def return_client_ids(self, board_id: str, client_ids: Sequence[int], *, epoch: str) -> None:
        await self._through(
            "return_client_ids", lambda: self.inner.return_client_ids(board_id, client_ids, epoch=epoch)
        )

    async def save_snapshot(self, snapshot: SnapshotRecord, *, drop: Sequence[int] = ()) -> None:
        await self._through("save_snapshot", lambda: self.inner.save_snapshot(snapshot, drop=drop))

    async def snapshots(
        self, board_id: str, *, at_most: int | None = None, limit: int | None = None
    ) -> list[SnapshotRecord]:
        return await self._through("snapshots", lambda: self.inner.snapshots(board_id, at_most=at_most, limit=limit))

    async def snapshot_seqs(self, board_id: str, *, pinned: bool = False) -> list[int]:
        return await self._through("snapshot_seqs", lambda: self.inner.snapshot_seqs(board_id, pinned=pinned))

    async def base(self, board_id: str) -> BaseRecord | None:
        return await self._through("base", lambda: self.inner.base(board_id))

    async def retention(self, board_id: str) -> str:
        return await self._through("retention", lambda: self.inner.retention(board_id))

    async def set_retention(self, board_id: str, policy: str) -> None:
        return await self._through("set_retention", lambda: self.inner.set_retention(board_id, policy))

    async def sizes(self, board_id: str) -> StoredSizes:
        return await self._through("sizes", lambda: self.inner.sizes(board_id))

    async def keyed_versions(self, board_id: str, *, at_most: int) -> list[int]:
        return await self._through("keyed_versions", lambda: self.inner.keyed_versions(board_id, at_most=at_most))

    async def keep_checkpoints(self, board_id: str, versions: Sequence[int]) -> None:
        await self._through("keep_checkpoints", lambda: self.inner.keep_checkpoints(board_id, versions))

    async def move_base(self, move: BaseMove) -> bool:
        return await self._through("move_base", lambda: self.inner.move_base(move))

    async def drop_squashed(self, board_id: str, *, limit: int) -> int:
        return await self._through("drop_squashed", lambda: self.inner.drop_squashed(board_id, limit=limit))

    async def give_back(self, *, limit_bytes: int) -> bool:
        return await self._through("give_back", lambda: self.inner.give_back(limit_bytes=limit_bytes))

    async def wait_for_others(self) -> None:
        await self._through("wait_for_others", self.inner.wait_for_others)
