"""Checkpoints: immutable named points of the journal, how they are chained, pointed at and asked for.

Pure: no I/O and no document. A checkpoint stores no state; state is the newest snapshot at or before its ``seq``
plus the entries up to it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board.canonical import canonical_json, json_writer
from crdt_board.coordination.leases import LeaseClaim
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BadRequest, InvalidValue
from crdt_board.findings import Findings
from crdt_board.limits import DEFAULT_LIMITS, check_board_id

GENESIS_HASH = "0" * 64
"""What version 1 has as its parent hash."""

_encode = json_writer(sort_keys=True)

_POINTER = re.compile(r"board:(?P<board>.+)@(?P<version>[1-9][0-9]{0,15})#(?P<hash>[0-9a-f]{16,64})")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Checkpoint(_Frozen):
    """One accepted commit.

    ``version`` counts from 1 without gaps; ``seq`` is the journal entry that made it. ``hash`` covers every other
    attribute, ``parent_hash`` is the hash of the version before. ``checksum`` is over the whole state.
    ``output``, ``confidence``, ``trace`` and ``handoff`` are what the next agent needs and are kept as given.
    """

    board_id: str
    epoch: str
    version: int
    seq: int
    parent_hash: str
    hash: str
    checksum: str
    agent: str
    step: str
    schema_version: int
    time_ms: int
    fields: tuple[str, ...] = ()
    """Names of the fields that differ from the version before, in alphabetical order."""
    tags: tuple[str, ...] = ()
    output: JsonValue = None
    confidence: float | None = None
    trace: str | None = None
    handoff: JsonValue = None
    forked_from: str | None = None
    """In the first version of a fork: the pointer to the version of its parent that it starts at."""
    merged_from: str | None = None
    """In a version that merged a fork: the pointer to the fork's newest version then."""

    @property
    def pointer(self) -> str:
        """``board:<id>@<version>#<first 16 hex digits of the hash>``: hand this over, not the state."""
        return f"board:{self.board_id}@{self.version}#{self.hash[:16]}"


_DEFAULTS = {name: field.default for name, field in Checkpoint.model_fields.items() if not field.is_required()}


def checkpoint_hash(content: Mapping[str, Any]) -> str:
    """sha256 over the canonical JSON of a checkpoint without its ``hash``."""
    return hashlib.sha256(canonical_json({k: v for k, v in content.items() if k != "hash"})).hexdigest()


def make_checkpoint(**content: Any) -> Checkpoint:
    """A checkpoint with its hash filled in; ``content`` is every other attribute."""
    # What is None is left to its default: to check that a value is JSON, pydantic calls back into Python.
    made = Checkpoint(hash="", **{name: value for name, value in content.items() if value is not None})
    vars(made)["hash"] = checkpoint_hash(vars(made))  # frozen from here on: nobody has seen it yet
    return made


def is_intact(checkpoint: Checkpoint) -> bool:
    """True when the stored hash is the hash of the content."""
    return checkpoint.hash == checkpoint_hash(vars(checkpoint))


def encode_checkpoint(checkpoint: Checkpoint) -> str:
    """The JSON that is kept in the journal entry of the commit, without attributes that have their defaults."""
    # The attributes are JSON as they are: `model_dump` would take as long as the encoding.
    return _encode({name: value for name, value in vars(checkpoint).items() if value != _DEFAULTS.get(name, ...)})


def decode_checkpoint(text: str) -> Checkpoint:
    """The inverse of `encode_checkpoint`."""
    return Checkpoint.model_validate_json(text)


class Pointer(_Frozen):
    """A parsed pointer; ``hash`` is a prefix of at least 16 hex digits."""

    board_id: str
    version: int
    hash: str


def parse_pointer(text: str) -> Pointer:
    """Parse what `Checkpoint.pointer` makes.

    Raises:
        BadRequest: it is not a pointer; the caller's fault.
    """
    match = _POINTER.fullmatch(text)
    if match is None:
        raise BadRequest(f"{text[:120]!r} is not a pointer like board:<id>@<version>#<hash>")
    return Pointer(board_id=check_board_id(match["board"]), version=int(match["version"]), hash=match["hash"])


class SetValue(_Frozen):
    """Set a scalar field, or with ``key`` one key of a dict field; or raise or lower a `Max` or `Min` field.

    ``value`` is in wire form.
    """

    op: Literal["set"] = "set"
    field: str
    key: str | None = None
    value: JsonValue


