"""Journal entries, their chain, and how updates are packed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.errors import BoardCorrupt, MalformedUpdate
from crdt_board.journal import GENESIS_HASH, Entry, make_entry, pack_updates, unpack_updates, verify_chain


def chain(length: int) -> list[Entry]:
    entries: list[Entry] = []
    for seq in range(1, length + 1):
        entries.append(
            make_entry(
                entries[-1].hash if entries else GENESIS_HASH,
                board_id="job",
                epoch="epoch-1",
                seq=seq,
                kind="update",
                author="planner",
                time_ms=seq,
                paths=("draft",),
                checkpoint="",
                payload=pack_updates([bytes([seq])]),
            )
        )
    return entries


CHANGES: dict[str, Any] = {
    "board_id": "jobs",
    "epoch": "epoch-2",
    "kind": "commit",
    "author": "planner2",
    "time_ms": 99,
    "paths": ("draft", "plan"),
    "checkpoint": "{}",
    "payload": b"\x01\xff",
    "hash": "f" * 64,
}


def test_a_sound_chain_verifies() -> None:
    """A chain verifies as a whole, in parts, and when there is nothing in it; the end is returned."""
    entries = chain(5)
    assert verify_chain(GENESIS_HASH, 0, entries) == (entries[4].hash, 5)
    middle = verify_chain(GENESIS_HASH, 0, entries[:2])
    assert verify_chain(*middle, entries[2:]) == (entries[4].hash, 5)
    assert verify_chain(GENESIS_HASH, 0, []) == (GENESIS_HASH, 0)


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_of_an_entry_is_found(name: str) -> None:
    """D8: an entry of which any attribute was changed is the one that is named."""
    entries = chain(5)
    entries[2] = replace(entries[2], **{name: CHANGES[name]})
    with pytest.raises(BoardCorrupt, match="journal entry 3 does not match its hash") as caught:
        verify_chain(GENESIS_HASH, 0, entries)
    assert caught.value.seq == 3


def test_every_attribute_is_under_the_hash() -> None:
    """The table of changes above covers every attribute but ``seq``, whose gaps have an error of their own."""
    assert set(CHANGES) | {"seq"} == set(Entry.__dataclass_fields__)


@pytest.mark.parametrize("order", [[0, 2], [1, 0], [0, 0], [1]])
def test_gaps_and_swaps_are_found(order: list[int]) -> None:
    """A missing, repeated or misplaced entry is reported by the seq that should have been there."""
    entries = chain(3)
    with pytest.raises(BoardCorrupt, match="is missing") as caught:
        verify_chain(GENESIS_HASH, 0, [entries[place] for place in order])
    assert caught.value.seq == next(n for n, place in enumerate(order, 1) if place + 1 != n)


def test_a_rewritten_entry_breaks_the_chain_behind_it() -> None:
    """An entry with a hash that fits its new content does not fit the entry after it."""
    entries = chain(3)
    header = {name: getattr(entries[1], name) for name in Entry.__dataclass_fields__ if name != "hash"}
    entries[1] = make_entry(entries[0].hash, **(header | {"author": "somebody else"}))
    with pytest.raises(BoardCorrupt) as caught:
        verify_chain(GENESIS_HASH, 0, entries)
    assert caught.value.seq == 3


@given(updates=st.lists(st.binary(max_size=300)))
def test_packed_updates_come_back(updates: list[bytes]) -> None:
    """Unpacking what was packed gives the same updates in the same order, empty ones included."""
    assert unpack_updates(pack_updates(updates)) == updates


@given(updates=st.lists(st.binary(min_size=1, max_size=300), min_size=1))
def test_a_cut_payload_is_malformed(updates: list[bytes]) -> None:
    """A payload that ends inside an update is refused."""
    with pytest.raises(MalformedUpdate):
        unpack_updates(pack_updates(updates)[:-1])


@given(payload=st.binary(max_size=200))
def test_garbage_is_unpacked_or_refused(payload: bytes) -> None:
    """H1: any bytes are unpacked into parts of them or refused, never anything else."""
    try:
        updates = unpack_updates(payload)
    except MalformedUpdate:
        return
    assert sum(map(len, updates)) <= len(payload)
