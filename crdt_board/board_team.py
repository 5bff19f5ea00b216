"""Working together on a board: the part of `Board` that claims, asks and hands over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.board_once import BoardOnce
from crdt_board.commit_arguments import check_number
from crdt_board.coordination.approvals import DEFAULT_OPTIONS, ApprovalRecord, Decision
from crdt_board.coordination.leases import LeaseRecord
from crdt_board.coordination.reactions import PATH_CHARS_MAX, ReactionRecord, RetryReaction
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.limits import check_name
from crdt_board.paths import field_of
from crdt_board.team import approvals
from crdt_board.team.approvals import Approval
from crdt_board.team.desk import Desk
from crdt_board.team.following import Follower, Start
from crdt_board.team.idleness import Idleness
from crdt_board.team.keeping import checked_ms
from crdt_board.team.leases import Lease
from crdt_board.team.places import Pattern
from crdt_board.team.reactions import Condition, Reactor, Work
from crdt_board.team.tasks import Tasks
from crdt_board.views import View

_Work = TypeVar("_Work", bound=Work)

_COUNT_MAX = 1_000_000
REACTION_CHARS_MAX = 100
"""The name of a reaction or of a follower: it is a part of the names of its records."""
_PRIORITY_MAX = 1_000_000


class BoardTeam(BoardOnce):
    """What an agent's handle on a board offers for working with other agents and with people."""

    _session: BoardSession
    _agent: str
    _state: Any
    _view: View

    def __init__(self) -> None:
        self._desk = Desk(self._session, self._agent)
        self._idleness = Idleness(self._session, self._agent)
        self._reactor: Reactor | None = None

    def lease(self, name: str, *, ttl: float = 30.0, shared: bool = False, timeout: float | None = None) -> Lease:
        """Hold ``name`` while an ``async with`` block runs: nobody else does so, or only those that share it.

        ``async with board.lease("payments", ttl=30) as lease:`` waits until it is free, ``timeout`` seconds at most
        (None for ever, 0 does not wait), and gets it in the order of asking. The writer of the board decides, on the
        clock of its store. The lease is renewed while the block runs, and given back at its end; when this process dies
        it is free after ``ttl`` seconds (0.1 to 86,400). ``lease.fence`` grows from one claim to the next, and
        ``board.commit(..., lease=lease)`` is refused unless the claim still stands: only that is safe against a process
        that stood still.

        Raises:
            LeaseHeld: somebody else has it, and ``timeout`` is over; says who, and until when.
            LeaseLost: at the end of the block, when the claim ran out or was broken inside it.
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        self._session.check()
        check_name(name, "lease", NAME_CHARS_MAX)
        return Lease(self._desk, name, ttl=ttl, shared=shared, timeout=timeout)

    @property
    def leases(self) -> list[LeaseRecord]:
        """The leases that somebody has now, as this replica knows it, in alphabetical order of their names."""
        records = self._desk.ledger.all(LeaseRecord).values()
        return sorted((record for record in records if record.holders), key=lambda record: record.name)

    @property
    def tasks(self) -> Tasks:
        """Work that is put on the board once, and done by one agent at a time."""
        return Tasks(self._desk)

    def on(
        self,
        path: str,
        *,
        when: Condition | None = None,
        name: str | None = None,
        priority: int = 0,
        attempts: int = 3,
        runs: int = 1_000,
        ttl: float = 30.0,
    ) -> Callable[[_Work], _Work]:
        """Run a function when something on the board becomes true, as long as this board is open.

        ``@board.on("findings/*", when=lambda finding: finding.severity >= 8)``: ``path`` is a field, a key of one, or
        with ``*`` each of its keys; ``when`` is given the live value there, after every change of it, so it should be
        quick. Without ``when`` it is enough that there is something. The function, plain or a coroutine function, is
        given an `Event`; a patch that it returns is committed under the name of the reaction, which is that of the
        function unless ``name`` says another.

        Of all agents with a reaction of this name, one runs it at a place, and once, until its condition has ceased to
        hold and holds again; that is kept on the board. So what became true while nobody was there is run by whoever
        comes first; what also ceased to be true meanwhile is not. When the function raises, or its process is not heard
        of for ``ttl`` seconds, it is run again, ``attempts`` times in all with growing pauses, and ``runs`` times at
        one place over the life of the board: a bound for reactions that set off each other. Each agent runs one at a
        time, those with the greatest ``priority`` first.

        A run may take place more than once when a process dies in it. What it commits by its patch is there once;
        protect what it does outside with `effect`.

        Raises:
            BadRequest: ``path`` names no field, or this handle has a reaction of that name already.
            InvalidValue, LimitExceeded: an argument is not what it should be.
        """
        self._session.check()
        pattern = Pattern(path)
        self._view.field(pattern.field)
        check_number(priority, "priority", -_PRIORITY_MAX, _PRIORITY_MAX)
        check_number(attempts, "attempts", 1, _COUNT_MAX)
        check_number(runs, "runs", 1, _COUNT_MAX)
        options = {"priority": priority, "attempts": attempts, "runs": runs, "ttl_ms": checked_ms(ttl, "ttl")}

        def register(work: _Work) -> _Work:
            own_name = check_name(name or work.__name__, "name", REACTION_CHARS_MAX)
            if self._reactor is None:
                self._reactor = Reactor(self._desk, self._state, self._idleness, self._commit_with)
            self._reactor.add(pattern, when or pattern.something, work, name=own_name, **options)
            return work

        return register

    @property
    def reactions(self) -> list[ReactionRecord]:
        """What has run or is to run again of all reactions, at each place, as this replica knows it, by name and path.

        ``state`` is one of *armed*, *running*, *waiting*, *done* and *failed*; ``error`` says why it failed.
        """
        return sorted(self._desk.ledger.all(ReactionRecord).values(), key=lambda record: record.name)

    async def retry_reaction(self, name: str, path: str) -> ReactionRecord:
        """Have a reaction run again that failed at a place, or that waits to be tried again. Durable on return.

        It has all its attempts and runs again. Whoever has the reaction runs it, if its condition holds there.

        Raises:
            Conflict: it is being run, or it is done.
            NotFound: it has not run there.
        """
        operation = RetryReaction(
            name=check_name(name, "name", REACTION_CHARS_MAX), path=check_name(path, "path", PATH_CHARS_MAX)
        )
        return ReactionRecord.model_validate(await self._desk.ask_one(operation))

    def follow(
        self, name: str, path: str = "", *, start: Start = "beginning", own: bool = False, ttl: float = 30.0
    ) -> Follower:
        """Get every change of the board, in order and each once, also those made while nobody was there to see them.

        ::

            async with board.follow("reviewer", "findings") as follower:
                async for news in follower:
                    await follower.commit("review", patch=review(news, board.snapshot()))

        How far ``name`` has come is kept on the board, and moves with the commit. A new name begins at the board's
        ``beginning``, or ``now``. ``path`` is a field or a key of one, everything when it is empty. What this agent
        wrote itself is left out, unless ``own``. One process follows under a name at a time; others wait, and take over
        when it has not been heard of for ``ttl`` seconds.

        Raises:
            BadRequest: ``path`` names no field, or an argument is not what it should be.
        """
        self._session.check()
        check_name(name, "name", REACTION_CHARS_MAX)
        if path:
            self._view.field(field_of(path))
        checked_ms(ttl, "ttl")
        return Follower(
            self._desk, self._idleness, self._commit_with, name=name, path=path, start=start, own=own, ttl=ttl
        )

    async def settled(self, timeout: float | None = None) -> None:
        """Wait until nobody on the board has anything to do.

        That is: every edit of this replica is durable, no task is open or claimed, no effect or step is under way, and
        all reactions and followers of the agents that are connected have dealt with everything up to now. People are
        not waited for: an approval may be pending. Nor is what was given up: tasks that failed or are blocked behind
        one, reactions after their last attempt. Agents in other processes on the same SQLite file are seen only by
        what they have claimed.

        Raises:
            TimeoutError: that was not so within ``timeout`` seconds (None waits for ever).
        """
        self._session.check()
        await self._idleness.settle(self._desk, timeout)

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] = DEFAULT_OPTIONS,
        about: Sequence[str] = (),
        expires: timedelta | float | None = None,
        payload: JsonValue = None,
        key: str | None = None,
    ) -> Approval:
        """Ask people to choose one of ``options``; ``await approval.decided()`` waits for what they choose.

        Durable on return, and shown to everybody: in `approvals`, over HTTP and by ``crdt-board approvals``. ``about``
        are fields, or places in them as in `changes`. The approval is bound to what they hold when it reaches the
        writer of the board, and to the newest checkpoint: as soon as somebody changes one of them it is *superseded*,
        and cannot be decided any more. After ``expires`` seconds, on the clock of the store, it is *expired*.
        ``payload`` is JSON for whoever shows the question.

        With a ``key``, which becomes the approval's id, a question is asked once: the same one under the same key
        gives the same approval, in whatever state it is, so that an agent that was killed goes on waiting. Use another
        key to ask again after it was superseded.

        Raises:
            IdempotencyMismatch: another question was asked under this key.
            InvalidValue: an argument is not what it should be, or ``about`` names what is not on the board.
            LimitExceeded: the question with all that belongs to it is too large, or there are too many.
        """
        return await approvals.ask(
            self._desk, question, options=options, about=about, expires=expires, payload=payload, key=key
        )

    @property
    def approvals(self) -> list[ApprovalRecord]:
        """What was asked on this board, as this replica knows it, in the order of asking.

        ``state`` is one of *pending*, *decided*, *expired*, *superseded* and *withdrawn*. The newest 1,000 of those
        that are not pending stay.
        """
        return approvals.all_approvals(self._desk)

    async def decide(self, approval_id: str, option: str, *, comment: str = "", seen: str | None = None) -> Decision:
        """Choose an option of an approval, under this agent's name; durable on return. It is decided once.

        ``seen`` is the ``hash`` of the approval that was shown to whoever decides; without it, that which this replica
        holds. The writer refuses the decision when the approval is about something else.

        Raises:
            ApprovalClosed: it was decided before, expired, was superseded or withdrawn; says how, by whom and when.
            ApprovalMismatch: ``seen`` is not what the approval is about.
            NotFound: there is no such approval.
            InvalidValue: that is none of its options.
        """
        return await approvals.decide(self._desk, approval_id, option, comment=comment, seen=seen)

    async def withdraw(self, approval_id: str) -> Decision:
        """Take a question back that needs no answer any more; again: nothing happens. Durable on return.

        Raises:
            ApprovalClosed: it has ended otherwise before.
            NotFound: there is no such approval.
        """
        return await approvals.withdraw(self._desk, approval_id)
