"""Every bound of the system in one frozen value, with the unit last in each name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crdt_board.errors import InvalidBoardId, InvalidValue, LimitExceeded

_BOARD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]*")

WRITER_ID_END = 1 << 24
CLIENT_ID_FIRST = 1 << 32
CLIENT_ID_END = 1 << 52
"""Ids that are granted to replicas are from the first of these up to the second, excluded. Yjs chooses smaller ones
by itself; greater ones belong to opened records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds that hold for one process; a server and its clients may differ, the smaller one wins."""

    board_id_chars_max: int = 128
    agent_chars_max: int = 128
    step_chars_max: int = 200
    idempotency_key_chars_max: int = 200
    update_bytes_max: int = 16 * 1024 * 1024
    """One update, and so one WebSocket message, as received from a peer."""
    nesting_depth_max: int = 64
    """Arrays and objects inside each other within one value; far below what overflows yrs' stack."""
    place_chars_max: int = 1024
    """The place of one item in a list of records; where it would be longer, the list gets new places."""
    awareness_bytes_max: int = 64 * 1024
    presence_states_max: int = 32
    """Client ids that one connection may speak for."""
    presence_clients_max: int = 10_000
    """Client ids of one board whose presence is known or remembered."""
    control_bytes_max: int = 4 * 1024 * 1024
    """One JSON control message, or the body of one HTTP request, but for exports."""
    answer_seconds_max: float = 5.0
    """How long a request over HTTP waits for its answer while the store fails."""
    head_bytes_max: int = 64 * 1024
    """What an HTTP request takes before its body, or between the pieces of it."""
    head_seconds_max: float = 30.0
    """Until the head of a request is there, from the beginning of its connection on, or of itself."""
    body_silent_seconds: float = 60.0
    """How long the body of an HTTP request may bring nothing."""
    body_bytes_per_second_min: int = 50
    """How fast such a body must be, as a whole: slower than a model writes, and faster than who only keeps it open."""
    journal_page_bytes_max: int = 4 * 1024 * 1024
    """Updates of entries in one answer over HTTP, beyond the first of them."""
    layout_bytes_max: int = 1024 * 1024
    """The layout of one model, as JSON."""
    checkpoint_metadata_bytes_max: int = 256 * 1024
    """``output``, ``handoff``, ``trace`` and ``tags`` of one commit together, as JSON."""
    schema_number_max: int = 1_000
    """The greatest number of a schema that a model may migrate from."""
    migration_attempts_max: int = 20
    """How often an agent tries to migrate a board that others write meanwhile."""
    record_bytes_max: int = 64 * 1024
    """One request for a lease, a task or the like, as JSON, and so about what the record of it takes."""
    records_max: int = 50_000
    """Leases, tasks and the like of one board, finished ones too."""
    operations_max: int = 100
    """Operations that are decided together, or with a commit."""
    violations_max: int = 256
    """Violations that agents can record on one board; what is found beyond that waits until some are resolved."""
    undo_steps_max: int = 10_000
    """Steps that one handle on a board can take back."""
    batch_updates_max: int = 4096
    batch_bytes_max: int = 1024 * 1024
    """How much the writer of a board applies and appends in one go."""
    text_chars_max: int = 10_000_000
    """One text of a board."""
    container_items_max: int = 1_000_000
    """Items or keys of one list, set or dict of a board."""
    corrections_bytes_max: int = 16 * 1024 * 1024
    """What taking back the refused writes of one peer may cost, while it is connected."""
    rejections_told_max: int = 100
    """Refused values of one submission that its sender is told of."""
    scratch_keys_max: int = 10_000
    """Keys of one scratch field whose last writes are known each by itself; older ones count as one."""
    scratch_page_keys: int = 1_000
    """Keys of a scratch field that are removed in one go when they ran out: everybody else waits for so long."""
    scratch_look_seconds: float = 60.0
    """How long the writer of a board with scratch fields goes without looking at the clock."""
    entry_paths_max: int = 32
    """Touched paths kept per entry; more are folded into their field names."""
    client_ids_kept_max: int = 16
    """Free client ids of one board that a process keeps in memory, where a crash loses them."""
    client_ids_rest_seconds: float = 10.0
    """How long a server that has started leaves the free client ids of its store alone: should its database be an older
    copy, clients that were granted some of them since then come back first."""
    snapshot_every_entries: int = 1_000
    snapshot_every_bytes: int = 512 * 1024
    snapshot_time_share: float = 0.05
    """Of the time of a busy board, how much goes into snapshots, unless they would be more than a minute apart:
    everybody else waits while a thread loads one back."""
    snapshots_kept: int = 2
    snapshots_spread: int = 16
    """Snapshots before the newest ones, spread over the journal: so that any version is near one."""
    snapshot_bytes_per_entry: int = 2_000
    """How far such snapshots are apart at least, by their size: loading many bytes takes as long as folding entries."""
    compaction_page_entries: int = 200
    """Entries that a compaction folds, or removes, in one go: everybody else waits for so long."""
    retention_every_entries: int = 10_000
    """After how many entries a board's own retention is applied again."""
    compaction_page_bytes: int = 256 * 1024
    """Space that a compaction gives back to the file system in one go."""
    send_buffer_bytes_max: int = 1024 * 1024
    """Unsent bytes of one connection beyond which it is caught up from state."""
    inbox_bytes_max: int = 64 * 1024 * 1024
    """Submitted but unwritten bytes of one board beyond which its peers are no longer read."""
    close_seconds_max: float = 5.0
    """How long a process that ends goes on trying to write what is queued while the store fails."""
    rules_settle_seconds: float = 0.05
    """How long nothing must have changed before an agent's replica looks at rules over several fields again."""
    rules_settle_seconds_max: float = 0.5
    """After how long it looks although changes go on."""
    import_bytes_max: int = 1024 * 1024 * 1024
    """One export of a board, unpacked and without its artifacts; it is read into memory."""
    import_line_bytes_max: int = 256 * 1024 * 1024
    """One line of it, and so one entry of its journal."""
    import_artifacts_bytes_max: int = 256 * 1024 * 1024 * 1024
    """All artifacts in one export together. They are streamed, and never in memory."""
    artifact_bytes_max: int = 1024 * 1024 * 1024
    """One artifact. It is streamed, and never in memory as a whole."""
    artifact_memory_bytes_max: int = 64 * 1024 * 1024
    """An artifact that is read into memory as a whole."""
    artifact_grace_seconds: int = 24 * 60 * 60
    """How old an artifact is at least that a sweep removes: whoever put it has so long to write its pointer."""
    room_idle_seconds: float = 30.0
    keepalive_seconds: float = 15.0
    """Stock Yjs clients drop a server that says nothing for 30 s."""


