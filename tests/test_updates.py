from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pycrdt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycrdt import Array, Doc, Map, Text

from crdt_board.errors import BadRequest, LimitExceeded, MalformedUpdate
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.update_walk import walk
from crdt_board.updates import (
    EMPTY_UPDATE,
    check_update,
    clock_of,
    decode_state_vector,
    encode_state_vector,
)
from crdt_board.varint import write_varuint

DEEP = 100_000
DEPTH_MAX = DEFAULT_LIMITS.nesting_depth_max


def chunk(data: bytes) -> bytes:
    return write_varuint(len(data)) + data


def update_of(*structs: bytes, client: int = 7) -> bytes:
    return b"\x01" + write_varuint(len(structs)) + write_varuint(client) + b"\x00" + b"".join(structs) + b"\x00"


def map_item(kind: int, content: bytes) -> bytes:
    """An item under the key ``k`` of the root map ``m``."""
    return bytes((kind | 0x20,)) + b"\x01\x01m" + b"\x01k" + content


def nested_arrays(depth: int) -> bytes:
    return update_of(map_item(8, b"\x01" + b"u\x01" * depth + b"~"))


def nested_objects(depth: int) -> bytes:
    return update_of(map_item(8, b"\x01" + b"v\x01\x00" * depth + b"~"))


def nested_in_subdocument(depth: int) -> bytes:
    return update_of(map_item(9, chunk(b"guid") + b"u\x01" * depth + b"~"))


def nested_maps(depth: int) -> bytes:
    inner = [b"\x27\x00\x07" + write_varuint(index) + b"\x01a\x01" for index in range(depth - 1)]
    return update_of(map_item(7, b"\x01"), *inner)


def nested_array_types(depth: int) -> bytes:
    """Each array holds a text and beside it, attached by its origin only, the next array."""
    structs = [map_item(7, b"\x00")]
    for level in range(depth - 1):
        parent = 2 * level
        structs.append(b"\x07\x00\x07" + write_varuint(parent) + b"\x02")
        structs.append(b"\x87\x07" + write_varuint(parent + 1) + b"\x00")
    return update_of(*structs)


