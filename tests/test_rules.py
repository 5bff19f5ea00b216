"""What a layout allows, checked without the model (V10)."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, MultipleOf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AnyUrl,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    IPvAnyAddress,
    Json,
    JsonValue,
    NaiveDatetime,
    StringConstraints,
    Tag,
    ValidationError,
    computed_field,
)

from crdt_board import BoardModel, Counter, Text
from crdt_board.errors import InvalidValue, ModelError
from crdt_board.layout import FieldLayout, Layout
from crdt_board.rules import FieldRules, check_layout, rules_of
from crdt_board.values import ValueCodec
from crdt_board.wire_values import printed_wire

CONFIG = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Leaf(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: datetime
    tags: frozenset[str] = frozenset()
    big: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"leaf {self.big}"


class Tree(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = Field(alias="title", default="")
    children: tuple[Tree, ...] = ()


class Cat(BaseModel):
    model_config = ConfigDict(frozen=True)
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    model_config = ConfigDict(frozen=True)
    kind: Literal["dog"] = "dog"
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float


class Pair(NamedTuple):
    left: str
    right: int


class Lookahead(BaseModel):
    model_config = ConfigDict(frozen=True, regex_engine="python-re")
    word: Annotated[str, Field(pattern=r"^(?=a)\w+$")]


def _even(value: Any) -> str:
    big = value["big"] if isinstance(value, dict) else value.big
    return "even" if int(big) % 2 == 0 else "odd"


def models(kind: Callable[..., Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **fields)


floats = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes() | st.datetimes(timezones=st.just(UTC))
leaves = models(Leaf, at=moments, tags=st.frozensets(st.text(max_size=3), max_size=3), big=st.integers())
trees: st.SearchStrategy[Any] = st.recursive(
    models(Tree, title=st.text(max_size=3)),
    lambda inner: models(Tree, title=st.text(max_size=3), children=st.lists(inner, max_size=2).map(tuple)),
    max_leaves=8,
)
pets = models(Cat, lives=st.integers()) | models(Dog, name=st.text(max_size=3))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | floats | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)

TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, st.text()),
    (Annotated[str, MinLen(1), MaxLen(3)], st.text(max_size=4)),
    (Annotated[str, Field(pattern=r"^\w+\d?$")], st.text(max_size=3) | st.from_regex(r"^\w+\d?$")),
    (Annotated[str, Field(pattern=re.compile("^abc", re.IGNORECASE))], st.sampled_from(["ABCd", "abc", "xabc"])),
    (Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, max_length=3)], st.text(max_size=5)),
    (Lookahead, st.sampled_from(["ab", "a"]).map(lambda word: Lookahead(word=word))),
    (int, st.integers()),
    (Annotated[int, Ge(0), Le(10)], st.integers(-1, 11)),
    (Annotated[int, Gt(-(2**70)), Lt(2**70)], st.integers()),
    (Annotated[int, MultipleOf(3)], st.integers()),
    (bool, st.booleans()),
    (float, floats),
    (Annotated[float, MultipleOf(0.1)], st.integers(-100, 100).map(lambda number: number / 10) | floats),
    (Annotated[float, Gt(0), Le(1)], floats),
    (int | str, st.integers() | st.text(max_size=3)),
    (int | float, st.integers() | floats),
    (str | None, st.none() | st.text(max_size=3)),
    (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),
    (Color, st.sampled_from(Color)),
    (Color | int, st.sampled_from(Color) | st.integers()),
    (Level, st.sampled_from(Level)),
    (datetime, moments),
    (Annotated[datetime, Ge(datetime(2000, 1, 1, tzinfo=UTC))], st.datetimes(timezones=st.just(UTC))),
    (AwareDatetime, moments),
    (NaiveDatetime, moments),
    (date, st.dates()),
    (Annotated[date, Gt(date(2000, 1, 1))], st.dates()),
    (time, st.times() | st.times(timezones=st.just(UTC))),
    (timedelta, st.timedeltas()),
    (Annotated[timedelta, Le(timedelta(1))], st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (Annotated[Decimal, Ge(Decimal("0.5")), Lt(100)], st.decimals(allow_nan=False, allow_infinity=False)),
    (Annotated[Decimal, Field(allow_inf_nan=True)], st.decimals(allow_nan=False)),
    (bytes, st.binary()),
    (Annotated[bytes, MinLen(1), MaxLen(4)], st.binary(max_size=5)),
    (tuple[int, ...], st.lists(st.integers(), max_size=3).map(tuple)),
    (Annotated[tuple[str, ...], MaxLen(2)], st.lists(st.text(max_size=3), max_size=3).map(tuple)),
    (tuple[str, int], st.tuples(st.text(max_size=3), st.integers())),
    (frozenset[Color], st.frozensets(st.sampled_from(Color))),
    (frozenset[int], st.frozensets(st.integers(), max_size=3)),
    (dict[int, str], st.dictionaries(st.integers(), st.text(max_size=3), max_size=3)),
    (dict[Color, int], st.dictionaries(st.sampled_from(Color), st.integers(), max_size=3)),
    (dict[UUID, Decimal], st.dictionaries(st.uuids(), st.just(Decimal("0.10")), max_size=2)),
    (
        dict[Annotated[str, Field(pattern="^a", max_length=4)], int],
        st.dictionaries(st.text(alphabet="ab", max_size=5), st.integers()),
    ),
    (Leaf, leaves),
    (Tree, trees),
    (Annotated[Cat | Dog, Field(discriminator="kind")], pets),
    (Cat | Dog, pets),
    (Annotated[Annotated[Leaf, Tag("even")] | Annotated[Leaf, Tag("odd")], Discriminator(_even)], leaves),
    (Point, st.builds(Point, x=st.integers(), y=floats)),
    (Pair, st.builds(Pair, left=st.text(max_size=3), right=st.integers())),
    (JsonValue, json_values),
    (Any, json_values),
    (Json[list[int]], st.just("[1, 2]")),
    (AnyUrl, st.sampled_from(["https://example.com/a?b#c", "file:///etc/x", "mailto:a@b.c"])),
    (IPvAnyAddress, st.ip_addresses()),
]


def rules_for(annotation: Any) -> FieldRules:
    schema = ValueCodec[Any](annotation, CONFIG).json_schema()
    layout = Layout(title="M", fields=(FieldLayout(name="f", kind="scalar", json_schema=schema),))
    check_layout(layout)
    return rules_of(layout).at("f")


@pytest.mark.parametrize(("annotation", "values"), TYPES, ids=range(len(TYPES)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data())
def test_what_the_model_writes_passes(annotation: Any, values: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """The wire form of every value that a field accepts keeps the field's rules."""
    codec, rules = ValueCodec[Any](annotation, CONFIG), rules_for(annotation)
    try:
        wire = codec.to_wire(data.draw(values), "f")
    except InvalidValue:
        return
    assert rules.check_value(wire, "f") is None
    assert rules.check_value(printed_wire(wire), "f") is None