class DropKey(_Frozen):
    """Remove one key of a dict field, one element (its canonical JSON as ``key``) of a set field, or one item."""

    op: Literal["drop"] = "drop"
    field: str
    key: str


class Clear(_Frozen):
    """Take away the value of a scalar, as if nobody had ever written it."""

    op: Literal["clear"] = "clear"
    field: str


class InsertItem(_Frozen):
    """Insert an item into a list of records, under the new id ``key``, behind the item with the id ``after``.

    ``after`` None is the beginning. ``after_place`` is where that item was, for when it is not there any more.
    ``value`` is the record in wire form.
    """

    op: Literal["insert"] = "insert"
    field: str
    key: str
    after: str | None = None
    after_place: str | None = None
    value: JsonValue


class MoveItem(_Frozen):
    """Move the item ``key`` of a list of records; where to, as for `InsertItem`."""

    op: Literal["move"] = "move"
    field: str
    key: str
    after: str | None = None
    after_place: str | None = None


class AddElement(_Frozen):
    """Add one element to a set field."""

    op: Literal["add"] = "add"
    field: str
    value: JsonValue


class Increment(_Frozen):
    """Add ``amount`` to a counter field."""

    op: Literal["increment"] = "increment"
    field: str
    amount: int


class SpliceRange(_Frozen):
    """Replace a stretch of a text or list field.

    ``start`` and ``stop`` are Yjs relative positions in base64: they follow their neighbours when other edits
    come in between. ``start`` None is the beginning; ``stop`` None means that nothing is removed.
    """

    op: Literal["splice"] = "splice"
    field: str
    start: str | None = None
    stop: str | None = None
    text: str = ""
    items: tuple[JsonValue, ...] = ()


class Propose(_Frozen):
    """Write a candidate into a `Candidates` field, in place of those that its agent had seen.

    ``seen`` are their marks; see `crdt_board.cells.candidate_mark`.
    """

    op: Literal["propose"] = "propose"
    field: str
    value: JsonValue
    seen: tuple[str, ...] = ()


class Decide(_Frozen):
    """Set a `Strict` field; its commit needs an ``expected_version``."""

    op: Literal["decide"] = "decide"
    field: str
    value: JsonValue


PatchOp = Annotated[
    SetValue | DropKey | Clear | InsertItem | MoveItem | AddElement | Increment | SpliceRange | Propose | Decide,
    Field(discriminator="op"),
]


class CommitRequest(_Frozen):
    """What a replica asks the writer of a board for; see `crdt_board.board.Board.commit`.

    ``fingerprint`` is a hash over the step, the patch as the caller gave it and the metadata, but not over the
    preconditions: a repeat with the same ``idempotency_key`` is the same request when these agree. Empty without one.
    """

    step: str
    agent: str
    fingerprint: str
    origin: str = ""
    """The replica that asks: what it wrote itself is no conflict with what it read."""
    patch: tuple[PatchOp, ...] = ()
    expected_version: int | None = None
    reads: tuple[str, ...] | None = None
    base_seq: int | None = None
    """With ``reads``: the journal position at which they were read; that of ``expected_version`` when None."""
    idempotency_key: str | None = None
    lease: LeaseClaim | None = None
    """The lease that it is made under; refused unless its agent still has it."""
    operations: Annotated[tuple[Operation, ...], Field(max_length=DEFAULT_LIMITS.operations_max)] = ()
    """What is decided together with it: all of it or nothing, as one entry."""
    findings: Findings | None = None
    """What the replica finds of the rules that only its model knows; None when it can say nothing."""
    tags: tuple[str, ...] = ()
    output: JsonValue = None
    confidence: Annotated[float, Field(ge=0, le=1)] | None = None
    trace: str | None = None
    handoff: JsonValue = None

    @property
    def decides(self) -> tuple[str, ...]:
        """The strict fields that the patch sets."""
        return tuple(operation.field for operation in self.patch if operation.op == "decide")


def check_decisions(request: CommitRequest) -> None:
    """A strict field is changed only by an agent that says which version it decides on.

    Raises:
        InvalidValue: the patch sets a strict field, and the request has no ``expected_version``.
    """
    if request.decides and request.expected_version is None:
        field = request.decides[0]
        reason = "is Strict: give expected_version=board.version with the patch, or use board.attempt(...)"
        raise InvalidValue(f"{field}: {reason}", path=field, reason=reason)
