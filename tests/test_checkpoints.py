"""Checkpoints, pointers and what a commit is asked for with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from crdt_board.checkpoints import (
    GENESIS_HASH,
    Checkpoint,
    CommitRequest,
    PatchOp,
    Pointer,
    checkpoint_hash,
    decode_checkpoint,
    encode_checkpoint,
    is_intact,
    make_checkpoint,
    parse_pointer,
)
from crdt_board.errors import BadRequest, InvalidBoardId

CONTENT: dict[str, Any] = {
    "board_id": "job-884",
    "epoch": "epoch-1",
    "version": 2,
    "seq": 17,
    "parent_hash": GENESIS_HASH,
    "checksum": "c" * 64,
    "agent": "analyser",
    "step": "extract_dependencies",
    "schema_version": 1,
    "time_ms": 1_700_000_000_000,
    "fields": ("dependencies", "status"),
    "tags": ("good",),
    "output": {"found": [1, 2.5, None, "größer"]},
    "confidence": 0.5,
    "trace": "artifact:sha256:00",
    "handoff": ["writer"],
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip

CHANGES: dict[str, Any] = {
    "board_id": "job-885",
    "epoch": "epoch-2",
    "version": 3,
    "seq": 18,
    "parent_hash": "1" * 64,
    "checksum": "d" * 64,
    "agent": "writer",
    "step": "draft",
    "schema_version": 2,
    "time_ms": 1,
    "fields": (),
    "tags": (),
    "output": {"found": [1, 2.5, None, "größer", 3]},
    "confidence": None,
    "trace": None,
    "handoff": None,
    "forked_from": "board:other@3#" + "0" * 16,
    "merged_from": "board:other@3#" + "0" * 16,
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_hash_covers_every_attribute(name: str) -> None:
    """Guarantee 4: a checkpoint of which any attribute was changed is not intact."""
    checkpoint = make_checkpoint(**CONTENT)
    assert is_intact(checkpoint)
    assert not is_intact(checkpoint.model_copy(update={name: CHANGES[name]}))


def test_every_attribute_is_tried() -> None:
    """The table of changes above covers all attributes but the hash itself."""
    assert set(CHANGES) | {"hash"} == set(Checkpoint.model_fields)


def test_an_encoded_checkpoint_comes_back() -> None:
    """What is kept in the journal decodes to an equal and intact checkpoint."""
    checkpoint = make_checkpoint(**CONTENT)
    decoded = decode_checkpoint(encode_checkpoint(checkpoint))
    assert decoded == checkpoint
    assert is_intact(decoded)


@given(output=JSON, confidence=st.none() | st.integers(0, 1) | st.floats(0, 1), handoff=JSON)
def test_what_is_hashed_and_kept_is_what_pydantic_dumps(output: Any, confidence: float | None, handoff: Any) -> None:
    """The hash and the JSON of a checkpoint are those of its dump, whatever it carries."""
    given_content = CONTENT | {"output": output, "confidence": confidence, "handoff": handoff}
    checkpoint = make_checkpoint(**given_content)
    assert checkpoint.hash == checkpoint_hash(Checkpoint(hash="", **given_content).model_dump(mode="json"))
    kept = checkpoint.model_dump(mode="json", exclude_defaults=True)
    assert encode_checkpoint(checkpoint) == json.dumps(kept, sort_keys=True, separators=(",", ":"))


def test_what_is_absent_is_not_kept() -> None:
    """An attribute that has its default takes no room in the journal."""
    absent = dict.fromkeys(["output", "confidence", "trace", "handoff", "merged_from"]) | {"fields": (), "tags": ()}
    assert not json.loads(encode_checkpoint(make_checkpoint(**(CONTENT | absent)))).keys() & absent.keys()


def test_a_checkpoint_never_changes() -> None:
    """Guarantee 4, M7: attributes cannot be set, and what was handed over can be changed without consequence."""
    output: dict[str, list[int]] = {"found": [1]}
    checkpoint = make_checkpoint(**(CONTENT | {"output": output}))
    with pytest.raises(ValidationError, match="frozen"):
        checkpoint.step = "other"
    output["found"].append(2)
    assert is_intact(checkpoint)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"surprise": 1}'])
def test_what_is_no_checkpoint_does_not_decode(text: str) -> None:
    """Text that is not the JSON of a checkpoint raises `ValueError`."""
    with pytest.raises(ValueError, match=r".+"):
        decode_checkpoint(text)


def test_an_unknown_attribute_does_not_decode() -> None:
    """An attribute that the hash would not cover is refused."""
    content = json.loads(encode_checkpoint(make_checkpoint(**CONTENT))) | {"surprise": 1}
    with pytest.raises(ValueError, match="surprise"):
        decode_checkpoint(json.dumps(content))


@given(board_id=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,20}", fullmatch=True), version=st.integers(1, 10**15))
def test_a_pointer_is_parsed(board_id: str, version: int) -> None:
    """A checkpoint's pointer parses back to its board, version and the first 16 digits of its hash."""
    checkpoint = make_checkpoint(**(CONTENT | {"board_id": board_id, "version": version}))
    assert parse_pointer(checkpoint.pointer) == Pointer(board_id=board_id, version=version, hash=checkpoint.hash[:16])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job-884@2#9f2c000000000000",
        "board:job-884@0#9f2c000000000000",
        "board:job-884@02#9f2c000000000000",
        "board:job-884@-1#9f2c000000000000",
        "board:job-884@2#9f2c",
        "board:job-884@2#9F2C000000000000",
        "board:job-884@2#9f2c000000000000\n",
        "board:@2#9f2c000000000000",
        "board:job-884@" + "9" * 5000 + "#9f2c000000000000",
    ],
)
def test_what_is_no_pointer_is_refused(text: str) -> None:
    """Text that is not exactly a pointer is refused with the form that was expected."""
    with pytest.raises(BadRequest, match="is not a pointer like board:<id>@<version>#<hash>"):
        parse_pointer(text)


