"""A local copy of a board that agents edit at once, and that keeps what is not durable yet until it is.

No event loop, no socket, no store: a link (in process, or over a websocket) takes `Replica.pending` to a board's writer
and brings back what others wrote. Not safe for use from several threads.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pycrdt
from pydantic import JsonValue

from crdt_board.document import Document
from crdt_board.errors import LimitExceeded, MalformedUpdate
from crdt_board.headroom import WARNINGS, Headroom, LimitWarning
from crdt_board.layout import TEAM_ROOT, Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.paths import escape_path
from crdt_board.readiness import Extent
from crdt_board.undo import UndoHistory, take_back
from crdt_board.update_walk import first_clocks, walk
from crdt_board.updates import EMPTY_UPDATE, clock_of, decode_state_vector, encode_state_vector
from crdt_board.usual_updates import usual_extent
from crdt_board.violation import VIOLATIONS

_CHAR_BYTES_MAX = 4
_DEPTH_MAX = 1_000

_KEY_BYTES = 8
"""What the smallest value of a key takes."""

_OVERHEAD_BYTES = 64
"""More than what an update holds beside the text of one value: ids, lengths, and the name of its field's root."""


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """A local update that is not known to be durable. ``number`` counts from 1 over the life of the replica.

    It is one transaction's, but for what opens a record: that is an update of its own before it, which shows nothing.
    """

    number: int
    agent: str
    update: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A path that was changed, as this replica saw it.

    ``path`` is ``field`` or ``field/key``; `VIOLATIONS` or `WARNINGS` when those of the board are others than before;
    or ``$team/`` and the key of a lease, task or the like.
    ``agent`` is who changed it; None when several changes arrived as one difference, after a time offline. ``local``:
    made through this replica, and not necessarily durable yet; anything else is durable. ``seq`` is the journal entry,
    when one is known.
    """

    path: str
    agent: str | None
    local: bool
    seq: int | None = None


class Replica:
    """One replica: a document, and the local updates that it still owes to the writer of the board.

    Invariants:
        1. Every local update is in ``pending`` until `acknowledge` covers its number.
        2. Numbers of ``pending`` are consecutive.
        3. Remote updates are never applied inside a local transaction: they would be taken for local ones.
    """

    def __init__(
        self,
        layout: Layout | None,
        *,
        client_id: int | None = None,
        update_bytes_max: int = DEFAULT_LIMITS.update_bytes_max,
        strays: bool = False,
    ) -> None:
        self.document = Document(layout, client_id=client_id, strays=strays)
        self.headroom = Headroom(DEFAULT_LIMITS)
        self.update_bytes_max = update_bytes_max
        """What the writer of the board takes as one update."""
        self.pending: deque[PendingUpdate] = deque()
        self.acknowledged = 0
        """The number up to which every local update is durable."""
        self.version = 0
        """The newest checkpoint that this replica holds."""
        self.schema_version = 0
        """The number of the newest schema of the board that this replica has heard of; 0 before the first."""
        self.seq = 0
        """The newest journal entry that this replica is known to hold."""
        self.on_pending: Callable[[], None] = _nothing
        """Called after new local updates were added to ``pending``."""
        self.on_progress: Callable[[], None] = _nothing
        """Called after `acknowledge`, and after ``seq`` or ``version`` moved."""
        self.on_missing: Callable[[], None] = _nothing
        """Called when an entry was not taken in, or not all of it: the difference must be asked for."""
        self.watchers: list[Callable[[Sequence[Change]], None]] = []
        """Called with what changed, after every local transaction and every arrival. Must not raise."""
        self._numbered = 0
        self._depth = 0
        self._receiving = False
        self._captured: list[bytes] = []
        self._arrived: list[_Arrival | Layout] = []
        self._joined = nullcontext()
        self._ended_histories: list[object] = []
        self._histories: weakref.WeakSet[UndoHistory] = weakref.WeakSet()
        self._capture_transactions()

    @property
    def clock(self) -> int:
        """How far this replica's document has come under its client id."""
        return clock_of(self.document.client_id, self.document.state_vector())

    @property
    def owes_nothing(self) -> bool:
        """Whether everything that was ever edited here is durable."""
        return not self.pending and not self._depth

    @property
    def last_number(self) -> int:
        """The number of the newest local update, 0 when there was none."""
        return self._numbered

    def edit(
        self, agent: str, content: JsonValue = None, *, history: UndoHistory | None = None, group: object = None
    ) -> AbstractContextManager[None]:
        """One local change by ``agent``, remembered in ``history``; joins the transaction that is open, if one is.

        ``content`` is what it writes, a dict when it writes keys. Where that may be more than an update may have, the
        change is a `transaction`, so that it can be taken back; what is not named here is not. Changes of one ``group``
        that follow each other are one step of the history.

        Raises:
            LimitExceeded: as `transaction`; or at once, when the keys alone are too large, since a key stays in the
                document even when its value is taken back.
        """
        if isinstance(content, dict):
            self._check_size(sum(len(key.encode()) + _KEY_BYTES for key in content))
        if self._depth:
            return self._joined
        if content is not None and _bytes_at_most(content) > self.update_bytes_max:
            return self.transaction(agent, history)
        return _Edit(self, agent, history, group)

    @contextmanager
    def transaction(self, agent: str, history: UndoHistory | None = None) -> Iterator[None]:
        """Group local changes into one update; an exception inside takes all of them back and goes on.

        What opens a record is an update of its own, before it.

        Inside another transaction it joins that one, which then is taken back as a whole.

        Raises:
            LimitExceeded: at its end, the update has more than ``update_bytes_max`` bytes; all of it was taken back.
        """
        if self._depth:
            yield
            return
        rollback: pycrdt.UndoManager | None
        rollback = pycrdt.UndoManager(scopes=[*self.document.roots()], capture_timeout_millis=0)
        if history is not None:
            rollback.include_origin(history.origin)
        try:
            with self._open(history):
                yield
                self.document.write_cells()
            self._check_size(sum(map(len, self._captured)))
        except BaseException:
            take_back(self.document, self.document.roots(), rollback.undo_stack, [], self._histories)
            self.document.forget_cells()
            if history is not None:
                history.forget_newest()
            self.document.drop_text_indexes()
            self._shrink()
            raise
        finally:
            # Dropped now: a traceback may keep this frame, and yrs panics when it goes during a later transaction.
            rollback = None
            self._finish(agent)

    def new_history(self, depth: int) -> UndoHistory:
        """A history of what is edited with it from now on. Outside any transaction."""
        history = UndoHistory(self.document, depth, self._ended_histories, self._histories)
        self._histories.add(history)
        return history

    def undo(self, agent: str, history: UndoHistory) -> bool:
        """Take back the newest step of ``history``, as a local change by ``agent``; False when there is none.

        Outside any transaction.
        """
        return self._step(agent, history.undo)

    def redo(self, agent: str, history: UndoHistory) -> bool:
        """Make the step again that was taken back last, as a local change; False when there is none."""
        return self._step(agent, history.redo)

    @property
    def in_transaction(self) -> bool:
        return self._depth > 0

    def receive(self, updates: Sequence[bytes], *, agent: str | None, seq: int | None, ready: bool = False) -> None:
        """Take in what others wrote: entry ``seq`` by ``agent``, or a difference (both None).

        Of an entry, what builds on something that is missing here is left out, and ``on_missing`` called; it is not
        looked for when the caller knows the entry to be ``ready``: this replica holds all entries before it. A
        difference must be one to a state that this replica has been in.

        Raises:
            MalformedUpdate: the bytes are not updates.
            DocumentBroken: yrs panicked; the replica must be built anew.
        """
        is_difference = agent is None and seq is None
        arrival = _Arrival(list(updates), agent, seq, is_ready=ready or is_difference)
        if self._depth:
            self._arrived.append(arrival)
            return
        self._take_in(arrival)

    def declare(self, layout: Layout) -> None:
        """From now on, or from the end of the transaction that is open, the board has this layout."""
        if self._depth:
            self._arrived.append(layout)
        elif layout != self.document.layout:
            self.document.declare(layout)
            for history in self._histories:
                history.watch_roots()

    def acknowledge(self, number: int) -> None:
        """Every local update up to ``number`` is durable."""
        while self.pending and self.pending[0].number <= number:
            self.pending.popleft()
        self.acknowledged = max(self.acknowledged, number)
        self.on_progress()

    def reached(self, *, seq: int | None = None, version: int | None = None) -> None:
        """The replica holds everything up to this entry, or this checkpoint."""
        self.seq = max(self.seq, seq or 0)
        self.version = max(self.version, version or 0)
        self.on_progress()

    def pending_after(self, number: int) -> list[PendingUpdate]:
        """The pending updates with a greater number, in order."""
        if not self.pending:
            return []
        skip = max(0, number - self.pending[0].number + 1)
        if skip == 0:
            return list(self.pending)
        return [self.pending[index] for index in range(skip, len(self.pending))]

    @contextmanager
    def _open(self, history: UndoHistory | None, group: object = None) -> Iterator[None]:
        if history is None:
            local = self.document.local_transaction()
        else:
            history.begin(group)
            local = self.document.local_transaction(history.origin, history.begin_part)
        self._depth += 1
        try:
            with local:
                yield
        finally:
            self._depth -= 1

    def _step(self, agent: str, step: Callable[[], bool]) -> bool:
        assert not self._depth, "a step through the history inside a transaction"
        try:
            return step()
        finally:
            self.document.drop_text_indexes()
            self._finish(agent)

    def _finish(self, agent: str) -> None:
        """After the outermost transaction: number what it made, then let in what arrived meanwhile."""
        self._ended_histories.clear()
        captured, self._captured = self._captured, []
        if captured:
            update = captured[0] if len(captured) == 1 else pycrdt.merge_updates(*captured)
            if update != EMPTY_UPDATE:
                for part in self.document.apart(update):
                    self._numbered += 1
                    self.pending.append(PendingUpdate(self._numbered, agent, part))
                self._tell(agent, local=True, seq=None)
                self.on_pending()
        arrived, self._arrived = self._arrived, []
        for arrival in arrived:
            if isinstance(arrival, Layout):
                self.declare(arrival)
            else:
                self._take_in(arrival)

    def _check_size(self, size: int) -> None:
        if size > self.update_bytes_max:
            raise LimitExceeded(
                f"one edit of {size} bytes or more is larger than the {self.update_bytes_max} that the board's writer "
                "takes, and was not made; split it into several, or store large content with board.artifacts.put and "
                "write the pointer that it returns",
                limit="update_bytes_max",
                value=size,
                maximum=self.update_bytes_max,
            )

    def _shrink(self) -> None:
        """Leave the content out of a large update that was taken back: only its clocks are of use to others."""
        if sum(map(len, self._captured)) <= self.update_bytes_max:
            return
        clocks = decode_state_vector(self.document.state_vector())
        clocks |= first_clocks(pycrdt.merge_updates(*self._captured))
        scratch: pycrdt.Doc[Any] = pycrdt.Doc()
        scratch.apply_update(self.document.encode())  # what is deleted when it arrives is not kept
        self._captured = [scratch.get_update(encode_state_vector(clocks))]

    def _take_in(self, arrival: _Arrival) -> None:
        self._receiving = True
        try:
            is_whole = self._apply(arrival)
        finally:
            self._receiving = False
        if is_whole:
            self.seq = max(self.seq, arrival.seq or 0)  # who is told looks at both
        self._tell(arrival.agent, local=False, seq=arrival.seq)
        if not is_whole:
            self.on_missing()
        elif arrival.seq is not None:
            self.reached(seq=arrival.seq)

    def _apply(self, arrival: _Arrival) -> bool:
        """Whether everything that arrived was ready; what was not is left out."""
        if arrival.is_ready:
            self.document.apply_or_raise(arrival.updates)
            return True
        answers = self.document.apply_ready([(update, _extent_of(update)) for update in arrival.updates])
        for answer in answers:
            if isinstance(answer, MalformedUpdate):
                raise answer
        return not any(answers)

    def _tell(self, agent: str | None, *, local: bool, seq: int | None) -> None:
        touched = self.document.take_touched()
        if self.document.standing.take_moved(self.document):
            touched = (*touched, VIOLATIONS)
        touched = (*touched, *(f"{TEAM_ROOT}/{escape_path(key)}" for key in self.document.take_moved_records()))
        if self.headroom.touch(touched):
            self.headroom.look(self.document)
        if self.headroom.take_moved():
            touched = (*touched, WARNINGS)
        if touched and self.watchers:
            changes = [Change(path, agent, local, seq) for path in touched]
            for watcher in list(self.watchers):
                watcher(changes)

    def warnings(self) -> tuple[LimitWarning, ...]:
        """What stands now of `Board.warnings`."""
        self.headroom.look(self.document)
        return self.headroom.warnings

    def _capture_transactions(self) -> None:
        reference = weakref.ref(self)  # yrs holds the callback: were the replica in it, it would never be freed

        def capture(event: pycrdt.TransactionEvent) -> None:
            replica = reference()
            if replica is not None and not replica._receiving:
                replica._captured.append(event.update)

        self._capturing = self.document.doc._doc.observe(capture)  # on the inner type: see `Document.capture`