DEFAULT_LIMITS = Limits()


def check_board_id(board_id: object, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return ``board_id`` when it is one.

    A board id starts with an ASCII letter or digit, continues with those and ``. _ : ~ -`` and has at most
    ``board_id_chars_max`` characters. It can be used in URLs, file names and pointers as it is.

    Raises:
        InvalidBoardId: it is not; the caller's fault.
    """
    if not isinstance(board_id, str):
        raise InvalidBoardId(f"a board id is a str, not {type(board_id).__name__}", board_id=repr(board_id)[:80])
    if len(board_id) > limits.board_id_chars_max or not _BOARD_ID.fullmatch(board_id):
        raise InvalidBoardId(
            f"{board_id[:80]!r} is not a board id: use 1 to {limits.board_id_chars_max} of the characters "
            "A-Z a-z 0-9 . _ : ~ - and start with a letter or digit",
            board_id=board_id[:80],
        )
    return board_id


def check_name(value: object, what: str, chars_max: int) -> str:
    """Return ``value`` when it is a non-empty printable name of at most ``chars_max`` characters.

    Raises:
        InvalidValue: it is empty.
        LimitExceeded: it is too long, not text, or holds control characters or lone surrogates.
    """
    if value == "":
        reason = f"is empty; give 1 to {chars_max} printable characters"
        raise InvalidValue(f"{what} {reason}", path=what, reason=reason)
    if isinstance(value, str) and len(value) <= chars_max and value.isprintable():
        return value
    raise LimitExceeded(
        f"{what} must be 1 to {chars_max} printable characters, got {repr(value)[:80]}",
        limit=what,
        value=repr(value)[:80],
        maximum=chars_max,
    )