@pytest.mark.parametrize("board_id", ["../etc", "a b", "-a", "a@2#9f2c000000000000"])
def test_a_pointer_to_no_board_id_is_refused(board_id: str) -> None:
    """H4: the board in a pointer is checked like any other board id."""
    with pytest.raises(InvalidBoardId):
        parse_pointer(f"board:{board_id}@2#9f2c000000000000")


@pytest.mark.parametrize(
    "op",
    [
        {"op": "set", "field": "status", "key": None, "value": "DONE"},
        {"op": "set", "field": "owners", "key": "a", "value": None},
        {"op": "drop", "field": "owners", "key": "a"},
        {"op": "add", "field": "dependencies", "value": "postgres-15"},
        {"op": "increment", "field": "tokens_spent", "amount": -3},
        {"op": "splice", "field": "draft", "start": "AA==", "stop": None, "text": "ü", "items": []},
    ],
)
def test_patch_operations_round_trip(op: dict[str, object]) -> None:
    """Every kind of patch operation is told by ``op`` and goes through JSON unchanged."""
    adapter: TypeAdapter[Any] = TypeAdapter(PatchOp)
    parsed = adapter.validate_python(op)
    assert adapter.validate_json(adapter.dump_json(parsed)) == parsed
    assert adapter.dump_python(parsed, mode="json") == op


@pytest.mark.parametrize(
    "op",
    [
        {},
        {"op": "explode", "field": "a"},
        {"op": "set", "field": "a"},
        {"op": "increment", "field": "a", "amount": "many"},
        {"op": "drop", "field": "a", "key": "b", "surprise": 1},
    ],
)
def test_unknown_patch_operations_are_refused(op: dict[str, object]) -> None:
    """An operation of unknown kind, with a part missing or one too many, is refused."""
    with pytest.raises(ValidationError):
        TypeAdapter(PatchOp).validate_python(op)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), "high"])
def test_confidence_is_between_zero_and_one(confidence: object) -> None:
    """A confidence outside 0 to 1 is refused."""
    with pytest.raises(ValidationError, match="confidence"):
        CommitRequest.model_validate({"step": "s", "agent": "a", "fingerprint": "f", "confidence": confidence})
