"""What a hostile client can send: in processes of their own, because it may end one."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board import wire
from crdt_board.errors import MalformedUpdate
from crdt_board.readiness import is_ready
from crdt_board.trimming import ready_part
from crdt_board.update_walk import walk
from crdt_board_client import connect
from support.attack import forged_updates
from support.forging import CLIENTS, Forger, slices
from support.model import Report
from support.server import ServerProcess
from support.stock import stock_socket
from support.waiting import DEADLINE_SECONDS

ATTACKS = 40
DEPTH_MAX = 64
_SECONDS = 120


def test_an_engine_outlives_forged_updates() -> None:
    """H1: overlaps, other boundaries, gaps, references across clients: no process ends and no honest edit is lost."""
    command = [sys.executable, "-m", "support.attack", "--count", str(ATTACKS), "--deletions", "0"]
    ended = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout[-200:] + ended.stderr[-2_000:]


@pytest.mark.parametrize(
    ("first", "count"),
    [(36, 6), (50, 2), pytest.param(100, 60, marks=pytest.mark.slow)],
)
def test_a_board_is_read_again_after_several_forged_at_once(first: int, count: int) -> None:
    """H1, G1: whatever they send in one turn, deletions too, the board opens again with all that honest ones wrote."""
    command = [sys.executable, "-m", "support.attack", "--together", "--first", str(first), "--count", str(count)]
    ended = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=_SECONDS * count, check=False
    )
    assert ended.returncode == 0, ended.stdout[-200:] + ended.stderr[-2_000:]


async def test_a_server_outlives_forged_updates(server: ServerProcess) -> None:
    """H1: each cut off at most for itself, while somebody else writes; what that one wrote is there afterwards."""
    source = random.Random(5)
    async with connect(server.url, "attacked", Report, agent="writer") as writer:
        for attempt in range(6):
            forger = Forger(source, gaps=0.3, deletions=0)
            async with stock_socket(server.url, "attacked", max_queue=None) as socket:
                known = dict.fromkeys(CLIENTS, 3 * attempt)
                for update in [*slices(source, 7), *forged_updates(forger, known)]:
                    await socket.send(wire.encode_update(update))
                writer.state.draft.append("x")
                await writer.flush(DEADLINE_SECONDS)
        assert server.is_running
    async with connect(server.url, "attacked", Report, agent="reader") as reader:
        assert str(reader.state.draft).count("x") >= 6


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32))
def test_the_ready_part_of_any_update_is_ready(seed: int) -> None:
    """H1: it is all of an update that is ready, holds nothing that waits, and is its own ready part."""
    source = random.Random(seed)
    forger, known = Forger(source, gaps=0.3), {client: source.randrange(20) for client in CLIENTS}
    for update in forged_updates(forger, known):
        try:
            extent = walk(update, DEPTH_MAX)
        except MalformedUpdate:
            continue
        part = ready_part(update, known, DEPTH_MAX)
        assert is_ready(walk(part, DEPTH_MAX), known)
        assert ready_part(part, known, DEPTH_MAX) == part
        if is_ready(extent, known):
            news = {client: end for client, end in extent.ends.items() if end > known.get(client, 0)}
            assert walk(part, DEPTH_MAX).ends == news


@pytest.mark.parametrize("forward", [False, True])
def test_structs_that_wait_for_each_other_are_refused(forward: bool) -> None:
    """H1: in one client's structs, or in those of two, there is an order in which they can be taken in."""
    first = b"\x84" + (b"\x01\x05" if forward else b"\x02\x00") + b"\x01a"
    second = b"\x84\x01\x00\x01b"
    update = b"\x02\x01\x01\x00" + first + b"\x01\x02\x00" + second + b"\x00"
    with pytest.raises(MalformedUpdate):
        walk(update, DEPTH_MAX)