def nested_across_clients(depth: int) -> bytes:
    """Maps inside each other that two clients made in turn, so that every parent belongs to the other client."""
    sections: dict[int, list[bytes]] = {8: [], 7: []}
    for level in range(depth):
        client, parent = 7 + level % 2, 7 + (level + 1) % 2
        clock = write_varuint((level - 1) // 2 if level else 0)
        item = b"\x27\x00" + bytes((parent,)) + clock + b"\x01a\x01" if level else map_item(7, b"\x01")
        sections[client].append(item)
    encoded = [
        write_varuint(len(items)) + bytes((client, 0)) + b"".join(items) for client, items in sections.items() if items
    ]
    return write_varuint(len(encoded)) + b"".join(encoded) + b"\x00"


NESTINGS = [
    nested_arrays,
    nested_objects,
    nested_in_subdocument,
    nested_maps,
    nested_array_types,
    nested_across_clients,
]


@pytest.mark.parametrize("nested", NESTINGS)
def test_a_value_or_type_nested_deeper_than_the_limit_is_refused_quickly(nested: Callable[[int], bytes]) -> None:
    """H2: 100,000 levels are refused in a bounded time, whatever nests."""
    update = nested(DEEP)
    started = time.perf_counter()
    with pytest.raises(MalformedUpdate, match="nested deeper"):
        check_update(update, DEFAULT_LIMITS)
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("nested", NESTINGS)
def test_the_limit_itself_is_allowed(nested: Callable[[int], bytes]) -> None:
    """What is nested ``nesting_depth_max`` deep passes, what is deeper does not, though pycrdt still reads it."""
    check_update(nested(DEPTH_MAX), DEFAULT_LIMITS)
    walk(nested(DEPTH_MAX), DEPTH_MAX)
    with pytest.raises(MalformedUpdate, match="nested deeper"):
        check_update(nested(DEPTH_MAX + 2), DEFAULT_LIMITS)
    Doc().apply_update(nested(DEPTH_MAX + 2))


@pytest.mark.parametrize(
    "call", ["Doc().apply_update(u)", "merge_updates(u, u)", "get_state(u)", "get_update(u, b'\\0')"]
)
def test_pycrdt_itself_dies_of_what_is_refused(call: str) -> None:
    """H2: the check is needed: the same bytes end a process that gives them to pycrdt."""
    script = f"import sys; from pycrdt import *; u = sys.stdin.buffer.read(); {call}"
    ended = subprocess.run([sys.executable, "-c", script], input=nested_arrays(DEEP), check=False, capture_output=True)
    assert ended.returncode < 0


def test_wide_data_passes() -> None:
    """A list of 50,000 small objects, and a map of 2,000 records with texts, are not deep."""
    doc: Doc[Any] = Doc()
    wide = doc.get("m", type=Map)
    wide["list"] = [{"n": index, "u": ["v"]} for index in range(50_000)]
    records = doc.get("records", type=Map)
    with doc.transaction():
        for index in range(2_000):
            records[f"r{index}"] = Map({"notes": Text("uv"), "tags": Array(["u"])})
    check_update(doc.get_update(), DEFAULT_LIMITS)


def test_every_kind_of_content_passes_the_walk() -> None:
    """What pycrdt writes for texts, formats, embeds, binaries, subdocuments, XML and deletions is read to its end."""
    doc: Doc[Any] = Doc()
    text = doc.get("t", type=Text)
    text.insert(0, "hé😀llo", {"bold": True})
    text.insert_embed(2, {"a": [1]})
    values = doc.get("m", type=Map)
    values["all"] = [1, -(2**40), 2.5, 1e300, None, True, False, "é", b"bytes", {"a": {}}, []]
    values["binary"] = b"x"
    values["doc"] = Doc()
    values["xml"] = pycrdt.XmlFragment([pycrdt.XmlElement("div", {"a": "b"}, [pycrdt.XmlText("x")])])
    del values["binary"]
    del text[0:3]
    walk(doc.get_update(), DEPTH_MAX)


@pytest.mark.parametrize(
    ("update", "sentence"),
    [
        (b"", "ends inside"),
        (write_varuint(2**28), "announced"),
        (update_of(map_item(8, b"\x01u" + write_varuint(2**40))), "announced"),
        (update_of(map_item(8, b"\x01v" + write_varuint(2**28))), "announced"),
    ],
)
def test_more_than_the_bytes_hold_is_refused(update: bytes, sentence: str) -> None:
    """H2: a count that the rest of the bytes cannot hold is refused before anything is reserved for it."""
    with pytest.raises(MalformedUpdate, match=sentence):
        check_update(update, DEFAULT_LIMITS)


def test_a_large_update_is_refused_by_its_size() -> None:
    """One byte over ``update_bytes_max`` is too much."""
    limits = replace(DEFAULT_LIMITS, update_bytes_max=10)
    with pytest.raises(LimitExceeded) as caught:
        check_update(b"\x00" * 11, limits)
    assert caught.value.limit == "update_bytes_max"
    check_update(EMPTY_UPDATE, limits)


@pytest.mark.parametrize(
    "update",
    [
        update_of(map_item(2, b"\x01" + chunk(b"1"))),
        update_of(map_item(7, b"\x05" + chunk(b"hook"))),
        update_of(map_item(8 | 0x10, b"\x01~")),
        update_of(b"\x8a\x07\x00\x01"),
        b"\x02" + update_of(map_item(8, b"\x01~"))[1:-1] * 2 + b"\x00",
        update_of(b"\x07\x00\x07\x00\x01"),
    ],
)
def test_what_yjs_and_yrs_read_differently_is_refused_by_the_walk(update: bytes) -> None:
    """H2: bytes on which two decoders disagree are no legal update, so that nothing hides from the walk."""
    with pytest.raises(MalformedUpdate):
        walk(update, 0)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_bad_request(data: bytes) -> None:
    """H1: no bytes lead to any other error than one of ours, from the checks and then from pycrdt."""

    for check in (
        lambda: check_update(data, DEFAULT_LIMITS),
        lambda: walk(data, DEPTH_MAX),
        lambda: decode_state_vector(data),
    ):
        try:
            check()
        except BadRequest:
            continue


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_updates_raise_only_bad_request(source: random.Random) -> None:
    """H1: the walk of a real update with flipped bytes, or without its end, raises nothing but our errors."""
    doc: Doc[Any] = Doc(client_id=7)
    doc.get("m", type=Map)["k"] = {"a": [1, "x", {"b": None}], "c": b"raw"}
    doc.get("t", type=Text).insert(0, "hé", {"bold": True})
    data = bytearray(doc.get_update())
    for _ in range(source.randint(1, 4)):
        data[source.randrange(len(data))] = source.randrange(256)
    for update in (bytes(data), bytes(data[: source.randrange(len(data))])):
        try:
            walk(update, DEPTH_MAX)
        except MalformedUpdate:
            continue


def padded(state_vector: bytes, clients: int, *, clock: int = 5) -> bytes:
    """``state_vector`` among many past clients."""
    others = {2**33 + index: clock for index in range(clients)}
    return encode_state_vector({**others, **decode_state_vector(state_vector)})


def test_a_client_id_is_not_mistaken_for_the_end_of_a_longer_one() -> None:
    """The search in a large state vector finds whole client ids only."""
    client = 2**35 + 5
    longer = (client << 7) + 1
    assert write_varuint(longer).endswith(write_varuint(client))
    clocks = {longer: 9, **{2**34 + index: 5 for index in range(500)}}
    assert clock_of(client, encode_state_vector(clocks)) == 0
    assert clock_of(client, encode_state_vector({**clocks, client: 1})) == 1


@pytest.mark.parametrize("past", [1, 3, 1_000])
def test_a_client_id_is_not_mistaken_for_a_clock(past: int) -> None:
    """However many clients have reached the clock that is another's id: it is found as a client only."""
    assert clock_of(5, padded(b"\x00", past, clock=5)) == 0
    assert clock_of(5, padded(encode_state_vector({5: 0}), past, clock=5)) == 0
    assert clock_of(5, padded(encode_state_vector({5: 3}), past, clock=5)) == 3


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1)))
def test_state_vectors_round_trip(clocks: dict[int, int]) -> None:
    """M8: what was encoded is decoded, for client ids of any size."""
    encoded = encode_state_vector(clocks)
    assert decode_state_vector(encoded) == clocks
    for end in range(len(encoded)):
        with pytest.raises(MalformedUpdate):
            decode_state_vector(encoded[:end])