READABLE = [each for each in TYPES if each[0] not in (Lookahead, Tree, dict[int, str])]  # no schema says more of these
foreign = json_values | st.sampled_from(
    ["2024-02-30", "2024-05-01", "25:00", "12:30", "P1D", "1.5", "x", "AAAA", "A", "9" * 20, "-" + "9" * 20, "[1]"]
)


@pytest.mark.parametrize("annotation", [each[0] for each in READABLE], ids=range(len(READABLE)))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(wire=foreign)
def test_what_passes_can_be_read(annotation: Any, wire: Any) -> None:
    """What another client wrote and the rules let pass is not answered with InvalidValue when it is read."""
    if isinstance(annotation, type(Annotated[str, 1])) and isinstance(annotation.__metadata__[0], Discriminator):
        return  # how the members of this union are told apart is known to the model only
    if rules_for(annotation).check_value(wire, "f") is None and not _is_hidden(annotation):
        ValueCodec[Any](annotation, CONFIG).decode(wire, "f")


def _is_hidden(annotation: Any) -> bool:
    """Rules that no JSON Schema holds: what is inside a text of JSON, and patterns of Python."""
    return annotation == Json[list[int]] or "re.compile" in str(annotation)


REFUSED: list[tuple[Any, Any, str, str, str]] = [
    (Annotated[int, Ge(0), Le(10)], 11, "f", "maximum", "11 is greater than the maximum of 10"),
    (int, "five", "f", "format", '"five" is not of the form: integer'),
    (int, None, "f", "anyOf", "None is none of what is allowed here"),
    (Annotated[int, Ge(0)], "-9999999999999999999", "f", "bounds", '"-9999999999999999999" is out of its bounds'),
    (Literal["a", "b"], "c", "f", "enum", '"c" is not one of "a" or "b"'),
    (Color, "green", "f", "enum", '"green" is not one of "red" or "blue"'),
    (datetime, "soon", "f", "format", '"soon" is not of the form: date-time'),
    (AwareDatetime, "2024-05-01T12:00:00", "f", "bounds", '"2024-05-01T12:00:00" is out of its bounds'),
    (date, "2024-02-30", "f", "format", '"2024-02-30" is not of the form: date'),
    (Decimal, "1,5", "f", "format", '"1,5" is not of the form: decimal'),
    (Decimal, 1.5, "f", "type", '1.5 is not of type "string"'),
    (Annotated[Decimal, Ge(1)], "0.5", "f", "bounds", '"0.5" is out of its bounds'),
    (UUID, "7", "f", "format", '"7" is not of the form: uuid'),
    (bytes, "é", "f", "format", '"é" is not of the form: base64url'),
    (Annotated[str, Field(pattern="^a$")], "b", "f", "pattern", '"b" does not match ^a$'),
    (Annotated[float, MultipleOf(0.5)], 0.3, "f", "multipleOf", "0.3 is not a multiple of 0.5"),
    (tuple[int, str], [1], "f", "minItems", "[1] has less than 2 items"),
    (frozenset[str], ["a", "a"], "f", "uniqueItems", '["a","a"] has non-unique elements'),
    (Leaf, {"at": "soon"}, "f/at", "format", '"soon" is not of the form: date-time'),
    (Leaf | None, {"at": "soon"}, "f/at", "format", '"soon" is not of the form: date-time'),
    (Leaf, {}, "f", "required", '"at" is a required property'),
    (Tree, {"children": [{"title": 5}]}, "f/children/0/title", "type", '5 is not of type "string"'),
]


