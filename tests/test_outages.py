"""Riding out a store that fails."""

from __future__ import annotations

import asyncio

import pytest

from crdt_board.errors import StoreUnavailable
from crdt_board.outages import Outages

DEADLINE_SECONDS = 15


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
