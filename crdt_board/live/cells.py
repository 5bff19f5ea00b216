"""`Max`, `Min`, `Candidates` and `Strict` fields of ``board.state``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NoReturn, TypeVar, cast

from pydantic import JsonValue

from crdt_board.cell_writes import raise_cell, write_candidate
from crdt_board.cells import beats, candidate_list, reading
from crdt_board.fields import UNWRITTEN, FieldSpec
from crdt_board.layout import STRICT_PREFIX
from crdt_board.live.editor import Editor
from crdt_board.policies import Candidate
from crdt_board.readings import fitting_candidates, present_wire, stored_wire
from crdt_board.wire_values import document_wire, invalid_value, same_wire

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_value(editor: Editor, field: FieldSpec) -> JsonValue:
    """What a `Max`, `Min` or `Strict` field reads as, in wire form; `UNWRITTEN` when it is its default, or nothing."""
    document = editor.document
    if field.kind == "strict":
        stored, key = document.board_map, STRICT_PREFIX + field.name
        return document_wire(stored[key]) if key in stored else cast(JsonValue, UNWRITTEN)
    wire = reading(field, document.cells(field.name))
    return stored_wire(field, {} if wire is None else {field.name: wire})


def write_extreme(editor: Editor, field: FieldSpec, value: object) -> None:
    """Write ``value`` if it is beyond what the field reads as; otherwise nothing.

    Raises:
        InvalidValue: it does not fit the field, or would not come back as written.
    """
    wire = field.to_wire(value)
    document = editor.document
    content = reading(field, document.cells(field.name))
    present = present_wire(field, {} if content is None else {field.name: content})
    if present is UNWRITTEN or beats(field, wire, present):
        with editor.edit():
            raise_cell(document, field.name, wire)


def refuse_strict(field: FieldSpec) -> NoReturn:
    """Say how a strict field is changed."""
    raise TypeError(
        f"{field.name} is Strict: change it by commit(step, patch={{{field.name!r}: ...}}, "
        "expected_version=board.version), or by attempt(...)"
    )


class LiveCandidates(Generic[T]):
    """A field whose concurrent values are all kept.

    `value` is the one that a snapshot has. The field compares, prints and computes as that value, and has its methods;
    take `value` where its very type matters.
    """

    __slots__ = ("_editor", "_spec")
    __hash__ = None  # type: ignore[assignment]  # its value changes

    def __init__(self, editor: Editor, spec: FieldSpec) -> None:
        self._editor = editor
        self._spec = spec

    @property
    def value(self) -> T:
        """The newest candidate's value by its writer's clock, that of the greater client id at equal times.

        The field's default when there is no candidate.

        Raises:
            AttributeError: there is no candidate, and the field has no default.
        """
        found = self._fitting()
        if found:
            return self._decode(found[0]["value"])
        if self._spec.required:
            raise AttributeError(f"{self._spec.name} has no value yet: it has no default and nobody has written it")
        return cast(T, self._spec.default())

    @property
    def candidates(self) -> tuple[Candidate[T], ...]:
        """All values that were written without knowledge of each other, newest first; empty before the first."""
        return tuple(
            Candidate(
                self._decode(each["value"]),
                cast(str, each["agent"]),
                _EPOCH + timedelta(milliseconds=cast(int, each["when_ms"])),
            )
            for each in self._fitting()
        )

    @property
    def conflict(self) -> bool:
        """Whether there are candidates with different values."""
        wires = [each["value"] for each in self._fitting()]
        return any(not same_wire(wires[0], wire) for wire in wires[1:])

    def choose(self, choice: T | Candidate[T]) -> None:
        """Keep one of the candidates, given as such or by its value; it becomes this agent's. The others go.

        Raises:
            InvalidValue: no candidate has this value; assign to write another one.
        """
        wire = self._spec.to_wire(choice.value if isinstance(choice, Candidate) else choice)
        if not any(same_wire(each["value"], wire) for each in self._fitting()):
            raise invalid_value(self._spec.name, "is no longer, or never was, a candidate: assign it to write it")
        self._write(wire)

    def assign(self, value: object) -> None:
        """Write ``value`` in place of all candidates that this replica sees."""
        self._write(self._spec.to_wire(value))

    def to_python(self) -> T:
        """The same as `value`."""
        return self.value

    def _write(self, wire: JsonValue) -> None:
        document, name, agent = self._editor.document, self._spec.name, self._editor.agent
        cells, key = document.cells(name), str(document.client_id)
        own = candidate_list({key: cells[key]}) if len(cells) == 1 and key in cells else []
        if own and own[0]["agent"] == agent and same_wire(own[0]["value"], wire):
            return
        with self._editor.edit():
            write_candidate(document, name, wire, agent, self._editor.now_ms())

    def _fitting(self) -> list[dict[str, JsonValue]]:
        candidates = candidate_list(self._editor.document.cells(self._spec.name))
        return fitting_candidates(self._spec, cast(JsonValue, candidates))

    def _decode(self, wire: JsonValue) -> T:
        return cast(T, self._spec.codec.decode(wire, self._spec.name))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):
            raise AttributeError(f"{self._spec.name} has no value yet, or its value has no attribute {name!r}")
        return getattr(self.value, name)

    def __repr__(self) -> str:
        return repr(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __bool__(self) -> bool:
        return bool(self.value)


def candidates_of(field: T) -> LiveCandidates[T]:
    """``board.state.<field>`` of a `Candidates` field with the type that it has for a type checker.

    The model declares the field as its value's type, so that it can be read and assigned; its ``candidates`` are
    behind this.

    Raises:
        TypeError: it is a value that was read, or not such a field.
    """
    if not isinstance(field, LiveCandidates):
        raise TypeError(f"candidates_of() takes a Candidates field of board.state, not a {type(field).__name__}")
    return field


def _forward(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *operands: apply(self.value, *map(_plain, operands))


def _backward(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: apply(_plain(other), self.value)


def _plain(operand: Any) -> Any:
    return operand.value if isinstance(operand, LiveCandidates) else operand


def _compute_as_the_value() -> None:
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "contains", "getitem", "neg", "pos", "abs", "index"):
        setattr(LiveCandidates, f"__{name}__", _forward(getattr(operator, name)))
    single: dict[str, Callable[..., Any]] = {"len": len, "iter": iter, "int": int, "float": float, "round": round}
    for name, apply in single.items():
        setattr(LiveCandidates, f"__{name}__", _forward(apply))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
        setattr(LiveCandidates, f"__{name}__", _forward(getattr(operator, f"__{name}__")))
        setattr(LiveCandidates, f"__r{name}__", _backward(getattr(operator, f"__{name}__")))


_compute_as_the_value()
