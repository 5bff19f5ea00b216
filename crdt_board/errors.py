"""Every error that CRDT Board raises on purpose, in one tree with stable codes.

    BoardError
    ├── BadRequest            the caller's input is wrong; retrying it unchanged cannot help
    │   ├── ModelError        a BoardModel declares something that cannot be merged
    │   ├── InvalidValue      a value does not fit its field, or would not come back as written
    │   ├── WriteRejected     the board's writer took back a value that the schema does not allow
    │   ├── InvalidBoardId    a board id outside the allowed alphabet or length
    │   ├── MalformedUpdate   bytes that are not a Yjs update, or not one this board accepts
    │   ├── ProtocolError     a peer broke the wire protocol
    │   ├── ForbiddenOrigin   a web page of another site, or a name that is not the server's
    │   ├── MethodNotAllowed  an HTTP request with a method that its address does not have
    │   └── LimitExceeded     something is larger than ``Limits`` allows
    ├── NotFound              the board, version, key or artifact is not there
    ├── Conflict              somebody else was first; read again, then decide
    │   ├── VersionConflict
    │   ├── IdempotencyMismatch
    │   ├── SchemaMismatch
    │   ├── Violated          the state breaks a rule of the model; resolve that, then commit
    │   ├── BoardReplaced     the board was deleted and made anew; this replica belongs to the old one
    │   ├── BoardDeleted      the board was deleted; nothing can be written to it any more
    │   ├── BoardExists       there is a board of this name already
    │   ├── LeaseHeld         somebody else has the lease
    │   ├── LeaseLost         the lease that a change was to be made under ran out or was broken
    │   ├── TaskLost          the claim to a task ran out, or the task was finished by somebody else
    │   ├── TaskMismatch      there is another task under this key
    │   ├── CursorMoved       somebody else follows under the same name
    │   ├── ReactionLost      a reaction took too long, and is somebody else's to run
    │   ├── ApprovalClosed    the approval was decided, expired, superseded or withdrawn before
    │   ├── ApprovalMismatch  the approval is about something else than what was seen
    │   ├── EffectInDoubt     whether something took place outside is not known; somebody must look, and say so
    │   ├── EffectLost        somebody has resolved an effect that was still running
    │   └── StepLost          somebody else has begun a step that was still running
    └── Unavailable           nothing was decided; the same call may succeed later
        ├── StoreUnavailable  the store did not answer or refused to write
        ├── BoardCorrupt      stored history does not verify; nothing is written until it is repaired
        ├── ArtifactCorrupt   what is stored of an artifact has another hash than its name
        ├── ConnectionFailed  no server, or it went away and did not come back in time
        ├── NotDone           raised by the function of an effect: nothing took place, it may run again
        └── BoardClosed       the board was closed by this process

``code`` is part of the public interface and never changes its meaning. Data is kept in attributes, so that
callers never parse messages; ``details()`` is the JSON form in which an error crosses the wire.
"""

from __future__ import annotations

from typing import Any, ClassVar

from crdt_board.violation import Violation


class BoardError(Exception):
    """Base of all errors of this package."""

    code: ClassVar[str] = "board_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["data"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.data)

    def details(self) -> dict[str, Any]:
        """The error as JSON: ``{"code", "message", "data"}``; the inverse is `from_details`."""
        return {"code": self.code, "message": self.message, "data": self.data}


class BadRequest(BoardError):
    code = "bad_request"


class ModelError(BadRequest):
    code = "model_error"


class InvalidValue(BadRequest):
    """``path`` names the field, ``reason`` says why the value was refused; ``rule`` is the one that it breaks, where
    that has a name of its own."""

    code = "invalid_value"


class WriteRejected(BadRequest):
    """``path`` and ``rule`` are those of the first value that was taken back, ``rejected`` lists all that are known.

    Everything else that was written is durable, and this replica holds what all others hold.
    """

    code = "write_rejected"


class InvalidBoardId(BadRequest):
    code = "invalid_board_id"


class MalformedUpdate(BadRequest):
    code = "malformed_update"


class ProtocolError(BadRequest):
    code = "protocol_error"


class ForbiddenOrigin(BadRequest):
    """``origin`` is the page's."""

    code = "forbidden_origin"


class MethodNotAllowed(BadRequest):
    """An HTTP address has no such method; the ``Allow`` header names those that it has."""

    code = "method_not_allowed"


class LimitExceeded(BadRequest):
    """``limit`` is the name in `Limits`, ``value`` what was asked for, ``maximum`` what is allowed."""

    code = "limit_exceeded"


class NotFound(BoardError):
    code = "not_found"