def test_state_vectors_are_those_of_pycrdt() -> None:
    """pycrdt's own encoding is read as it is."""
    doc: Doc[Any] = Doc(client_id=2**53 - 1)
    doc.get("t", type=Text).insert(0, "abc")
    assert decode_state_vector(doc.get_state()) == {2**53 - 1: 3}


@pytest.mark.parametrize(
    ("what", "update"),
    [
        ("a client listed twice", b"\x02\x01\x07\x00\x04\x01\x01a\x01x\x01\x07\x01\x84\x07\x00\x01y\x00"),
        ("a clock at the end", b"\x01\x01\x07\xff\xff\xff\xff\x0f\x04\x01\x01a\x01x\x00"),
        ("a length to the end", b"\x01\x01\x07\x00\x00\xff\xff\xff\xff\x0f\x00"),
        ("a deletion to the end", b"\x00\x01\x07\x01\x00\xff\xff\xff\xff\x0f"),
        ("text under a key", b"\x01\x01\x07\x00\x24\x01\x01a\x01k\x01x\x00"),
        ("several values under a key", b"\x01\x01\x07\x00\x28\x01\x01a\x01k\x03\x7e\x7e\x7e\x01\x07\x01\x00\x02"),
        ("a format under a key", b"\x01\x01\x07\x00\x26\x01\x01a\x01k\x01b\x04true\x00"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_harms_yrs_later_is_refused(what: str, update: bytes) -> None:
    """H2: small updates that no Yjs client writes, and that break a document for good, are refused by their bytes."""
    with pytest.raises(MalformedUpdate):
        check_update(update, DEFAULT_LIMITS)


def test_values_that_were_deleted_may_stand_as_one_under_a_key() -> None:
    """A client that collects nothing joins what it set one after another, and deleted."""
    doc: Doc[Any] = Doc(client_id=7, skip_gc=True)
    values = doc.get("a", type=Map)
    for number in range(3):
        values["k"] = number
    del values["k"]
    update = doc.get_update()
    assert update.startswith(b"\x01\x01\x07\x00\x28\x01\x01a\x01k\x03"), update
    check_update(update, DEFAULT_LIMITS)


def test_text_in_a_list_that_the_update_makes_is_refused() -> None:
    """H3: a list inside a map that is made with text in it, anywhere in it, is refused by its bytes; a text is not."""
    map_item = b"\x27\x01\x05state\x01k\x00"  # state[k] = a new list
    map_text = b"\x27\x01\x05state\x01k\x02"  # state[k] = a new text
    first = b"\x04\x00\x07\x00\x04\xf0\x9f\x98\x80"  # text inside it
    second = b"\x84\x07\x02\x01x"  # text behind that text
    for made, allowed in ((map_item, False), (map_text, True)):
        for structs in ([made, first], [made, first, second]):
            update = b"\x01" + bytes([len(structs)]) + b"\x07\x00" + b"".join(structs) + b"\x00"
            if allowed:
                check_update(update, DEFAULT_LIMITS)
                pycrdt.Doc().apply_update(update)
            else:
                with pytest.raises(MalformedUpdate, match="list"):
                    check_update(update, DEFAULT_LIMITS)
