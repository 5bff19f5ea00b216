"""Rooms: a board that is live on this server, with everybody who is connected to it.

A room encodes what the engine publishes once for each kind of peer and hands the bytes to its members. It knows no
sockets: a member takes bytes, and says when it cannot take more.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from crdt_board.checkpoints import Checkpoint
from crdt_board.control import CheckpointMade, encode
from crdt_board.engine import Engine
from crdt_board.errors import BoardError
from crdt_board.host import BoardHost
from crdt_board.loading import Offer
from crdt_board.presence import PresenceState, PresenceTable
from crdt_board.publishing import PublishedEntry
from crdt_board.session import Broadcast, Frames, PeerKind

_TEXT, _BINARY = 0x81, 0x82  # the first byte of a frame that is whole


class Member(Protocol):
    """One connection, as its room sees it."""

    kind: PeerKind

    def write(self, data: bytes) -> None:
        """Send encoded websocket frames. Must not raise and must not wait; a closed member ignores them."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether more is unsent than this member may have waiting."""
        ...

    def fall_behind(self, state_vector: bytes) -> None:
        """Nothing is written from now on; the member catches up from ``state_vector`` when it can."""
        ...

    def miss_presence(self) -> None:
        """Presence was left out; the member hears all of it when it can take more."""
        ...

    def schema_changed(self) -> None:
        """The board has a new schema: hear of it, or be closed when its replica cannot go on."""
        ...

    def end(self, error: BoardError) -> None:
        """Close the connection because of ``error``."""
        ...


def encode_frames(frames: Frames) -> bytes:
    """The websocket frames that a server sends for ``frames``, as bytes; a server does not mask."""
    return b"".join(
        _encode_frame(_TEXT, frame.encode()) if isinstance(frame, str) else _encode_frame(_BINARY, frame)
        for frame in frames
    )


def _encode_frame(first_byte: int, content: bytes) -> bytes:
    """One whole frame without a mask (RFC 6455, 5.2), at a fourth of what websockets takes for it."""
    length = len(content)
    if length < 126:
        return bytes((first_byte, length)) + content
    if length < 1 << 16:
        return bytes((first_byte, 126)) + length.to_bytes(2) + content
    return bytes((first_byte, 127)) + length.to_bytes(8) + content


class Room:
    """Everybody on one board; the listener of its engine.

    Invariants:
        1. A member that is not behind has been written every published entry since it was added, but its own.
        2. A member that is behind gets no entries until it has caught up from the state vector that it was given.
    """

    def __init__(self, engine: Engine, checkpoint: Checkpoint | None) -> None:
        self.engine = engine
        self.checkpoint = checkpoint
        """The newest checkpoint that was published, None before the first."""
        self.presence = PresenceTable(engine.limits)
        self.users = 0
        self._members: set[Member] = set()
        self._behind: set[Member] = set()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Member) -> None:
        """Publish to ``member`` from now on."""
        self._members.add(member)
        self._behind.discard(member)

    def remove(self, member: Member) -> None:
        self._members.discard(member)
        self._behind.discard(member)

    def members(self) -> list[Member]:
        return list(self._members)

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        encoded = _Encoded(entries)
        state_vector: bytes | None = None
        for member in list(self._members):
            if member in self._behind:
                continue
            member.write(encoded.for_member(member))
            if member.is_full:
                state_vector = state_vector or self.engine.state_vector()
                self._behind.add(member)
                member.fall_behind(state_vector)
        for shown in entries:
            self.checkpoint = shown.checkpoint or self.checkpoint

    def schema_changed(self) -> None:
        for member in self.members():
            member.schema_changed()

    def stopped(self, error: BoardError) -> None:
        for member in self.members():
            member.end(error)

    def tell_presence(self, states: Sequence[PresenceState], frames: Frames, *, apart_from: Member | None) -> None:
        """Hand presence to every member that can take it now; one that is behind hears all of it later."""
        if not states:
            return
        data = encode_frames(frames)
        for member in list(self._members):
            if member is apart_from or member in self._behind:
                continue
            if member.is_full:
                member.miss_presence()
            else:
                member.write(data)


class _Encoded:
    """Published entries in the form of each kind of peer, made when the first member wants it."""

    def __init__(self, entries: Sequence[PublishedEntry]) -> None:
        self._entries = entries
        self._sources = {id(shown.source) for shown in entries if shown.source is not None}
        self._pieces: dict[PeerKind, list[bytes]] = {}
        self._whole: dict[PeerKind, bytes] = {}

    def for_member(self, member: Member) -> bytes:
        """A stock peer is sent its own updates too, by which it knows that they are saved. Of its own entries
        one of ours is sent the corrections only, and so knows up to where it holds the journal."""
        pieces = self._pieces_for(member.kind)
        if member.kind == "own" and id(member) in self._sources:
            return b"".join(
                encode_frames(_own_frames(shown, with_updates=False)) if shown.source is member else piece
                for piece, shown in zip(pieces, self._entries, strict=True)
            )
        if member.kind not in self._whole:
            self._whole[member.kind] = b"".join(pieces)
        return self._whole[member.kind]

    def _pieces_for(self, kind: PeerKind) -> list[bytes]:
        if kind not in self._pieces:
            encode = _own_frames if kind == "own" else _stock_frames
            self._pieces[kind] = [encode_frames(encode(shown)) for shown in self._entries]
        return self._pieces[kind]


class Rooms:
    """The rooms of a server, by board."""

    def __init__(self, host: BoardHost) -> None:
        self.host = host
        self._rooms: dict[str, Room] = {}

    def find(self, board_id: str) -> Room | None:
        """The room of a board; None when nobody is in it."""
        return self._rooms.get(board_id)

    def open_rooms(self) -> list[Room]:
        return list(self._rooms.values())

    @contextlib.asynccontextmanager
    async def enter(self, board_id: str, before_load: Offer | None = None) -> AsyncIterator[Room]:
        """The room of a board, for as long as one connection is in it; see `BoardHost.acquire` for ``before_load`` and
        the errors."""
        async with self.host.board(board_id, before_load) as engine:
            room = await self._room(engine)
            room.users += 1
            try:
                yield room
            finally:
                room.users -= 1
                if room.users == 0:
                    engine.remove_listener(room)
                    if self._rooms.get(board_id) is room:
                        del self._rooms[board_id]

    async def _room(self, engine: Engine) -> Room:
        while not self._is_open(engine):
            version = engine.version
            newest = await engine.checkpoints(before=version + 1, limit=1)
            if engine.version == version and not self._is_open(engine):
                self._rooms[engine.board_id] = Room(engine, newest[0] if newest else None)
                engine.add_listener(self._rooms[engine.board_id])
        return self._rooms[engine.board_id]

    def _is_open(self, engine: Engine) -> bool:
        room = self._rooms.get(engine.board_id)
        return room is not None and room.engine is engine


def _own_frames(shown: PublishedEntry, *, with_updates: bool = True) -> Frames:
    updates = tuple(shown.updates if with_updates else shown.corrections)
    frames = Broadcast(shown.entry.seq, shown.entry.author, updates).own_frames
    if shown.checkpoint is not None:
        frames = [*frames, checkpoint_frame(shown.checkpoint)]
    return frames


def _stock_frames(shown: PublishedEntry) -> Frames:
    return Broadcast(shown.entry.seq, shown.entry.author, tuple(shown.updates)).stock_frames


def checkpoint_frame(checkpoint: Checkpoint) -> str:
    """The text frame that tells own clients of a commit."""
    return encode(CheckpointMade(checkpoint=checkpoint))
