"""Exact conversion of values (M6)."""

from __future__ import annotations

import collections
import dataclasses
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pycrdt
import pytest
from annotated_types import Ge
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

from crdt_board.errors import InvalidValue
from crdt_board.exactness import same_value
from crdt_board.values import ValueCodec
from crdt_board.wire_values import check_text, check_wire, child_path, document_wire, same_wire


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Size(float, Enum):
    HALF = 0.5
    ONE = 1.0


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    at: datetime
    tags: frozenset[str] = frozenset()
    raw: bytes = b""
    big: int = 0


class Outer(BaseModel):
    model_config = ConfigDict(frozen=True)

    inner: Inner
    pairs: tuple[tuple[str, Decimal], ...] = ()
    renamed: int = Field(default=0, alias="other")


class Secretive(BaseModel):
    model_config = ConfigDict(frozen=True)

    kept: int = 0
    hidden: int = Field(default=0, exclude=True)


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float


class Pair(NamedTuple):
    left: str
    right: int


CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2024, 5, 1, 12, 30, 15, 123456)  # noqa: DTZ001  # without a zone, as the model has it

EXACT: list[tuple[Any, Any]] = [
    (str, ""),
    (str, "é😀\x00\u2028"),
    (int, 0),
    (int, 5),
    (int, -(2**53) + 1),
    (int, 2**53),
    (int, -(2**200)),
    (Annotated[int, Ge(0)], 2**64),
    (bool, True),
    (float, 5.0),
    (float, 0.1),
    (float, 1e17),
    (float, 9.223372036854776e18),
    (float, 1e300),
    (float, 5e-324),
    (int | str, "5"),
    (int | str, 5),
    (int | float, 5),
    (int | float, 0.5),
    (bool | int, True),
    (bool | int, 1),
    (str | None, None),
    (Literal["a", "b"], "b"),
    (Literal[1, "1", True], "1"),
    (Color, Color.BLUE),
    (Color | None, None),
    (Level, Level.HIGH),
    (Size, Size.ONE),
    (datetime, NOON),
    (datetime, NOON.replace(tzinfo=UTC)),
    (datetime, NOON.replace(tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
    (date, date(2024, 2, 29)),
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=3)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.00")),
    (Decimal, Decimal("-0")),
    (Decimal, Decimal("1E+50")),
    (bytes, b"\x00\xff\xfe"),
    (tuple[int, ...], (1, 2**70, 3)),
    (tuple[str, int], ("a", 1)),
    (frozenset[str], frozenset({"b", "a"})),
    (frozenset[Color], frozenset(Color)),
    (tuple[frozenset[str], ...], (frozenset({"x", "y", "z"}),)),
    (list[dict[str, int]], [{"b": 1, "a": 2}]),
    (dict[int, str], {1: "one"}),
    (dict[UUID, Decimal], {UUID(int=1): Decimal("0.10")}),
    (Inner, Inner(at=NOON, tags=frozenset({"p", "q"}), raw=b"\xff", big=2**60)),
    (Outer, Outer(inner=Inner(at=NOON), pairs=(("a", Decimal("2.50")),), other=3)),
    (Point, Point(1, 2.0)),
    (Pair, Pair("a", 2**60)),
    (JsonValue, {"a": [1, "b", None, True, {"c": 0.5}]}),
    (Any, {"a": [1, None]}),
]


def through_a_document(wire: JsonValue) -> list[JsonValue]:
    """What another replica reads for a value: item by item, and out of the JSON of the whole map."""
    writer, reader = pycrdt.Doc[Any](), pycrdt.Doc[Any]()
    writer.get("m", type=pycrdt.Map)["k"] = wire
    reader.apply_update(writer.get_update())
    content = reader.get("m", type=pycrdt.Map)
    return [document_wire(content["k"]), json.loads(str(content))["k"]]


@pytest.mark.parametrize(("annotation", "value"), EXACT, ids=range(len(EXACT)))
def test_exact_values_come_back_in_type_and_value(annotation: Any, value: Any) -> None:
    """M6: what is accepted comes back from a document equal in type and value, all the way down."""
    codec = ValueCodec[Any](annotation, CONFIG)
    wire = codec.to_wire(value, "field")
    for stored in through_a_document(wire):
        back = codec.decode(stored, "field")
        assert same_value(value, back)
        assert same_wire(codec.encode(back, "field"), stored)


REFUSED: list[tuple[Any, Any, str]] = [
    (float, float("nan"), "field"),
    (float, float("inf"), "field"),
    (float, -0.0, "field"),
    (tuple[float, ...], (1.0, -0.0), "field/1"),
    (str, "a\ud800", "field"),
    (dict[str, str], {"k~/": "\udfff"}, "field/k~0~1"),
    (dict[str, int], {"\ud800": 1}, "field"),
    (int | float, 5.0, "field"),
    (int | str, 2**60, "field"),
    (Any, 2**60, "field"),
    (Any, (1, 2), "field"),
    (Any, {"a": {1, 2}}, "field/a"),
    (Any, 2.0**60, "field"),
    (collections.OrderedDict[str, int], collections.OrderedDict(b=1, a=2), "field"),
    (Any, object(), "field"),
    (JsonValue, {"a": 5.0}, "field/a"),
    (int, "five", "field"),
    (int, 1.5, "field"),
    (Color, "green", "field"),
    (Annotated[int, Ge(0)], -1, "field"),
    (list[int], [1, "x"], "field/1"),
    (datetime, NOON.replace(tzinfo=BERLIN), "field"),
    (datetime, NOON.replace(tzinfo=timezone(timedelta(hours=1), "CET")), "field"),
    (datetime, NOON.replace(tzinfo=timezone(timedelta(seconds=30))), "field"),
    (Secretive, Secretive(kept=1, hidden=2), "field/hidden"),
    (Inner, Inner.model_construct(at="soon"), "field"),
    (Annotated[str, AfterValidator(lambda text: text + "!")], "a", "field"),
    (int, 10**5000, "field"),
]


@pytest.mark.parametrize(("annotation", "value", "path"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_not_come_back_is_refused_with_its_path(annotation: Any, value: Any, path: str) -> None:
    """M6: a value that cannot be given back exactly raises InvalidValue with the path and a reason."""
    with pytest.raises(InvalidValue) as caught:
        ValueCodec[Any](annotation, CONFIG).to_wire(value, "field")
    assert caught.value.path == path
    assert caught.value.reason
    json.dumps(caught.value.details())


def test_depth_is_bounded() -> None:
    """A value nested deeper than the limit is refused, and so is one that contains itself."""
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    circle: list[Any] = []
    circle.append(circle)
    for value in (deep, circle):
        with pytest.raises(InvalidValue):
            ValueCodec[Any](Any, CONFIG).to_wire(value, "field")


def test_sets_have_one_wire_form() -> None:
    """Equal sets give equal wire forms, whatever order they were filled in."""
    codec = ValueCodec[Any](tuple[frozenset[str], ...])
    names = [f"n{number}" for number in range(50)]
    assert codec.to_wire((frozenset(names),)) == codec.to_wire((frozenset(reversed(names)),)) == [sorted(names)]


def test_nothing_is_shared_with_a_value() -> None:
    """M7: changing a value after it was encoded, or a decoded one, changes nothing else."""
    codec = ValueCodec[Any](JsonValue)
    value = {"a": [1]}
    wire = codec.to_wire(value)
    decoded = codec.decode(wire)
    value["a"].append(2)
    decoded["a"].append(3)
    assert wire == {"a": [1]}


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(), st.lists))
def test_any_json_value_is_exact_or_refused(value: Any) -> None:
    """M6: every JSON-like value is either given back exactly by a document or refused."""
    codec = ValueCodec[Any](Any)
    try:
        wire = codec.to_wire(value, "field")
    except InvalidValue:
        return
    for stored in through_a_document(wire):
        assert same_value(value, codec.decode(stored))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_other_float_is_exact(value: float) -> None:
    """Every finite float but -0.0 comes back from a document as it is."""
    codec = ValueCodec[float](float)
    if value == 0:
        value = 0.0
    for stored in through_a_document(codec.to_wire(value)):
        assert same_value(value, codec.decode(stored))


def test_foreign_values_are_read_or_refused_with_the_path() -> None:
    """A value that another client wrote is read by the field's rules, or refused with its path."""
    assert ValueCodec[int](int).decode(document_wire(5.0)) == 5
    with pytest.raises(InvalidValue) as caught:
        ValueCodec[Any](dict[str, int]).decode({"a/b": 1.5}, "field")
    assert caught.value.path == "field/a~1b"


def test_wire_schema_says_that_large_integers_are_strings() -> None:
    """The JSON Schema describes the wire form: unbounded integers may be strings, bounded ones are numbers."""
    assert "anyOf" in ValueCodec[int](int).json_schema()
    assert ValueCodec[int](Annotated[int, Field(ge=0, le=10)]).json_schema()["type"] == "integer"
    assert ValueCodec[bytes](bytes, CONFIG).json_schema()["format"] == "base64url"


@pytest.mark.parametrize("value", [2**53, 2**70, float("nan"), -0.0, "\ud800", {1: 2}, b"", object()])
def test_check_wire_refuses_what_is_no_wire_form(value: Any) -> None:
    """Wire values of a peer that a document cannot give back are refused before they reach yrs."""
    with pytest.raises(InvalidValue):
        check_wire([value], "field")


def test_same_wire_tells_booleans_from_numbers() -> None:
    """True and 1 are different, 1 and 1.0 are the same number."""
    assert not same_wire(True, 1)
    assert not same_wire([{"a": 0}], [{"a": False}])
    assert same_wire({"a": [1.0]}, {"a": [1]})


def test_paths_are_json_pointers_without_their_slash() -> None:
    """Keys are escaped as in RFC 6901."""
    assert child_path("", "findings", "a/b~c", 0) == "findings/a~1b~0c/0"


def test_check_text_refuses_other_types() -> None:
    """Text must be a str."""
    with pytest.raises(InvalidValue):
        check_text(b"a", "draft")


class Place(BaseModel):
    model_config = ConfigDict(frozen=True)
    street: str
    number: int = 0


@pytest.mark.parametrize(
    ("annotation", "given", "path"), [(tuple[int, str], (1,), "x/1"), (Place, {"number": 1}, "x/street")]
)
def test_a_part_that_was_left_out_is_named(annotation: Any, given: object, path: str) -> None:
    """A value that lacks a part is told so, not that nobody has written it."""
    with pytest.raises(InvalidValue, match="is missing in what was given") as caught:
        ValueCodec(annotation).validate(given, "x")
    assert caught.value.path == path
