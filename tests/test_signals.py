"""Waiting until something is so."""

from __future__ import annotations

import asyncio

import pytest

from crdt_board.signals import Signal

DEADLINE_SECONDS = 5


async def test_everybody_who_waits_goes_on_when_it_is_set() -> None:
    """And nobody before, and nobody waits while it is set."""
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    signal.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await asyncio.gather(*waiting)
        await signal.wait()
    assert signal.is_set()


async def test_who_waited_when_it_was_set_goes_on_though_it_is_cleared_at_once() -> None:
    """Who comes after that waits again."""
    signal = Signal()
    earlier = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    signal.set()
    signal.clear()
    later = asyncio.create_task(signal.wait())
    async with asyncio.timeout(DEADLINE_SECONDS):
        await earlier
    assert not later.done()
    signal.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await later


async def test_one_that_is_cancelled_disturbs_nobody() -> None:
    """Neither before it is set nor in the same turn of the loop."""
    signal = Signal()
    impatient, hasty, patient = (asyncio.create_task(signal.wait()) for _ in range(3))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    hasty.cancel()
    signal.set()
    async with asyncio.timeout(DEADLINE_SECONDS):
        await patient
    for each in (impatient, hasty):
        with pytest.raises(asyncio.CancelledError):
            await each
