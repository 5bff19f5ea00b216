"""`board.step`: a function that runs once for each board and version line."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar, overload

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import Checkpoint
from crdt_board.coordination.operations import Operation
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.coordination.steps import (
    BeginStep,
    FinishStep,
    ReleaseStep,
    RenewStep,
    StepRecord,
    check_same_step,
)
from crdt_board.errors import BadRequest
from crdt_board.limits import check_name
from crdt_board.team.claiming import claimed
from crdt_board.team.desk import Desk, new_token
from crdt_board.team.effects import fitting_key
from crdt_board.team.keeping import give_up, renewed
from crdt_board.team.leases import Lease
from crdt_board.team.outputs import Outputs, comparable
from crdt_board.views import Patch

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

CommitWith = Callable[
    [str, Patch | None, Sequence[Operation], Lease | None, Mapping[str, Any] | None], Awaitable[Checkpoint]
]
"""`Board._commit_with`."""

_OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class StepResult(Generic[T_co]):
    """What a step gives back when that is more than its output; see `Board.commit` for what each part means."""

    output: T_co
    patch: Patch | None = field(default=None, kw_only=True)
    confidence: float | None = field(default=None, kw_only=True)
    trace: str | None = field(default=None, kw_only=True)
    handoff: JsonValue = field(default=None, kw_only=True)
    tags: Sequence[str] = field(default=(), kw_only=True)


@dataclass(slots=True)
class RunningStep:
    """A step whose function runs just now."""

    session: BoardSession
    record: StepRecord
    effects: set[str] = field(default_factory=set)
    """The names of effects that have taken their key from it."""


_running: ContextVar[tuple[RunningStep, ...]] = ContextVar("crdt_board_running_steps", default=())


def running_step(session: BoardSession) -> RunningStep | None:
    """The innermost step of this board that the caller is a part of."""
    return next((step for step in reversed(_running.get()) if step.session is session), None)


def key_for_effect(desk: Desk, version: int, parts: Sequence[str | int]) -> str:
    """See `Board.effect_key`."""
    step, board_id = running_step(desk.session), desk.session.link.board_id
    place = f"{board_id}@{version}" if step is None else f"{board_id}/{step.record.name}@{step.record.begun_at}"
    return fitting_key([place, *map(str, parts)])


def implied_key(desk: Desk, version: int, effect: str) -> str:
    """The key of an effect that was not given one. Raises BadRequest when that does not tell it from another."""
    step = running_step(desk.session)
    if step is None:
        raise BadRequest(f"effect {effect} needs a key: only inside a step there is one that a resumed run finds again")
    if effect in step.effects:
        raise BadRequest(
            f"step {step.record.name} runs effect {effect} twice: give each a key of its own, as "
            "board.effect_key(finding_id)"
        )
    step.effects.add(effect)
    return key_for_effect(desk, version, ())


class Step:
    """Runs functions as a step of a board; made by `Board.step`."""

    def __init__(
        self, desk: Desk, commit_with: CommitWith, name: str, *, key: str | Callable[..., str] | None, ttl_ms: int
    ) -> None:
        self._desk = desk
        self._commit_with = commit_with
        self._name = name
        self._key = key
        self._ttl_ms = ttl_ms

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, StepResult[T]]]
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, StepResult[T]]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The function as a coroutine function that runs as this step: for ``@board.step("extract")``."""
        outputs = Outputs(function, StepResult)

        @functools.wraps(function)
        async def as_step(*args: Any, **kwargs: Any) -> Any:
            arguments = inspect.signature(function).bind(*args, **kwargs)
            arguments.apply_defaults()
            name = self._name_of(args, kwargs)
            run = StepRun(self._desk, self._commit_with, name, _fingerprint(arguments.arguments), self._ttl_ms)
            return await run.output(functools.partial(function, *args, **kwargs), outputs)

        return as_step

    async def run(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """The output of ``function(*args, **kwargs)``, run as this step."""
        return await self(function)(*args, **kwargs)

    def _name_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        key = self._key(*args, **kwargs) if callable(self._key) else self._key
        return self._name if key is None else check_name(f"{self._name}/{key}", "step with its key", NAME_CHARS_MAX)


class StepRun:
    """One attempt to run a step, or to learn what it gave.

    Invariant: the function runs only while the step's record names this run's token, and its commit is made only then.
    """

    def __init__(self, desk: Desk, commit_with: CommitWith, name: str, fingerprint: str, ttl_ms: int) -> None:
        self._desk = desk
        self._commit_with = commit_with
        self._name = name
        self._fingerprint = fingerprint
        self._ttl_ms = ttl_ms
        self._token = new_token()

    async def output(self, function: Callable[[], Any], outputs: Outputs) -> Any:
        outer = _running.get()
        if any(step.session is self._desk.session and step.record.name == self._name for step in outer):
            raise BadRequest(f"step {self._name} is a part of itself, and would wait for its own end")
        named = {"name": self._name, "token": self._token}
        begin = BeginStep(**named, fingerprint=self._fingerprint, ttl_ms=self._ttl_ms)
        found = await claimed(self._desk, StepRecord, self._name, begin, ReleaseStep(**named))
        check_same_step(found, self._fingerprint)
        output = found.output if found.state == "done" else await self._run(found, function, outputs)
        return outputs.read(output, _OUTPUT)

    async def _run(self, record: StepRecord, function: Callable[[], Any], outputs: Outputs) -> JsonValue:
        renewal = RenewStep(name=self._name, token=self._token, ttl_ms=self._ttl_ms)
        try:
            async with renewed(self._desk, renewal, ttl_ms=self._ttl_ms):
                with _inside(RunningStep(self._desk.session, record)):
                    result = function()
                    result = await result if inspect.isawaitable(result) else result
                return await self._finish(result, outputs)
        except BaseException as error:
            release = ReleaseStep(name=self._name, token=self._token)
            await give_up(self._desk, release, error, ttl_ms=self._ttl_ms)
            raise

    async def _finish(self, result: Any, outputs: Outputs) -> JsonValue:
        made = result if isinstance(result, StepResult) else StepResult(result)
        output = outputs.record(made.output, _OUTPUT)
        finish = FinishStep(name=self._name, token=self._token, output=output)
        metadata = {
            "idempotency_key": f"step-{self._token}",
            "output": output,
            "confidence": made.confidence,
            "trace": made.trace,
            "handoff": made.handoff,
            "tags": made.tags,
        }
        await self._commit_with(self._name, made.patch, (finish,), None, metadata)
        return output


@contextlib.contextmanager
def _inside(step: RunningStep) -> Iterator[None]:
    token = _running.set((*_running.get(), step))
    try:
        yield
    finally:
        _running.reset(token)


def _fingerprint(arguments: dict[str, Any]) -> str:
    """Of the arguments that are values; what is no value, like a client or a board, cannot be compared."""
    return hashlib.sha256(canonical_json(comparable(arguments))).hexdigest()
