"""The JSON control messages of the subprotocol ``crdt-board.v1``, one text frame each, as pydantic models.

Two unions, told apart by ``type``: what clients send and what servers send. `published_schema` is their JSON Schema
for other languages.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from crdt_board.checkpoints import Checkpoint, CommitRequest
from crdt_board.coordination.operations import Operation
from crdt_board.errors import BoardError, LimitExceeded, ProtocolError, from_details
from crdt_board.findings import Findings
from crdt_board.layout import Layout
from crdt_board.limits import CLIENT_ID_END, CLIENT_ID_FIRST, DEFAULT_LIMITS, Limits
from crdt_board.migrations import MigrationRequest, SchemaNumber

Number = Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]
"""A count or number that every JSON reader carries exactly."""

ClientId = Annotated[int, Field(ge=CLIENT_ID_FIRST, lt=CLIENT_ID_END, strict=True)]
"""An id that a server may grant."""

_Message = TypeVar("_Message")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ClientHello(_Frozen):
    """The first message of a client.

    ``replica`` is a random name that the replica has over all its connections and tells nobody else. ``client_id`` is
    the id that it was granted before; None asks for one. ``epoch`` is the board's as the replica knows it, None when it
    knows none.
    """

    type: Literal["hello"] = "hello"
    agent: Annotated[str, Field(min_length=1)]
    replica: Annotated[str, Field(min_length=16, max_length=64)]
    client_id: ClientId | None = None
    epoch: str | None = None
    layout: Layout | None = None
    """The model's; None for a client without one."""
    migrates: tuple[SchemaNumber, ...] = ()
    """The numbers of the schemas that the model has migrations from."""


class Bye(_Frozen):
    """The last message of a replica that ends for good, when all that it has pushed is acknowledged.

    ``clock`` is how far its document has come under its client id. The server takes the id back, and nothing that
    follows is looked at.
    """

    type: Literal["bye"] = "bye"
    clock: Number


class Commit(_Frozen):
    op: Literal["commit"] = "commit"
    request: CommitRequest


class ListCheckpoints(_Frozen):
    """Up to ``limit`` checkpoints with a version below ``before``, newest first; all of them when it is None."""

    op: Literal["checkpoints"] = "checkpoints"
    before: Number | None = None
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 100


class StateAt(_Frozen):
    """The state of a version, in wire form."""

    op: Literal["state_at"] = "state_at"
    version: Number


class Diff(_Frozen):
    """What differs between two versions; ``after`` None is what is durable now."""

    op: Literal["diff"] = "diff"
    before: Number
    after: Number | None = None


class ListEdits(_Frozen):
    """Up to ``limit`` entries with a ``seq`` below ``before`` that changed ``path``, newest first."""

    op: Literal["edits"] = "edits"
    path: Annotated[str, Field(min_length=1)]
    before: Number | None = None
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 100


class Blame(_Frozen):
    """Who wrote each stretch of a text; as of now when ``version`` is None."""

    op: Literal["blame"] = "blame"
    path: Annotated[str, Field(min_length=1)]
    version: Number | None = None


class Verify(_Frozen):
    """Compare everything that is stored of the board with what it should be."""

    op: Literal["verify"] = "verify"


class Measure(_Frozen):
    """How large the board is, field by field and in the store, and how near its bounds."""

    op: Literal["sizes"] = "sizes"


class ListForks(_Frozen):
    """The boards that were forked from this one."""

    op: Literal["forks"] = "forks"


class Fork(_Frozen):
    """Make a board that begins at a version of this one. ``epoch`` is random: by it a repeated request is known."""

    op: Literal["fork"] = "fork"
    version: Number
    board: str
    epoch: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    agent: Annotated[str, Field(min_length=1)]


class Merge(_Frozen):
    """Commit what a fork has and this board has not; ``idempotency_key`` as in a commit."""

    op: Literal["merge"] = "merge"
    fork: str
    idempotency_key: Annotated[str, Field(min_length=1)]
    agent: Annotated[str, Field(min_length=1)]


