"""`board.on`: run an agent's function when something on the board becomes true."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from crdt_board.coordination.operations import Operation
from crdt_board.coordination.reactions import (
    NAME_END,
    ClaimReaction,
    FailReaction,
    FinishReaction,
    ReactionRecord,
    RearmReaction,
    ReleaseReaction,
    record_name,
)
from crdt_board.errors import BadRequest, BoardError, ReactionLost
from crdt_board.layout import TEAM_ROOT
from crdt_board.replica import Change
from crdt_board.team.claiming import tell_of_wait
from crdt_board.team.desk import Desk, new_token
from crdt_board.team.idleness import Idleness
from crdt_board.team.keeping import renewed
from crdt_board.team.places import Pattern, value_at
from crdt_board.views import Patch

_RELEASE_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
"""Before what the writer has refused, or did not answer, is tried again."""

_RECORD = f"{TEAM_ROOT}/{ReactionRecord.prefix}:"

_LEADING = {"crdt_board", "asyncio", "concurrent"}
"""Packages that call an agent's function, in a thread or not."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """What a reaction runs for: the place where its condition holds, and the live value there.

    ``key`` is the part of the path after the field, None for a field as a whole.
    """

    path: str
    key: str | None
    value: Any


Work = Callable[[Event], Awaitable[Patch | None] | Patch | None]
Condition = Callable[[Any], object]
CommitRun = Callable[[str, Patch, Sequence[Operation]], Awaitable[object]]
"""Commit a patch under a step's name, together with operations."""


@dataclass(frozen=True, slots=True, eq=False)
class Reaction:
    """One `Board.on`. ``order`` counts those of one agent."""

    name: str
    pattern: Pattern
    condition: Condition
    work: Work
    priority: int
    attempts: int
    runs: int
    ttl_ms: int
    order: int


@dataclass(slots=True)
class _Run:
    reaction: Reaction
    path: str
    token: str = field(default_factory=new_token)

    @property
    def key(self) -> dict[str, str]:
        return {"name": self.reaction.name, "path": self.path, "token": self.token}


