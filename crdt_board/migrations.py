"""`@migrates`: how a model says what becomes of a board under an earlier schema, and what crosses the wire for it.

The function runs at the agent that joins. The writer of the board only sees the state that it leads to. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from crdt_board.errors import ModelError
from crdt_board.layout import Layout
from crdt_board.limits import DEFAULT_LIMITS

F = TypeVar("F")

SchemaNumber = Annotated[int, Field(ge=1, le=DEFAULT_LIMITS.schema_number_max, strict=True)]

_MARK = "__board_migrates__"


class BoardState(BaseModel):
    """What an agent reads to migrate a board: the state in wire form after entry ``seq``, and its schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    schema_version: int
    layout: Layout | None
    state: dict[str, JsonValue]


class MigrationRequest(BaseModel):
    """What an agent asks the writer for: from schema ``from_version`` at entry ``seq`` to the schema of its model.

    Fields named in ``kept`` stay as they are, those in ``state`` get that value (wire form), and every other one is
    emptied.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: Annotated[str, Field(min_length=1)]
    from_version: Annotated[int, Field(ge=1, le=2**53 - 1, strict=True)]
    seq: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]
    layout: Layout
    migrates: tuple[SchemaNumber, ...]
    kept: tuple[str, ...] = ()
    state: dict[str, JsonValue] = {}


def migrates(*, from_version: int) -> Callable[[F], F]:
    """Mark a class method of a `BoardModel` as its migration from schema ``from_version`` of a board::

        class Job(BoardModel):
            tags: set[str] = set()

            @migrates(from_version=1)
            @classmethod
            def from_v1(cls, old: dict[str, JsonValue]) -> dict[str, JsonValue]:
                return {**old, "tags": str(old["tags"]).split()}

    ``old`` is the state under that schema in wire form; fields that were never written are missing. It returns the
    state under the next schema, in wire form, or an instance of the model. It runs when the first agent with this model
    joins such a board, and once more when others write meanwhile, so it must depend on ``old`` alone.

    Raises:
        ModelError: ``from_version`` is not the number of a schema.
    """
    if type(from_version) is not int or not 1 <= from_version <= DEFAULT_LIMITS.schema_number_max:
        raise _refused("migrates", f"from_version={from_version!r} is not the number of a schema", "write 1, 2, 3 …")

    def mark(function: F) -> F:
        setattr(getattr(function, "__func__", function), _MARK, from_version)
        return function

    return mark


def migrations_of(model: type) -> dict[int, str]:
    """The names of the migrations of a class, by the number that they start from, ascending.

    Raises:
        ModelError: one is no class method, is a coroutine function, or two start from one number.
    """
    found: dict[int, str] = {}
    for name in dict.fromkeys(name for kind in reversed(model.__mro__) for name in vars(kind)):
        method: Any = inspect.getattr_static(model, name)
        number = getattr(getattr(method, "__func__", method), _MARK, None)
        if number is None:
            continue
        where = f"{model.__name__}.{name}"
        if not isinstance(method, classmethod | staticmethod):
            raise _refused(where, "a migration has no instance to work on", "write @classmethod below @migrates")
        if inspect.iscoroutinefunction(method.__func__):
            raise _refused(where, "a migration may run several times and waits for nothing", "write a plain function")
        if number in found:
            raise _refused(where, f"{found[number]} migrates from {number} too", "write one for each schema")
        found[number] = name
    return dict(sorted(found.items()))


def _refused(where: str, reason: str, instead: str) -> ModelError:
    return ModelError(f"{where}: {reason}; {instead}", field=where.rpartition(".")[2], reason=reason, instead=instead)
