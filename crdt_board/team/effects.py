"""`board.effect`: an outside call at most once for each key."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.canonical import canonical_json
from crdt_board.coordination.effects import (
    REASON_CHARS_MAX,
    AbandonEffect,
    BeginEffect,
    EffectRecord,
    FinishEffect,
    RenewEffect,
    ResolveEffect,
    check_same_effect,
    effect_record_name,
)
from crdt_board.coordination.records import NAME_CHARS_MAX
from crdt_board.errors import BadRequest, BoardError, InvalidValue, NotDone
from crdt_board.limits import check_name
from crdt_board.team.claiming import claimed
from crdt_board.team.desk import Desk, new_token
from crdt_board.team.keeping import give_up, renewed
from crdt_board.team.outputs import Outputs, is_coroutine_function
from crdt_board.wire_values import check_wire, invalid_value

_HASHED_KEY_CHARS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What is to take place at most once."""

    name: str
    key: str
    fingerprint: str
    ttl_ms: int
    not_done: tuple[type[BaseException], ...]

    @property
    def record_name(self) -> str:
        return effect_record_name(self.name, self.key)


@dataclass(frozen=True, slots=True)
class RunningEffect:
    """An effect whose call runs in this task, or was running when this task was begun."""

    session: BoardSession
    record_name: str


_running: ContextVar[tuple[RunningEffect, ...]] = ContextVar("crdt_board_running_effects", default=())


async def run_effect(desk: Desk, effect: Effect, call: Callable[[], Any]) -> Any:
    """See `Board.effect`."""
    if any(each.session is desk.session and each.record_name == effect.record_name for each in _running.get()):
        raise BadRequest(f"effect {effect.name} {effect.key} is a part of itself, and would wait for its own end")
    outputs = Outputs(call)
    named = {"name": effect.name, "key": effect.key, "token": new_token()}
    begin = BeginEffect(**named, fingerprint=effect.fingerprint, ttl_ms=effect.ttl_ms)
    found = await claimed(desk, EffectRecord, effect.record_name, begin, AbandonEffect(**named))
    check_same_effect(found, effect.fingerprint)
    result = found.result if found.state == "done" else await _run(desk, effect, begin.token, call, outputs)
    return outputs.read(result, "result")


async def resolve_effect(desk: Desk, operation: ResolveEffect) -> EffectRecord | None:
    """See `Board.resolve_effect`."""
    answer = await desk.ask_one(operation)
    return None if answer is None else EffectRecord.model_validate(answer)


def checked_effect_name(name: object) -> str:
    """Raises InvalidValue or LimitExceeded when it is no name of an effect or a step."""
    checked = check_name(name, "name", NAME_CHARS_MAX)
    if "/" in checked:
        raise invalid_value("name", f"has no slash, which parts it from the key; got {checked!r}")
    return checked


def fitting_key(parts: list[str]) -> str:
    """Parts as one key; where that is too long, a hash takes the place of its end."""
    key = "/".join(parts)
    if len(key) <= NAME_CHARS_MAX:
        return key
    digest = hashlib.sha256(key.encode()).hexdigest()[:_HASHED_KEY_CHARS]
    return f"{key[: NAME_CHARS_MAX - len(digest) - 1]}~{digest}"


def fingerprint_of_request(request: JsonValue) -> str:
    """Empty for None: nothing is compared then."""
    return "" if request is None else hashlib.sha256(canonical_json(check_wire(request, "request"))).hexdigest()


async def _run(desk: Desk, effect: Effect, token: str, call: Callable[[], Any], outputs: Outputs) -> JsonValue:
    renewal = RenewEffect(name=effect.name, key=effect.key, token=token, ttl_ms=effect.ttl_ms)
    try:
        async with renewed(desk, renewal, ttl_ms=effect.ttl_ms):
            with _inside(RunningEffect(desk.session, effect.record_name)):
                value = await _called(call)
        finish = _finish(effect, token, value, outputs)
        return await desk.ask_one(finish)
    except BaseException as error:
        abandon = AbandonEffect(name=effect.name, key=effect.key, token=token, in_doubt=_doubt(effect, error))
        await give_up(desk, abandon, error, ttl_ms=effect.ttl_ms)
        raise


@contextlib.contextmanager
def _inside(effect: RunningEffect) -> Iterator[None]:
    token = _running.set((*_running.get(), effect))
    try:
        yield
    finally:
        _running.reset(token)


def _finish(effect: Effect, token: str, value: object, outputs: Outputs) -> FinishEffect:
    try:
        return FinishEffect(name=effect.name, key=effect.key, token=token, result=outputs.record(value, "result"))
    except InvalidValue as error:
        raise InvalidValue(
            f"effect {effect.name} took place, and its result cannot be recorded: {error}", **error.data
        ) from error


def _doubt(effect: Effect, error: BaseException) -> str | None:
    if isinstance(error, (NotDone, *effect.not_done)):
        return None
    if isinstance(error, BoardError):
        return str(error)[:REASON_CHARS_MAX]
    return f"its call ended with {type(error).__name__}: {error}"[:REASON_CHARS_MAX]


async def _called(call: Callable[[], Any]) -> Any:
    """What ``call`` gives. A plain function runs in a thread, so that what it waits for holds nobody up."""
    if is_coroutine_function(call):
        return await call()
    result = await asyncio.to_thread(_without_stop_iteration, call)
    return await result if inspect.isawaitable(result) else result


def _without_stop_iteration(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # a future cannot hold one, and would never be done
        raise RuntimeError("the function raised StopIteration") from error
