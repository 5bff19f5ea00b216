"""What is done once on a board, whoever dies: the part of `Board` for effects and steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.checkpoints import Checkpoint
from crdt_board.commit_arguments import check_flag
from crdt_board.coordination.effects import EffectRecord, ResolveEffect
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.coordination.steps import StepRecord
from crdt_board.errors import BadRequest
from crdt_board.limits import check_name
from crdt_board.team.desk import Desk
from crdt_board.team.effects import Effect, checked_effect_name, fingerprint_of_request, resolve_effect, run_effect
from crdt_board.team.keeping import checked_ms
from crdt_board.team.leases import Lease
from crdt_board.team.steps import Step, implied_key, key_for_effect
from crdt_board.views import Patch
from crdt_board.wire_values import check_wire

T = TypeVar("T")


class BoardOnce:
    """What an agent's handle on a board offers for doing things once."""

    _session: BoardSession
    _desk: Desk

    @overload
    async def effect(
        self,
        name: str,
        key: str | None,
        call: Callable[[], Awaitable[T]],
        *,
        request: JsonValue = None,
        not_done: tuple[type[BaseException], ...] = (),
        ttl: float = 30.0,
    ) -> T: ...
    @overload
    async def effect(
        self,
        name: str,
        key: str | None,
        call: Callable[[], T],
        *,
        request: JsonValue = None,
        not_done: tuple[type[BaseException], ...] = (),
        ttl: float = 30.0,
    ) -> T: ...
    async def effect(
        self,
        name: str,
        key: str | None,
        call: Callable[[], Any],
        *,
        request: JsonValue = None,
        not_done: tuple[type[BaseException], ...] = (),
        ttl: float = 30.0,
    ) -> Any:
        """Do something in the outside world with ``call()``, at most once for each ``name`` and ``key``.

        Whoever asks for the same key, at the same time, later or after a crash, gets the result of the one call, and
        nobody before it is durable. The result is read back by the return annotation of ``call``, or is JSON without
        one; `Limits.record_bytes_max` bounds it. A plain function runs in a thread. ``request`` is what the call asks
        for, when that is to be compared: the same key with another one is refused. Without a key, inside a step, it is
        `effect_key()`.

        When the process that runs ``call`` dies, the effect is in doubt ``ttl`` seconds (0.1 to 86,400) later; while it
        runs that is put off. It is in doubt at once when ``call`` raises, since it may have acted before that, unless
        it raises `NotDone` or one of ``not_done``: then nothing took place, and the next who asks runs it again.
        Cancelling leaves it in doubt.

        Raises:
            EffectInDoubt: it was begun, and whether it took place is not known. So for everybody, until
                `resolve_effect`.
            IdempotencyMismatch: the key stands for another request.
            EffectLost: somebody has resolved it as not done while it ran.
            BadRequest: the call is a part of itself.
            InvalidValue, LimitExceeded: an argument is not what it should be; or the result cannot be recorded, then it
                is in doubt.
            Whatever ``call`` raises.
        """
        self._session.check()
        name = checked_effect_name(name)
        key = implied_key(self._desk, self._session.replica.version, name) if key is None else key
        effect = Effect(
            name=name,
            key=check_name(key, "key", NAME_CHARS_MAX),
            fingerprint=fingerprint_of_request(request),
            ttl_ms=checked_ms(ttl, "ttl"),
            not_done=not_done,
        )
        return await run_effect(self._desk, effect, call)

    def effect_key(self, *parts: str | int) -> str:
        """A key for an effect that a resumed run finds again: of the board, the step and its version, and ``parts``.

        Inside a step the version is the newest one when the step was begun for the first time. So it stays when the
        step runs again after a crash, and is another one when the board was restored to before the step, and in a fork.
        Outside it is the newest version now: the same until somebody commits.
        """
        return key_for_effect(self._desk, self._session.replica.version, parts)

    async def resolve_effect(
        self, name: str, key: str, *, took_place: bool, result: JsonValue = None
    ) -> EffectRecord | None:
        """Say of an effect that is in doubt whether it took place. Durable on return.

        With ``took_place`` whoever asks for it gets ``result`` from now on; without, the next who asks runs it again,
        and None is returned. When somebody else has said the same, the first result stays, and is returned.

        Raises:
            Conflict: it is running, or it took place.
            NotFound: there is no such effect to give a result to.
            BadRequest: a ``result`` of what did not take place.
        """
        if result is not None and not took_place:
            raise BadRequest("an effect that did not take place has no result: give took_place=True, or no result")
        operation = ResolveEffect(
            name=checked_effect_name(name),
            key=check_name(key, "key", NAME_CHARS_MAX),
            took_place=check_flag(took_place, "took_place"),
            result=check_wire(result, "result"),
        )
        return await resolve_effect(self._desk, operation)

    @property
    def effects(self) -> list[EffectRecord]:
        """Effects that run, are in doubt or took place, as this replica knows it, in alphabetical order of names."""
        return sorted(self._desk.ledger.all(EffectRecord).values(), key=lambda record: record.name)

    def step(self, name: str, *, key: str | Callable[..., str] | None = None, ttl: float = 30.0) -> Step:
        """Run a function once on this board: ``@board.step("extract")``, or ``await board.step("extract").run(fn)``.

        A call of the decorated function runs it, and commits what it did as step ``name``: edits made inside, and the
        ``patch`` of a `StepResult`, if it returns one. Once that is done, on any process, a call returns the recorded
        output and runs nothing; the output is read back by the return annotation, or is JSON without one, and
        `Limits.record_bytes_max` bounds it. While another agent runs it, a call waits and returns what that gives. When
        the function raises or its process dies (``ttl`` seconds later, 0.1 to 86,400; put off while it runs), the next
        call runs it again. A plain function runs on the event loop: one that waits belongs into
        ``asyncio.to_thread``.

        ``key`` parts calls with other arguments: a text, or a function of the arguments that gives one. A fork has the
        steps that were done at its version, and `restore` forgets those that were done since. Edits made inside stay
        when the function raises; a patch is all or nothing.

        The call raises:
            IdempotencyMismatch: the step was begun with other arguments, as far as they are values.
            StepLost: this process stood still for longer than ``ttl``, and somebody else runs the step, or the board
                was restored to before it; nothing was committed.
            InvalidValue, LimitExceeded: the output cannot be recorded, or read back; or a name is too long.
            Whatever the function and `commit` raise.
        """
        self._session.check()
        return Step(self._desk, self._commit_with, checked_effect_name(name), key=key, ttl_ms=checked_ms(ttl, "ttl"))

    @property
    def steps(self) -> list[StepRecord]:
        """Steps that were begun, as this replica knows it, in the order in which they were begun first."""
        records = self._desk.ledger.all(StepRecord).values()
        return sorted(records, key=lambda record: (record.number, record.name))

    @abstractmethod
    async def _commit_with(
        self,
        step: str,
        patch: Patch | None,
        operations: Sequence[Operation],
        lease: Lease | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Checkpoint:
        """Commit together with operations; ``metadata`` is what describes the step, as arguments of `Board.commit`."""