class ListEntries(_Frozen):
    """Up to ``limit`` entries with a ``seq`` above ``after``, oldest first: those that changed something at ``path``,
    or any field when it is empty, and those that made a version."""

    op: Literal["entries"] = "entries"
    after: Number
    path: str = ""
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 100


Question = Diff | ListEdits | ListEntries | Blame | Verify | Measure | ListForks
"""What is asked about the board's past beside states and checkpoints."""


class ReadState(_Frozen):
    """The durable state of now, in wire form, with the entry and the schema that it is under."""

    op: Literal["state"] = "state"


class Migrate(_Frozen):
    """Bring the board to another schema; answered with its number."""

    op: Literal["migrate"] = "migrate"
    request: MigrationRequest


class Report(_Frozen):
    """Record what ``agent`` found of the rules that its model knows, as violations of the board."""

    op: Literal["report"] = "report"
    agent: Annotated[str, Field(min_length=1)]
    findings: Findings


class Coordinate(_Frozen):
    """Leases, tasks and the like: decide on all of the operations, or on none."""

    op: Literal["coordinate"] = "coordinate"
    agent: Annotated[str, Field(min_length=1)]
    operations: Annotated[tuple[Operation, ...], Field(min_length=1, max_length=DEFAULT_LIMITS.operations_max)]


RequestBody = Annotated[
    Commit | ListCheckpoints | StateAt | ReadState | Migrate | Question | Fork | Merge | Report | Coordinate,
    Field(discriminator="op"),
]


class Request(_Frozen):
    """Answered by exactly one `Answer` or `Refused` with the same ``id``, which the client chooses."""

    type: Literal["request"] = "request"
    id: Number
    body: RequestBody


ClientMessage = Annotated[ClientHello | Request | Bye, Field(discriminator="type")]


class PeerLimits(_Frozen):
    """The server's bounds that a client must keep to; see `Limits`."""

    update_bytes_max: Number
    nesting_depth_max: Number
    awareness_bytes_max: Number
    control_bytes_max: Number
    text_chars_max: Number
    container_items_max: Number

    @classmethod
    def of(cls, limits: Limits) -> PeerLimits:
        return cls(**{name: getattr(limits, name) for name in cls.model_fields})


class ServerHello(_Frozen):
    """The first message of a server: where the board is, and the id under which the replica writes.

    ``checkpoint`` is the newest one, None when version is 0. A replica that is granted its id here makes no edit before
    it has taken in the step 2: others may have written under the id.
    """

    type: Literal["hello"] = "hello"
    board: str
    client_id: ClientId
    epoch: str
    seq: Number
    version: Number
    checkpoint: Checkpoint | None = None
    schema_version: Number
    layout: Layout | None = None
    """The schema under that number, with the roots in which the board keeps its fields."""
    limits: PeerLimits


class SchemaChanged(_Frozen):
    """The board has a new schema; sent to clients without a model, before any entry that is written under it."""

    type: Literal["schema"] = "schema"
    schema_version: Number
    layout: Layout


class Ack(_Frozen):
    """All updates up to number ``n`` of this connection are durable, the last of them in entry ``seq``."""

    type: Literal["ack"] = "ack"
    n: Number
    seq: Number


class CheckpointMade(_Frozen):
    """Somebody committed; sent after the entry of the commit."""

    type: Literal["checkpoint"] = "checkpoint"
    checkpoint: Checkpoint


class Answer(_Frozen):
    """``result`` is a checkpoint for ``commit``, a list of them for ``checkpoints``, an object for ``state_at`` and
    ``state``, a number for ``migrate``, and null for ``report``.

    For ``coordinate`` it is a `crdt_board.coordinating.Coordinated`: the answers in order, and the entry that made them
    durable. For ``fork`` it is the fork's first checkpoint, for ``merge`` the one of the merge, for ``forks`` a list of
    `Fork`. For ``entries`` it is an `EntryPage`. For ``diff`` and ``verify`` it is a `StateDiff` and a `Verification`,
    for ``edits`` a list of `PathEdit` and for ``blame`` one of `Stretch`; see `crdt_board.history`.
    """

    type: Literal["answer"] = "answer"
    id: Number
    result: JsonValue