@dataclass(frozen=True, slots=True)
class _Arrival:
    updates: list[bytes]
    agent: str | None
    seq: int | None
    is_ready: bool


@dataclass(slots=True)
class _Edit:
    """A single local change: the outermost transaction, without the cost of being able to take it back."""

    replica: Replica
    agent: str
    history: UndoHistory | None
    group: object
    opened: AbstractContextManager[None] = field(init=False)

    def __enter__(self) -> None:
        self.opened = self.replica._open(self.history, self.group)
        self.opened.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                self.replica.document.write_cells()
            finally:
                self.opened.__exit__(kind, error, trace)
        finally:
            self.replica._finish(self.agent)


def _extent_of(update: bytes) -> Extent:
    return usual_extent(update, _DEPTH_MAX) or walk(update, _DEPTH_MAX)


def _bytes_at_most(content: JsonValue) -> int:
    """No fewer bytes than ``content`` takes in an update, and its keys and its place with it."""
    match content:
        case str():
            return _OVERHEAD_BYTES + _CHAR_BYTES_MAX * len(content)
        case list():
            return _OVERHEAD_BYTES + sum(map(_bytes_at_most, content))
        case dict():
            return _OVERHEAD_BYTES + sum(_bytes_at_most(key) + _bytes_at_most(item) for key, item in content.items())
        case _:
            return _OVERHEAD_BYTES


def _nothing() -> None:
    pass
