"""What is done to each server, one measurement after the other; each yields figures of one repetition."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.client import client
from benchmarks.peers.contestants import Contestant
from benchmarks.peers.generator import Drive, Driven, Generator
from benchmarks.peers.histories import FIRST_CLIENT_ID, Kind
from benchmarks.peers.hostile import HOSTILE_FRAMES, attack
from benchmarks.peers.metrics import Outcome, Sample, Scale
from benchmarks.peers.processes import Server, serving

_WARM_CLIENTS = 10
_BURST_SECONDS = 45.0
_P99_MS_MAX = 50.0
_UPDATES_IN_FILE = {2: 200_000, 10: 30_000, 50: 4_000}
_CLOSE_ENOUGH = 1.12
_PACED_RATE, _KEPT_RATE, _ROOM_RATE, _FEED_RATE = 50.0, 200.0, 5.0, 2_000.0
_ROOM = "history"
_STARTED_SECONDS = 0.5
_KIB_SETTLE_SECONDS, _SURVIVORS_SECONDS, _OPENING_SECONDS = 2.0, 4.0, 60.0


@dataclass(frozen=True, slots=True)
class Bench:
    """What a measurement has at hand."""

    cache: Path
    scale: Scale
    generator: Generator
    reached: dict[tuple[str, int], float] = field(default_factory=dict)
    """Rates that were carried before, by contestant and clients: where the next search begins."""
    neighbours: list[float] = field(default_factory=list)
    """Cores that others used during each drive."""

    def drive(self, server: Server, drive: Drive, *, kills: bool = False) -> Driven:
        """Run the generator.

        Raises:
            RuntimeError: not all of its clients were let in.
        """
        driven = self.generator.run(server, drive, kills=kills)
        if driven.connected < driven.wanted:
            raise RuntimeError(f"{driven.connected} of {driven.wanted} clients could connect")
        self.neighbours.append(driven.neighbours)
        return driven

    def warm_up(self, server: Server) -> None:
        """What a compiler of the server needs to see before it is measured."""
        warm = Drive(_WARM_CLIENTS, self.scale.warm_up, seconds=20, drain_seconds=20)
        self.generator.run(server, warm)
        server.wait_until_idle(0.5, timeout=10)

    def burst(self, server: Server, size: int) -> Driven:
        """Everybody sends at once."""
        return self.drive(server, Drive(size, self.scale.burst, drain_seconds=_BURST_SECONDS, seconds=_BURST_SECONDS))


Measure = Callable[[Bench, Contestant], Iterator[Sample | Outcome]]


def measure_bursts(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """Everybody writes at once, until everybody has everything."""
    with serving(contestant, bench.cache) as server:
        bench.warm_up(server)
        for size in bench.scale.sizes:
            driven = bench.burst(server, size)
            _require_all(driven)
            yield Sample(("burst", size), driven.updates_per_second)


def measure_rates(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """The highest rate at which everything arrives, 99 of 100 within 50 ms of the moment in which it was due."""
    for size in bench.scale.sizes:
        with serving(contestant, bench.cache) as server:
            bench.warm_up(server)
            yield Sample(("rate", size), _highest_rate(bench, server, size))


def _highest_rate(bench: Bench, server: Server, size: int) -> float:
    hint = bench.reached.get((server.contestant.name, size))
    rate = hint or bench.burst(server, size).updates_per_second / 2
    most = _UPDATES_IN_FILE[size] * size / bench.scale.trial_seconds
    carried, too_much = 0.0, 0.0
    for _ in range(bench.scale.trials):
        rate = min(rate, most)
        if _carries(bench, server, size, rate):
            carried = rate
            if rate == most:
                break
        else:
            too_much = rate
            server.wait_until_idle(0.5, timeout=6)
            if not _answers(server):  # some take nobody any more after too much
                server.kill()
                server.start()
                bench.warm_up(server)
        if carried and too_much:
            if too_much / carried < _CLOSE_ENOUGH:
                break
            rate = (carried * too_much) ** 0.5
        else:
            rate = rate * (1.2 if hint else 1.6) if carried else rate / (1.2 if hint else 1.8)
    bench.reached[server.contestant.name, size] = max(carried, hint or 0.0)
    return carried


def _carries(bench: Bench, server: Server, size: int, rate: float) -> bool:
    seconds = bench.scale.trial_seconds
    driven = bench.drive(
        server,
        Drive(
            size,
            max(3, int(rate / size * seconds)),
            rate=rate / size,
            updates_file=int(_UPDATES_IN_FILE[size] * min(1.0, seconds / 3)),
            drain_seconds=2.0,
            seconds=seconds + 5,
        ),
    )
    return driven.converged and driven.p99_ms <= _P99_MS_MAX


def _answers(server: Server) -> bool:
    try:
        with client(server, "probe") as probe:
            return probe.wait_for_sync(5)
    except (OSError, RuntimeError):
        return False


def measure_latency(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """One of ten writes at an even pace; how long until each of the other nine has it?"""
    with serving(contestant, bench.cache) as server:
        bench.warm_up(server)
        driven = bench.drive(server, Drive(10, bench.scale.paced, senders=1, rate=_PACED_RATE))
        _require_all(driven)
        yield Sample(("latency", "p50"), driven.p50_ms)
        yield Sample(("latency", "p99"), driven.p99_ms)


def measure_rooms(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """Many rooms at once, two writers in each."""
    with serving(contestant, bench.cache) as server:
        bench.warm_up(server)
        driven = bench.drive(server, Drive(2, bench.scale.room_updates, rooms=bench.scale.rooms, rate=_ROOM_RATE))
        _require_all(driven)
        yield Sample(("rooms", "cpu"), driven.server_cpu_s * 10 * _ROOM_RATE / bench.scale.room_updates)
        yield Sample(("rooms", "p99"), driven.p99_ms)


def measure_opening(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """A server that was just started opens a long history for its first client; the files are in the page cache.

    The history is written through the server itself, which is then given time to store it, and ended.
    """
    cases: tuple[tuple[Kind, int], ...] = (("text", bench.scale.text), ("many-keys", bench.scale.keys))
    for kind, count in cases:
        with serving(contestant, bench.cache) as server:
            feed = Drive(2, count, senders=1, rate=_FEED_RATE, kind=kind, room=_ROOM, drain_seconds=60, seconds=180)
            with bench.generator.holding(server, feed) as driven:
                _require_all(driven)
                server.wait_until_idle(2.5, timeout=180)
            server.wait_until_idle(2.5, timeout=60)
            server.stop()
            kept = server.data.with_name("kept")
            shutil.copytree(server.data, kept)
            for _ in range(bench.scale.opens):
                shutil.rmtree(server.data)
                shutil.copytree(kept, server.data)
                server.start()
                server.wait_until_idle(_STARTED_SECONDS, timeout=10)  # some take connections before they are ready
                yield Sample(("open", kind), _opening_ms(server, count))
                server.stop()


def _opening_ms(server: Server, count: int) -> float:
    began = time.monotonic()
    with client(server, _ROOM) as reader:
        if not reader.wait_for_clock(FIRST_CLIENT_ID, count, _OPENING_SECONDS):
            raise RuntimeError(f"{reader.clock(FIRST_CLIENT_ID)} of {count} updates came back")
        return (reader.arrived_at - began) * 1e3


def measure_survival(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """The server is killed in the moment in which the second client has everything: how much of it comes back?"""
    count = bench.scale.kept
    for case, rate in (("burst", 0.0), ("paced", _KEPT_RATE)):
        with serving(contestant, bench.cache) as server:
            drive = Drive(2, count, senders=1, rate=rate, room=_ROOM, drain_seconds=30)
            _require_all(bench.drive(server, drive, kills=True))
            server.kill()
            server.start()
            with client(server, _ROOM) as reader:
                reader.wait_for_clock(FIRST_CLIENT_ID, count, _SURVIVORS_SECONDS)
                yield Sample(("kept", case), reader.clock(FIRST_CLIENT_ID))


def measure_idle(bench: Bench, contestant: Contestant) -> Iterator[Sample]:
    """Resident memory of rooms and of connections in which nothing happens."""
    idle = bench.scale.idle
    drives = {
        "room": Drive(1, 1, senders=1, rooms=idle, rate=100.0, seconds=60),
        "connection": Drive(idle, senders=0),
    }
    for case, drive in drives.items():
        with serving(contestant, bench.cache) as server:
            bench.generator.run(server, Drive(2, 20, rooms=20))
            time.sleep(_KIB_SETTLE_SECONDS)
            before = server.resident_kib()
            with bench.generator.holding(server, drive) as driven:
                time.sleep(_KIB_SETTLE_SECONDS)
                yield Sample(("idle", case), (server.resident_kib() - before) / max(1, driven.connected))


def measure_hostile(bench: Bench, contestant: Contestant) -> Iterator[Sample | Outcome]:
    """A third client sends what no client should: do the other two notice?"""
    verdicts: list[str] = []
    for case, send in HOSTILE_FRAMES[: bench.scale.hostile]:
        with serving(contestant, bench.cache) as server:
            verdicts.append(attack(server, send))
        yield Outcome(case, verdicts[-1])
    yield Sample(("hostile", "died"), sum(verdict.startswith("DIED") for verdict in verdicts))
    yield Sample(("hostile", "stuck"), sum(verdict.startswith("STUCK") for verdict in verdicts))


def _require_all(driven: Driven) -> None:
    if not driven.converged:
        raise RuntimeError(
            f"{driven.delivered} updates arrived, and then no more within {driven.drive.drain_seconds:g} s"
        )


@dataclass(frozen=True, slots=True)
class Measurement:
    """One of the things that ``--only`` chooses from."""

    name: str
    measure: Measure
    seconds_max: int
    """For one repetition of one server; then it counts as failed."""
    is_repeated: bool = True
    has_floor: bool = True
    """Whether it asks for work that the floor does too."""

    @property
    def title(self) -> str:
        """What it does, in a sentence."""
        return (self.measure.__doc__ or "").partition("\n")[0]


MEASUREMENTS = (
    Measurement("bursts", measure_bursts, 300),
    Measurement("rates", measure_rates, 600),
    Measurement("latency", measure_latency, 120),
    Measurement("rooms", measure_rooms, 150),
    Measurement("survival", measure_survival, 150),
    Measurement("idle", measure_idle, 300),
    Measurement("opening", measure_opening, 900, is_repeated=False),
    Measurement("hostile", measure_hostile, 600, is_repeated=False, has_floor=False),
)
