"""What a function returns, as it is recorded on a board and read back: by its return annotation, or as JSON."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, JsonValue, PydanticUserError
from pydantic_core import to_jsonable_python

from crdt_board.canonical import canonical_json
from crdt_board.errors import BadRequest
from crdt_board.values import ValueCodec
from crdt_board.wire_values import check_wire, to_wire

_CODECS_KEPT = 256
_WITHOUT = (Any, object, inspect.Signature.empty)


class Outputs:
    """The outputs of one function. Who runs it and who finds it recorded get equal values of one type."""

    def __init__(self, function: Callable[..., Any], wrapper: type | None = None) -> None:
        """``wrapper`` is a generic class whose argument counts, where the function is annotated with it.

        Raises:
            BadRequest: the return annotation is of a type that has no JSON form, or names what is not there.
        """
        annotation = _returned(function)
        if wrapper is not None and (annotation is wrapper or get_origin(annotation) is wrapper):
            annotation = next(iter(get_args(annotation)), Any)
        try:
            plain = annotation in _WITHOUT or annotation is JsonValue
            self._codec = None if plain else _codec_of(annotation)
        except PydanticUserError as error:
            raise BadRequest(f"{_name_of(function)} returns {annotation}, which has no JSON form: {error}") from None

    def record(self, value: object, path: str) -> JsonValue:
        """Raises InvalidValue when it does not fit the annotation, or has no JSON form that gives it back."""
        return check_wire(value, path) if self._codec is None else self._codec.to_wire(value, path)

    def read(self, recorded: JsonValue, path: str) -> Any:
        """Raises InvalidValue when what was recorded does not fit the annotation, which is another one by now."""
        # A copy also without an annotation: what one caller does to it must not reach the others.
        return check_wire(recorded, path) if self._codec is None else self._codec.decode(recorded, path)


def _codec_of(annotation: Any) -> ValueCodec[Any]:
    try:
        return _kept_codec(annotation)
    except TypeError:  # it cannot be hashed, as ``Annotated`` with a list in it
        return ValueCodec(annotation)


@functools.lru_cache(maxsize=_CODECS_KEPT)
def _kept_codec(annotation: Any) -> ValueCodec[Any]:
    """Making one takes 0.1 ms and more."""
    return ValueCodec(annotation)


def comparable(value: object) -> JsonValue:
    """An argument in a form that is the same in every process; None when it is no value, like a client or a board."""
    try:
        return to_wire(_plain(value), "", big_integers_as_text=True)
    except (BadRequest, PydanticUserError, ValueError, RecursionError):
        return None


def _plain(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [comparable(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((comparable(item) for item in value), key=canonical_json)
    if isinstance(value, Mapping):
        return {str(name): comparable(item) for name, item in value.items()}
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return _codec_of(type(value)).to_wire(value)
    return to_jsonable_python(value)


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _returned(function: Callable[..., Any]) -> Any:
    """What a call of ``function`` gives in the end; `inspect.Signature.empty` when it does not say."""
    bare = inspect.unwrap(_without_arguments(function))
    bare = bare if inspect.isroutine(bare) else type(bare).__call__
    annotation = _evaluated(bare)
    if get_origin(annotation) in (Awaitable, Coroutine):
        return get_args(annotation)[-1]
    return annotation


def _without_arguments(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _evaluated(function: Callable[..., Any]) -> Any:
    written = {key: each for key, each in getattr(function, "__annotations__", {}).items() if key == "return"}
    around = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    try:
        hints = get_type_hints(
            SimpleNamespace(__annotations__=written), getattr(function, "__globals__", {}), dict(around), True
        )
    except Exception as error:  # noqa: BLE001 - whatever evaluating the caller's own annotation raises
        raise BadRequest(
            f"the return annotation {written['return']!r} of {_name_of(function)} cannot be evaluated ({error}): what "
            "a result is read back into has to be defined at the top of a module"
        ) from None
    return hints.get("return", inspect.Signature.empty)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
