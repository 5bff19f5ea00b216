"""What is measured of a server: names, units, which way is better, and what is aimed at for ours."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Key = tuple[str, int | str]
"""A kind of figure, and which of them: the number of clients, for one."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    key: Key
    title: str
    unit: str
    is_more_better: bool
    target: float | None = None

    def best(self, values: Sequence[float]) -> float:
        """The best of these."""
        return max(values) if self.is_more_better else min(values)

    def reaches(self, value: float) -> bool:
        """Whether this is what is aimed at, or nothing is."""
        if self.target is None:
            return True
        return value >= self.target if self.is_more_better else value <= self.target


@dataclass(frozen=True, slots=True)
class Sample:
    """A figure of one run."""

    key: Key
    value: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a server did in one case that is not a figure."""

    case: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. The targets are for `FULL`."""

    sizes: tuple[int, ...]
    """Clients in one room."""
    burst: int
    """Updates of each client, sent as fast as they go."""
    warm_up: int
    trials: int
    trial_seconds: float
    paced: int
    rooms: int
    room_updates: int
    text: int
    keys: int
    opens: int
    kept: int
    idle: int
    hostile: int | None
    """How many of the hostile frames; None for all."""


FULL = Scale(
    sizes=(2, 10, 50), burst=500, warm_up=1_000, trials=7, trial_seconds=3.0, paced=500, rooms=200, room_updates=50,
    text=20_000, keys=100_000, opens=3, kept=1_000, idle=1_000, hostile=None,
)  # fmt: skip
QUICK = Scale(
    sizes=(2, 10), burst=50, warm_up=20, trials=2, trial_seconds=0.5, paced=25, rooms=10, room_updates=5,
    text=500, keys=1_000, opens=1, kept=50, idle=50, hostile=3,
)  # fmt: skip

_FAN_OUT = {2: 40_000, 10: 40_000, 50: 30_000}


def metrics(scale: Scale) -> list[Metric]:
    """The rows, in order."""
    rows = list(_rows(scale))
    return rows if scale is FULL else [Metric(row.key, row.title, row.unit, row.is_more_better) for row in rows]


def _rows(scale: Scale) -> Iterator[Metric]:
    for size in scale.sizes:
        yield Metric(
            ("burst", size), f"{size} clients, {scale.burst} updates each at once", "updates/s", True, _FAN_OUT[size]
        )
    for size in scale.sizes:
        yield Metric(("rate", size), f"{size} clients, rate with p99 ≤ 50 ms", "updates/s", True, _FAN_OUT[size])
    yield Metric(("latency", "p50"), "one of 10 writes 50/s, p50", "ms", False, 1.3)
    yield Metric(("latency", "p99"), "one of 10 writes 50/s, p99", "ms", False, 3.0)
    yield Metric(("rooms", "cpu"), f"{scale.rooms} rooms × 2 clients × 5/s, server CPU in 10 s", "s", False, 4.0)
    yield Metric(("rooms", "p99"), f"{scale.rooms} rooms × 2 clients × 5/s, p99", "ms", False, 8.0)
    yield Metric(("open", "text"), f"cold open, {scale.text:,} text inserts", "ms", False, 9.0)
    yield Metric(("open", "many-keys"), f"cold open, {scale.keys:,} map sets", "ms", False, 60.0)
    yield Metric(("kept", "burst"), f"kept after kill -9, of {scale.kept:,} at once", "", True, 1_000)
    yield Metric(("kept", "paced"), f"kept after kill -9, of {scale.kept:,} at 200/s", "", True, 1_000)
    yield Metric(("idle", "room"), "memory of an idle room with one client", "KiB", False, 40.0)
    yield Metric(("idle", "connection"), "memory of an idle connection", "KiB", False, 20.0)
    yield Metric(("hostile", "died"), "hostile frames that end the server", "", False, 0)
    yield Metric(("hostile", "stuck"), "hostile frames that end the service of others", "", False, 0)


def median(values: Sequence[float]) -> float:
    """The median; of survivors and deaths too, which are figures like others."""
    return statistics.median(values)
