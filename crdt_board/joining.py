"""How an agent's model joins a board: as it is, or after the model's migrations were run here.

The same for a writer in this process and one at a server.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, cast

from pydantic import JsonValue, ValidationError

from crdt_board.errors import InvalidValue, SchemaMismatch, VersionConflict
from crdt_board.identities import identify, without_ids
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.migrations import BoardState, MigrationRequest
from crdt_board.readings import fitting_candidates
from crdt_board.schema import BoardModel, fields_of
from crdt_board.values import from_validation_error
from crdt_board.wire_values import invalid_value, same_wire

Joined = TypeVar("Joined")

_RETRY_SECONDS_MAX = 0.5


class SchemaWriter(Protocol):
    """The writer of a board, as far as it takes to migrate it."""

    async def read_state(self) -> BoardState:
        """See `Engine.read_state`."""
        ...

    async def migrate(self, request: MigrationRequest) -> int:
        """See `Engine.migrate`."""
        ...


async def join_or_migrate(
    join: Callable[[], Awaitable[Joined]], migrate: Callable[[], Awaitable[None]], model: type[BoardModel]
) -> Joined:
    """What ``join`` returns; after ``migrate``, when it is refused because the model migrates from the board's schema.

    Raises:
        SchemaMismatch: the model does not fit and has no migration from the board's schema, or the migration failed.
        VersionConflict: others wrote all the while.
    """
    numbers = model.board_migrations()
    for _ in numbers:
        try:
            return await join()
        except SchemaMismatch as mismatch:
            if mismatch.data.get("board_schema") not in numbers:
                raise
            await migrate()
    return await join()


async def migrate_board(writer: SchemaWriter, model: type[BoardModel], agent: str) -> None:
    """Run the model's migrations on the board, unless another agent was first.

    Raises:
        SchemaMismatch: a migration raised, or led to a state that the model does not allow; nothing was changed.
        VersionConflict: others wrote all the while; nothing was changed.
    """
    conflict: VersionConflict | None = None
    for number in range(DEFAULT_LIMITS.migration_attempts_max):
        if conflict is not None:
            await asyncio.sleep(random.uniform(0, min(_RETRY_SECONDS_MAX, 0.005 * 2**number)))
        board = await writer.read_state()
        if board.schema_version not in model.board_migrations():
            return
        try:
            await writer.migrate(migration_request(board, model, agent))
        except VersionConflict as error:
            conflict = error
        else:
            return
    assert conflict is not None
    raise conflict


def migration_request(board: BoardState, model: type[BoardModel], agent: str) -> MigrationRequest:
    """What the model's migrations make of a board's state; runs them.

    Raises:
        SchemaMismatch: as `migrate_board`.
    """
    layout = model.board_layout()
    before = board.layout.by_name if board.layout else {}
    wire = migrated(board.state, board.schema_version, model, beside=board.state.keys() - before.keys())
    kept = [
        name
        for name, value in wire.items()
        if name in board.state
        and name in before
        and before[name].model_copy(update={"root": ""}) == layout.by_name[name]
        and same_wire(value, board.state[name])
    ]
    return MigrationRequest(
        agent=agent,
        from_version=board.schema_version,
        seq=board.seq,
        layout=layout,
        migrates=model.board_migrations(),
        kept=tuple(kept),
        state={name: value for name, value in wire.items() if name not in kept},
    )


def migrated(
    state: Mapping[str, JsonValue], number: int, model: type[BoardModel], *, beside: Collection[str]
) -> dict[str, JsonValue]:
    """The fields that the model's migrations from schema ``number`` on set, in wire form, checked by the model.

    Candidates that they pass on as they are stay the list of all of them. ``beside`` are the keys of ``state`` that may
    be of agents without a model: those that are passed on as they are, and that the model does not name, are left out.

    Raises:
        SchemaMismatch: as `migrate_board`.
    """
    result: object = dict(state)
    steps = [name for start, name in model.__board_migrations__.items() if start >= number]
    for name in steps:
        result = _run(model, name, number, cast(dict[str, JsonValue], result))
        if isinstance(result, BoardModel):
            break
    try:
        if isinstance(result, BoardModel):
            return _wire_of(result, model)
        fields, made = fields_of(model), cast(dict[str, JsonValue], result)
        passed_on = {name for name in beside if name in made and same_wire(made[name], state[name])} - fields.keys()
        return _checked({name: value for name, value in made.items() if name not in passed_on}, state, model)
    except InvalidValue as error:
        raise _failed(model, steps[-1], number, f"led to an invalid state: {error}", path=error.path) from error


def _run(model: type[BoardModel], name: str, number: int, old: dict[str, JsonValue]) -> object:
    try:
        result: object = getattr(model, name)(json.loads(json.dumps(old)))  # a copy: it may change what it is given
    except Exception as error:
        raise _failed(model, name, number, f"raised {type(error).__name__}: {error}") from error
    if isinstance(result, model):
        return result
    if not isinstance(result, dict):
        raise _failed(model, name, number, f"returned a {type(result).__name__}, but no dict and no {model.__name__}")
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _failed(model, name, number, f"returned what is not JSON: {error}") from error
    return result


def _wire_of(made: BoardModel, model: type[BoardModel]) -> dict[str, JsonValue]:
    specs = fields_of(model)
    for name, spec in specs.items():
        if spec.required and name not in made.model_fields_set:
            raise invalid_value(name, "has no value and no default")
    return {name: spec.to_wire(getattr(made, name)) for name, spec in specs.items() if name in made.model_fields_set}


def _checked(
    result: dict[str, JsonValue], before: Mapping[str, JsonValue], model: type[BoardModel]
) -> dict[str, JsonValue]:
    values: dict[str, Any] = dict(result)
    candidates: dict[str, JsonValue] = {}
    for name, spec in fields_of(model).items():
        if spec.kind == "candidates" and name in result and name in before and same_wire(result[name], before[name]):
            fitting = fitting_candidates(spec, result[name])
            values[name] = fitting[0]["value"] if fitting else result[name]
            candidates[name] = result[name]
    try:
        made = model.model_validate_json(json.dumps(without_ids(values, fields_of(model))))
    except ValidationError as error:
        raise from_validation_error(error, "") from error
    identify(made, values, fields_of(model))
    return {**_wire_of(made, model), **candidates}


def _failed(model: type[BoardModel], name: str, number: int, what: str, **data: Any) -> SchemaMismatch:
    return SchemaMismatch(
        f"{model.__name__} did not migrate the board from schema {number} to {model.board_migrations()[-1] + 1}: "
        f"{name} {what}",
        fields=[f"{name}: {what}"],
        board_schema=number,
        **data,
    )
