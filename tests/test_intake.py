"""What the writer of a board gives to yrs of what peers send, so that the board reads alike when it is loaded again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pycrdt
import pytest
from pydantic import JsonValue

from crdt_board import BoardModel, Text
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import MalformedUpdate
from crdt_board.fold import Fold
from crdt_board.host import BoardHost
from crdt_board.journal import unpack_updates
from crdt_board.loading import LoadedBoard, apply_entries
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.varint import write_varuint

BOARD = "job-1"


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Job(BoardModel):
    draft: Text
    remarks: Text
    plan: list[str] = []
    findings: dict[str, Finding]


LAYOUT = Job.board_layout()


class Shared(MemoryStore):
    """A store that outlives the hosts that use it, as a file does."""

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def opened(store: Shared) -> AsyncIterator[Engine]:
    async with BoardHost(store) as host, host.board(BOARD) as engine:
        await engine.join(LAYOUT)
        yield engine


def submit(engine: Engine, *updates: bytes, source: str = "guest", whole: bool = False) -> asyncio.Future[Receipt]:
    told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(
        Submission(updates=updates, author=source, source=source, written=told.set_result, is_difference=whole)
    )
    return told


async def state_of(engine: Engine) -> dict[str, JsonValue]:
    return await engine.read(Document.wire_state)


async def journal_of(store: Shared) -> list[bytes]:
    entries = await store.entries(BOARD, after=0, limit=1_000)
    return [update for entry in entries for update in unpack_updates(entry.payload)]


async def check_loads_alike(store: Shared, state: dict[str, JsonValue]) -> None:
    """Opened again, and from the journal alone, in one transaction or in many, the board reads as it did."""
    async with opened(store) as engine:
        assert await state_of(engine) == state
    for is_apart in (False, True):
        loaded = LoadedBoard(document=Document(LAYOUT, strays=True), fold=Fold(epoch=""))
        apply_entries(loaded, await store.entries(BOARD, after=0, limit=1_000), is_apart=is_apart)
        assert loaded.document.wire_state() == state


def struct(client: int, clock: int, place: bytes, text: str, *, kind: int = 4) -> bytes:
    """An update of one struct of characters; ``place`` is its first byte without the kind, and what follows."""
    content = write_varuint(len(text)) + text.encode()
    return (
        b"\x01\x01"
        + write_varuint(client)
        + write_varuint(clock)
        + bytes([place[0] | kind])
        + place[1:]
        + content
        + b"\x00"
    )


def in_root(name: str) -> bytes:
    return b"\x00\x01" + write_varuint(len(name)) + name.encode()


def inside(client: int, clock: int) -> bytes:
    return b"\x00\x00" + write_varuint(client) + write_varuint(clock)


def deletion(client: int, clock: int, length: int) -> bytes:
    return b"\x00\x01" + write_varuint(client) + b"\x01" + write_varuint(clock) + write_varuint(length)


@pytest.mark.parametrize("whole", [False, True])
async def test_a_struct_that_says_otherwise_of_what_is_known_follows_what_is_there(whole: bool) -> None:
    """H1: it begins inside what is known, in another text: what is known is cut off, the rest stays in one text."""
    store = Shared()
    async with opened(store) as engine:
        assert (await submit(engine, struct(5, 0, in_root("draft"), "ab"))).error is None
        assert (
            await submit(engine, struct(5, 0, in_root("remarks"), "xyz"), source="another", whole=whole)
        ).error is None
        state = await state_of(engine)
        assert (state["draft"], state.get("remarks", "")) == ("abz", "")
    assert (await journal_of(store))[-1] == struct(5, 2, b"\x80\x05\x01", "z")
    await check_loads_alike(store, state)


async def test_an_honest_update_that_repeats_what_is_known_is_taken() -> None:
    """A relay may send on what a client wrote as one longer struct: only its end is new, and kept."""
    store, doc = Shared(), pycrdt.Doc[Any](client_id=5)
    text = doc.get("draft", type=pycrdt.Text)
    async with opened(store) as engine:
        text += "ab"
        await submit(engine, doc.get_update())
        text += "cé🙂"
        receipt = await submit(engine, doc.get_update(), source="relay")
        assert receipt == Receipt(seq=2)
        assert (await submit(engine, doc.get_update())).error is None
        assert (await state_of(engine))["draft"] == "abcé🙂"
    assert b"ab" not in (await journal_of(store))[1]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("where", ["before", "in the same update", "in the same turn"])
async def test_nothing_is_put_inside_what_is_no_shared_type(where: str, whole: bool) -> None:
    """H1: one clear refusal, and everybody else is served."""
    characters, child = struct(5, 0, in_root("draft"), "ab"), struct(6, 0, inside(5, 1), "x")
    async with opened(Shared()) as engine:
        if where == "before":
            await submit(engine, characters)
        if where == "in the same update":
            child = b"\x02" + characters[1:-1] + child[1:]
        elif where == "in the same turn":
            submit(engine, characters)
        told = submit(engine, child, source="evil", whole=whole)
        honest = submit(engine, struct(7, 0, in_root("draft"), "c"), source="honest")
        refused = await told
        assert isinstance(refused.error, MalformedUpdate)
        assert refused.error.code == "malformed_update"
        assert (await honest).error is None
        assert "c" in str((await state_of(engine))["draft"])


async def test_what_is_inside_something_that_is_gone_is_kept_as_gone() -> None:
    """H1: nobody knows what it was; loaded in one transaction, where it is not gone yet, it must not matter."""
    store = Shared()
    async with opened(store) as engine:
        await submit(engine, struct(5, 0, in_root("draft"), "ab"))
        await submit(engine, deletion(5, 0, 2))
        assert (await submit(engine, struct(6, 0, inside(5, 1), "x"), source="evil")).error is None
        assert (await submit(engine, struct(6, 1, b"\x80\x06\x00", "y"), source="evil")).error is None
        state = await state_of(engine)
    assert b"\x01\x01\x06\x00\x00\x01\x00" in await journal_of(store)
    await check_loads_alike(store, state)


async def test_who_writes_into_a_record_that_was_removed_meanwhile_is_not_refused() -> None:
    """An honest client that was away: its record is gone, and all else that it wrote is there."""
    store = Shared()
    async with opened(store) as engine:
        doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=5)
        findings = doc.get("findings", type=pycrdt.Map)
        findings["a"] = pycrdt.Map({"title": "t", "notes": pycrdt.Text("")})
        await submit(engine, doc.get_update())
        known = doc.get_state()
        with doc.transaction():
            findings["a"]["notes"].insert(0, "more")
            doc.get("draft", type=pycrdt.Text).insert(0, "kept")
        late = doc.get_update(known)
        other: pycrdt.Doc[Any] = pycrdt.Doc(client_id=6)
        other.apply_update(await engine.read(Document.encode))
        del other.get("findings", type=pycrdt.Map)["a"]
        await submit(engine, other.get_update(known), source="other")
        assert (await submit(engine, late)).error is None
        state = await state_of(engine)
        assert (state["draft"], state.get("findings", {})) == ("kept", {})
    await check_loads_alike(store, state)


async def test_records_of_a_board_that_was_opened_again_are_written_into() -> None:
    """What holds shared types is found in the document when it is not remembered."""
    store = Shared()
    doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=5)
    findings = doc.get("findings", type=pycrdt.Map)
    async with opened(store) as engine:
        findings["a"] = pycrdt.Map({"title": "t", "notes": pycrdt.Text("")})
        await submit(engine, doc.get_update())
    async with opened(store) as engine:
        known = doc.get_state()
        findings["a"]["notes"].insert(0, "more")
        assert (await submit(engine, doc.get_update(known))).error is None
        found = (await state_of(engine))["findings"]
        assert found == {"a": {"title": "t", "notes": "more"}}
