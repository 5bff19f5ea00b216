"""What opens records, sent on its own before what is written into them."""

from __future__ import annotations

from collections.abc import Sequence

import pycrdt

from crdt_board.record_creation import creation_end
from crdt_board.update_walk import first_clocks, walk
from crdt_board.updates import EMPTY_UPDATE, encode_state_vector

_OPENING_DEPTH_MAX = 1_000
_CLOCK_MAX = 1 << 32


def apart(update: bytes, opened: Sequence[bytes], client_id: int) -> list[bytes]:
    """``update``, made under ``client_id``, as it is to travel: before it and one by one, the ``opened`` in it.

    So what opens a record waits for nothing else that this replica wrote; unless it goes where something was removed by
    the same update, which then stays whole.
    """
    clocks = first_clocks(update)
    before: list[bytes] = []
    for opening in opened:
        client, end = creation_end(opening)
        if client in clocks:  # else it was known already
            needs = walk(opening, _OPENING_DEPTH_MAX).needs or {}
            if needs.get(client_id, 0) > clocks.get(client_id, _CLOCK_MAX):
                return [update]
            clocks[client] = end
            before.append(opening)
    rest = pycrdt.get_update(update, encode_state_vector(clocks))
    return before if rest == EMPTY_UPDATE else [*before, rest]
