"""The layout of a board: which root of the document holds which field, and under what merge policy.

This is the part of a model that crosses the wire and is stored with the board, so that a process which does not have
the model's Python class (the server, another language) reads and checks the document the same way. See
``docs/layout.md`` for other languages.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crdt_board.canonical import canonical_json
from crdt_board.errors import SchemaMismatch
from crdt_board.orders import CellOrder

STATE_ROOT = "state"
"""The root map that holds every scalar field under its name."""

BOARD_ROOT = "$board"
"""The root map that only the writer of the board may change."""

TEAM_ROOT = "$team"
"""The root map of leases, tasks and their like; see `crdt_board.coordination`. Only the writer changes it, too."""

WRITERS_ROOTS = frozenset({BOARD_ROOT, TEAM_ROOT})
"""What is refused from everybody else."""

_NAME_CHARS_MAX = 200
TTL_MS_MIN = 1_000
TTL_MS_MAX = 100 * 366 * 24 * 3600 * 1000
_SCHEMA_CHARS_TOLD_MAX = 300
_FIELDS_MAX = 1_000

STRICT_PREFIX = "field:"
"""What stands before the name of a strict field in the root map ``$board``."""

ITEM_KEY = "$id"
"""In the wire form of an item of a list of records: its id. No field can have this name."""

PLACE_KEY = "$place"
"""In the map of an item: its place, see `crdt_board.item_places`. Not in the wire form, where the order tells it."""

VIOLATION_PREFIX = "violation:"
"""What stands before the key of a recorded violation in the root map ``$board``."""

FieldKind = Literal[
    "scalar",
    "text",
    "list",
    "set",
    "dict",
    "counter",
    "max",
    "min",
    "candidates",
    "strict",
    "records",
    "record_list",
]
"""``scalar`` lives in the root map ``state``, ``strict`` in ``$board``; every other kind has a root of its own.

Inside a record, scalars are keys of the record's own map, and every other kind is a shared type under its name.
"""

SINGLE_KINDS: frozenset[FieldKind] = frozenset({"scalar", "strict"})
"""The kinds of fields that are one key of a root map which they share."""

SCRATCH_KINDS: frozenset[FieldKind] = frozenset({"scalar", "text", "list", "set", "dict"})
"""The kinds whose content can be removed without losing what is written at the same time."""

KEYED_KINDS: frozenset[FieldKind] = frozenset({"set", "dict"})
"""Those of them of which each key runs out by itself."""

RECORD_KINDS: frozenset[FieldKind] = frozenset({"records", "record_list"})
"""The kinds of fields that hold records, each with fields of its own."""


class FieldLayout(BaseModel):
    """One field. ``json_schema`` describes the field's value as a whole, in wire form.

    ``fields`` are those of each record, for the kinds ``records`` and ``record_list``, whose content is described there
    and not in ``json_schema``. ``order`` says how the values of
    the kinds ``max`` and ``min`` compare. ``root`` names the field's root where that is not the field's own
    name: see `crdt_board.placement`. ``ttl_ms`` is how long what is written into a scratch field stays: each key of a
    set or dict by itself, of other kinds the field as a whole. Only fields of a board itself are scratch.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(max_length=_NAME_CHARS_MAX, pattern=r"^[^\W_]\w*$")]
    kind: FieldKind
    required: bool = False
    json_schema: dict[str, Any] = {}
    fields: tuple[FieldLayout, ...] = ()
    order: CellOrder | None = None
    root: Annotated[str, Field(max_length=_NAME_CHARS_MAX, pattern=r"^([^\W_]\w*~[1-9][0-9]*)?$")] = ""
    ttl_ms: Annotated[int, Field(ge=TTL_MS_MIN, le=TTL_MS_MAX)] | None = None

    @model_validator(mode="after")
    def _has_its_order(self) -> Self:
        if (self.order is not None) != (self.kind in ("max", "min")):
            raise ValueError(f"{self.name}: an order belongs to the kinds max and min, and these need one")
        return self

    @model_validator(mode="after")
    def _can_be_scratch(self) -> Self:
        if self.ttl_ms is not None and (self.kind not in SCRATCH_KINDS or self.required):
            raise ValueError(f"{self.name}: a {self.kind} without a default has no time to live")
        return self

    @property
    def place(self) -> str:
        """The name of the field's root, for kinds that have one."""
        return self.root or self.name

    @cached_property
    def by_name(self) -> dict[str, FieldLayout]:
        """The fields of each record under their names."""
        return {field.name: field for field in self.fields}


