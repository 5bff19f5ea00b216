"""A counter field of ``board.state``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Integral
from typing import Any, cast

import pycrdt

from crdt_board.counters import check_amount, raised_cell, total
from crdt_board.live.editor import Editor


class LiveCounter:
    """Reads as the ``int`` that all replicas' increments add up to; ``+=`` and ``-=`` change this replica's part."""

    __slots__ = ("_editor", "_field")
    __hash__ = None  # type: ignore[assignment]  # its value changes

    def __init__(self, editor: Editor, field: str) -> None:
        self._editor = editor
        self._field = field

    def __iadd__(self, amount: int) -> LiveCounter:
        """Add ``amount``.

        Raises:
            InvalidValue: it is not an int; or this replica's part would go beyond 2^53-1, or the sum beyond its bounds.
        """
        self._add(check_amount(amount, self._field))
        return self

    def __isub__(self, amount: int) -> LiveCounter:
        self._add(-check_amount(amount, self._field))
        return self

    def to_python(self) -> int:
        """The value as a plain int."""
        return total(self._cells, self._field)

    @property
    def _cells(self) -> Any:
        found = self._editor.document.find(self._field, pycrdt.Map)
        return {} if found is None else found

    def _add(self, amount: int) -> None:
        document = self._editor.document
        part = raised_cell(self._cells, document.client_id, amount, self._field)
        if amount:
            document.check_change(self._field, amount)
            with self._editor.edit():
                cast("pycrdt.Map[Any]", document.make(self._field))[str(document.client_id)] = part

    def __int__(self) -> int:
        return self.to_python()

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.to_python())

    def __bool__(self) -> bool:
        return self.to_python() != 0

    def __repr__(self) -> str:
        return repr(self.to_python())

    def __format__(self, spec: str) -> str:
        return format(self.to_python(), spec)

    def __round__(self, digits: int | None = None) -> int:
        return self.to_python() if digits is None else round(self.to_python(), digits)


def _value(operand: Any) -> Any:
    return operand.to_python() if isinstance(operand, LiveCounter) else operand


def _forward(apply: Callable[[Any, Any], Any]) -> Callable[[LiveCounter, Any], Any]:
    return lambda self, other: apply(self.to_python(), _value(other))


def _backward(apply: Callable[[Any, Any], Any]) -> Callable[[LiveCounter, Any], Any]:
    return lambda self, other: apply(_value(other), self.to_python())


def _alone(apply: Callable[[Any], Any]) -> Callable[[LiveCounter], Any]:
    return lambda self: apply(self.to_python())


def _become_a_number() -> None:
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(LiveCounter, f"__{name}__", _forward(getattr(operator, name)))
    binary = {name: getattr(operator, f"__{name}__") for name in ("add", "sub", "mul", "floordiv", "mod", "truediv")}
    binary |= {name: getattr(operator, f"__{name}__") for name in ("lshift", "rshift", "and", "or", "xor")}
    for name, apply in {**binary, "pow": pow, "divmod": divmod}.items():
        setattr(LiveCounter, f"__{name}__", _forward(apply))
        setattr(LiveCounter, f"__r{name}__", _backward(apply))
    alone: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "abs": abs}
    alone |= {"invert": operator.invert, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil}
    for name, single in alone.items():
        setattr(LiveCounter, f"__{name}__", _alone(single))
    Integral.register(LiveCounter)


_become_a_number()
