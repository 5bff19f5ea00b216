"""Riding out a store that fails."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import pytest

from crdt_board.errors import StoreUnavailable
from crdt_board.outages import Outages

DEADLINE_SECONDS = 15


class TurnedLoop(asyncio.SelectorEventLoop):
    """Its clock is turned to the next timer whenever there is nothing else to do."""

    def __init__(self) -> None:
        super().__init__(TurningSelector(self))
        self.turned = 0.0

    def time(self) -> float:
        return self.turned


class TurningSelector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    def __init__(self, loop: TurnedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found and timeout:
            self._loop.turned += timeout
        return found


class Failing:
    """An attempt that fails so many times; it notes what was called, in order."""

    def __init__(self, times: float) -> None:
        self.left = times
        self.calls: list[str] = []
        self.failed = asyncio.Event()

    async def attempt(self) -> None:
        self.calls.append("attempt")
        if self.left:
            self.left -= 1
            self.failed.set()
            raise StoreUnavailable("the disk is gone")

    async def recover(self) -> None:
        self.calls.append("recover")


async def test_an_attempt_is_made_again_after_recovering() -> None:
    """Until the store answers; the failure is told meanwhile, and gone then."""
    outages, failing = Outages("job"), Failing(2)
    riding = asyncio.create_task(outages.ride_out(failing.attempt, recover=failing.recover))
    await failing.failed.wait()
    assert isinstance(outages.failure, StoreUnavailable)
    await asyncio.wait_for(riding, DEADLINE_SECONDS)
    assert failing.calls == ["attempt", "recover", "attempt", "recover", "attempt"]
    assert outages.failure is None


async def test_where_the_store_answers_nothing_is_recovered() -> None:
    outages, failing = Outages("job"), Failing(0)
    await outages.ride_out(failing.attempt, recover=failing.recover)
    assert failing.calls == ["attempt"]


async def test_giving_up_ends_the_pause_with_the_error_of_the_store() -> None:
    """Also when the moment is set while it waits."""
    outages, failing = Outages("job"), Failing(float("inf"))
    riding = asyncio.create_task(outages.ride_out(failing.attempt, recover=failing.recover))
    await failing.failed.wait()
    outages.give_up_after(0)
    with pytest.raises(StoreUnavailable, match="the disk is gone"):
        await asyncio.wait_for(riding, DEADLINE_SECONDS)
    assert isinstance(outages.failure, StoreUnavailable)


async def test_after_the_moment_to_give_up_one_attempt_is_made() -> None:
    outages, failing = Outages("job"), Failing(float("inf"))
    outages.give_up_after(0)
    with pytest.raises(StoreUnavailable):
        await outages.ride_out(failing.attempt)
    assert failing.calls == ["attempt"]


@pytest.mark.parametrize("seconds", [0.5, 1.7, 4.0, 9.0, 27.0])
def test_after_an_outage_an_attempt_is_made_before_long(seconds: float) -> None:
    """When the store answers again, it is written to within an eighth of the time that it did not."""
    made_at: list[float] = []

    async def attempt() -> None:
        made_at.append(asyncio.get_running_loop().time() - began_at)
        if made_at[-1] < seconds:
            raise StoreUnavailable("the disk is gone")

    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        began_at = runner.get_loop().time()
        runner.run(Outages("job").ride_out(attempt))
    assert seconds <= made_at[-1] <= seconds * 1.125 + 0.06
    assert len(made_at) < 100
