"""Taking type annotations apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel


def split_annotation(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The annotation without its metadata, and the metadata."""
    if get_origin(annotation) is Annotated:
        bare, *metadata = get_args(annotation)
        return bare, tuple(metadata)
    return annotation, ()


def origin_of(annotation: Any) -> Any:
    """``list`` for ``list[int]`` and for ``list``."""
    return get_origin(annotation) or annotation


def walk_annotation(annotation: Any) -> Iterator[Any]:
    """The annotation and everything nested in it, fields of pydantic models and dataclasses included."""
    seen: list[Any] = []
    waiting = [annotation]
    while waiting:
        current, _ = split_annotation(waiting.pop())
        if any(current is each or current == each for each in seen):
            continue
        seen.append(current)
        yield current
        waiting.extend(each for each in get_args(current) if get_origin(current) is not Literal)
        if hasattr(current, "__value__"):
            waiting.append(current.__value__)
        if isinstance(current, type) and issubclass(current, BaseModel):
            waiting.extend(field.annotation for field in current.model_fields.values())
        elif isinstance(current, type) and dataclasses.is_dataclass(current):
            waiting.extend(field.type for field in dataclasses.fields(current) if not isinstance(field.type, str))
