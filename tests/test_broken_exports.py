"""Exports that are damaged anywhere: what is made of one is the whole board, or nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from crdt_board import BadRequest, BoardCorrupt, BoardHost, BoardModel, LimitExceeded, Text, open_board
from crdt_board.artifacts import Artifacts, ArtifactStore, open_artifacts
from crdt_board.exports import export_board
from crdt_board.imports import import_board
from crdt_board.journal import Entry
from crdt_board.store.memory import MemoryStore


class Job(BoardModel):
    draft: Text
    files: dict[str, str] = {}


async def exported() -> tuple[bytes, list[Entry], str]:
    """A small board with two versions and an artifact; its entries, and the pointer to the artifact."""
    artifacts = open_artifacts(":memory:")
    async with BoardHost(MemoryStore(), artifacts=artifacts) as host:
        async with open_board(host, "job", Job, agent="ann") as board:
            made = await Artifacts(artifacts).put(b"a report")
            board.state.draft.append("written")
            await board.commit("first")
            board.state.files["report"] = made.pointer
            await board.commit("second", output={"done": True}, idempotency_key="once")
        entries = await host.store.entries("job", after=0, limit=100)
        file = io.BytesIO()
        await export_board(host.store, "job", file, artifacts=artifacts)
    return file.getvalue(), entries, made.pointer


async def made_of(data: bytes) -> tuple[list[Entry], ArtifactStore] | None:
    """What an import makes; None when it is refused, and nothing is there then."""
    store, artifacts = MemoryStore(), open_artifacts(":memory:")
    try:
        made = await import_board(store, io.BytesIO(data), artifacts=artifacts)
    except (BadRequest, BoardCorrupt, LimitExceeded):
        assert await store.boards() == []
        return None
    assert made.missing == ()
    return await store.entries("job", after=0, limit=100), artifacts


def flips(data: bytes) -> Iterator[bytes]:
    for place in range(len(data)):
        yield data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def cuts(data: bytes) -> Iterator[bytes]:
    for end in range(len(data)):
        yield data[:end]


def gaps(data: bytes) -> Iterator[bytes]:
    for place in range(len(data)):
        yield data[:place] + data[place + 1 :]


@pytest.mark.parametrize("damage", [flips, cuts, gaps])
async def test_an_export_that_is_damaged_at_any_byte_makes_the_whole_board_or_none(damage: object) -> None:
    """What may be altered are a few bytes in which gzip says nothing of the content."""
    data, entries, pointer = await exported()
    assert await made_of(data) is not None
    taken = 0
    for wrong in damage(data):  # type: ignore[operator]
        made = await made_of(wrong)
        if made is not None:
            taken += 1
            assert made[0] == entries
            assert await Artifacts(made[1]).get(pointer) == b"a report"
    assert taken < 20