class Layout(BaseModel):
    """All fields of a model, in the order in which it declares them. It may come from a peer, so it is checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(max_length=_NAME_CHARS_MAX)]
    fields: Annotated[tuple[FieldLayout, ...], Field(max_length=_FIELDS_MAX)]

    @model_validator(mode="after")
    def _check_names(self) -> Layout:
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise ValueError("a field is listed twice")
        if any(field.name == STATE_ROOT and field.kind != "scalar" for field in self.fields):
            raise ValueError(f"{STATE_ROOT!r} is the root of the scalars and can be no container")
        return self

    @cached_property
    def by_name(self) -> dict[str, FieldLayout]:
        return {field.name: field for field in self.fields}

    @cached_property
    def kinds(self) -> dict[str, FieldKind]:
        return {field.name: field.kind for field in self.fields}

    @cached_property
    def ttls_ms(self) -> dict[str, int]:
        """The times to live of the scratch fields."""
        return {field.name: field.ttl_ms for field in self.fields if field.ttl_ms is not None}

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the canonical JSON: equal for equal models, whatever the class is called.

        Where a board keeps the fields is a matter of that board, and so is left out.
        """
        content = self.model_dump(mode="json", exclude={"title"})
        content["fields"].sort(key=lambda field: field["name"])
        _leave_out(content["fields"])
        return hashlib.sha256(canonical_json(content)).hexdigest()


NO_FIELDS = Layout(title="", fields=())
"""The layout of every board before a model was used."""


def _leave_out(fields: list[dict[str, Any]]) -> None:
    for field in fields:
        del field["root"]
        if field["ttl_ms"] is None:
            del field["ttl_ms"]
        _leave_out(field["fields"])


def check_successor(stored: Layout, offered: Layout, stored_number: int) -> bool:
    """Decide how a model joins a board that has a schema already.

    Returns True when ``offered`` extends ``stored`` or brings other times to live (it must be recorded under the next
    number), and False when nothing needs to be recorded: it is the same, or ``stored`` extends it.

    Raises:
        SchemaMismatch: a field was changed, or a required one added; each is named with what differs.
    """
    if stored.fingerprint == offered.fingerprint:
        return False
    problems, adds, lacks = _compare(stored.fields, offered.fields, "")
    if not problems and adds and lacks:
        problems = [f"{path}: is missing in {offered.title}, which adds {', '.join(sorted(adds))}" for path in lacks]
    if problems:
        problems.sort()
        raise SchemaMismatch(
            f"{offered.title} does not fit the board's schema {stored_number}: " + "; ".join(problems),
            fields=problems,
            board_schema=stored_number,
        )
    return bool(adds) or (not lacks and stored.ttls_ms != offered.ttls_ms)


def lost_by(before: Layout, after: Layout) -> list[str]:
    """What who writes under ``before`` cannot go on with under ``after``, one sentence for each field.

    Empty when ``after`` only adds optional fields.
    """
    return _lost(before.fields, after.fields, "")


def _lost(before: tuple[FieldLayout, ...], after: tuple[FieldLayout, ...], prefix: str) -> list[str]:
    old, new = {field.name: field for field in before}, {field.name: field for field in after}
    lost: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        path = f"{prefix}{name}"
        if name not in new:
            lost.append(f"{path}: is gone")
        elif name not in old:
            lost += [f"{path}: is new and has no default"] if new[name].required else []
        elif old[name].kind != new[name].kind:
            lost.append(f"{path}: was a {old[name].kind} and is a {new[name].kind}")
        elif _difference(old[name], new[name]):
            lost.append(f"{path}: holds other values than before")
        else:
            lost += _lost(old[name].fields, new[name].fields, f"{path}/*/")
    return lost


def _compare(
    stored: tuple[FieldLayout, ...], offered: tuple[FieldLayout, ...], prefix: str
) -> tuple[list[str], list[str], list[str]]:
    """What cannot be reconciled between two versions of some fields, what the second adds, and what it lacks."""
    before = {field.name: field for field in stored}
    after = {field.name: field for field in offered}
    added, missing = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    problems = [f"{prefix}{name}: is new and has no default" for name in added if after[name].required]
    adds, lacks = [prefix + name for name in added], [prefix + name for name in missing]
    for name in sorted(before.keys() & after.keys()):
        difference = _difference(before[name], after[name])
        if difference:
            problems.append(f"{prefix}{name}: {difference}")
            continue
        inner = _compare(before[name].fields, after[name].fields, f"{prefix}{name}/*/")
        problems += inner[0]
        adds += inner[1]
        lacks += inner[2]
    return problems, adds, lacks


def _difference(before: FieldLayout, after: FieldLayout) -> str:
    if before.kind != after.kind:
        return f"is a {before.kind} on the board and a {after.kind} in the model"
    if before.json_schema != after.json_schema:
        schemas = [json.dumps(each.json_schema, ensure_ascii=False) for each in (before, after)]
        if sum(map(len, schemas)) > _SCHEMA_CHARS_TOLD_MAX:
            return "has another JSON Schema on the board than in the model"
        return f"has the JSON Schema {schemas[0]} on the board and {schemas[1]} in the model"
    if before.order != after.order:
        return "compares otherwise, or has other bounds, on the board than in the model"
    return ""
