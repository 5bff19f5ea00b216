"""What a session tells the shell that drives it; see `crdt_board.session`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from pydantic import JsonValue

from crdt_board import control
from crdt_board.checkpoints import Checkpoint
from crdt_board.errors import BoardError
from crdt_board.presence import PresenceState
from crdt_board.rejections import Rejection


@dataclass(frozen=True, slots=True)
class HelloReceived:
    """A client introduced itself. Answer with `ServerSession.hello`."""

    hello: control.ClientHello


@dataclass(frozen=True, slots=True)
class SyncRequested:
    """Answer with `ServerSession.step2`: what ``state_vector`` lacks."""

    state_vector: bytes


@dataclass(frozen=True, slots=True)
class UpdatesReceived:
    """New updates. ``agent`` and ``last_number`` are None when they came in a stock frame, which is never acked.

    ``is_difference``: the answer to a step 1, which repeats every deletion that the peer knows of.
    """

    agent: str | None
    updates: tuple[bytes, ...]
    last_number: int | None
    is_difference: bool = False


def by_agent(received: Iterable[UpdatesReceived]) -> Iterator[list[UpdatesReceived]]:
    """Events in their order, those of one agent in a row together."""
    for _, group in itertools.groupby(received, key=attrgetter("agent")):
        yield list(group)


def joined(received: Sequence[UpdatesReceived]) -> UpdatesReceived:
    """Several events of one agent as one; none is a difference."""
    if len(received) == 1:
        return received[0]
    updates = tuple(itertools.chain.from_iterable(event.updates for event in received))
    return UpdatesReceived(received[-1].agent, updates, received[-1].last_number)


def split(received: UpdatesReceived) -> Iterator[UpdatesReceived]:
    """One event for each update."""
    for behind, update in zip(reversed(range(len(received.updates))), received.updates, strict=True):
        last = None if received.last_number is None else received.last_number - behind
        yield UpdatesReceived(received.agent, (update,), last, received.is_difference)


@dataclass(frozen=True, slots=True)
class ResyncNeeded:
    """Pushed updates after number ``after`` were lost or damaged. Answer with `ServerSession.resync`, then step 1."""

    after: int


@dataclass(frozen=True, slots=True)
class PresenceReceived:
    states: tuple[PresenceState, ...]


@dataclass(frozen=True, slots=True)
class PresenceQueried:
    """Answer with all presence states."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Answer with `ServerSession.answer` or `ServerSession.refused`."""

    id: int
    body: control.RequestBody


@dataclass(frozen=True, slots=True)
class ByeReceived:
    """The replica has ended for good; it has written up to ``clock`` under its client id, which is to be taken back."""

    clock: int


ServerEvent = (
    HelloReceived
    | SyncRequested
    | UpdatesReceived
    | ResyncNeeded
    | PresenceReceived
    | PresenceQueried
    | RequestReceived
    | ByeReceived
)


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The server's hello."""

    hello: control.ServerHello


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The replica's updates up to ``number`` are durable, the last of them in entry ``seq``."""

    number: int
    seq: int


@dataclass(frozen=True, slots=True)
class ValuesRejected:
    """Values of the replica's update ``number`` were taken back; None when it came in answer to a step 1."""

    number: int | None
    rejections: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class ResendFrom:
    """Push the replica's updates from ``number`` on again; it is what `ClientSession.next_number` says from now on."""

    number: int


@dataclass(frozen=True, slots=True)
class EntryReceived:
    seq: int
    author: str
    updates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class EntryDamaged:
    """An entry did not survive the way. Send a step 1 again: the answer holds it."""


@dataclass(frozen=True, slots=True)
class CheckpointReceived:
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class SchemaReceived:
    """The board has another schema from now on."""

    schema: control.SchemaChanged


@dataclass(frozen=True, slots=True)
class Answered:
    id: int
    result: JsonValue


@dataclass(frozen=True, slots=True)
class Refused:
    """A request was refused, or without ``id`` something else that this client sent."""

    id: int | None
    error: BoardError


@dataclass(frozen=True, slots=True)
class StateReceived:
    """What this replica lacked when it sent its step 1."""

    update: bytes


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the server has; what is missing there is this replica's to send."""

    state_vector: bytes


ClientEvent = (
    Welcomed
    | Acknowledged
    | ValuesRejected
    | ResendFrom
    | EntryReceived
    | EntryDamaged
    | CheckpointReceived
    | SchemaReceived
    | Answered
    | Refused
    | StateReceived
    | ServerState
    | PresenceReceived
    | PresenceQueried
)
