"""Random histories of several replicas whose updates arrive late, in any order and more than once.

Each history follows from its seed. As a program (``make test-histories``) it runs many of them on all cores.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import operator
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from crdt_board.document import Document
from crdt_board.policies import Candidates, Max, Min
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.updates import decode_state_vector
from support.agents import LiveAgent, exchange

_CHUNK = 50
_STEPS = 5
_REPORT_SECONDS = 5.0


class Step(BoardModel):
    what: str = ""
    log: Text


class Finding(BoardModel):
    title: str = ""
    notes: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, int]
    hits: Counter
    steps: dict[str, Step]


class Everything(BoardModel):
    """Every kind of field that agents write by themselves."""

    title: str = ""
    draft: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, int]
    spent: Counter
    best: Annotated[int, Max()] = 0
    least: Annotated[int, Min()] = 0
    owner: Annotated[str, Candidates()] = ""
    tasks: list[Step]
    findings: dict[str, Finding]


LAYOUT = Everything.board_layout()
Write = Callable[[Any, random.Random], object]


def _text(source: random.Random) -> str:
    return source.choice(("a", "bc", "é", "😀", "plain words"))


def _key(source: random.Random) -> str:
    return source.choice(("f", "g", "~/"))


def _cut(text: Any, source: random.Random) -> None:
    start = source.randint(0, len(text))
    text.delete(start, min(len(text), start + source.randint(0, 4)))


def _move(items: Any, source: random.Random) -> None:
    if len(items):
        items.move(source.randrange(len(items)), source.randrange(len(items)))


def _new(source: random.Random) -> Finding:
    return Finding(title=_text(source), notes=Text(_text(source)), steps={"s": Step(what=_text(source))})


ON_BOARD: list[Write] = [
    lambda state, source: setattr(state, "title", _text(source)),
    lambda state, source: state.draft.insert(source.randint(0, len(state.draft)), _text(source)),
    lambda state, source: _cut(state.draft, source),
    lambda state, source: state.plan.insert(source.randint(0, len(state.plan)), _text(source)),
    lambda state, source: state.plan and state.plan.pop(source.randrange(len(state.plan))),
    lambda state, source: state.tags.add(_text(source)),
    lambda state, source: state.tags.discard(_text(source)),
    lambda state, source: state.scores.__setitem__(_key(source), source.randrange(9)),
    lambda state, source: state.scores.pop(_key(source), None),
    lambda state, source: state.spent.__iadd__(source.randrange(5)),
    lambda state, source: setattr(state, "best", source.randrange(99)),
    lambda state, source: setattr(state, "least", source.randrange(99)),
    lambda state, source: setattr(state, "owner", _text(source)),
    lambda state, source: state.tasks.insert(source.randint(0, len(state.tasks)), Step(what=_text(source))),
    lambda state, source: state.tasks and state.tasks.pop(source.randrange(len(state.tasks))),
    lambda state, source: _move(state.tasks, source),
    lambda state, source: state.tasks and setattr(source.choice(list(state.tasks)), "what", _text(source)),
    lambda state, source: state.tasks and source.choice(list(state.tasks)).log.append(_text(source)),
]
ON_KEYS: list[Write] = [
    lambda state, source: state.findings.__setitem__(_key(source), _new(source)),
    lambda state, source: state.findings.pop(_key(source), None),
    lambda state, source: state.findings[_key(source)].steps.pop("s", None),
]
ON_RECORD: list[Write] = [
    lambda record, source: setattr(record, "title", _text(source)),
    lambda record, source: record.notes.insert(source.randint(0, len(record.notes)), _text(source)),
    lambda record, source: _cut(record.notes, source),
    lambda record, source: record.plan.append(_text(source)),
    lambda record, source: record.tags.add(_text(source)),
    lambda record, source: record.scores.__setitem__(_key(source), source.randrange(9)),
    lambda record, source: record.hits.__iadd__(1),
    lambda record, source: setattr(record.steps["s"], "what", _text(source)),
    lambda record, source: record.steps["s"].log.append(_text(source)),
]


class History:
    """What a few replicas did, and who was given what of it.

    ``order`` is that in which updates arrive: as in the ``journal`` of a board, late and some of them again; in any
    order that keeps each ``sender``'s own, so that some come before what they build on; or in ``any`` order at all.
    """

    def __init__(self, seed: int) -> None:
        self.source = source = random.Random(seed)
        self.order = source.choice(("journal", "sender", "any"))
        self.authors = [
            LiveAgent(Everything, client_id=source.randrange(1, 1 << 32) * 4 + index)
            for index in range(source.randint(2, 3))
        ]
        self.handles = {author.replica: [author, LiveAgent(Everything, beside=author)] for author in self.authors}
        """Of each replica two; with two agents in one process, each takes back its own."""
        for handle in itertools.chain.from_iterable(self.handles.values()):
            handle.history = handle.replica.new_history(_STEPS)
        self.sent = [0 for _ in self.authors]
        self.waiting: list[list[list[bytes]]] = [[[] for _ in self.authors] for _ in self.authors]
        """By receiver and sender; of the journal everything is in the first."""
        self.given: list[list[bytes]] = [[] for _ in self.authors]
        self.missing: set[int] = set()
        """Who was given what builds on something missing, and may lack it."""
        for who, author in enumerate(self.authors):
            author.replica.on_missing = partial(self.missing.add, who)

    def run(self, steps: int) -> None:
        """Let the authors write and hear of each other, until all have heard of all."""
        for _ in range(steps):
            who = self.source.randrange(len(self.authors))
            match self.source.randrange(6):
                case 0:
                    self.send(who)
                case 1:
                    self.deliver(who, self.source.randint(1, 12))
                case 2:
                    self.authors[who].document.checksum()  # what is kept of it must not outlive later changes
                case _:
                    self.act(self.authors[who])
        for who in range(len(self.authors)):
            self.send(who)
        for who in range(len(self.authors)):
            while any(self.waiting[who]):
                self.deliver(who, 12)

    def act(self, author: LiveAgent) -> None:
        """Write, alone or in a transaction that may fail, or take back or make again what this handle wrote."""
        handle = self.source.choice(self.handles[author.replica])
        kind = self.source.random()
        if kind < 0.1:
            step = author.replica.undo if kind < 0.06 else author.replica.redo
            assert handle.history is not None
            step("agent", handle.history)
        elif kind < 0.8:
            self.write(handle)
        else:
            with suppress(LookupError), author.replica.transaction("agent", handle.history):
                for _ in range(self.source.randint(1, 4)):
                    self.write(handle)
                if self.source.random() < 0.3:
                    raise LookupError

    def write(self, author: LiveAgent) -> None:
        source = self.source
        match source.randrange(4):
            case 0:
                source.choice(ON_BOARD)(author.state, source)
            case 1:
                source.choice(ON_KEYS)(author.state, source)
            case _:
                source.choice(ON_RECORD)(author.state.findings[_key(source)], source)

    def send(self, who: int) -> None:
        """Let what ``who`` made lately go on its way to all others."""
        news = [each.update for each in self.authors[who].replica.pending_after(self.sent[who])]
        self.sent[who] += len(news)
        for other, waiting in enumerate(self.waiting):
            if other != who:
                waiting[0 if self.order == "journal" else who].extend(news)

    def deliver(self, who: int, count: int) -> None:
        """Give ``who`` up to ``count`` of the updates that wait for it, and some again, one by one or a few at once."""
        given = self.given[who]
        for _ in range(count):
            waiting = [queue for queue in self.waiting[who] if queue]
            if not waiting:
                break
            queue = self.source.choice(waiting)
            arriving = [queue.pop(self.source.randrange(len(queue)) if self.order == "any" else 0)]
            given += arriving
            if self.source.random() < 0.2:
                arriving = [*self.source.choices(given, k=2), *arriving]
            self.authors[who].replica.receive(arriving, agent="other", seq=None)
            if who in self.missing:
                assert self.order != "journal", "something is missing in the order of the journal"
                if self.source.random() < 0.3:
                    self.catch_up(who)

    def catch_up(self, who: int) -> None:
        """Let ``who`` ask another replica for what it lacks, as links do some time after they missed something."""
        receiver = self.authors[who]
        sender = self.source.choice([author for author in self.authors if author is not receiver])
        news = sender.document.encode(receiver.document.state_vector())
        receiver.replica.receive([news], agent=None, seq=None)

    def check(self) -> None:
        """All replicas hold the same, and what they would tell somebody new is the same too.

        Where updates came before what they build on, only after replicas have told each other what they lack, as links
        do: such updates are not taken in.
        """
        if self.missing:
            exchange(*self.authors)
        self.compare()
        first = self.authors[0].document
        fresh = Document(LAYOUT)
        fresh.apply_or_raise([first.encode()])
        assert fresh.wire_state() == first.wire_state(), "what a newcomer is told differs"
        assert fresh.checksum() == first.checksum()
        exchange(*self.authors)
        self.compare()

    def compare(self) -> None:
        first, *others = [author.document for author in self.authors]
        for other in others:
            assert other.wire_state() == first.wire_state(), "replicas that were given the same updates differ"
            assert other.checksum() == first.checksum(), "equal states have different checksums"
            assert _clocks(other) == _clocks(first), "equal states are of different updates"


def _clocks(document: Document) -> dict[int, int]:
    return decode_state_vector(document.state_vector())


def run_history(seed: int) -> None:
    """One history; an error of it names the seed.

    Raises:
        AssertionError: replicas differ.
    """
    history = History(seed)
    try:
        history.run(history.source.randint(5, 30))
        history.check()
    except Exception as error:
        again = f"make test-histories FIRST={seed} COUNT=1"
        raise AssertionError(f"history {seed}: {error!r}; repeat it with: {again}") from error


def run_histories(seeds: range, processes: int) -> Iterator[int]:
    """Run several histories in processes of their own; how many have ended, now and then.

    Raises:
        AssertionError: replicas differ, or a process crashed; names the seed.
    """
    context = multiprocessing.get_context("spawn")
    running = context.Array("q", [-1] * processes)
    pool = ProcessPoolExecutor(processes, context, _begin_process, (running, context.Value("i", 0)))
    try:
        chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
        for finished in as_completed([pool.submit(_run_chunk, chunk) for chunk in chunks]):
            yield finished.result()
    except BrokenProcessPool as error:
        raise AssertionError(f"a process crashed in one of the histories {list(running)}") from error
    finally:
        pool.shutdown(cancel_futures=True)


_say_running: list[Callable[[int], None]] = []
"""In a process of `run_histories`: lets the one that began it know which history it is at."""


def _begin_process(running: Any, begun: Any) -> None:
    with begun.get_lock():
        place, begun.value = begun.value, begun.value + 1
    _say_running.append(partial(operator.setitem, running, place))


def _run_chunk(seeds: range) -> int:
    for seed in seeds:
        _say_running[0](seed)
        run_history(seed)
    return len(seeds)


def main() -> None:
    """Run many histories on all cores, and say every few seconds how far that is."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first one")
    options = parser.parse_args()
    began = reported = time.monotonic()
    done = 0
    seeds = range(options.first, options.first + options.count)
    for finished in run_histories(seeds, min(os.cpu_count() or 1, options.count)):
        done += finished
        now = time.monotonic()
        if now - reported >= _REPORT_SECONDS or done == options.count:
            reported = now
            left = (now - began) / done * (options.count - done)
            print(f"{done:,} of {options.count:,} histories agree, {left:,.0f} s left", flush=True)


if __name__ == "__main__":
    main()
