from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from crdt_board import control
from crdt_board.checkpoints import Checkpoint, CommitRequest, SetValue
from crdt_board.errors import BadRequest, LimitExceeded, ProtocolError, VersionConflict
from crdt_board.layout import FieldLayout, Layout
from crdt_board.limits import DEFAULT_LIMITS

CHECKPOINT = Checkpoint(
    board_id="job-1",
    epoch="e",
    version=1,
    seq=2,
    parent_hash="0" * 64,
    hash="1" * 64,
    checksum="2" * 64,
    agent="planner",
    step="plan",
    schema_version=1,
    time_ms=5,
    output={"a": [1, None, "é"]},
)
REQUEST = CommitRequest(step="plan", agent="planner", fingerprint="f", patch=(SetValue(field="status", value=1),))
NAME = "0123456789abcdef"
LAYOUT = Layout(title="Migration", fields=(FieldLayout(name="draft", kind="text"),))

CLIENT_MESSAGES: list[BaseModel] = [
    control.ClientHello(agent="planner", replica=NAME, client_id=2**52 - 1, epoch="e", layout=LAYOUT),
    control.ClientHello(agent="planner", replica=NAME, client_id=2**32),
    control.ClientHello(agent="planner", replica=NAME),
    control.Bye(clock=0),
    control.Request(id=1, body=control.Commit(request=REQUEST)),
    control.Request(id=2, body=control.ListCheckpoints(before=7, limit=3)),
    control.Request(id=3, body=control.StateAt(version=7)),
]
SERVER_MESSAGES: list[BaseModel] = [
    control.ServerHello(
        board="job-1",
        client_id=2**40,
        epoch="e",
        seq=2,
        version=1,
        checkpoint=CHECKPOINT,
        schema_version=1,
        limits=control.PeerLimits.of(DEFAULT_LIMITS),
    ),
    control.Ack(n=3, seq=4),
    control.CheckpointMade(checkpoint=CHECKPOINT),
    control.Answer(id=1, result={"a": [1, 2.5, None, "é😀"]}),
    control.refusal(ProtocolError("no", path="a"), 1),
    control.refusal(ProtocolError("no")),
    control.Resync(n=0),
]


@pytest.mark.parametrize("message", CLIENT_MESSAGES)
def test_client_messages_round_trip(message: BaseModel) -> None:
    """What a client encodes, a server decodes."""
    assert control.decode_client_message(control.encode(message), DEFAULT_LIMITS) == message


@pytest.mark.parametrize("message", SERVER_MESSAGES)
def test_server_messages_round_trip(message: BaseModel) -> None:
    """What a server encodes, a client decodes."""
    assert control.decode_server_message(control.encode(message), DEFAULT_LIMITS) == message


@pytest.mark.parametrize("message", CLIENT_MESSAGES + SERVER_MESSAGES)
def test_a_message_cut_anywhere_is_a_protocol_error(message: BaseModel) -> None:
    """H3: half messages are refused at every character, by either end."""
    text = control.encode(message)
    for end in range(len(text)):
        for decode in (control.decode_client_message, control.decode_server_message):
            with pytest.raises(ProtocolError):
                decode(text[:end], DEFAULT_LIMITS)


@settings(deadline=None)
@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_random_text_raises_only_bad_request(text: str) -> None:
    """H1: whatever arrives as text is a message or one of our errors."""
    for decode in (control.decode_client_message, control.decode_server_message):
        with pytest.raises(BadRequest):
            decode(text, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"type":"request","id":1,"body":{"op":"state_at","version":"x"}}', "request.body.state_at.version"),
        ('{"type":"request","id":1,"body":{"op":"state_at","version":1,"extra":0}}', "request.body.state_at.extra"),
        ('{"type":"request","id":1,"body":{"op":"other"}}', "request.body"),
        ('{"type":"hello","agent":"","replica":"0123456789abcdef"}', "hello.agent"),
        ('{"type":"hello","agent":"a"}', "hello.replica"),
        ('{"type":"hello","agent":"a","replica":"short"}', "hello.replica"),
        ('{"type":"hello","agent":"a","replica":"0123456789abcdef","client_id":4294967295}', "hello.client_id"),
        ('{"type":"hello","agent":"a","replica":"0123456789abcdef","client_id":4503599627370496}', "hello.client_id"),
        ('{"type":"bye","clock":-1}', "bye.clock"),
        ('{"type":"other"}', ""),
        ('{"type":"request","id":true,"body":{"op":"state_at","version":1}}', "request.id"),
    ],
)
def test_the_error_names_the_path(text: str, path: str) -> None:
    """A wrong type, an unknown field, an unknown kind and a number out of range are each named by where they are."""
    with pytest.raises(ProtocolError) as caught:
        control.decode_client_message(text, DEFAULT_LIMITS)
    assert caught.value.path == path
    assert path in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", '"\\ud800"', "[" * 50_000, "9" * 5_000, '"\ud800"'],
)
def test_what_other_languages_cannot_read_is_refused(value: str) -> None:
    """H2: NaN, lone surrogates, endless nesting and endless numbers are protocol errors."""
    with pytest.raises(ProtocolError):
        control.decode_server_message(f'{{"type":"answer","id":1,"result":{value}}}', DEFAULT_LIMITS)


def test_a_message_has_a_greatest_size_in_bytes() -> None:
    """The limit counts bytes, not characters."""
    text = control.encode(control.Answer(id=1, result="é" * 100))
    limits = replace(DEFAULT_LIMITS, control_bytes_max=len(text.encode()))
    control.decode_server_message(text, limits)
    with pytest.raises(LimitExceeded) as caught:
        control.decode_server_message(text, replace(limits, control_bytes_max=len(text)))
    assert caught.value.limit == "control_bytes_max"


def test_an_error_crosses_the_wire_whole() -> None:
    """The client raises the class, message and data that the server raised."""
    sent = VersionConflict("version 3 is not 4", current_version=4, author="writer", changed=["status"])
    received = control.decode_server_message(control.encode(control.refusal(sent, 7)), DEFAULT_LIMITS)
    assert isinstance(received, control.Refused)
    error = control.error_of(received)
    assert isinstance(error, VersionConflict)
    assert (str(error), error.data) == (str(sent), sent.data)


def test_an_error_with_strange_data_crosses_the_wire_as_text() -> None:
    """Tuples, objects and lone surrogates in an error's data do not hinder its report."""
    message = control.refusal(ProtocolError("\ud800", value=(1, object), text="\ud800"))
    received = control.decode_server_message(control.encode(message), DEFAULT_LIMITS)
    assert isinstance(received, control.Refused)
    assert received.error.data["value"] == [1, str(object)]


def test_the_schema_is_published_for_both_directions() -> None:
    """Every message type of either direction is in the JSON Schema, and that is JSON."""
    schema = json.loads(json.dumps(control.published_schema()))
    assert set(schema["client"]["discriminator"]["mapping"]) == {"hello", "request", "bye"}
    assert set(schema["server"]["discriminator"]["mapping"]) == {
        "hello",
        "ack",
        "checkpoint",
        "schema",
        "answer",
        "refused",
        "rejected",
        "resync",
    }
