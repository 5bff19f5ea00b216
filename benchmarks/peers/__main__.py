"""The command: chooses, installs what that needs, measures one server after the other, and reports."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from benchmarks.harness import Run
from benchmarks.peers.contestants import CONTESTANTS, Contestant
from benchmarks.peers.generator import NEIGHBOURS_MAX, Generator
from benchmarks.peers.installing import build_generator, default_cache, install, versions
from benchmarks.peers.measurements import MEASUREMENTS, Bench, Measurement
from benchmarks.peers.metrics import FULL, QUICK, Sample, metrics
from benchmarks.peers.plot import draw
from benchmarks.peers.results import Results
from benchmarks.servers import CLIENT_CORE, can_pin, pinned_to

_T = TypeVar("_T")
_NAME, _PLOT = "peers", "servers"
_REPEAT = 3
_INTERRUPTED = 130


class _TooSlowError(Exception):
    """A step took longer than it may."""


def main() -> int:
    """Run the command; returns its exit code, 1 when a step failed and 130 after Ctrl-C."""
    if sys.platform != "linux":
        raise SystemExit("this comparison reads /proc and uses epoll: it needs Linux")
    signal.signal(signal.SIGTERM, _interrupt)
    run = Run.begin("Sync servers: ours and others of the Yjs protocol", _parser(), repeat=_repeat())
    options = run.options
    needed = sorted({each.needs for each in options.servers if each.needs is not None})
    generator = Generator(build_generator(options.cache), options.cache, is_patient=not options.quick)
    for each in needed:
        install(each, options.cache, _note)
    facts = {
        "peers": ", ".join(versions(needed)) or "none",
        "cores": "server and clients on one each" if can_pin() else "not pinned",
        "scale": "quick: a check that everything runs, no result" if options.quick else "full",
    }
    failed = False
    for measurement in options.only:
        bench = Bench(options.cache, QUICK if options.quick else FULL, generator)
        results = Results(options.servers, metrics(bench.scale))
        interrupted = False
        try:
            with pinned_to(CLIENT_CORE, can_pin()):
                _measure(measurement, bench, results, options.repeat)
        except KeyboardInterrupt:
            interrupted = True
            _note("interrupted: what was measured until now follows")
        _report(run, measurement, results, {**facts, "neighbours": _neighbours(bench)}, keep=not interrupted)
        if interrupted:
            return _INTERRUPTED
        failed = failed or bool(results.failures)
    return int(failed)


def _measure(measurement: Measurement, bench: Bench, results: Results, repeat: int) -> None:
    steps = list(_steps(measurement, results.contestants, repeat))
    began = time.monotonic()
    for number, (contestant, repetition) in enumerate(steps, 1):
        minutes, seconds = divmod(int(time.monotonic() - began), 60)
        name = f"{measurement.name} of {contestant.name}, {repetition}"
        _note(f"[{minutes:3}:{seconds:02}] {number}/{len(steps)} {name}")
        try:
            with _at_most(measurement.seconds_max):
                for found in measurement.measure(bench, contestant):
                    results.add(contestant, found)
                    said = (
                        f"{found.key} {found.value:,.2f}"
                        if isinstance(found, Sample)
                        else f"{found.case}: {found.verdict}"
                    )
                    _note(f"         {said}")
        except Exception as error:  # noqa: BLE001  # the boundary of a step: the failure of one server is a result
            results.failures.append(f"{name}: {type(error).__name__}: {error}")
            _note(f"         FAILED: {error}")


def _steps(
    measurement: Measurement, contestants: Sequence[Contestant], repeat: int
) -> Iterator[tuple[Contestant, int]]:
    """Servers take turns within each repetition, every other time in the opposite order."""
    measured = [each for each in contestants if measurement.has_floor or not each.is_floor]
    for repetition in range(repeat if measurement.is_repeated else 1):
        for contestant in measured if repetition % 2 == 0 else measured[::-1]:
            yield contestant, repetition + 1


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> NoReturn:
        raise _TooSlowError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _report(run: Run, measurement: Measurement, results: Results, facts: dict[str, str], *, keep: bool) -> None:
    """Print what came of a measurement; with ``keep`` and ``--out`` it is written, too."""
    conditions, name = {**run.conditions, **facts}, f"{_NAME}-{measurement.name}"
    title = f"{run.title}: {measurement.name}"
    text = results.to_markdown(title, conditions)
    result = {"title": title, **conditions, **results.to_json(), "plots": [{"name": _PLOT}]}
    print(json.dumps(result, ensure_ascii=False) if run.options.json else text, flush=True)
    folder: Path | None = run.options.out
    if folder is None or not keep:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    picture = f"{name}-{_PLOT}.svg"
    if draw(results, folder / picture):
        text += f"\n![{title}]({picture})\n"
    else:
        _note("no picture: there are no figures, or there is no matplotlib (pip install 'crdt-board[bench]')")
    (folder / f"{name}.md").write_text(text)


def _neighbours(bench: Bench) -> str:
    if not bench.neighbours:
        return "not looked at"
    loud = sum(cores > NEIGHBOURS_MAX for cores in bench.neighbours)
    return (
        f"other processes used at most {max(bench.neighbours):.2f} cores during a drive; in {loud} of "
        f"{len(bench.neighbours)} drives more than {NEIGHBOURS_MAX}; load {os.getloadavg()[0]:.1f} at the end"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers",
        description="Measure this project's server beside others of the Yjs protocol, in one run on one machine.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["measurements:", *(f"  {each.name:<10} {each.title}" for each in MEASUREMENTS)]),
    )
    known = {each.name: each for each in MEASUREMENTS}
    servers = {each.name: each for each in CONTESTANTS}
    parser.add_argument(
        "--only", type=_choice(known), default=MEASUREMENTS, metavar="NAMES", help=f"of {', '.join(known)}; default all"
    )
    parser.add_argument(
        "--servers",
        type=_choice(servers),
        default=CONTESTANTS,
        metavar="NAMES",
        help=f"of {', '.join(servers)}; default all",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        metavar="FOLDER",
        help="for the other servers; default %(default)s",
    )
    return parser


def _repeat() -> int:
    """How often unless told: a quick run shows nothing more the second time."""
    return 1 if "--quick" in sys.argv else _REPEAT


def _choice(known: dict[str, _T]) -> Callable[[str], list[_T]]:
    def choose(text: str) -> list[_T]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return [known[name] for name in known if name in names]

    return choose


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _note(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