class ErrorDetails(_Frozen):
    """What `BoardError.details` returns."""

    code: str
    message: str
    data: dict[str, JsonValue] = {}


class Refused(_Frozen):
    """A request failed, or without ``id`` something else that the client sent was refused."""

    type: Literal["refused"] = "refused"
    id: Number | None = None
    error: ErrorDetails


class RejectedValue(_Frozen):
    """A value that was taken back: where it was, the rule that it broke, and one sentence."""

    path: str
    rule: str
    message: str


class Rejected(_Frozen):
    """Values in update number ``n`` of this connection, which ``agent`` wrote, were taken back; the rest of it stays.

    ``n`` is None for what came in an answer to a step 1. Sent before the acknowledgement; there may be more values than
    are listed. What takes them back comes as an entry.
    """

    type: Literal["rejected"] = "rejected"
    n: Number | None
    agent: str
    values: Annotated[tuple[RejectedValue, ...], Field(min_length=1)]


class Resync(_Frozen):
    """Send every update after number ``n`` of this connection again."""

    type: Literal["resync"] = "resync"
    n: Number


ServerMessage = Annotated[
    ServerHello | Ack | CheckpointMade | SchemaChanged | Answer | Refused | Rejected | Resync,
    Field(discriminator="type"),
]

_CLIENT: TypeAdapter[ClientHello | Request | Bye] = TypeAdapter(ClientMessage)
_SERVER: TypeAdapter[ServerMessage] = TypeAdapter(ServerMessage)


def encode(message: BaseModel) -> str:
    """The text frame of a message."""
    return message.model_dump_json()


def decode_client_message(text: str, limits: Limits) -> ClientHello | Request | Bye:
    """The message that a client sent.

    Raises:
        LimitExceeded: more than ``control_bytes_max`` bytes.
        ProtocolError: not such a message; ``path`` in its data names the first place that is wrong.
    """
    return _decode(_CLIENT, text, limits)


def decode_server_message(text: str, limits: Limits) -> ServerMessage:
    """The message that a server sent; errors as in `decode_client_message`."""
    return _decode(_SERVER, text, limits)


def refusal(error: BoardError, request_id: int | None = None) -> Refused:
    """The message that carries ``error``; what of its data is no JSON travels as text."""
    text = json.dumps(error.details(), ensure_ascii=False, default=str)
    details = ErrorDetails.model_validate_json(text.encode(errors="replace"))
    return Refused(id=request_id, error=details)


def error_of(refused: Refused) -> BoardError:
    """The error that a refusal carries, as the exception that the server raised."""
    return from_details(refused.error.model_dump())


def published_schema() -> dict[str, Any]:
    """The JSON Schema of everything that clients send, under ``client``, and servers send, under ``server``."""
    return {"client": _CLIENT.json_schema(), "server": _SERVER.json_schema()}


def _decode(adapter: TypeAdapter[_Message], text: str, limits: Limits) -> _Message:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError("a control message holds lone surrogates", path="") from None
    if len(data) > limits.control_bytes_max:
        raise LimitExceeded(
            f"a control message of {len(data)} bytes is larger than {limits.control_bytes_max}",
            limit="control_bytes_max",
            value=len(data),
            maximum=limits.control_bytes_max,
        )
    _refuse_non_json_numbers(data)
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        where = f" at {path}" if path else ""
        raise ProtocolError(f"a control message is wrong{where}: {first['msg']}", path=path) from None


def _refuse_non_json_numbers(data: bytes) -> None:
    """Refuse ``NaN`` and ``Infinity``, which pydantic reads although JSON does not have them."""
    if b"NaN" in data or b"Infinity" in data:
        try:
            from_json(data, allow_inf_nan=False)
        except ValueError as error:
            raise ProtocolError(f"a control message is not JSON: {error}", path="") from None
