"""Rooms over the boards of one process."""

from __future__ import annotations

import asyncio

import pytest
from websockets.frames import Frame, Opcode

from crdt_board.checkpoints import CommitRequest
from crdt_board.host import BoardHost
from crdt_board.store.memory import MemoryStore
from crdt_board_server.rooms import Rooms, encode_frames
from support.waiting import DEADLINE_SECONDS


async def test_a_room_opens_while_another_process_has_committed() -> None:
    """A room is entered at once although the store holds a newer version than its engine has heard of."""
    store = MemoryStore()
    async with (
        BoardHost(store.peer()) as elsewhere,
        BoardHost(store) as host,
        elsewhere.board("b") as other,
        host.board("b"),
    ):
        await other.commit(CommitRequest(step="s", agent="a", fingerprint="f"))
        async with asyncio.timeout(DEADLINE_SECONDS), Rooms(host).enter("b") as room:
            assert room.engine.board_id == "b"


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_frames_are_those_of_websockets(length: int) -> None:
    """What goes to a socket are whole frames without a mask, in each of the three forms of a length."""
    assert encode_frames([b"x" * length]) == Frame(Opcode.BINARY, b"x" * length).serialize(mask=False)
    assert encode_frames(["x" * length]) == Frame(Opcode.TEXT, b"x" * length).serialize(mask=False)
