"""The rules that only a model knows: its validators over several fields, run on states that edits have merged to.

A rule is a ``@model_validator(mode="after")`` of the board's model, or of a record's, under the name of its function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import CodeType
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, JsonValue, TypeAdapter, ValidationError

from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.fields import record_fields
from crdt_board.findings import FIELDS_MAX, FINDINGS_MAX, MESSAGE_CHARS_MAX, PATH_CHARS_MAX, Finding, Findings
from crdt_board.layout import RECORD_KINDS
from crdt_board.paths import split_path
from crdt_board.readings import unchecked
from crdt_board.violation import Violation
from crdt_board.wire_values import child_path

_MODELS_KEPT = 256


@dataclass(frozen=True)
class ModelRule:
    """One validator of a model. ``fields`` are those that its code names; none when it may look at any."""

    name: str
    fields: tuple[str, ...]
    function: Callable[..., Any]

    def finding(self, model: BaseModel, path: str) -> Finding | None:
        """What is wrong with a model that was not checked yet, which stands at ``path``."""
        try:
            self._adapter.validate_python(model)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            message = str(first.get("ctx", {}).get("error") or first["msg"])[:MESSAGE_CHARS_MAX]
            return Finding(path=path[:PATH_CHARS_MAX], rule=self.name, message=message, fields=self.fields)
        return None

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(Annotated[object, AfterValidator(self.function)])


@lru_cache(_MODELS_KEPT)
def validators_of(model: type[BaseModel]) -> tuple[ModelRule, ...]:
    """The validators of a model itself, in order of declaration."""
    names = list(record_fields(model))
    validators = cast(Any, model).__pydantic_decorators__.model_validators
    return tuple(
        ModelRule(name, _named_fields(model, validator.func, names), validator.func)
        for name, validator in validators.items()
    )


@lru_cache(_MODELS_KEPT)
def has_rules(model: type[BaseModel]) -> bool:
    """Whether a model, or one of its records, has validators."""
    return bool(validators_of(model)) or any(has_rules(record) for record in _records(model).values())


def judge(
    document: Document, model: type[BaseModel], *, seq: int, after: dict[str, JsonValue] | None = None
) -> Findings | None:
    """What a document's state, and the state in wire form ``after`` a patch, say of the rules of ``model``.

    None when they say nothing: there are no rules, or a state cannot be read, because a required field was never
    written or another client wrote a value that does not fit.
    """
    if not has_rules(model):
        return None
    try:
        found = broken_rules(model, document.wire_state() if after is None else after)
        before = broken_rules(model, document.wire_state()) if found and after is not None else found
    except InvalidValue:
        return None
    recorded = document.standing.recorded(document)
    new = [finding for key, finding in found.items() if key not in before]
    old = [found[key] for key in sorted(found, key=recorded.__contains__) if key in before]  # news first
    kept = [key for key, each in recorded.items() if key not in found and _is_known(model, each)]
    return Findings(
        seq=seq, broken=tuple(old[:FINDINGS_MAX]), refused=tuple(new[:FINDINGS_MAX]), kept=tuple(kept[:FINDINGS_MAX])
    )


def broken_rules(model: type[BaseModel], state: dict[str, JsonValue]) -> dict[str, Finding]:
    """What a state in wire form breaks, by the keys of violations, in order of places.

    Raises:
        InvalidValue: the state cannot be read as the model.
    """
    found = _broken(model, unchecked(model, state), "")
    return {f"{finding.rule}@{finding.path}": finding for finding in found}


def _broken(model: type[BaseModel], content: BaseModel, path: str) -> Iterator[Finding]:
    for rule in validators_of(model):
        finding = rule.finding(content, path)
        if finding is not None:
            yield finding
    for name, kind in _records(model).items():
        if has_rules(kind):
            inside = getattr(content, name)
            for key, record in inside.items() if isinstance(inside, dict) else _items(inside):
                yield from _broken(kind, record, child_path(path, name, key))


def _items(records: Sequence[BaseModel]) -> Iterator[tuple[str | int, BaseModel]]:
    """The items of a list with their ids; those that are only wanted, in a patch, with their index."""
    for index, record in enumerate(records):
        yield cast(Any, record)._board_base.item or index, record


def _is_known(model: type[BaseModel], violation: Violation) -> bool:
    """Whether this model has the rule that a violation was recorded for."""
    found = model
    for name in split_path(violation.path)[::2] if violation.path else ():
        field = record_fields(found).get(name)
        if field is None or field.record is None:
            return False
        found = field.record
    return any(rule.name == violation.rule for rule in validators_of(found))


def _records(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """The classes of the records of a model, by the fields that hold them."""
    fields = record_fields(model)
    return {name: field.record for name, field in fields.items() if field.kind in RECORD_KINDS and field.record}


def _named_fields(model: type[BaseModel], function: object, fields: Sequence[str]) -> tuple[str, ...]:
    """The fields that a function names, or a method or property of the model that it names: what to look at first."""
    named: set[str] = set()
    waiting: list[object] = [function]
    seen: list[object] = []
    while waiting:
        code = _code_of(waiting.pop())
        if code is None or code in seen:
            continue
        seen.append(code)
        names = set(code.co_names)
        named |= names
        waiting += [each for each in code.co_consts if isinstance(each, CodeType)]
        own = [each for each in model.__mro__ if each not in BaseModel.__mro__]
        waiting += [each.__dict__[name] for each in own for name in names if name in each.__dict__]
    found = tuple(name for name in fields if name in named)
    return found if len(found) <= FIELDS_MAX else ()


def _code_of(function: object) -> CodeType | None:
    if isinstance(function, CodeType):
        return function
    function = getattr(function, "fget", function)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
