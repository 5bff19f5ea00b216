"""The arguments of `Board.commit` and its like: checked, copied, and made into a request."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from crdt_board.canonical import canonical_json
from crdt_board.checkpoints import CommitRequest
from crdt_board.errors import InvalidValue
from crdt_board.values import from_validation_error
from crdt_board.wire_values import check_text, check_texts, child_path, invalid_value

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_CONFIDENCE: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0, le=1, strict=True)])


def commit_request(*, tags: Sequence[str] = (), **content: Any) -> CommitRequest:
    for name in ("step", "idempotency_key", "trace"):
        if content.get(name) is not None:
            check_text(content[name], name)
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise invalid_value("tags", f"is a list of texts, like [{tags!r}]")
    content["tags"] = tuple(check_text(tag, "tags") for tag in tags)
    for name in ("output", "handoff"):
        if content.get(name) is None:  # the default; to check that a value is JSON, pydantic calls back into Python
            content.pop(name, None)
    try:
        return CommitRequest.model_validate({"fingerprint": "", **content}, strict=True)
    except ValidationError as error:
        raise from_validation_error(error, "") from None


def check_number(value: object, name: str, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise invalid_value(name, f"must be a whole number from {low} to {high}, got {value!r}")


def check_flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise invalid_value(name, f"must be True or False, got {value!r}")
    return value


def json_copy(value: JsonValue, name: str) -> JsonValue:
    """A copy of a JSON value, so that later changes to the caller's own do not reach the checkpoint."""
    if value is None:
        return None
    try:
        copied = _JSON.validate_python(value)
        check_texts(copied, name)
        canonical_json(copied)
    except ValidationError:
        path, reason = _what_is_no_json(value, name) or (name, "is no JSON")
        raise invalid_value(path, reason) from None
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{name} must be JSON: {error}", path=name, reason=str(error)) from None
    return copied


def _what_is_no_json(value: object, path: str) -> tuple[str, str] | None:
    """The first place in ``value`` that pydantic does not take as JSON, and why; None where it is nested too deep."""
    with contextlib.suppress(RecursionError):
        if isinstance(value, dict):
            strange = next((key for key in value if not isinstance(key, str)), None)
            if strange is not None:
                return path, f"has a key that is no str: {strange!r}"
            found = (_what_is_no_json(item, child_path(path, key)) for key, item in value.items())
        elif isinstance(value, list):
            found = (_what_is_no_json(item, child_path(path, index)) for index, item in enumerate(value))
        elif value is None or isinstance(value, str | bool | int | float):
            return None
        else:
            return path, f"{type(value).__name__} is not a JSON value"
        return next(filter(None, found), None)
    return None


def checked_confidence(value: float | None) -> float | None:
    if value is None:
        return None
    try:
        return _CONFIDENCE.validate_python(value)
    except ValueError:
        reason = "must be a number between 0 and 1"
        raise InvalidValue(f"confidence {reason}, got {value!r}", path="confidence", reason=reason) from None


def fingerprint_of(request: CommitRequest, wire_patch: Mapping[str, JsonValue]) -> str:
    content = {name: getattr(request, name) for name in ("step", "output", "confidence", "trace", "handoff", "tags")}
    return hashlib.sha256(canonical_json({**content, "patch": dict(wire_patch)})).hexdigest()