@pytest.mark.parametrize(("annotation", "wire", "path", "rule", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_refusal_says_where_and_why(annotation: Any, wire: Any, path: str, rule: str, message: str) -> None:
    """V10: a value that breaks a rule is answered with its path, the rule and one short sentence."""
    problem = rules_for(annotation).check_value(wire, "f")
    assert problem is not None
    assert (problem.path, problem.rule, problem.message) == (path, rule, message)
    with pytest.raises((InvalidValue, ValidationError)):
        raise problem.error()


def test_a_refusal_of_a_large_value_is_short() -> None:
    """The message of a refusal does not repeat a value of megabytes."""
    problem = rules_for(Annotated[str, MaxLen(5)]).check_value("x" * 1_000_000, "f")
    assert problem is not None
    assert len(problem.message) < 400


class Finding(BoardModel):
    title: Annotated[str, Field(max_length=5)] = ""
    severity: Annotated[int, Field(ge=0, le=10)] = 0
    notes: Text
    seen: Counter
    tags: set[Color] = set()
    parts: dict[str, Finding2] = {}


class Finding2(BoardModel):
    rate: Annotated[float, Field(ge=0)] = 0.0


class Board(BoardModel):
    plan: list[Annotated[str, Field(max_length=3)]] = []
    colors: set[Color] = set()
    scores: dict[str, Annotated[int, Field(le=3)]] = {}
    draft: Text
    spent: Counter
    findings: dict[str, Finding] = {}


BOARD_CASES: list[tuple[str, Any, str | None]] = [
    ("plan", "abc", None),
    ("plan", "abcd", "f"),
    ("colors", "red", None),
    ("colors", "green", "f"),
    ("scores", 3, None),
    ("scores", 4, "f"),
    ("draft", "any", None),
    ("spent", 5, None),
    ("spent", 5.0, None),
    ("spent", True, "f"),
    ("spent", 2**53, "f"),
    ("findings", {"title": "cast", "severity": 10, "notes": "n", "seen": 2, "tags": ["red"]}, None),
    ("findings", {}, None),
    ("findings", "no record", "f"),
    ("findings", {"title": "too long"}, "f/title"),
    ("findings", {"other": 1}, "f/other"),
    ("findings", {"tags": ["red", "green"]}, "f/tags/1"),
    ("findings", {"parts": {"a/b": {"rate": -1}}}, "f/parts/a~1b/rate"),
    ("findings", {"parts": {"a": 1}}, "f/parts/a"),
    ("findings/k/severity", 11, "f"),
    ("findings/k/tags", "green", "f"),
    ("findings/k/parts", {"rate": -1}, "f/rate"),
    ("findings/k/parts/l/rate", -1, "f"),
]


@pytest.mark.parametrize(("field", "wire", "path"), BOARD_CASES, ids=range(len(BOARD_CASES)))
def test_values_inside_containers_are_checked(field: str, wire: Any, path: str | None) -> None:
    """One item, one key of a dict, one record and one value in it are checked by the rules of their own place."""
    check_layout(Board.board_layout())
    problem = rules_of(Board.board_layout()).at(field).check_value(wire, "f", "key")
    assert (problem and problem.path) == path


def sized(kind: Any, schema: dict[str, Any]) -> FieldRules:
    layout = Layout(title="M", fields=(FieldLayout(name="f", kind=kind, json_schema=schema),))
    check_layout(layout)
    return rules_of(layout).at("f")


def test_the_size_of_a_field_is_a_rule_of_its_own() -> None:
    """How many items, keys or characters a field holds is checked apart from what they are."""
    plan = sized("list", {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3})
    assert plan.check_value("one", "f/0") is None
    assert plan.size_max == 3
    for count, rule in ((1, "minItems"), (2, None), (3, None), (4, "maxItems")):
        problem = plan.check_whole(["x"] * count, "f")
        assert (problem and problem.rule) == rule
    assert "at most 3" in str(plan.check_size(4, "f"))
    draft = sized("text", {"type": "string", "maxLength": 2})
    assert draft.check_whole("é😀", "f") is None
    assert draft.check_whole("abc", "f") is not None
    named = sized(
        "set", {"$ref": "#/$defs/T", "$defs": {"T": {"type": "array", "maxItems": 1, "items": {"enum": [1]}}}}
    )
    assert named.check_size(2, "f") is not None
    assert named.check_value(2, "f") is not None
    keyed = sized("dict", {"type": "object", "propertyNames": {"maxLength": 1}, "maxProperties": 1})
    assert keyed.check_value(1, "f/k", "k") is None
    assert keyed.check_value(1, "f/kk", "kk") is not None
    assert keyed.check_all({"a": 1, "b": 1}, "f") is not None
    counted = sized("counter", {"type": "integer", "maximum": 5})
    assert counted.check_whole(6, "f") is not None


_CHAIN = {f"A{n}": {"anyOf": [{"$ref": f"#/$defs/A{n + 1}"}] * 2} for n in range(40)} | {"A40": {"type": "string"}}
_DEEP: dict[str, Any] = {}
for _ in range(150):
    _DEEP = {"items": _DEEP}

HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("remote", {"$ref": "http://127.0.0.1:9/schema.json"}),
    ("file", {"$ref": "file:///etc/passwd"}),
    ("missing", {"$ref": "#/$defs/Gone"}),
    ("elsewhere", {"$ref": "#/properties/x"}),
    ("exponential", {"$ref": "#/$defs/A0", "$defs": _CHAIN}),
    ("deep", _DEEP),
    ("type", {"type": "text"}),
    ("types", {"type": []}),
    ("number", {"minimum": "1"}),
    ("count", {"minLength": -1}),
    ("enum", {"enum": "abc"}),
    ("properties", {"properties": [1]}),
    ("no schema", {"items": 5}),
    ("no union", {"anyOf": []}),
    ("required", {"required": "a"}),
    ("unique", {"uniqueItems": 1}),
    ("multiple", {"multipleOf": 0}),
    ("order", {"x-order": {"type": "nothing"}}),
    ("order bounds", {"x-order": {"type": "date", "ge": "x"}}),
    ("definitions", {"$defs": 1, "$ref": "#/$defs/a"}),
    ("bad pattern", {"pattern": "(a"}),
    ("look-ahead", {"pattern": "(?=a)b"}),
    ("pattern bomb", {"pattern": "((((a{100}){100}){100}){100}){100}"}),
    ("long pattern", {"pattern": "a" * 2_000}),
    ("many patterns", {"anyOf": [{"pattern": f"^{n}$"} for n in range(200)]}),
    ("no pattern", {"pattern": 5}),
]


@pytest.mark.parametrize(("schema"), [each[1] for each in HOSTILE], ids=[each[0] for each in HOSTILE])
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any]) -> None:
    """H2: a layout of a peer whose schema is malformed or hostile is refused, naming the field; nothing is fetched."""
    inner = FieldLayout(name="f", kind="scalar", json_schema=schema)
    for field in (inner, FieldLayout(name="r", kind="records", json_schema={"type": "object"}, fields=(inner,))):
        layout = Layout(title="M", fields=(field,))
        with pytest.raises(ModelError) as caught:
            check_layout(layout)
        assert caught.value.field == field.name
        assert len(str(caught.value)) < 1_000
        # Where it is stored already, the field is not checked, and nothing stops.
        rules_of(layout).by_name[field.name].check_value("x", "f")


def test_a_layout_has_a_size() -> None:
    """A layout of megabytes is refused."""
    field = FieldLayout(name="f", kind="scalar", json_schema={"enum": ["x" * 2_000_000]})
    with pytest.raises(ModelError):
        check_layout(Layout(title="M", fields=(field,)))


def test_a_type_in_itself_is_checked_two_levels_deep_and_then_ends() -> None:
    """A schema that refers to itself neither loops nor grows."""
    rules = rules_for(Tree)
    deep: Any = {"title": "x"}
    for _ in range(50):
        deep = {"title": "x", "children": [deep]}
    assert rules.check_value(deep, "f") is None
    loop = sized("scalar", {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}})
    assert loop.check_value(string.ascii_letters, "f") is None


def test_rules_are_shared_by_equal_layouts() -> None:
    """Rules are compiled once for a layout, however often it is read from the store."""
    layout = Board.board_layout()
    again = Layout.model_validate_json(layout.model_dump_json())
    assert rules_of(layout) is rules_of(again)