class Reactor:
    """The reactions of one agent on one replica, run one at a time, the most urgent first.

    Invariants:
        1. A place is in ``_stale`` from a change of it, or of its record, until its condition was looked at.
        2. ``_ready`` holds the places whose condition held when it was last looked at.
    """

    def __init__(self, desk: Desk, state: Any, idleness: Idleness, commit: CommitRun) -> None:
        self._desk = desk
        self._state = state
        self._idleness = idleness
        self._commit = commit
        self._reactions: list[Reaction] = []
        self._stale: set[tuple[Reaction, str]] = set()
        self._ready: set[tuple[Reaction, str]] = set()
        self._new: set[Reaction] = set()
        """Those of which no place was looked at yet."""
        self._seen = 0
        """The entry up to which everything was looked at."""
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    def add(self, pattern: Pattern, condition: Condition, work: Work, **options: Any) -> Reaction:
        if any(reaction.name == options["name"] for reaction in self._reactions):
            raise BadRequest(f"this handle has a reaction {options['name']} already; give another name=")
        if NAME_END in options["name"]:
            raise BadRequest(f"the name of a reaction has no {NAME_END}, got {options['name']!r}; give another name=")
        list(pattern.places(self._state))  # a field without keys is refused here
        if self._task is None:
            self._idleness.add(self._idle_at)
        reaction = Reaction(pattern=pattern, condition=condition, work=work, order=len(self._reactions), **options)
        self._reactions.append(reaction)
        self._stale.add((reaction, pattern.text))
        self._new.add(reaction)
        if self._task is None:
            self._desk.session.replica.watchers.append(self._notice)
            self._task = self._desk.spawn(self._run(), f"reactions-{self._desk.agent}")
        self._desk.session.replica.on_progress()
        return reaction

    # What is to be looked at.

    def _notice(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.path.startswith(f"{TEAM_ROOT}/"):
                self._notice_record(change.path)
                continue
            for reaction in self._reactions:
                place = reaction.pattern.touched(change.path)
                if place is not None:
                    self._stale.add((reaction, place))

    def _notice_record(self, path: str) -> None:
        if not path.startswith(_RECORD):
            return
        name, _, place = path.removeprefix(_RECORD).replace("~1", "/").replace("~0", "~").partition(NAME_END)
        self._stale.update((reaction, place) for reaction in self._reactions if reaction.name == name)

    def _idle_at(self) -> int | None:
        return None if self._busy or self._stale or self._ready else self._seen

    def _has_news(self) -> bool:
        return bool(self._stale) or self._idleness.must_tell or self._seen < self._desk.session.replica.seq

    async def _run(self) -> None:
        try:
            while True:
                await self._desk.until(self._has_news)
                try:
                    await self._work_off()
                except BoardError as error:
                    self._desk.session.check()
                    logger.error("the reactions of %s pause: %s", self._desk.agent, error)
                    self._stale.update((reaction, reaction.pattern.text) for reaction in self._reactions)
                    await asyncio.sleep(_PAUSE_SECONDS)
        except BoardError as error:
            if self._desk.session.error is None:
                logger.error("the reactions of %s end: %s", self._desk.agent, error)
        except Exception:  # the boundary of this task
            logger.exception("the reactions of %s end", self._desk.agent)
        finally:
            self._desk.session.replica.watchers.remove(self._notice)
            self._idleness.remove(self._idle_at)

    async def _work_off(self) -> None:
        await self._look()
        while self._ready:
            await self._run_next()
            await self._look()
        if self._idleness.must_tell:
            self._idleness.tell()

    async def _look(self) -> None:
        """Work out which of the stale places are ready, and arm again those whose condition has ceased to hold."""
        while self._stale:
            stale, self._stale = self._stale, set()
            self._seen = self._desk.session.replica.seq
            ceased: list[RearmReaction] = []
            for reaction, place in [each for stale_one in stale for each in self._places(*stale_one)]:
                record = self._desk.ledger.get(ReactionRecord, record_name(reaction.name, place))
                holds, gone = self._judge(reaction, place)
                if holds and (record is None or record.state == "armed"):
                    self._ready.add((reaction, place))
                else:
                    self._ready.discard((reaction, place))
                if holds and record is not None and record.state == "running" and reaction in self._new:
                    tell_of_wait(self._desk, f"reaction {reaction.name} at {place}", record.agent, record.ttl_ms)
                if holds or record is None or record.state not in ("armed", "done", "failed"):
                    continue
                if gone or record.state != "armed":
                    ceased.append(RearmReaction(name=reaction.name, path=place, gone=gone))
            self._new -= {reaction for reaction, _ in stale}
            for rearm in ceased:
                await self._desk.ask(rearm)
        self._seen = self._desk.session.replica.seq

    def _places(self, reaction: Reaction, place: str) -> Iterator[tuple[Reaction, str]]:
        if place != reaction.pattern.text:
            yield reaction, place
            return
        names = set(reaction.pattern.places(self._state))
        prefix = f"{reaction.name}{NAME_END}"
        for name in self._desk.ledger.all(ReactionRecord):  # also where there is nothing any more
            if name.startswith(prefix):
                names.add(name.removeprefix(prefix))
        yield from ((reaction, name) for name in sorted(names))

    def _judge(self, reaction: Reaction, place: str) -> tuple[bool, bool]:
        """Whether the condition holds at a place, and whether there is nothing any more."""
        try:
            value = value_at(self._state, place)
            return value is not None and bool(reaction.condition(value)), value is None
        except Exception:
            logger.exception("the condition of reaction %s failed at %s, and counts as false", reaction.name, place)
            return False, False

    # Running.

    async def _run_next(self) -> None:
        reaction, place = min(self._ready, key=lambda each: (-each[0].priority, each[0].order, each[1]))
        self._ready.discard((reaction, place))
        run = _Run(reaction, place)
        self._busy = True
        try:
            if await self._desk.ask_one(self._claim(run)):
                await self._work(run)
        finally:
            self._busy = False

    def _claim(self, run: _Run) -> ClaimReaction:
        reaction = run.reaction
        return ClaimReaction(**run.key, ttl_ms=reaction.ttl_ms, attempts_max=reaction.attempts, runs_max=reaction.runs)

    async def _work(self, run: _Run) -> None:
        try:
            async with renewed(self._desk, self._claim(run), ttl_ms=run.reaction.ttl_ms):
                await self._finish(run, await _result(run.reaction.work, self._event(run.path)))
        except asyncio.CancelledError:
            await self._let_go(run)
            raise
        except ReactionLost as lost:
            logger.warning("%s", lost)
        except Exception as error:
            record = self._desk.ledger.get(ReactionRecord, record_name(run.reaction.name, run.path))
            logger.error(
                "reaction %s failed at %s of board %s (attempt %d of %d)",
                run.reaction.name,
                run.path,
                self._desk.session.link.board_id,
                record.attempts if record is not None else 1,
                run.reaction.attempts,
                exc_info=(type(error), error, _trace_of_caller(error)),
            )
            await self._fail(run, error)

    def _event(self, path: str) -> Event:
        return Event(path, path.partition("/")[2] or None, value_at(self._state, path))

    async def _finish(self, run: _Run, patch: Patch | None) -> None:
        finish = FinishReaction(**run.key)
        if patch is None:
            await self._desk.ask(finish)
        else:
            await self._commit(run.reaction.name, patch, (finish,))

    async def _fail(self, run: _Run, error: Exception) -> None:
        told = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
        fail = FailReaction(**run.key, error=told[:500], attempts_max=run.reaction.attempts)
        try:
            await self._desk.ask(fail)
        except ReactionLost as lost:
            logger.warning("%s", lost)

    async def _let_go(self, run: _Run) -> None:
        """The board is being closed: let others run it at once, rather than when the claim runs out."""
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._desk.session.link.coordinate(self._desk.agent, (ReleaseReaction(**run.key),))
        except (BoardError, TimeoutError) as error:
            logger.info("reaction %s is free when its claim runs out: %s", run.reaction.name, error)


async def _result(work: Work, event: Event) -> Patch | None:
    result = work(event)
    return await result if inspect.isawaitable(result) else result


def _trace_of_caller(error: Exception) -> TracebackType | None:
    """Where the agent's own function failed, without what leads there; None when it did not."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in _LEADING:
        trace = trace.tb_next
    return trace
