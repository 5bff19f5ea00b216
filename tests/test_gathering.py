"""The event loop of a server gathers what a crowd sends, and makes nobody else wait."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from crdt_board.inline_frames import InlineFrames
from crdt_board_server.gathering import CROWD, GATHER_SECONDS, GatheringSelector, gathering_loop


class Crowd:
    """Sockets that a selector watches, behind a pipe that was registered first, and a clock that stands."""

    def __init__(self, stack: ExitStack, size: int) -> None:
        self.now = 0.0
        self.selector = GatheringSelector(lambda: self.now)
        stack.callback(self.selector.close)
        pairs = [socket.socketpair() for _ in range(size + 1)]
        for pair in pairs:
            for end in pair:
                stack.enter_context(end)
            self.selector.register(pair[0], selectors.EVENT_READ)
        self.pipe, *self.peers = (theirs for _, theirs in pairs)
        self._ours = {theirs: ours for ours, theirs in pairs}

    def send(self, *senders: socket.socket) -> None:
        for sender in senders:
            sender.send(b"x")

    def heard(self, timeout: float | None) -> list[socket.socket]:
        """Who is told of now; what they sent is taken."""
        ready = {key.fileobj for key, _ in self.selector.select(timeout)}
        found = [theirs for theirs, ours in self._ours.items() if ours in ready]
        for theirs in found:
            self._ours[theirs].recv(1)
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_few_are_heard_at_once(stack: ExitStack) -> None:
    """However often they send: agents that wait for their answers are no crowd."""
    few = Crowd(stack, CROWD - 1)
    for _ in range(5):
        few.send(*few.peers)
        assert few.heard(0) == few.peers


def test_a_crowd_is_heard_together(stack: ExitStack) -> None:
    """Nobody is told of while it gathers, and nobody is forgotten."""
    crowd = Crowd(stack, CROWD)
    crowd.send(*crowd.peers)
    assert crowd.heard(0) == crowd.peers
    crowd.send(*crowd.peers[:3])
    assert crowd.heard(0) == []
    crowd.send(*crowd.peers[3:5])
    assert crowd.heard(None) == crowd.peers[:5]


def test_a_timer_does_not_wait_for_a_crowd(stack: ExitStack) -> None:
    """It is due before the gathering ends."""
    crowd = Crowd(stack, CROWD)
    crowd.send(*crowd.peers)
    crowd.heard(0)
    crowd.send(*crowd.peers)
    assert crowd.heard(GATHER_SECONDS / 10) == []
    crowd.now += GATHER_SECONDS
    assert crowd.heard(0) == crowd.peers


def test_what_wakes_the_loop_does_not_wait_for_a_crowd(stack: ExitStack) -> None:
    """The store's answer is told of while sockets gather."""
    crowd = Crowd(stack, CROWD)
    crowd.send(*crowd.peers)
    crowd.heard(0)
    crowd.send(*crowd.peers, crowd.pipe)
    assert crowd.heard(None) == [crowd.pipe]
    assert crowd.heard(None) == crowd.peers


def test_a_crowd_that_is_gone_holds_up_nobody(stack: ExitStack) -> None:
    crowd = Crowd(stack, CROWD)
    crowd.send(*crowd.peers)
    crowd.heard(0)
    crowd.now += 1
    for _ in range(3):
        crowd.send(crowd.peers[0])
        assert crowd.heard(0) == crowd.peers[:1]


def test_threads_wake_the_loop() -> None:
    """What an event loop registers first is the pipe by which a thread hands it something."""

    async def wait_for_a_thread() -> str:
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        thread = threading.Thread(
            target=asyncio.get_running_loop().call_soon_threadsafe, args=(done.set_result, "done")
        )
        thread.start()
        return await done

    loop = gathering_loop()
    selector = loop._selector  # type: ignore[attr-defined]  # what a crowd must not hold up
    assert isinstance(selector, GatheringSelector)
    (urgent,) = selector._urgent.get_map()
    assert urgent == loop._ssock.fileno()  # type: ignore[attr-defined]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(wait_for_a_thread()) == "done"


def test_each_thread_receives_into_a_buffer_of_its_own() -> None:
    """Two event loops of one process must not write over what the other one has not handled yet."""
    buffers: list[memoryview] = []

    def receive() -> None:
        buffers.append(InlineFrames.get_buffer(None, -1))  # type: ignore[arg-type]  # it needs no connection

    threads = [threading.Thread(target=receive) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert buffers[0].obj is not buffers[1].obj