class Conflict(BoardError):
    code = "conflict"


class VersionConflict(Conflict):
    """Another commit came in between.

    ``current_version`` and ``author`` describe the newest checkpoint, ``changed`` the fields that differ from
    the version that was expected, in alphabetical order.
    """

    code = "version_conflict"


class IdempotencyMismatch(Conflict):
    """``key`` was used before for a different request, recorded as ``version``."""

    code = "idempotency_mismatch"


class SchemaMismatch(Conflict):
    """``fields`` lists what differs, one sentence each; ``board_schema`` is the number stored with the board."""

    code = "schema_mismatch"


class Violated(Conflict):
    """The board's state breaks a rule, by edits each of which was valid, and a commit would make that a version.

    ``current_version`` and ``seq`` say where the board was. `violations` are what stands, a hundred at most.
    """

    code = "board_violated"

    @property
    def violations(self) -> tuple[Violation, ...]:
        """What stands in the way, in the order of places and rules."""
        return tuple(Violation(**{**each, "fields": tuple(each["fields"])}) for each in self.data.get("standing", ()))


class BoardReplaced(Conflict):
    code = "board_replaced"


class BoardDeleted(Conflict):
    """``deleted_ms`` is when, ``agent`` who did it."""

    code = "board_deleted"


class BoardExists(Conflict):
    code = "board_exists"


class LeaseHeld(Conflict):
    """``lease`` is its name, ``agent`` who has it, and ``expires_ms`` until when, on the store's clock."""

    code = "lease_held"


class LeaseLost(Conflict):
    """``lease`` is its name. Whoever had it must not go on with what it protected."""

    code = "lease_lost"


class TaskLost(Conflict):
    """``task`` is its name, ``state`` where it is now, None when it is gone. Whoever had it must stop working on it."""

    code = "task_lost"


class TaskMismatch(Conflict):
    """``task`` is the name that was used before, for a task with other content; ``state`` is where that is now."""

    code = "task_mismatch"


class CursorMoved(Conflict):
    """``cursor`` is its name, ``seq`` where it is."""

    code = "cursor_moved"


class ReactionLost(Conflict):
    code = "reaction_lost"


class ApprovalClosed(Conflict):
    """``approval`` is its id, ``state`` how it ended: *decided*, *expired*, *superseded* or *withdrawn*.

    ``option``, ``agent``, ``comment``, ``path`` and ``at_ms`` are those of `Decision`.
    """

    code = "approval_closed"


class ApprovalMismatch(Conflict):
    """``approval`` is its id, ``hash`` that of what it is about."""

    code = "approval_mismatch"


class EffectInDoubt(Conflict):
    """``effect`` and ``key`` name it, ``agent`` is who ran it, ``since_ms`` when that began, and ``reason`` says why it
    is not known whether it took place.

    It stays so until `Board.resolve_effect`, and nobody runs it again before.
    """

    code = "effect_in_doubt"


class EffectLost(Conflict):
    """``effect`` and ``key`` name it. It took place, and it may take place a second time, or has."""

    code = "effect_lost"


class StepLost(Conflict):
    """``step`` is its name. What this run did is not committed."""

    code = "step_lost"


class Unavailable(BoardError):
    code = "unavailable"
    retryable = True


class StoreUnavailable(Unavailable):
    code = "store_unavailable"


class BoardCorrupt(Unavailable):
    """``seq`` is the first journal entry that does not verify, or None when none could be read."""

    code = "board_corrupt"
    retryable = False


class ArtifactCorrupt(Unavailable):
    """``sha256`` is the hash that the content should have."""

    code = "artifact_corrupt"
    retryable = False


class ConnectionFailed(Unavailable):
    code = "connection_failed"


class NotDone(Unavailable):
    """For the function that is given to `Board.effect`: it knows that nothing took place outside."""

    code = "not_done"


class BoardClosed(Unavailable):
    code = "board_closed"
    retryable = False


def error_types() -> dict[str, type[BoardError]]:
    """Every class of the tree by its code."""
    found: dict[str, type[BoardError]] = {}
    waiting: list[type[BoardError]] = [BoardError]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind
        waiting.extend(kind.__subclasses__())
    return found


def from_details(details: dict[str, Any]) -> BoardError:
    """Rebuild an error from `BoardError.details`; an unknown code becomes a plain `BoardError`."""
    kind = error_types().get(str(details.get("code")), BoardError)
    return kind(str(details.get("message", "unknown error")), **dict(details.get("data") or {}))


def _rebuild(kind: type[BoardError], message: str, data: dict[str, Any]) -> BoardError:
    return kind(message, **data)
