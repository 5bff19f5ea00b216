from __future__ import annotations

import random
from typing import Any

import pycrdt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Array, Doc, Map, Text

from crdt_board.errors import MalformedUpdate
from crdt_board.readiness import is_ready
from crdt_board.update_walk import walk
from crdt_board.updates import decode_state_vector
from crdt_board.usual_updates import usual_extent

DEPTH_MAX = 64
VALUES: list[Any] = [None, True, 7, -(2**40), 2.5, "x", "é😀", "y" * 126, "z" * 300, b"raw", [1, "a"], {"k": {"n": []}}]
SEEDS = st.integers(0, 2**32)
CLIENT_IDS = [1, 2**31 + 5, 2**32 + 1, 2**53 - 1]


def session(source: random.Random, steps: int) -> list[bytes]:
    """The updates of a few documents that write texts, maps, lists and records, and exchange what they wrote."""
    updates: list[bytes] = []
    docs: list[Doc[Any]] = [Doc(client_id=client) for client in CLIENT_IDS]
    subscriptions = [doc.observe(lambda event: updates.append(event.update)) for doc in docs]
    for _ in range(steps):
        doc = source.choice(docs)
        with doc.transaction():
            for _ in range(source.choice((1, 1, 1, 3))):
                write(source, doc)
        if source.random() < 0.3:
            source.choice(docs).apply_update(doc.get_update())
    for doc, subscription in zip(docs, subscriptions, strict=True):
        doc.unobserve(subscription)
    return updates


def write(source: random.Random, doc: Doc[Any]) -> None:
    text, values, items = doc.get("t", type=Text), doc.get("m", type=Map), doc.get("a", type=Array)
    records = doc.get("r", type=Map)
    match source.randrange(7):
        case 0:
            text.insert(0, source.choice(["a", "hello", "é", "😀 two", "w" * 127, "long " * 40]))
        case 1 if len(text):
            text.clear()
        case 2:
            values[source.choice("abc")] = source.choice(VALUES)
        case 3 if len(values):
            del values[source.choice(sorted(values))]
        case 4:
            items.insert(source.randint(0, len(items)), source.choice(VALUES))
        case 5 if len(items):
            del items[source.randrange(len(items))]
        case _:
            records[source.choice("xyz")] = Map({"title": "t", "notes": Text("n"), "tags": Array(["a"])})


def check(update: bytes, depth_max: int = DEPTH_MAX) -> bool:
    """Whether the quick look answered; what it says is then what the walk says."""
    usual = usual_extent(update, depth_max)
    try:
        extent = walk(update, depth_max)
    except MalformedUpdate:
        assert usual is None, update.hex()
        return False
    assert usual is None or usual == extent, update.hex()
    return usual is not None


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_the_quick_look_agrees_with_the_walk_on_what_clients_write(seed: int) -> None:
    """H2: for real updates, and for a few of them merged, it answers as the walk does or leaves it to the walk."""
    source = random.Random(seed)
    updates = session(source, 25)
    for update in updates:
        check(update, source.choice((0, 1, DEPTH_MAX)))
    for _ in range(20):
        check(pycrdt.merge_updates(*source.choices(updates, k=source.randint(2, 6))))


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_the_quick_look_never_takes_what_the_walk_refuses(seed: int) -> None:
    """H2: for real updates with changed, cut out, doubled and foreign bytes too."""
    source = random.Random(seed)
    updates = session(source, 8)
    for update in updates:
        for _ in range(25):
            data = bytearray(update)
            for _ in range(source.randint(1, 3)):
                mutate(source, data, source.choice(updates))
            check(bytes(data))


def mutate(source: random.Random, data: bytearray, other: bytes) -> None:
    at = source.randrange(len(data) + 1)
    match source.randrange(5):
        case 0 if at < len(data):
            data[at] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
        case 1:
            del data[at : at + source.randint(1, 4)]
        case 2:
            data[at:at] = data[at : at + source.randint(1, 8)]
        case 3:
            start = source.randrange(len(other))
            data[at:at] = other[start : start + source.randint(1, 12)]
        case _:
            data[at:at] = bytes([0x80]) * source.randint(1, 9)


@settings(deadline=None)
@given(
    st.binary(max_size=80), st.sampled_from([b"", b"\x00", b"\x01\x01", b"\x01\x01\x07\x00\x84", b"\x02\x01\x07\x00"])
)
def test_the_quick_look_agrees_with_the_walk_on_any_bytes(data: bytes, before: bytes) -> None:
    """H1: no bytes make it raise, or answer otherwise than the walk."""
    check(before + data)


def test_everyday_updates_need_no_walk() -> None:
    """Typing, setting a key, items of a list, a new record, deletions and merges of a few are known at a look."""
    doc: Doc[Any] = Doc(client_id=2**40)
    text, values, items = doc.get("t", type=Text), doc.get("m", type=Map), doc.get("a", type=Array)
    made: list[bytes] = []
    subscription = doc.observe(lambda event: made.append(event.update))
    for letter in "añ b":
        text += letter
    text.insert(1, "between")
    del text[0:1]
    for value in ("first", "second", 5, 2.5, None, {"a": [1]}):
        values["key"] = value
    items.extend(["a", 1, {"b": 2}])
    del items[1]
    doc.get("r", type=Map)["one"] = Map({"notes": Text(), "tags": Map()})
    doc.unobserve(subscription)
    assert len(made) > 12
    assert all(check(update) for update in made)
    assert check(pycrdt.merge_updates(*made[:4]))


@pytest.mark.parametrize("structs", [DEPTH_MAX, DEPTH_MAX + 1])
def test_a_chain_of_shared_types_is_left_to_the_walk_when_it_may_be_too_deep(structs: int) -> None:
    """H2: maps inside each other are refused beyond the limit, whoever looks first."""
    inner = b"".join(b"\x27\x00\x07" + bytes([index]) + b"\x01a\x01" for index in range(structs))
    update = b"\x01" + bytes([structs + 1]) + b"\x07\x00" + b"\x27\x01\x01m\x01k\x01" + inner + b"\x00"
    assert not check(update)
    assert check(update, structs + 1)


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_an_update_that_is_ready_leaves_nothing_waiting_and_any_other_would(seed: int) -> None:
    """M9: for any part of a session, in any order; yrs reaches the end of what is ready, and of nothing else."""
    source = random.Random(seed)
    updates = session(source, 15)
    source.shuffle(updates)
    doc: Doc[Any] = Doc()
    known: dict[int, int] = {}
    for update in updates:
        extent = walk(update, DEPTH_MAX)
        trial: Doc[Any] = Doc()
        trial.apply_update(doc.get_update())
        trial.apply_update(update)
        reached = decode_state_vector(trial.get_state())
        is_whole = all(reached.get(client, 0) >= end for client, end in extent.ends.items())
        if is_ready(extent, known):
            assert is_whole
            doc, known = trial, reached
        else:
            assert not is_whole or any(reached.get(client, 0) < clock for client, clock in (extent.needs or {}).items())
