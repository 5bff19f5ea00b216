"""What of the journal a connection has brought without a gap. Pure: it decides when a difference must be asked for."""

from __future__ import annotations

from crdt_board.events import EntryReceived


class Progress:
    """Follows the entries, positions, differences and checkpoints of one connection, in the order of their arrival.

    The server answers a question for the difference with the difference, and right behind it its position: an entry
    without author and updates, which it also repeats now and then. Methods return True when something is missing and
    the difference must be asked for now.

    Invariants:
        1. While `seq` is a number, every entry up to it has arrived.
        2. `take_version` never gives a checkpoint whose entry has not arrived.
    """

    def __init__(self) -> None:
        """The difference was asked for, as it is at the beginning of every connection."""
        self.seq: int | None = None
        """The entry up to which everything has arrived; None while a difference, or its position, is awaited."""
        self._awaits_difference = True
        self._held: list[tuple[int, int]] = []  # checkpoints, by the number of their entry and their version

    def take_difference(self) -> None:
        self.seq = None
        self._awaits_difference = False

    def take_entry(self, entry: EntryReceived) -> bool:
        is_position = not entry.author and not entry.updates
        if self.seq is None:
            if self._awaits_difference:
                return is_position  # it says that everything was sent: our question, or its answer, may be lost
            if not is_position:
                return self.miss()  # what comes right behind the difference is lost
            self.seq = entry.seq
            return False
        is_caught_up = not entry.author and not is_position  # in place of all entries up to this one
        if entry.seq > self.seq + bool(entry.author) and not is_caught_up:
            return self.miss()
        self.seq = max(self.seq, entry.seq)
        return False

    def take_checkpoint(self, version: int, seq: int) -> bool:
        """Checkpoint ``version`` was made by entry ``seq`` or one before it."""
        self._held.append((seq, version))
        if self.seq is not None and seq <= self.seq:
            return False
        return self.miss()

    def miss(self) -> bool:
        """Something was lost or damaged. A difference that is awaited already brings it too."""
        asked, self._awaits_difference = self._awaits_difference, True
        self.seq = None
        return not asked

    def take_version(self) -> int:
        """The newest checkpoint whose entry has arrived since the last call; 0 when there is none."""
        if self.seq is None:
            return 0
        arrived = [version for seq, version in self._held if seq <= self.seq]
        self._held = [(seq, version) for seq, version in self._held if seq > self.seq]
        return max(arrived, default=0)
