"""Who may write what on a board, asked before it is queued: client ids, replicas of an earlier board, sizes."""

from __future__ import annotations

from collections.abc import Iterable

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import CommitRequest, check_decisions
from crdt_board.client_ids import ClientIds
from crdt_board.coordinating import check_operations
from crdt_board.errors import BoardReplaced, InvalidValue, LimitExceeded, MalformedUpdate, Unavailable
from crdt_board.limits import Limits, check_name
from crdt_board.store.contract import Tombstone
from crdt_board.submissions import Submission
from crdt_board.tail import Tail
from crdt_board.updates import check_update, clock_of, decode_state_vector


class Admission:
    """The door of one board's writer. It compares with what the document holds at the moment of the call."""

    def __init__(self, tail: Tail, client_ids: ClientIds, limits: Limits, *, buried: Iterable[Tombstone]) -> None:
        """``buried`` are the boards of this name that were deleted."""
        self._tail = tail
        self._client_ids = client_ids
        self._limits = limits
        self._buried = {client for each in buried for client in decode_state_vector(each.clients)}

    def check_submission(self, submission: Submission) -> None:
        """Note what each update of a submission builds on.

        Raises:
            LimitExceeded, MalformedUpdate: an update is not acceptable.
            Unavailable: a difference holds what the owner of a client id has not sent yet.
        """
        submission.extents = [check_update(update, self._limits) for update in submission.updates]
        for ends, *_ in submission.extents:
            closed = [client for client in ends if self._client_ids.is_closed_to(client, submission.source)]
            if closed:
                self._check_known({client: ends[client] for client in closed}, submission)

    def check_replica(self, state_vector: bytes) -> None:
        """Return when a replica that holds this may write; for peers that do not say to which epoch they belong.

        Raises:
            BoardReplaced: it holds what was written to an earlier board of this name, and not to this one.
            MalformedUpdate: ``state_vector`` is none.
        """
        if not self._buried:
            return
        present = decode_state_vector(self._state_vector())
        clocks = decode_state_vector(state_vector)
        if any(clock > present.get(client, 0) for client, clock in clocks.items() if client in self._buried):
            raise BoardReplaced(
                f"board {self._tail.board_id} was deleted and made anew; this replica belongs to the old one",
                board_id=self._tail.board_id,
            )

    def holds_all_of(self, client_id: int, clock: int) -> bool:
        """Whether everything that was written under an id up to ``clock`` is here."""
        return clock <= clock_of(client_id, self._state_vector())

    def _check_known(self, ends: dict[int, int], submission: Submission) -> None:
        """Peers send on what others wrote under ids that they hold, but nothing that these have not written yet."""
        written = decode_state_vector(self._state_vector())
        for client_id, end in ends.items():
            if end <= written.get(client_id, 0):
                continue
            if submission.is_difference and client_id != self._tail.client_id:
                # After a crash that lost a part of the journal: the owner sends it too, and then this is known.
                raise Unavailable(f"client id {client_id} is that of another replica, which is to send this first")
            raise MalformedUpdate(f"an update under client id {client_id}, which is that of somebody else")

    def _state_vector(self) -> bytes:
        return self._tail.loaded.document.state_vector()


def check_request(request: CommitRequest, limits: Limits) -> None:
    """Return when a commit may be decided on, whatever the board holds.

    Raises:
        InvalidValue: it sets a strict field without an ``expected_version``, or its metadata cannot be kept as JSON.
        LimitExceeded: a name, an operation or the metadata is too long.
    """
    check_decisions(request)
    check_operations(request.agent, request.operations, limits)
    check_name(request.step, "step", limits.step_chars_max)
    if request.idempotency_key is not None:
        check_name(request.idempotency_key, "idempotency_key", limits.idempotency_key_chars_max)
    if request.output is None and request.handoff is None and request.trace is None and not request.tags:
        return
    try:
        size = len(canonical_json(request.model_dump(mode="json", include={"output", "handoff", "trace", "tags"})))
    except ValueError as error:
        reason = f"output, handoff, trace and tags must be JSON that every reader reads alike: {error}"
        raise InvalidValue(reason, path="output", reason=reason) from None
    if size > limits.checkpoint_metadata_bytes_max:
        raise LimitExceeded(
            f"output, handoff, trace and tags of a commit take {size} bytes, "
            f"{limits.checkpoint_metadata_bytes_max} are allowed; keep large results outside and name them",
            limit="checkpoint_metadata_bytes_max",
            value=size,
            maximum=limits.checkpoint_metadata_bytes_max,
        )
