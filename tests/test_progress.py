"""Which entries a connection has brought, and when it must ask for what is missing."""

from __future__ import annotations

import pytest

from crdt_board.events import EntryReceived
from crdt_board_client.progress import Progress


def entry(seq: int) -> EntryReceived:
    return EntryReceived(seq, "ann", (b"x",))


def position(seq: int) -> EntryReceived:
    return EntryReceived(seq, "", ())


def caught_up(seq: int) -> EntryReceived:
    return EntryReceived(seq, "", (b"x",))


def in_step(seq: int) -> Progress:
    """A connection that has brought everything up to ``seq``."""
    progress = Progress()
    progress.take_difference()
    assert not progress.take_entry(position(seq))
    assert progress.seq == seq
    return progress


def test_entries_in_order_are_progress() -> None:
    """Entries one after the other, repeats, positions, and what replaces several entries: nothing is missing."""
    progress = in_step(4)
    for received, seq in [(entry(5), 5), (entry(4), 5), (position(5), 5), (caught_up(9), 9), (entry(10), 10)]:
        assert not progress.take_entry(received)
        assert progress.seq == seq


@pytest.mark.parametrize("received", [entry(6), position(5)])
def test_a_gap_is_no_progress_until_the_difference(received: EntryReceived) -> None:
    """What comes behind a gap asks for the difference once, and moves nothing until that and its position came."""
    progress = in_step(4)
    assert progress.take_entry(received)
    assert not progress.take_entry(entry(7))
    assert not progress.take_entry(caught_up(8))
    assert progress.seq is None
    progress.take_difference()
    assert progress.seq is None
    assert not progress.take_entry(position(8))
    assert progress.seq == 8


def test_a_difference_that_does_not_come_is_asked_for_again() -> None:
    """A position tells that everything was sent: a question, or its answer, that got lost is repeated then."""
    progress = in_step(4)
    assert progress.miss()
    assert not progress.miss()
    assert progress.take_entry(position(6))
    assert progress.seq is None


def test_a_position_that_does_not_come_is_asked_for_again() -> None:
    """Right behind a difference its position is expected; anything else means that it is lost."""
    for lost_before in (lambda p: p.take_entry(entry(6)), lambda p: p.take_checkpoint(1, 6), lambda p: p.miss()):
        progress = Progress()
        progress.take_difference()
        assert lost_before(progress)
        assert progress.seq is None


def test_a_checkpoint_comes_with_its_entry() -> None:
    """A checkpoint counts when its entry has arrived, and at once when it has; one that is ahead tells of a gap."""
    progress = in_step(4)
    assert not progress.take_checkpoint(1, 4)
    assert progress.take_version() == 1
    assert progress.take_checkpoint(3, 6)
    assert not progress.take_checkpoint(2, 5)
    assert progress.take_version() == 0
    progress.take_difference()
    assert progress.take_version() == 0
    assert not progress.take_entry(position(5))
    assert progress.take_version() == 2
    assert not progress.take_entry(entry(6))
    assert (progress.take_version(), progress.take_version()) == (3, 0)
